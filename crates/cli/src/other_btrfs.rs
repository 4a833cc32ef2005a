//! The next `btrfs` in PATH, which is mostly that of btrfs-progs. Under the name `btrfs` this program runs it
//! in place of itself for what it has no answer to, so that a link of that name may stand first in PATH and
//! hide nothing:
//!
//! | command line | goes on |
//! |---|---|
//! | a verb or a flag that this program does not have | yes, unless an operand is [guarded](is_guarded) |
//! | a verb that it has, on paths that are all [foreign](is_foreign) | yes |
//! | the same, with a path of an image or of a mount of vlinder's among them | no: it fails for the others |
//! | any, with `--json`, which is this program's own | no |
//!
//! A call ends even where every `btrfs` in PATH hands calls on: each one adds itself to a list in the
//! environment, and runs none that is in the list.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Command};
use rustix::fs::{Access, AtFlags, CWD};
use vlinder_control::MountEntry;
use vlinder_device::{DeviceErrorKind, FileDevice, OpenOptions};
use vlinder_partitions::{ImageName, NamedPart};
use vlinder_places::place::host::has_filesystem;
use vlinder_places::target::Target;

/// The programs that a call went through, as `DEVICE:INODE` joined by commas.
const PASSED: &str = "VLINDER_BTRFS_PASSED";

/// What the verbs' definitions call an argument that names something in a file system. The others that have
/// no flag are numbers, names and values, or images ([`IMAGES`]).
const OPERANDS: [&str; 5] = ["target", "targets", "source", "subvolume", "arguments"];

/// What they call an argument that is an image as such: a verb that has one is for images alone.
const IMAGES: [&str; 2] = ["image", "images"];

/// Hands a command line on that the parser refused for a verb or a flag that is not there. Returns where that
/// can't be.
pub fn hand_on_unknown(arguments: &[OsString]) {
    if !words_behind_the_verb(arguments).any(is_guarded) {
        hand_on(arguments);
    }
}

/// The words of a command line that are no flags, but for the first one: that is a verb or a family of verbs,
/// though a file of this directory may have its name.
fn words_behind_the_verb(arguments: &[OsString]) -> impl Iterator<Item = &OsStr> {
    let words = arguments.iter().skip(1).map(OsString::as_os_str);
    words.filter(|word| !word.as_bytes().starts_with(b"-")).skip(1)
}

/// Hands a command line on that the parser took, if all that it names is foreign. Returns where that is not
/// so, or can't be.
pub fn hand_on_foreign(command: &Command, matches: &ArgMatches, arguments: &[OsString]) {
    let operands = operands(command, matches);
    if !operands.is_empty() && operands.iter().all(|operand| is_foreign(operand)) {
        hand_on(arguments);
    }
}

/// What the arguments of a verb name in file systems.
fn operands(mut command: &Command, mut matches: &ArgMatches) -> Vec<OsString> {
    while let Some((name, below)) = matches.subcommand() {
        let Some(verb) = command.find_subcommand(name) else { return Vec::new() };
        (command, matches) = (verb, below);
    }
    let ids: Vec<&str> = command.get_positionals().map(|argument| argument.get_id().as_str()).collect();
    if ids.iter().any(|id| IMAGES.contains(id)) {
        return Vec::new();
    }
    let values =
        |id: &str| matches.get_raw(id).into_iter().flatten().map(OsStr::to_owned).collect::<Vec<_>>();
    let mut operands = Vec::new();
    for id in ids.into_iter().filter(|id| OPERANDS.contains(id)) {
        let mut values = values(id);
        if id == "arguments" {
            // A number may stand before the path (subvolume set-default).
            values.drain(..values.len().saturating_sub(1));
        }
        operands.append(&mut values);
    }
    operands
}

