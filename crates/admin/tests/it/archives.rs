//! Archives of tar as sources: what comes of them is what unpacking them as root leaves.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use vlinder_admin::mkfs::{MkfsOptions, RootDirectory, SubvolumeDirectory};
use vlinder_base::clock::Timestamp;
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::{Scratch, require};

use crate::mkfs::{
    attributes, chmod, chown, content, everything, filled, judged, make, same_walks, set_time,
};
use crate::packed::Packed;

/// Runs tar.
fn tar(words: &[&str], archive: &Path, directory: &Path) {
    let status = Command::new("tar")
        .args(words)
        .arg("-f")
        .arg(archive)
        .arg("-C")
        .arg(directory)
        .arg(".")
        .output()
        .unwrap();
    assert!(status.status.success(), "{words:?}: {}", String::from_utf8_lossy(&status.stderr));
}

/// Makes an image of an archive, and compares it with what tar unpacks.
fn same_as_unpacked(scratch: &Scratch, archive: &Path) {
    let unpacked = scratch.join("unpacked");
    std::fs::create_dir(&unpacked).unwrap();
    tar(
        &["-x", "-p", "--xattrs", "--xattrs-include=*", "--same-owner", "--numeric-owner"],
        archive,
        &unpacked,
    );
    let image = scratch.join("image");
    make(&filled(archive), &image).unwrap();
    btrfs_check_data(&image).unwrap();
    let mount = KernelMount::new(&image, "ro").unwrap();
    // Which parts of a file tar leaves holes is its own choice.
    same_walks(&unpacked, mount.path(), false);
    mount.unmount().unwrap();
    std::fs::remove_file(&image).unwrap();
    std::fs::remove_dir_all(&unpacked).unwrap();
}

#[test]
fn each_form_of_tar_is_read_as_tar_unpacks_it() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("tar"));
    let scratch = Scratch::new("archives");
    let source = scratch.join("source");
    std::fs::create_dir(&source).unwrap();
    everything(&source);
    let archive = scratch.join("archive.tar");
    let attributes = ["--xattrs", "--xattrs-include=*"];
    for words in [
        &["--format=posix"][..],
        &["--format=gnu"],
        &["--format=gnu", "-S"],
        &["--format=posix", "-S", "--sparse-version=0.0"],
        &["--format=posix", "-S", "--sparse-version=0.1"],
        &["--format=posix", "-S", "--sparse-version=1.0"],
    ] {
        let attributes = if words[0] == "--format=posix" { &attributes[..] } else { &[] };
        // Without -S the file of a gigabyte would be one in the archive, too.
        let left_out = if words.contains(&"-S") { &[][..] } else { &["--exclude=./hole"] };
        tar(&[&["-c", "--warning=no-file-ignored"], words, attributes, left_out].concat(), &archive, &source);
        same_as_unpacked(&scratch, &archive);
    }
}

#[test]
fn old_forms_without_long_names_are_read_too() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("tar"));
    let scratch = Scratch::new("archives-old");
    let source = scratch.join("source");
    std::fs::create_dir_all(source.join("a/b")).unwrap();
    for number in 0..50 {
        std::fs::write(source.join(format!("a/b/{number}")), content(number * 300, number as u64)).unwrap();
    }
    std::fs::write(source.join("set-user"), "x").unwrap();
    chown(&source.join("set-user"), 12, 34);
    chmod(&source.join("set-user"), 0o4711);
    std::os::unix::fs::symlink("a/b", source.join("link")).unwrap();
    std::fs::hard_link(source.join("a/b/7"), source.join("hard")).unwrap();
    // Beyond the name's 100 bytes a prefix of POSIX takes it.
    let deep = source.join("d".repeat(80)).join("e".repeat(80));
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("file"), "deep").unwrap();
    for path in ["a", "a/b", "a/b/7", "set-user", ""] {
        set_time(&source.join(path), 1_000_000, 0);
    }
    let archive = scratch.join("archive.tar");
    tar(&["-c", "--format=ustar"], &archive, &source);
    same_as_unpacked(&scratch, &archive);
    std::fs::remove_dir_all(source.join("d".repeat(80))).unwrap();
    tar(&["-c", "--format=v7"], &archive, &source);
    same_as_unpacked(&scratch, &archive);
}

#[test]
fn names_that_come_twice_and_absolute_ones_are_told() {
    let scratch = Scratch::new("archives-told");
    let archive = scratch.join("archive.tar");
    let bytes = Packed::default()
        .directory("./")
        .file("a", b"first")
        .hard_link("b", "a")
        .file("a", b"second")
        .file("/etc/passwd", b"root")
        .link("to", "etc")
        .file("to/group", b"group")
        .directory("etc")
        .end();
    std::fs::write(&archive, bytes).unwrap();
    let image = scratch.join("image");
    let report = make(&filled(&archive), &image).unwrap();
    let told = report.notes.join("\n");
    assert!(
        told.contains("1 names begin with a slash") && told.contains("1 names come more than once"),
        "{told}"
    );
    let files = vlinder_fs::path::Files::open(&image).unwrap();
    for (path, expected) in
        [("/a", "second"), ("/b", "first"), ("/etc/passwd", "root"), ("/etc/group", "group")]
    {
        assert_eq!(files.read(path).unwrap(), expected.as_bytes(), "{path}");
    }
}

#[test]
fn subvolumes_size_and_time_are_as_of_a_directory() {
    let scratch = Scratch::new("archives-size");
    let archive = scratch.join("archive.tar");
    let bytes = Packed::default()
        .file("var/log/large", &content(30 << 20, 5))
        .records(&[
            ("mtime", b"2000000000.5"),
            ("SCHILY.xattr.user.a", b"1"),
            ("SCHILY.xattr.user.Beagle.b", b"2"),
        ])
        .file("var/new", b"new")
        .end();
    std::fs::write(&archive, bytes).unwrap();
    let mut root = RootDirectory::new(&archive);
    root.subvolumes.push(SubvolumeDirectory::parse("ro:var".as_ref()));
    let time = Some(Timestamp::new(1_500_000_000, 7));
    let options = MkfsOptions { root_directory: Some(root), time, ..judged() };
    let image = scratch.join("image");
    let report = make(&options, &image).unwrap();
    assert_eq!((report.copied.subvolumes, report.copied.data_bytes), (1, (30 << 20) + 3));
    let files = vlinder_fs::path::Files::open(&image).unwrap();
    let metadata = files.metadata("/var/new").unwrap();
    assert_eq!(
        (metadata.modification_time.seconds, metadata.modification_time.nanoseconds),
        (1_500_000_000, 7)
    );
    assert_eq!((metadata.user.0, metadata.group.0), (12, 34));
    assert_eq!(attributes(&files, "/var/new"), [b"user.a".to_vec()]);
    // The directory that the archive does not have itself.
    assert_eq!(files.metadata("/var").unwrap().modification_time.seconds, 1_500_000_000);
}

#[test]
fn an_archive_is_not_overwritten_by_its_image() {
    let scratch = Scratch::new("archives-self");
    let archive = scratch.join("archive.tar");
    let bytes = Packed::default().file("a", &content(200 << 20, 1)).end();
    std::fs::write(&archive, &bytes).unwrap();
    let error = make(&filled(&archive), &archive).unwrap_err().to_string();
    assert!(error.contains("archive.tar is the image, too"), "{error}");
    assert_eq!(std::fs::metadata(&archive).unwrap().size(), bytes.len() as u64);
}
