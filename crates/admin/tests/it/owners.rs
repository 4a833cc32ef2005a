//! Whose files come out, at what time, and with which attributes.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use vlinder_admin::mkfs::{MkfsError, MkfsOptions, RootDirectory};
use vlinder_base::clock::Timestamp;
use vlinder_fs::path::Files;
use vlinder_testkit::kernel::{KernelMount, btrfs_check};
use vlinder_testkit::{Scratch, require};

use crate::mkfs::{attributes, judged, make, set_attribute, set_time};

fn source(scratch: &Scratch) -> std::path::PathBuf {
    let source = scratch.join("source");
    std::fs::create_dir_all(source.join("etc/below")).unwrap();
    for name in ["etc/shadow", "etc/below/file", "plain"] {
        std::fs::write(source.join(name), name).unwrap();
    }
    std::fs::hard_link(source.join("plain"), source.join("z-hard")).unwrap();
    std::os::unix::fs::symlink("plain", source.join("link")).unwrap();
    source
}

fn with(root: RootDirectory) -> MkfsOptions {
    MkfsOptions { root_directory: Some(root), ..judged() }
}

fn owner(files: &Files, path: &str) -> (u32, u32, u32) {
    let found = files.symlink_metadata(path).unwrap();
    (found.user.0, found.group.0, found.mode.permissions())
}

#[test]
fn one_owner_is_given_to_everything() {
    let scratch = Scratch::new("owner");
    let source = source(&scratch);
    let mut root = RootDirectory::new(&source);
    root.owner = Some((0, 7));
    make(&with(root), &scratch.join("image")).unwrap();
    let files = Files::open(scratch.join("image")).unwrap();
    for path in ["/", "/etc", "/etc/below/file", "/link", "/z-hard"] {
        let (user, group, _) = owner(&files, path);
        assert_eq!((user, group), (0, 7), "{path}");
    }
}

const TABLE: &str = "\
# name type mode uid gid major minor start inc count
/ d 711 1 2 - - - - -
/etc/shadow f 640 0 42 - - - - -
/etc/below d 2750 5 6
/z-hard f 4755 8 9
/link l 777 10 11
/dev d 755 0 0
/dev/null c 666 0 0 1 3 0 0 -
/dev/tty c 620 0 5 4 0 0 1 3
/dev/sub d 700 3 3
/dev/sub/disk b 660 0 6 259 1000000
/dev/pipe p 600 4 4
/dev/log s 666 0 0
/etc/empty f 600 1 1
";

#[test]
fn a_table_gives_owners_and_makes_what_is_missing() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("owner-table");
    let mut root = RootDirectory::new(source(&scratch));
    let table = scratch.join("table");
    std::fs::write(&table, TABLE).unwrap();
    set_time(&table, 1_000_000_000, 0);
    root.owner_table = Some(table);
    root.owner = Some((77, 78));
    make(&with(root), &scratch.join("image")).unwrap();
    btrfs_check(&scratch.join("image")).unwrap();
    let mount = KernelMount::new(&scratch.join("image"), "ro").unwrap();
    let shown = |path: &str| {
        let status = std::fs::symlink_metadata(mount.path().join(path)).unwrap();
        (status.mode() & 0o7777, status.uid(), status.gid(), status.rdev())
    };
    let device = rustix::fs::makedev;
    for (path, expected) in [
        ("", (0o711, 1, 2, 0)),
        ("etc", (0o755, 77, 78, 0)),
        ("etc/shadow", (0o640, 0, 42, 0)),
        ("etc/below", (0o2750, 5, 6, 0)),
        ("etc/below/file", (0o644, 77, 78, 0)),
        // One of its names stands in the table.
        ("plain", (0o4755, 8, 9, 0)),
        ("link", (0o777, 10, 11, 0)),
        ("dev", (0o755, 0, 0, 0)),
        ("dev/null", (0o666, 0, 0, device(1, 3))),
        ("dev/tty0", (0o620, 0, 5, device(4, 0))),
        ("dev/tty2", (0o620, 0, 5, device(4, 2))),
        ("dev/sub", (0o700, 3, 3, 0)),
        ("dev/sub/disk", (0o660, 0, 6, device(259, 1_000_000))),
        ("dev/pipe", (0o600, 4, 4, 0)),
        ("dev/log", (0o666, 0, 0, 0)),
        ("etc/empty", (0o600, 1, 1, 0)),
    ] {
        let mut found = shown(path);
        if path == "etc" || path == "etc/below/file" {
            // The mode is the test's umask's.
            found.0 = expected.0;
        }
        assert_eq!(found, expected, "{path}");
    }
    let kind = |path: &str| std::fs::symlink_metadata(mount.path().join(path)).unwrap().file_type();
    assert!(kind("dev/null").is_char_device() && kind("dev/sub/disk").is_block_device());
    assert!(kind("dev/pipe").is_fifo() && kind("dev/log").is_socket() && kind("etc/empty").is_file());
    let null = std::fs::symlink_metadata(mount.path().join("dev/null")).unwrap();
    assert_eq!(null.mtime(), 1_000_000_000, "the time of the table");
    mount.unmount().unwrap();
}

