//! Completions and manual pages, from the same definitions that the command parses by.

use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::command::{Btrfs, Vlinder};
use crate::failure::{Failure, Status};

/// Write manual pages or completions into a directory.
///
/// Completions are for bash, zsh, fish and elvish.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder generate man /usr/local/share/man/man1\n  vlinder generate completions completions"
)]
pub struct Arguments {
    /// What to write.
    what: What,
    /// Where to.
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

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<Status, Failure> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory).map_err(|error| Failure::host(&error, directory.display()))?;
    match arguments.what {
        What::Man => manual(Vlinder::command(), "vlinder", directory)?,
        What::Completions => {
            for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish] {
                for (mut command, name) in [(Vlinder::command(), "vlinder"), (Btrfs::command(), "btrfs")] {
                    let file = clap_complete::generate_to(shell, &mut command, name, directory);
                    file.map_err(|error| Failure::host(&error, directory.display()))?;
                }
            }
        }
    }
    Ok(Status::Done)
}

/// One page for the command and each verb: `vlinder.1`, `vlinder-subvolume-list.1`, ….
fn manual(command: Command, name: &str, directory: &Path) -> Result<(), Failure> {
    let mut command = command.name(name.to_owned());
    command.build();
    page(&command, name, directory)
}

fn page(command: &Command, name: &str, directory: &Path) -> Result<(), Failure> {
    let mut text = Vec::new();
    let path = directory.join(format!("{name}.1"));
    let result =
        clap_mangen::Man::new(command.clone().name(name.to_owned()).display_name(name.replace('-', " ")))
            .title(name)
            .render(&mut text);
    result
        .and_then(|()| std::fs::write(&path, &text))
        .map_err(|error| Failure::host(&error, path.display()))?;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        page(below, &format!("{name}-{}", below.get_name()), directory)?;
    }
    Ok(())
}
