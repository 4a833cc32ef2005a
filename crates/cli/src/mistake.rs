//! What is said of a command line that makes no sense, where the parser's own words would mislead.

use std::ffi::OsString;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use vlinder_places::failure::Failure;
use vlinder_places::session::Program;

/// What a verb of btrfs-progs works on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    /// A file system that the kernel has mounted.
    Kernel,
    /// Anything.
    Any,
}

/// The verbs of btrfs-progs that have no counterpart yet: family, name.
const NOT_THERE_YET: [(&str, &str, On); 16] = [
    ("", "balance", On::Kernel),
    ("", "device", On::Any),
    ("", "qgroup", On::Kernel),
    ("", "quota", On::Kernel),
    ("", "replace", On::Kernel),
    ("", "rescue", On::Any),
    ("", "scrub", On::Kernel),
    ("filesystem", "balance", On::Kernel),
    ("filesystem", "defragment", On::Kernel),
    ("filesystem", "mkswapfile", On::Kernel),
    ("filesystem", "resize", On::Kernel),
    ("filesystem", "show", On::Any),
    ("inspect-internal", "list-chunks", On::Kernel),
    ("inspect-internal", "map-swapfile", On::Kernel),
    ("inspect-internal", "min-dev-size", On::Kernel),
    ("inspect-internal", "subvolid-resolve", On::Kernel),
];

/// Other names for what the program does under its own, and what to write.
const OTHERWISE: [(&str, &str); 2] =
    [("fsck", "check looks for damage"), ("version", "--version prints the version of vlinder")];

/// Whether the parser met a verb or a flag that is not there.
pub fn is_unknown(error: &clap::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument)
}

/// A verb of btrfs-progs, by its name or the beginning of it, that was asked for in vain, or one that goes by
/// another name.
pub fn unknown_verb(
    error: &clap::Error,
    command: &Command,
    arguments: &[OsString],
    program: Program,
) -> Option<Failure> {
    let Some(ContextValue::String(asked)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    if error.kind() != ErrorKind::InvalidSubcommand {
        return None;
    }
    let name = program.name();
    let family = family(command, arguments, asked);
    let elsewhere = if program == Program::Btrfs { "; or use the btrfs of btrfs-progs" } else { "" };
    if let Some((other, hint)) = OTHERWISE.iter().find(|(other, _)| family.is_empty() && asked == other) {
        let failure = Failure::usage(format!("there is no verb {other}"));
        return Some(failure.hint(format!("{name} {hint}{elsewhere}")));
    }
    let is_meant = |verb: &str| verb.starts_with(asked.as_str()) && (asked.len() > 2 || verb == asked);
    let found = NOT_THERE_YET.iter().find(|(of, verb, _)| *of == family && is_meant(verb));
    let (_, verb, on) = found?;
    let failure = Failure::usage(format!("{} is not there yet", format!("{family} {verb}").trim_start()));
    let needs = if *on == On::Kernel { ", on a file system that the kernel has mounted" } else { "" };
    Some(
        failure.hint(format!(
            "use the btrfs of btrfs-progs{needs}; {name} --help lists the verbs that are there"
        )),
    )
}

/// The verb, or the family of verbs, in which the parser looked for what was asked; empty for the program
/// itself.
fn family(command: &Command, arguments: &[OsString], asked: &str) -> String {
    let mut names = Vec::new();
    let mut command = command;
    for word in arguments.iter().skip(1).filter_map(|word| word.to_str()).take_while(|word| *word != asked) {
        if let Some(below) = below(command, word) {
            names.push(below.get_name());
            command = below;
        }
    }
    names.join(" ")
}

/// The verb that a word names, as the parser finds it: by a whole name, or by the beginning of a single one.
fn below<'a>(command: &'a Command, word: &str) -> Option<&'a Command> {
    let begins = |below: &&Command| {
        below.get_name().starts_with(word) || below.get_all_aliases().any(|alias| alias.starts_with(word))
    };
    let mut candidates = command.get_subcommands().filter(begins);
    let found = (candidates.next(), candidates.next());
    command.find_subcommand(word).or(if let (Some(one), None) = found { Some(one) } else { None })
}

/// Where one argument takes several values of which the last has a name of its own, the parser writes the
/// dots behind that.
pub fn with_several_marked(mut error: clap::Error) -> clap::Error {
    let marked = |text: &str| match text.strip_suffix(">...").and_then(|text| text.rsplit_once("> <")) {
        Some((several, last)) => format!("{several}>... <{last}>"),
        None => text.to_owned(),
    };
    let value = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(text)) => ContextValue::String(marked(text)),
        Some(ContextValue::Strings(texts)) => {
            ContextValue::Strings(texts.iter().map(|text| marked(text)).collect())
        }
        _ => return error,
    };
    error.insert(ContextKind::InvalidArg, value);
    error
}