#[test]
fn a_table_that_does_not_fit_the_source_is_refused() {
    let scratch = Scratch::new("owner-table-bad");
    let source = source(&scratch);
    let table = scratch.join("table");
    for (text, words) in [
        ("/plain d 755 0 0", ["plain (line 1", "something else"]),
        ("/link f 755 0 0", ["link (line 1", "something else"]),
        ("\n/none/null c 666 0 0 1 3", ["none (line 2", "no such directory"]),
        ("/plain f 644 0 0\n/plain/x f 644 0 0", ["plain (line 2", "no such directory"]),
        ("/new l 777 0 0", ["new (line 1", "no such link"]),
        ("/plain f", ["table: line 1", "third column"]),
    ] {
        std::fs::write(&table, text).unwrap();
        let mut root = RootDirectory::new(&source);
        root.owner_table = Some(table.clone());
        let error = make(&with(root), &scratch.join("image")).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{text}: {error}");
        assert!(!scratch.join("image").exists());
    }
    let mut root = RootDirectory::new(&source);
    root.owner_table = Some(scratch.join("missing"));
    let error = make(&with(root), &scratch.join("image")).unwrap_err();
    assert!(matches!(error, MkfsError::Target { .. }), "{error}");
}

#[test]
fn no_time_is_later_than_the_images() {
    let scratch = Scratch::new("clamped");
    let source = source(&scratch);
    set_time(&source.join("plain"), 1_000_000_000, 9);
    set_time(&source.join("etc/shadow"), 1_600_000_000, 1);
    set_time(&source.join("etc"), 1_600_000_000, 0);
    let options =
        MkfsOptions { time: Some(Timestamp::new(1_600_000_000, 0)), ..with(RootDirectory::new(&source)) };
    make(&options, &scratch.join("image")).unwrap();
    let files = Files::open(scratch.join("image")).unwrap();
    let time = |path: &str| {
        let found = files.symlink_metadata(path).unwrap();
        assert_eq!(found.access_time, found.modification_time, "{path}");
        (found.modification_time.seconds, found.modification_time.nanoseconds)
    };
    assert_eq!(time("/plain"), (1_000_000_000, 9));
    for path in ["/etc/shadow", "/etc", "/etc/below/file", "/link", "/"] {
        assert_eq!(time(path), (1_600_000_000, 0), "{path}");
    }
}

#[test]
fn attributes_of_the_sources_file_system_stay_there() {
    let scratch = Scratch::new("private-attributes");
    let source = source(&scratch);
    set_attribute(&source.join("plain"), "user.Beagle.index", b"1");
    set_attribute(&source.join("plain"), "user.kept", b"2");
    set_attribute(&source, "user.Beagle.index", b"3");
    make(&with(RootDirectory::new(&source)), &scratch.join("image")).unwrap();
    let files = Files::open(scratch.join("image")).unwrap();
    assert_eq!(attributes(&files, "/plain"), [b"user.kept".to_vec()]);
    assert_eq!(attributes(&files, "/"), Vec::<Vec<u8>>::new());
}

#[test]
fn a_table_without_an_end_is_refused_before_memory_is() {
    let scratch = Scratch::new("endless-table");
    let mut root = RootDirectory::new(source(&scratch));
    root.owner_table = Some("/dev/zero".into());
    let error = make(&with(root), &scratch.join("image")).unwrap_err();
    assert!(matches!(&error, MkfsError::Target { target, .. } if target == "/dev/zero"), "{error}");
}
