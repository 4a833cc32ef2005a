//! Under the name `btrfs`: what is not vlinder's goes to the next `btrfs` in PATH, and nothing else does.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ended, end, make_image, run};
use vlinder_testkit::{Scratch, require};

/// Directories of PATH, the first with vlinder's link, and what calls are made on.
struct Search {
    scratch: Scratch,
    path: Vec<PathBuf>,
}

impl Search {
    fn new(name: &str) -> Self {
        let mut search = Self { scratch: Scratch::new(name), path: Vec::new() };
        let first = search.directory("first");
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_vlinder"), first.join("btrfs")).unwrap();
        search
    }

    /// One more directory of PATH.
    fn directory(&mut self, name: &str) -> PathBuf {
        let directory = self.scratch.join(name);
        std::fs::create_dir(&directory).unwrap();
        self.path.push(directory.clone());
        directory
    }

    /// One more directory of PATH, with a script of the name `btrfs`.
    fn script(&mut self, name: &str, text: &str) {
        let program = self.directory(name).join("btrfs");
        std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn call(&self, words: &[&str]) -> Ended {
        let path = std::env::join_paths(&self.path).unwrap();
        let mut command = Command::new(self.path[0].join("btrfs"));
        end(command.args(words).env("PATH", path).current_dir(self.scratch.path()))
    }

    /// What the other btrfs was given; none where it was not called.
    fn handed_on(&self, words: &[&str]) -> Option<String> {
        let ended = self.call(words);
        let text = ended.text();
        let given = text.strip_prefix("other: ").map(|given| given.trim_end().to_owned());
        assert_eq!(given.is_some(), ended.code == 7, "{words:?}: {text}{}", ended.err);
        given
    }
}

const OTHER: &str = "echo \"other: $*\"; exit 7";

#[test]
fn what_is_not_ours_is_left_to_the_next_btrfs() {
    let mut search = Search::new("other-btrfs");
    search.script("second", OTHER);
    make_image(&search.scratch.join("disk.img"));
    std::fs::create_dir(search.scratch.join("directory")).unwrap();
    let others: [&[&str]; 13] = [
        &["subvolume", "list", "directory"],
        &["-q", "subvolume", "create", "directory/new"],
        &["subvolume", "delete", "directory/a", "directory/b"],
        &["subvolume", "snapshot", "-r", "/", "directory/x"],
        &["subvolume", "set-default", "256", "directory"],
        &["filesystem", "df", "/nowhere/at/all"],
        &["property", "set", "directory", "compression", "zstd"],
        &["send", "-p", "directory/a", "directory/b"],
        &["receive", "directory"],
        // Verbs and flags that are not there.
        &["balance", "start", "--full-balance", "directory"],
        &["device", "stats", "/dev/null"],
        &["rescue", "zero-log", "disk.img"],
        &["subvolume", "list", "--frob", "disk.img"],
    ];
    for words in others {
        assert_eq!(search.handed_on(words), Some(words.join(" ")), "{words:?}");
    }
    let ours: [&[&str]; 10] = [
        &["subvolume", "list", "disk.img"],
        &["subvolume", "list", "disk.img:/"],
        &["subvolume", "list", "disk.img:/nowhere"],
        &["check", "disk.img"],
        &["inspect-internal", "dump-super", "directory"],
        // One of two: the other is told to be none of ours.
        &["subvolume", "delete", "directory", "disk.img:/nowhere"],
        &["version"],
        &["--help"],
        &["subvolume"],
        &["--json", "subvolume", "list", "directory"],
    ];
    for words in ours {
        assert_eq!(search.handed_on(words), None, "{words:?}");
    }
    search
        .call(&["subvolume", "delete", "directory", "disk.img:/nowhere"])
        .failed(1, &["directory: not a btrfs filesystem", "disk.img:/nowhere: no such file"]);
}

#[test]
fn nothing_is_handed_on_of_mounts_and_images_in_use() {
    require!(Fuse);
    let mut search = Search::new("other-btrfs-mount");
    search.script("second", OTHER);
    let (image, point) = (search.scratch.join("disk.img"), search.scratch.join("mount"));
    make_image(&image);
    std::fs::create_dir(&point).unwrap();
    run([Path::new("mount"), &image, &point]).done();
    let calls: [&[&str]; 4] = [
        &["filesystem", "show", "mount"],
        &["subvolume", "list", "mount"],
        // btrfs-progs would write to it all the same.
        &["rescue", "zero-log", "disk.img"],
        &["check", "--init-csum-tree", "disk.img"],
    ];
    let while_mounted: Vec<_> = calls.iter().map(|words| search.handed_on(words)).collect();
    let told = search.call(&["filesystem", "show", "mount"]);
    run([Path::new("umount"), &point]).done();
    assert_eq!(while_mounted, [None, None, None, None]);
    told.failed(1, &["ERROR: filesystem show is not there yet"]);
    assert!(search.handed_on(calls[2]).is_some() && search.handed_on(calls[3]).is_some());
}

#[test]
fn calls_that_lead_round_come_to_an_end() {
    let mut search = Search::new("other-btrfs-round");
    // The same program by another name, a copy of it, and one that calls the first again.
    let second = search.directory("second");
    std::fs::hard_link(search.path[0].join("btrfs"), second.join("btrfs")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_vlinder"), search.directory("third").join("btrfs")).unwrap();
    search.script(
        "fourth",
        "exec \"$FIRST\" \"$@\"".replace("$FIRST", search.path[0].join("btrfs").to_str().unwrap()).as_str(),
    );
    let not_executable = search.directory("fifth").join("btrfs");
    std::fs::write(not_executable, "no program").unwrap();
    let words = ["filesystem", "show", "/"];
    search.call(&words).failed(1, &["ERROR: filesystem show is not there yet"]);
    search.script("sixth", OTHER);
    assert_eq!(search.handed_on(&words), Some(words.join(" ")));
    // Of directories that are not named in full, none is searched.
    search.path = vec![search.path[0].clone(), PathBuf::from("sixth"), PathBuf::new()];
    search.call(&words).failed(1, &["ERROR: filesystem show is not there yet"]);
}

#[test]
fn grub_btrfs_finds_the_words_that_it_looks_for() {
    let search = Search::new("other-btrfs-none");
    // No other btrfs is there: the failure is told in btrfs-progs' words.
    search.call(&["filesystem", "df", "/proc"]).failed(1, &["ERROR: /proc: not a btrfs filesystem"]);
    search.call(&["subvolume", "show", "/proc"]).failed(1, &["ERROR: /proc: not a btrfs filesystem"]);
}
