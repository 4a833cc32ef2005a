//! On what is read-only each user is refused with the error that Linux's own Btrfs gives: EROFS or EPERM, in
//! its order.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{self, tool, vlinder};
use crate::place::Place;
use vlinder_testkit::require;

const STRANGER: &str = "--reuid=54321";
/// What both commands are asked, on a mount at MOUNT.
const VERBS: [&str; 9] = [
    "subvolume create MOUNT/theirs/new",
    "subvolume create MOUNT/open/new",
    "subvolume snapshot MOUNT/theirs/sub MOUNT/theirs/shot",
    "subvolume snapshot MOUNT/theirs/sub MOUNT/open/shot",
    "subvolume delete MOUNT/theirs/victim",
    "subvolume set-default MOUNT/theirs/sub",
    "filesystem label MOUNT name",
    "property set MOUNT/theirs/sub ro true",
    "property set MOUNT/theirs compression zstd",
];
/// What the system's own programs are asked.
const PROGRAMS: [&str; 9] = [
    "mkdir MOUNT/theirs/new",
    "rmdir MOUNT/theirs/sub",
    "rm -f MOUNT/theirs/file",
    "mv MOUNT/theirs/file MOUNT/open/file",
    "ln MOUNT/theirs/file MOUNT/open/link",
    "chmod 600 MOUNT/theirs/file",
    "chown 54321 MOUNT/theirs/file",
    "truncate -s 1 MOUNT/theirs/file",
    "chattr +A MOUNT/theirs/file",
];

fn kind_of(command: &mut Command) -> String {
    let ended = common::end(command.env("LC_ALL", "C"));
    let said = ended.err.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    match () {
        () if ended.code == 0 => "done".to_owned(),
        () if says(&["read-only"]) => "read-only".to_owned(),
        () if says(&[
            "permission denied",
            "not permitted",
            "only root and the one",
            "only root, the one",
        ]) =>
        {
            "permission".to_owned()
        }
        () => format!("{} {}", ended.code, ended.err),
    }
}

/// A mount of one of the kinds, and one more place of it that is read-only.
struct Shown {
    place: Place,
    bound: PathBuf,
    /// The command of this kind.
    program: PathBuf,
    is_ours: bool,
}

impl Shown {
    fn new(is_ours: bool) -> Self {
        let place = Place::new(if is_ours { "refusals" } else { "refusals-linux" });
        std::fs::set_permissions(place.scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let bound = place.scratch.join("bound");
        std::fs::create_dir(&bound).unwrap();
        let program = if is_ours {
            let copy = place.scratch.join("vlinder");
            std::fs::copy(vlinder().get_program(), &copy).unwrap();
            place.mount("rw,allow_other").done();
            copy
        } else {
            tool("mount", ["-o", "loop", place.image.to_str().unwrap(), place.point.to_str().unwrap()]);
            PathBuf::from("btrfs")
        };
        for (name, mode) in [("theirs", 0o755), ("open", 0o777)] {
            std::fs::create_dir(place.at(name)).unwrap();
            std::fs::set_permissions(place.at(name), PermissionsExt::from_mode(mode)).unwrap();
        }
        std::fs::write(place.at("theirs/file"), "root's").unwrap();
        for name in ["theirs/sub", "theirs/victim"] {
            run_at(&program, &["subvolume", "create"], &place.at(name));
        }
        tool("mount", ["--bind", place.point.to_str().unwrap(), bound.to_str().unwrap()]);
        tool("mount", ["-i", "-o", "remount,bind,ro", bound.to_str().unwrap()]);
        Self { place, bound, program, is_ours }
    }

    /// How each request ends for a user.
    fn outcomes(&self, point: &Path, is_stranger: bool) -> Vec<String> {
        let start = || {
            let mut command = Command::new("setpriv");
            if is_stranger {
                command.args([STRANGER, "--clear-groups"]);
            }
            command.arg("--");
            command
        };
        let words = |line: &str| -> Vec<String> {
            line.split(' ').map(|word| word.replace("MOUNT", point.to_str().unwrap())).collect()
        };
        let verbs = VERBS.iter().map(|line| kind_of(start().arg(&self.program).args(words(line))));
        let programs = PROGRAMS.iter().map(|line| kind_of(start().args(words(line))));
        verbs.chain(programs).collect()
    }

    /// What the stranger gets where it is writable, then what both users get where it is not.
    fn all_outcomes(&self) -> Vec<Vec<String>> {
        let mut all = vec![self.outcomes(&self.place.point, true)];
        // Linux says of a name that is there that it is, also where it is read-only.
        std::fs::remove_dir(self.place.at("open/new")).unwrap();
        all.extend([true, false].map(|is_stranger| self.outcomes(&self.bound, is_stranger)));
        tool("umount", [&self.bound]);
        self.end();
        if self.is_ours {
            self.place.mount("ro,allow_other").done();
        } else {
            let (image, point) = (self.place.image.to_str().unwrap(), self.place.point.to_str().unwrap());
            tool("mount", ["-o", "loop,ro", image, point]);
        }
        all.extend([true, false].map(|is_stranger| self.outcomes(&self.place.point, is_stranger)));
        self.end();
        all
    }

    fn end(&self) {
        if self.is_ours {
            self.place.unmount().done();
        } else {
            tool("umount", [&self.place.point]);
        }
    }
}

fn run_at(program: &Path, words: &[&str], path: &Path) {
    let ended = common::end(Command::new(program).args(words).arg(path));
    assert_eq!(ended.code, 0, "{}", ended.err);
}

impl Drop for Shown {
    fn drop(&mut self) {
        // Left by a test that failed.
        for point in [&self.bound, &self.place.point] {
            let _ = Command::new("umount").args(["-q", "-l"]).arg(point).status();
        }
    }
}

#[test]
fn what_is_read_only_refuses_each_user_with_the_error_of_linux() {
    require!(KernelBtrfs, Fuse, Root, Tool("setpriv"), Tool("btrfs"), Tool("chattr"));
    let (linux, ours) = (Shown::new(false).all_outcomes(), Shown::new(true).all_outcomes());
    let columns = ["writable: stranger", "ro place: stranger", "ro place: root", "ro: stranger", "ro: root"];
    let mut differences = Vec::new();
    for ((column, linux), ours) in columns.iter().zip(linux).zip(ours) {
        for ((line, linux), ours) in VERBS.iter().chain(&PROGRAMS).zip(linux).zip(ours) {
            if linux != ours {
                differences.push(format!("{column}: {line}: {ours}, on Linux {linux}"));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}");
}
