//! Completions and manual pages, from the same definitions that the command parses by.

mod bash;

use std::any::TypeId;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Arg, Args, Command, ValueEnum, ValueHint};
use clap_complete::aot::{Elvish, Fish, Generator, Zsh, generate_to};
use vlinder_places::failure::{ExitStatus, Failure};

/// Write manual pages or completions into a directory.
///
/// Completions are for bash, zsh, fish and elvish. To have them in bash from the next shell on, put a line
/// "source DIRECTORY/vlinder.bash" into ~/.bashrc; in zsh, add DIRECTORY to fpath before compinit.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder generate man /usr/local/share/man/man1\n  vlinder generate completions ~/.completions && echo 'source ~/.completions/vlinder.bash' >> ~/.bashrc"
)]
pub struct GenerateArguments {
    /// What to write.
    what: What,
    /// Where to.
    #[arg(value_hint = ValueHint::DirPath)]
    directory: PathBuf,
}

/// What can be generated.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum What {
    /// Manual pages.
    Man,
    /// Completions for bash, zsh, fish and elvish.
    Completions,
}

/// Runs the verb: `vlinder` has manual pages, and both programs have completions.
pub fn run(arguments: &GenerateArguments, vlinder: Command, btrfs: Command) -> Result<ExitStatus, Failure> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory).map_err(|error| Failure::host(&error, directory.display()))?;
    match arguments.what {
        What::Man => manual(vlinder, "vlinder", directory)?,
        What::Completions => {
            for (command, name) in [(vlinder, "vlinder"), (btrfs, "btrfs")] {
                let command = with_paths(command);
                completions(bash::Bash, &command, name, directory)?;
                completions(Zsh, &command, name, directory)?;
                completions(Fish, &command, name, directory)?;
                completions(Elvish, &command, name, directory)?;
            }
        }
    }
    Ok(ExitStatus::Done)
}

fn completions(
    shell: impl Generator,
    command: &Command,
    name: &str,
    directory: &Path,
) -> Result<(), Failure> {
    let file = generate_to(shell, &mut command.clone(), name, directory);
    file.map(drop).map_err(|error| Failure::host(&error, directory.display()))
}

/// With a hint of paths on every argument of any bytes whose definition has none: nearly all are targets.
fn with_paths(command: Command) -> Command {
    let hinted = |argument: Arg| {
        let is_target = argument.is_positional()
            && argument.get_value_hint() == ValueHint::Unknown
            && argument.get_value_parser().type_id() == TypeId::of::<OsString>();
        if is_target { argument.value_hint(ValueHint::AnyPath) } else { argument }
    };
    command.mut_args(hinted).mut_subcommands(with_paths)
}

/// One page for the command and each verb: `vlinder.1`, `vlinder-subvolume-list.1`, ….
fn manual(command: Command, name: &str, directory: &Path) -> Result<(), Failure> {
    let mut command = command.name(name.to_owned());
    command.build();
    page(&command, name, directory)
}

/// A page whose section `EXTRA`, which is what clap_mangen makes of text behind the options, is called as
/// man-pages(7) has it: `NOTES`, and `EXAMPLES` from the line on that says so.
fn with_examples(page: &str) -> String {
    let mut is_extra = false;
    let mut lines = Vec::new();
    for line in page.lines() {
        if line.starts_with(".SH ") {
            is_extra = line == ".SH EXTRA";
        }
        match line {
            ".SH EXTRA" => lines.push(".SH NOTES"),
            "Example:" | "Examples:" if is_extra => {
                if lines.last() == Some(&".SH NOTES") {
                    lines.pop();
                }
                lines.push(".SH EXAMPLES");
            }
            _ => lines.push(line),
        }
    }
    lines.join("\n") + "\n"
}

fn page(command: &Command, name: &str, directory: &Path) -> Result<(), Failure> {
    let mut text = Vec::new();
    let path = directory.join(format!("{name}.1"));
    let result =
        clap_mangen::Man::new(command.clone().name(name.to_owned()).display_name(name.replace('-', " ")))
            .title(name)
            .render(&mut text);
    let text = with_examples(&String::from_utf8_lossy(&text));
    result
        .and_then(|()| std::fs::write(&path, &text))
        .map_err(|error| Failure::host(&error, path.display()))?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        page(below, &format!("{name}-{}", below.get_name()), directory)?;
    }
    Ok(())
}
