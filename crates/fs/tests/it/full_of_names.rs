//! A file system filled with nothing but names stays usable: what a commit owes is promised before it is
//! owed.

use crate::support::{image, list, open, root_user};
use vlinder_fs::{FsError, Refusal, SetAttributes, SetTime, Timestamp};
use vlinder_testkit::kernel::btrfs_check;
use vlinder_testkit::{Scratch, require};

#[test]
fn a_disk_full_of_names_refuses_more_and_lets_go_of_all() {
    require!(LongRun, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("full-of-names");
    let image = image(&scratch, 128, &[]);
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let caller = root_user();
    for round in 0..2 {
        let mut made = 0_u32;
        loop {
            let name = format!("{round}-{made}-{}", "with-a-long-name".repeat(12));
            match filesystem.names().create_file(&caller, &root, name.as_bytes(), 0o644) {
                Ok(_) => made += 1,
                Err(error) if error.refusal() == Some(Refusal::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
            assert!(made < 1_000_000);
        }
        assert!(made > 10_000, "{made}");
        filesystem.sync().unwrap();
        assert!(!filesystem.is_read_only());
        for (name, _) in list(&filesystem, &root) {
            filesystem
                .names()
                .unlink(&caller, &root, &name)
                .unwrap_or_else(|error: FsError| panic!("{round}: {error}"));
        }
        filesystem.sync().unwrap();
        assert_eq!(filesystem.attributes().of(&root).size_bytes, 0);
    }
    drop(root);
    filesystem.close().unwrap();
    btrfs_check(&image).unwrap();
}

#[test]
fn reading_a_full_disk_does_not_end_its_writing() {
    require!(LongRun, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("full-and-read");
    let image = image(&scratch, 128, &[]);
    let caller = root_user();
    {
        let filesystem = open(&image);
        let root = filesystem.root().unwrap();
        for made in 0..1_000_000 {
            let file =
                match filesystem.names().create_file(&caller, &root, format!("{made}").as_bytes(), 0o644) {
                    Ok(file) => file,
                    Err(error) if error.refusal() == Some(Refusal::NoSpace) => break,
                    Err(error) => panic!("{error}"),
                };
            match filesystem.files().write_at(&caller, &file, 0, vec![7; 200].into()) {
                Err(error) if error.refusal() != Some(Refusal::NoSpace) => panic!("{error}"),
                _ => {}
            }
        }
        drop(root);
        filesystem.close().unwrap();
    }
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    // Every file has an access time to move, in a leaf that a commit would have to copy.
    let names = list(&filesystem, &root);
    assert!(names.len() > 10_000, "{}", names.len());
    for (name, _) in &names {
        filesystem.attributes().note_access(&filesystem.names().lookup(&caller, &root, name).unwrap());
    }
    filesystem.sync().unwrap();
    for (name, _) in &names {
        filesystem.names().unlink(&caller, &root, name).unwrap();
    }
    drop(root);
    filesystem.close().unwrap();
    btrfs_check(&image).unwrap();
}

#[test]
fn times_are_set_on_a_full_disk_and_are_there_when_it_has_room() {
    require!(LongRun, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("full-and-times");
    let image = image(&scratch, 128, &[]);
    let caller = root_user();
    let time = Timestamp { seconds: 1_000_000_000, nanoseconds: 7 };
    let changes = SetAttributes { modification_time: Some(SetTime::At(time)), ..SetAttributes::default() };
    {
        let filesystem = open(&image);
        let root = filesystem.root().unwrap();
        for made in 0..1_000_000 {
            match filesystem.names().create_file(&caller, &root, format!("{made}").as_bytes(), 0o644) {
                Ok(_) => {}
                Err(error) if error.refusal() == Some(Refusal::NoSpace) => break,
                Err(error) => panic!("{error}"),
            }
        }
        filesystem.sync().unwrap();
        let names = list(&filesystem, &root);
        // A leaf each, and more of them than the reserve has blocks for.
        for (name, _) in names.iter().step_by(20) {
            let file = filesystem.names().lookup(&caller, &root, name).unwrap();
            let shown = filesystem.attributes().set(&caller, &file, &changes).unwrap();
            assert_eq!(shown.modification_time, time);
        }
        filesystem.sync().unwrap();
        assert!(!filesystem.is_read_only());
        for (position, (name, _)) in names.iter().enumerate() {
            if position % 20 != 0 {
                filesystem.names().unlink(&caller, &root, name).unwrap();
            }
        }
        drop(root);
        filesystem.close().unwrap();
    }
    btrfs_check(&image).unwrap();
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let names = list(&filesystem, &root);
    assert!(names.len() > 1000, "{}", names.len());
    for (name, _) in names {
        let file = filesystem.names().lookup(&caller, &root, &name).unwrap();
        assert_eq!(filesystem.attributes().of(&file).modification_time, time);
    }
}