/// Whether a word names something that another program would not understand, or would harm: a path on a mount
/// of vlinder's, or an image that is in use. (btrfs-progs asks for no lock on an image.)
fn is_guarded(word: &OsStr) -> bool {
    let path = match Target::parse(word) {
        Ok(Target::Image { image, .. }) if is_device_or_file(&image) => return true,
        Ok(Target::Image { .. }) | Err(_) => PathBuf::from(word),
        Ok(Target::Host(path)) => path,
    };
    let path = ImageName::of(&path).file().to_owned();
    if std::fs::symlink_metadata(&path).is_err() {
        return false;
    }
    let is_in_use = || {
        let opened = FileDevice::open(&path, &OpenOptions::reader());
        matches!(opened, Err(error) if matches!(error.kind, DeviceErrorKind::Busy { .. }))
    };
    is_on_mount(&path) || is_device_or_file(&path) && is_in_use()
}

/// Whether an operand names neither an image, nor something in one, nor a path on a mount of vlinder's.
fn is_foreign(operand: &OsStr) -> bool {
    let path = match Target::parse(operand) {
        Ok(Target::Image { image, .. }) if is_device_or_file(&image) => return false,
        Ok(Target::Image { .. }) => PathBuf::from(operand),
        Ok(Target::Host(path)) => path,
        Err(_) => return false,
    };
    if is_on_mount(&path) || ImageName::of(&path).part() != NamedPart::Unsaid {
        return false;
    }
    match std::fs::metadata(&path) {
        Ok(status) if status.file_type().is_block_device() => false,
        // What this user may not read, may be an image for all that is known.
        Ok(status) if status.is_file() => {
            File::open(&path).is_ok_and(|file| has_filesystem(&file).is_ok_and(|has| !has))
                && vlinder_partitions::part_bytes(&path).is_none()
        }
        Ok(_) => true,
        // What lies below a file can only be meant as a path in an image.
        Err(_) => !existing_ancestor(&path).is_some_and(|above| is_on_mount(above) || above.is_file()),
    }
}

fn existing_ancestor(path: &Path) -> Option<&Path> {
    let above = path.ancestors().skip(1).map(|above| if above == "" { Path::new(".") } else { above });
    above.into_iter().find(|above| above.exists())
}

fn is_device_or_file(path: &Path) -> bool {
    ImageName::of(path)
        .file()
        .metadata()
        .is_ok_and(|status| status.is_file() || status.file_type().is_block_device())
}

/// Whether a path lies on a mount of vlinder's; one that can't be looked up, because the mount's server has
/// ended, by its names.
fn is_on_mount(path: &Path) -> bool {
    let found = match MountEntry::of_path(path) {
        Ok(found) => Ok(found),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(_) => MountEntry::by_name(path),
    };
    found.is_ok_and(|entry| entry.is_some_and(|entry| entry.is_ours()))
}

/// Runs the next `btrfs` in PATH in place of this process. Returns where there is none.
fn hand_on(arguments: &[OsString]) {
    if arguments.iter().any(|word| word == "--json") {
        return;
    }
    // Without it a program could not be told from this one.
    let Some(own) = identity(Path::new("/proc/self/exe")) else { return };
    let before = std::env::var(PASSED).unwrap_or_default();
    let mut passed: Vec<String> =
        before.split(',').filter(|one| !one.is_empty()).map(str::to_owned).chain([own]).collect();
    let search = std::env::var_os("PATH").unwrap_or_default();
    // A directory that is not named in full depends on where the call is made: it may be anybody's.
    for directory in std::env::split_paths(&search).filter(|directory| directory.is_absolute()) {
        let program = directory.join("btrfs");
        let Some(identity) = identity(&program).filter(|identity| !passed.contains(identity)) else {
            continue;
        };
        passed.push(identity);
        let mut call = std::process::Command::new(&program);
        call.args(arguments.iter().skip(1)).env(PASSED, passed.join(","));
        if let Some(name) = arguments.first() {
            call.arg0(name);
        }
        let refused = call.exec();
        tracing::debug!(program = %program.display(), error = %refused, "a btrfs in PATH can't be run");
    }
}

