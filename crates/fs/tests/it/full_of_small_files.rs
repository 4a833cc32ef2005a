//! A file system full of files whose bytes lie in the tree: everything that was accepted is stored, and all
//! of it can go.

use std::path::Path;
use std::process::Command;

use vlinder_fs::path::Files;
use vlinder_fs::{FsError, OpenOptions, Refusal};
use vlinder_testkit::kernel::btrfs_check;
use vlinder_testkit::{Scratch, require};

/// More than the chunks of data have, less than a new image of 128 MiB takes.
const DATA_BYTES: usize = 40 << 20;

/// The groups of metadata that are in use, by what btrfs-progs read.
fn metadata_in_use(image: &Path) -> Vec<String> {
    let read =
        Command::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "extent"]).arg(image).output();
    let text = String::from_utf8(read.unwrap().stdout).unwrap();
    let groups = text.lines().filter(|line| line.contains("flags METADATA"));
    groups.filter(|group| !group.contains("block group used 0 ")).map(str::to_owned).collect()
}

/// Fills, syncs, and empties again, for files of one size; then writes data.
fn fill_and_empty(bytes: usize) {
    let scratch = Scratch::in_memory("small-files");
    let image = scratch.join("image");
    let made = Command::new("truncate").args(["-s", "128M"]).arg(&image).status().unwrap();
    assert!(made.success());
    let made = Command::new("mkfs.btrfs").arg("-q").arg(&image).status().unwrap();
    assert!(made.success());
    let files = Files::open_with(&image, OpenOptions::default()).unwrap();
    let content = vec![7_u8; bytes];
    let mut count = 0;
    let refused: FsError = loop {
        match files.write(format!("/file-{count}"), &content) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.refusal(), Some(Refusal::NoSpace), "{refused}");
    assert!(count > 5_000, "{count} files of {bytes} bytes");
    files.sync().unwrap();
    for number in 0..count {
        assert_eq!(files.read(format!("/file-{number}")).unwrap(), content, "file {number} of {count}");
    }
    for number in 0..count {
        files.remove_file(format!("/file-{number}")).unwrap();
    }
    files.sync().unwrap();
    // Each commit gathers the blocks that it changes where the others lie; a new chunk changes those of all
    // trees that ever change.
    files.write("/again", vec![8_u8; DATA_BYTES / 3]).unwrap();
    files.sync().unwrap();
    files.remove_file("/again").unwrap();
    files.sync().unwrap();
    files.close().unwrap();
    btrfs_check(&image).unwrap();
    let in_use = metadata_in_use(&image);
    assert!(in_use.len() == 1, "the blocks of the trees are gathered: {in_use:?}");
    // The other chunks of metadata are empty now, and nothing else waits for a commit: their room is there
    // for data all the same.
    let files = Files::open_with(&image, OpenOptions::default()).unwrap();
    files.write("/data", vec![9_u8; DATA_BYTES]).unwrap();
    files.close().unwrap();
    btrfs_check(&image).unwrap();
}

#[test]
fn small_files_that_were_accepted_are_stored_and_all_can_go() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    for bytes in [1_400, 1_800, 2_048] {
        fill_and_empty(bytes);
    }
}

/// A user who deletes a snapshot to make room, and goes on at once, finds the room.
#[test]
fn the_room_of_a_deleted_subvolume_is_there_at_once() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::in_memory("deleted-subvolume");
    let image = scratch.join("image");
    let made = Command::new("truncate").args(["-s", "128M"]).arg(&image).status().unwrap();
    assert!(made.success());
    let made = Command::new("mkfs.btrfs").arg("-q").arg(&image).status().unwrap();
    assert!(made.success());
    let files = Files::open_with(&image, OpenOptions::default()).unwrap();
    let subvolume = files.create_subvolume("/large").unwrap();
    let content = vec![7_u8; 1800];
    let refused = (0..).find_map(|number| files.write(format!("/large/file-{number}"), &content).err());
    assert_eq!(refused.unwrap().refusal(), Some(Refusal::NoSpace));
    assert!(files.write("/refused", &content).is_err());
    // A program that has it open keeps its blocks; when they let go nobody hurries.
    let held = files.filesystem().inode(subvolume).unwrap();
    files.delete_subvolume("/large").unwrap();
    files.sync().unwrap();
    drop(held);
    for number in 0..3000 {
        files.write(format!("/file-{number}"), &content).unwrap_or_else(|error| panic!("{number}: {error}"));
    }
    files.close().unwrap();
    btrfs_check(&image).unwrap();
}
