//! The programs that the binary can be called as, and their verbs.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, CommandFactory, Parser, Subcommand};
use vlinder_examine::{check, inspect, restore};
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::session::{Format, Program, Session};

use crate::{
    diff, files, filesystem, fsck, fstrim, generate, mistake, mkfs, mount, other_btrfs, property, receive,
    send, stats, stream, subvolume, umount, version,
};

/// Btrfs without the kernel: create, read, write, snapshot, check and mount images in the real Btrfs format.
///
/// TARGET is IMAGE:/PATH, a path in an image, or a path of the host or of a mounted file system. A colon in
/// the image's name that is followed by / is written \:, a backslash \\.
///
/// IMAGE@NUMBER is a partition of a disk image, IMAGE@START+LENGTH a range of its bytes, where no file has
/// that name (\@ is an @). Without it the whole is meant, or else the only partition with a Btrfs.
///
/// Exit status: 0 done, 1 failed or findings, 2 the command line makes no sense, 3 done in part.
#[derive(Parser, Debug)]
#[command(name = "vlinder", version, infer_subcommands = true, max_term_width = 110)]
#[command(propagate_version = true, subcommand_required = true, arg_required_else_help = true)]
pub struct Vlinder {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: Verb,
}

/// Manage Btrfs images and mounts, with the verbs and flags of btrfs-progs (by vlinder).
#[derive(Parser, Debug)]
#[command(name = "btrfs", version, infer_subcommands = true, max_term_width = 110)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Btrfs {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: ProgsVerb,
}

/// The verbs of `btrfs`.
// A verb is described where its arguments are: a comment here would take the place of that description.
#[derive(Subcommand, Debug)]
enum ProgsVerb {
    #[command(flatten)]
    Shared(BtrfsVerb),
    Version(version::VersionArguments),
}

/// Make a Btrfs file system on a file or block device (by vlinder).
#[derive(Parser, Debug)]
#[command(name = "mkfs.btrfs", version, disable_version_flag = true, max_term_width = 110)]
struct MakeFileSystem {
    /// Print the version.
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: (),
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    arguments: mkfs::MkfsArguments,
}

/// Flags that every verb takes.
#[derive(Args, Debug, Clone, Copy)]
pub struct Global {
    /// Print one JSON object instead of text.
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
    /// The form of the output as btrfs-progs has it: text or json (filesystem df alone).
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        default_value = "text",
        hide_default_value = true,
        hide_possible_values = true,
        help_heading = "Global options"
    )]
    format: Format,
    /// Print only errors.
    #[arg(long, global = true, help_heading = "Global options")]
    quiet: bool,
    /// Tell more.
    #[arg(long, global = true, help_heading = "Global options")]
    verbose: bool,
    #[arg(short = 'q', hide = true)]
    quiet_short: bool,
    #[arg(short = 'v', hide = true)]
    verbose_short: bool,
}

impl Global {
    /// With what the verb's own flags say of it.
    fn with_quiet(self, asks_for_quiet: bool) -> Self {
        Self { quiet: self.quiet || asks_for_quiet, ..self }
    }
}

/// The verbs of `vlinder`.
// A verb is described where its arguments are: a comment here would take the place of that description.
#[derive(Subcommand, Debug)]
pub enum Verb {
    Mkfs(mkfs::MkfsArguments),
    Mount(mount::MountArguments),
    Umount(umount::UmountArguments),
    #[command(flatten)]
    Files(files::FileVerb),
    #[command(flatten)]
    Btrfs(BtrfsVerb),
    Diff(diff::DiffArguments),
    Fstrim(fstrim::TrimArguments),
    Stats(stats::StatsArguments),
    /// Look into streams of btrfs send: list, read, extract and verify them, without any Btrfs.
    #[command(subcommand, subcommand_required = true, arg_required_else_help = true)]
    Stream(stream::StreamVerb),
    Generate(generate::GenerateArguments),
}