/// Device and inode of a program that this user may run.
fn identity(program: &Path) -> Option<String> {
    let status = std::fs::metadata(program).ok().filter(std::fs::Metadata::is_file)?;
    rustix::fs::accessat(CWD, program, Access::EXEC_OK, AtFlags::EACCESS).ok()?;
    Some(format!("{}:{}", status.dev(), status.ino()))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, FromArgMatches as _};
    use vlinder_testkit::Scratch;

    use super::*;
    use crate::command::Btrfs;

    /// Arguments without a flag that name nothing in a file system.
    const VALUES: [&str; 7] = ["ids", "label", "property", "value", "logical", "inode", "last_generation"];

    fn visit(command: &Command, path: &str, seen: &mut Vec<String>) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            visit(below, &format!("{path} {}", below.get_name()), seen);
        }
        for argument in command.get_positionals() {
            let id = argument.get_id().as_str();
            let known = OPERANDS.contains(&id) || IMAGES.contains(&id) || VALUES.contains(&id);
            assert!(known, "{path}: is {id} a path? then it belongs to OPERANDS");
            seen.push(format!("{path} {id}"));
        }
    }

    #[test]
    fn every_argument_is_known_as_a_path_or_a_value() {
        let mut seen = Vec::new();
        visit(&Btrfs::command(), "btrfs", &mut seen);
        assert!(seen.len() > 30, "{seen:?}");
    }

    #[test]
    fn operands_are_the_paths_of_a_command_line() {
        let cases: [(&[&str], &[&str]); 7] = [
            (&["subvolume", "snapshot", "-r", "a", "b"], &["a", "b"]),
            (&["sub", "set-default", "256", "/x"], &["/x"]),
            (&["subvolume", "set-default", "/x"], &["/x"]),
            (&["property", "set", "x", "ro", "true"], &["x"]),
            (&["send", "-p", "p", "-f", "f", "s", "t"], &["s", "t"]),
            (&["check", "image"], &[]),
            (&["restore", "image", "to"], &[]),
        ];
        for (words, expected) in cases {
            let mut command = Btrfs::command();
            let matches = command.try_get_matches_from_mut([&["btrfs"], words].concat()).unwrap();
            assert_eq!(operands(&command, &matches), expected, "{words:?}");
            Btrfs::from_arg_matches(&matches).unwrap();
        }
    }

    #[test]
    fn a_verb_is_no_path_whatever_files_are_there() {
        let words = ["btrfs", "-q", "balance", "status", "--full", "/mnt"].map(OsString::from);
        let behind: Vec<&OsStr> = words_behind_the_verb(&words).collect();
        assert_eq!(behind, ["status", "/mnt"]);
    }

    #[test]
    fn images_and_what_lies_in_them_are_not_foreign() {
        let scratch = Scratch::new("foreign");
        let (image, other) = (scratch.join("disk.img"), scratch.join("other"));
        let mut bytes = vec![0; 70_000];
        std::fs::write(&other, &bytes).unwrap();
        bytes[65536 + 64..65536 + 72].copy_from_slice(b"_BHRfS_M");
        std::fs::write(&image, &bytes).unwrap();
        std::fs::create_dir(scratch.join("a:")).unwrap();
        let cases = [
            ("disk.img", false),
            ("disk.img:/etc", false),
            // Only an image can be meant.
            ("disk.img/etc", false),
            ("other:/etc", false),
            ("other", true),
            (".", true),
            ("new", true),
            ("no/such/directory", true),
            ("a:/", true),
            ("a:/new", true),
        ];
        for (name, expected) in cases {
            assert_eq!(is_foreign(scratch.join(name).as_os_str()), expected, "{name}");
        }
        assert!(!is_foreign(OsStr::new("")) && is_foreign(OsStr::new("/")));
    }
}
