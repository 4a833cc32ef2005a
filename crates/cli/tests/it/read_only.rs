//! What is read-only is read-only through the control socket, too, whatever made it so (case R5).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{run, tool};
use crate::place::Place;
use vlinder_testkit::require;

/// The verbs that change the file system, each of which would succeed on a mount of `shown` that is writable.
fn changes(shown: &Path) -> Vec<Vec<String>> {
    let at = |name: &str| shown.join(name).display().to_string();
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    vec![
        words(&["subvolume", "create", &at("new")]),
        words(&["subvolume", "snapshot", &at("sub"), &at("shot")]),
        words(&["subvolume", "set-default", &at("sub")]),
        words(&["filesystem", "label", &at(""), "name"]),
        words(&["property", "set", &at("sub"), "ro", "true"]),
        words(&["property", "set", &at("sub"), "ro", "false"]),
        words(&["property", "set", &at(""), "compression", "zstd"]),
        words(&["subvolume", "delete", &at("victim")]),
    ]
}

#[track_caller]
fn assert_read_only(shown: &Path) {
    for words in changes(shown) {
        let ended = run(&words);
        assert_ne!(ended.code, 0, "{words:?}");
        assert!(ended.err.to_lowercase().contains("read-only"), "{words:?}: {}", ended.err);
    }
    // What changes nothing goes on.
    run(["filesystem", "sync", shown.to_str().unwrap()]).done();
    let listed = run(["subvolume", "list", shown.to_str().unwrap()]).done().text();
    let names: Vec<&str> = listed.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(names.len(), 2, "{listed}");
}

/// A mount with the subvolumes `sub` and `victim`.
fn prepared(name: &str) -> Place {
    let place = Place::new(name);
    place.mount("rw").done();
    for name in ["sub", "victim"] {
        run([Path::new("subvolume"), Path::new("create"), &place.at(name)]).done();
    }
    place
}

#[test]
fn a_mount_that_became_read_only_takes_no_change_by_the_socket() {
    require!(Fuse, Root);
    let place = prepared("became-read-only");
    let point = place.point.to_str().unwrap();
    let image = place.image.to_str().unwrap();
    let by_system = |options: &str| {
        tool("mount", ["-i", "-o", options, point]);
    };
    let by_us = |options: &str| {
        run(["mount", "-o", options, image, point]).done();
    };
    by_system("remount,ro");
    assert_read_only(&place.point);
    by_us("remount,rw");
    by_us("remount,ro");
    assert_read_only(&place.point);
    by_system("remount,rw");
    for words in changes(&place.point) {
        run(&words).done();
    }
    place.unmount().done();
}

#[test]
fn a_mount_made_read_only_takes_no_change_by_the_socket() {
    require!(Fuse, Root);
    let place = prepared("made-read-only");
    place.unmount().done();
    place.mount("ro").done();
    assert_read_only(&place.point);
    place.unmount().done();
}

/// One more place of a mount, which does not outlive the test.
struct Bound(PathBuf);

impl Bound {
    fn new(place: &Place) -> Self {
        let bound = place.scratch.join("bound");
        std::fs::create_dir(&bound).unwrap();
        tool("mount", ["--bind", place.point.to_str().unwrap(), bound.to_str().unwrap()]);
        Self(bound)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // A panic in a drop would hide the test's own; what stays is seen when the mount does not end.
        if let Err(error) = Command::new("umount").arg(&self.0).status() {
            eprintln!("{} stays mounted: {error}", self.0.display());
        }
    }
}

#[test]
fn a_read_only_place_takes_no_change_by_the_socket() {
    require!(Fuse, Root);
    let place = prepared("read-only-place");
    let bound = Bound::new(&place);
    tool("mount", ["-i", "-o", "remount,bind,ro", bound.0.to_str().unwrap()]);
    assert_read_only(&bound.0);
    for words in changes(&place.point) {
        run(&words).done();
    }
    drop(bound);
    place.unmount().done();
}