/// The verbs of `btrfs`, which `vlinder` has too.
// A verb is described where its arguments are: a comment here would take the place of that description.
#[derive(Subcommand, Debug)]
pub enum BtrfsVerb {
    /// Make, list, delete and snapshot subvolumes.
    #[command(subcommand, subcommand_required = true, arg_required_else_help = true)]
    Subvolume(subvolume::SubvolumeVerb),
    /// Show and change whole file systems.
    #[command(subcommand, alias = "fi", subcommand_required = true, arg_required_else_help = true)]
    Filesystem(filesystem::FilesystemVerb),
    /// Show and set properties: ro, label, compression.
    #[command(subcommand, subcommand_required = true, arg_required_else_help = true)]
    Property(property::PropertyVerb),
    Check(check::CheckArguments),
    Restore(Box<restore::RestoreArguments>),
    Send(send::SendArguments),
    Receive(receive::ReceiveArguments),
    /// Look at what lies on disk.
    #[command(
        subcommand,
        name = "inspect-internal",
        subcommand_required = true,
        arg_required_else_help = true
    )]
    Inspect(inspect::InspectVerb),
}

impl BtrfsVerb {
    /// Whether a verb was given btrfs-progs' own flag for being quiet, which comes behind its name.
    fn asks_for_quiet(&self) -> bool {
        match self {
            Self::Send(arguments) => arguments.quiet_short,
            Self::Receive(arguments) => arguments.quiet_short,
            _ => false,
        }
    }
}

/// Runs the program that the call name asks for.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    let called = arguments.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    let code = match called.to_str() {
        Some("fsck.btrfs") => fsck::main(&arguments),
        Some("mkfs.btrfs") => parse::<MakeFileSystem>(Program::MakeFileSystem, &arguments, |program, _| {
            let session = Session::new(Program::MakeFileSystem, "mkfs".to_owned(), program.json, false);
            session.end(mkfs::run(&program.arguments, &session))
        }),
        Some("mount.fuse.vlinder") => {
            parse::<mount::HelperArguments>(Program::MountHelper, &arguments, |program, _| {
                let session = Session::new(Program::MountHelper, "mount".to_owned(), false, false);
                let mounted = program.into_arguments().map(|arguments| mount::mount(&arguments, &session));
                session.end(mounted.unwrap_or(Ok(ExitStatus::Done)))
            })
        }
        Some("umount.fuse.vlinder") => {
            parse::<umount::UmountHelperArguments>(Program::MountHelper, &arguments, |program, _| {
                let session = Session::new(Program::MountHelper, "umount".to_owned(), false, false);
                let arguments = program.into_arguments();
                session.end(arguments.and_then(|arguments| umount::umount(&arguments, &session)))
            })
        }
        Some("btrfs") => parse::<Btrfs>(Program::Btrfs, &arguments, |program, verb| {
            let asks_for_quiet = matches!(&program.verb, ProgsVerb::Shared(verb) if verb.asks_for_quiet());
            let global = program.global.with_quiet(asks_for_quiet);
            run(Program::Btrfs, global, verb, |session| match &program.verb {
                ProgsVerb::Shared(verb) => dispatch_btrfs(verb, session),
                ProgsVerb::Version(_) => version::run(session),
            })
        }),
        _ => parse::<Vlinder>(Program::Vlinder, &arguments, |program, verb| {
            let asks_for_quiet = matches!(&program.verb, Verb::Btrfs(verb) if verb.asks_for_quiet());
            let global = program.global.with_quiet(asks_for_quiet);
            run(Program::Vlinder, global, verb, |session| dispatch(&program.verb, session))
        }),
    };
    ExitCode::from(code)
}

/// Parses the arguments and hands them on, with the verb's name.
fn parse<P: Parser>(program: Program, arguments: &[OsString], go: impl Fn(P, String) -> u8) -> u8 {
    let mut command = as_called(P::command(), program);
    let matches = command.try_get_matches_from_mut(arguments);
    if program == Program::Btrfs {
        match &matches {
            Ok(matches) => other_btrfs::hand_on_foreign(&command, matches, arguments),
            Err(error) if mistake::is_unknown(error) => other_btrfs::hand_on_unknown(arguments),
            Err(_) => {}
        }
    }
    let parsed = matches.and_then(|matches| {
        let verb = verb_name(&matches);
        P::from_arg_matches(&matches).map(|parsed| (verb, parsed))
    });
    match parsed {
        Ok((verb, parsed)) => go(parsed, verb),
        Err(error) if program == Program::Btrfs && error.kind() == ErrorKind::DisplayVersion => {
            let session = Session::new(program, "version".to_owned(), false, false);
            session.end(version::run(&session))
        }
        Err(error) => {
            if let Some(failure) = mistake::unknown_verb(&error, &command, arguments, program) {
                eprintln!("{}{failure}", program.error_prefix());
                return program.code(ExitStatus::Usage);
            }
            let error = mistake::with_several_marked(error);
            // Help and version are asked for; anything else is a mistake of usage, told on standard error.
            let status = if error.use_stderr() { ExitStatus::Usage } else { ExitStatus::Done };
            if program == Program::Btrfs && error.use_stderr() {
                let text = error.to_string();
                eprint!("{}{}", program.error_prefix(), text.strip_prefix("error: ").unwrap_or(&text));
            } else {
                let _ = error.print();
            }
            program.code(status)
        }
    }
}

/// The definition with its examples under the name that the program was called by.
fn as_called(command: Command, program: Program) -> Command {
    if !matches!(program, Program::Btrfs | Program::MakeFileSystem) {
        return command;
    }
    let examples = command.get_after_help().map(ToString::to_string);
    let command = match examples {
        Some(text) => command.after_help(
            text.replace("\n  vlinder mkfs", "\n  mkfs.btrfs").replace("\n  vlinder ", "\n  btrfs "),
        ),
        None => command,
    };
    command.mut_subcommands(|below| as_called(below, program))
}

fn run(
    program: Program,
    global: Global,
    name: String,
    dispatch: impl FnOnce(&Session) -> Result<ExitStatus, Failure>,
) -> u8 {
    let quiet = global.quiet || global.quiet_short;
    let mut session = Session::new(program, name, global.json, quiet);
    let result = session.choose(global.format).and_then(|()| dispatch(&session));
    session.end(result)
}

/// The verb as the JSON schemas name it: `subvolume-list`.
fn verb_name(matches: &ArgMatches) -> String {
    let mut names = Vec::new();
    let mut matches = matches;
    while let Some((name, below)) = matches.subcommand() {
        names.push(name);
        matches = below;
    }
    names.join("-")
}

fn dispatch(verb: &Verb, session: &Session) -> Result<ExitStatus, Failure> {
    match verb {
        Verb::Files(verb) => files::run(verb, session),
        Verb::Btrfs(verb) => dispatch_btrfs(verb, session),
        Verb::Mkfs(arguments) => mkfs::run(arguments, session),
        Verb::Mount(arguments) => mount::mount(arguments, session),
        Verb::Umount(arguments) => umount::umount(arguments, session),
        Verb::Diff(arguments) => diff::run(arguments, session),
        Verb::Fstrim(arguments) => fstrim::run(arguments, session),
        Verb::Stats(arguments) => stats::run(arguments, session),
        Verb::Stream(verb) => stream::run(verb, session),
        Verb::Generate(arguments) => generate::run(arguments, Vlinder::command(), Btrfs::command()),
    }
}

fn dispatch_btrfs(verb: &BtrfsVerb, session: &Session) -> Result<ExitStatus, Failure> {
    match verb {
        BtrfsVerb::Inspect(verb) => inspect::run(verb, session),
        BtrfsVerb::Check(arguments) => check::run(arguments, session),
        BtrfsVerb::Restore(arguments) => restore::run(arguments, session),
        BtrfsVerb::Send(arguments) => send::run(arguments, session),
        BtrfsVerb::Receive(arguments) => receive::run(arguments, session),
        BtrfsVerb::Subvolume(verb) => subvolume::run(verb, session),
        BtrfsVerb::Filesystem(verb) => filesystem::run(verb, session),
        BtrfsVerb::Property(verb) => property::run(verb, session),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(command: &clap::Command, path: &str, visit: &mut dyn FnMut(&str, &clap::Command)) {
        for below in
            command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set())
        {
            let path = format!("{path} {}", below.get_name());
            if below.has_subcommands() {
                walk(below, &path, visit);
            } else {
                visit(&path, below);
            }
        }
    }

    #[test]
    fn the_definitions_hold_together() {
        Vlinder::command().debug_assert();
        Btrfs::command().debug_assert();
        MakeFileSystem::command().debug_assert();
        mount::HelperArguments::command().debug_assert();
        umount::UmountHelperArguments::command().debug_assert();
    }

    #[test]
    fn every_verb_has_help_and_an_example() {
        let mut verbs = 0;
        let command = Vlinder::command();
        walk(&command, "vlinder", &mut |path, verb| {
            verbs += 1;
            assert!(verb.get_about().is_some(), "{path} has no help");
            let example = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(example.contains(path), "{path} has no example: {example:?}");
            for argument in verb.get_arguments().filter(|argument| !argument.is_hide_set()) {
                assert!(argument.get_help().is_some(), "{path}: {} has no help", argument.get_id());
            }
        });
        assert!(verbs > 10, "{verbs}");
    }
}
