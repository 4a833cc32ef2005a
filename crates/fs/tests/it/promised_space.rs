//! Data and metadata count on the same unallocated space: what one was promised, the other does not take.

use std::path::Path;

use crate::support::{image, root_user};
use vlinder_base::sync::Arc;
use vlinder_fs::{
    ContentTimes, Filesystem, FsError, Inode, OpenOptions, Refusal, SetAttributes, WriteOrigin,
};
use vlinder_testkit::kernel::btrfs_check_data;
use vlinder_testkit::{Scratch, require};

/// Unflushed data may fill the image, and nothing is committed by itself.
const OPTIONS: &str = "dirty=1G,cache=64M,commit=300";
const MEBIBYTE: u64 = 1 << 20;

fn open(image: &Path) -> Filesystem {
    Filesystem::open(&[image], OpenOptions::parse(OPTIONS).unwrap()).unwrap()
}

fn is_no_space(error: &FsError) -> bool {
    error.refusal() == Some(Refusal::NoSpace)
}

fn create(filesystem: &Filesystem, name: &str) -> Result<Arc<Inode>, FsError> {
    let root = filesystem.root()?;
    filesystem.names().create_file(&root_user(), &root, name.as_bytes(), 0o644)
}

fn content(part: u64) -> Vec<u8> {
    (0..MEBIBYTE).map(|at| ((at * 31 + part * 7) >> 3) as u8).collect()
}

/// Writes parts of 1 MiB until there is no room, or so many were written; gives how many.
fn write(filesystem: &Filesystem, file: &Arc<Inode>, most: u64) -> u64 {
    for part in 0..most {
        match filesystem.files().write_at(&root_user(), file, part * MEBIBYTE, content(part).into()) {
            Ok(()) => {}
            Err(error) if is_no_space(&error) => return part,
            Err(error) => panic!("{error}"),
        }
    }
    most
}

/// Makes files with long names until there is no room; gives how many.
fn fill_with_names(filesystem: &Filesystem) -> u64 {
    for number in 0.. {
        let made = create(filesystem, &format!("{number}-{}", "with-a-long-name".repeat(12)));
        match made {
            Ok(_) => {}
            Err(error) if is_no_space(&error) => return number,
            Err(error) => panic!("{error}"),
        }
    }
    0
}

/// Closes an image, has it judged, and opens it and its file again.
fn opened_again(filesystem: Filesystem, image: &Path) -> (Filesystem, Arc<Inode>) {
    filesystem.close().unwrap();
    btrfs_check_data(image).unwrap();
    let again = open(image);
    let root = again.root().unwrap();
    let file = again.names().lookup(&root_user(), &root, b"data").unwrap();
    (again, file)
}

fn compare(filesystem: &Filesystem, file: &Arc<Inode>, parts: u64) {
    let mut bytes = vec![0; MEBIBYTE as usize];
    for part in 0..parts {
        let cache = vlinder_fs::data::OpenCache::new();
        assert_eq!(
            filesystem.files().read_at(file, &cache, part * MEBIBYTE, &mut bytes).unwrap() as u64,
            MEBIBYTE
        );
        assert!(bytes == content(part), "part {part}");
    }
}

#[test]
fn names_leave_the_room_that_written_data_were_promised() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    for (arguments, megabytes, parts) in
        [(&["-n", "4096"][..], 128, 40), (&["-m", "single"], 128, 60), (&["--mixed"], 80, 40)]
    {
        let scratch = Scratch::in_memory("promised-space");
        let image = image(&scratch, megabytes, arguments);
        let filesystem = open(&image);
        let file = create(&filesystem, "data").unwrap();
        assert_eq!(write(&filesystem, &file, parts), parts, "{arguments:?}");
        let names = fill_with_names(&filesystem);
        assert!(names > 1000, "{arguments:?}: {names} names");
        filesystem.sync().unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        compare(&filesystem, &file, parts);
        drop(file);
        let (again, file) = opened_again(filesystem, &image);
        compare(&again, &file, parts);
    }
}

#[test]
fn data_leave_the_room_that_names_will_take() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    for (arguments, megabytes) in [
        (&["-n", "4096"][..], 128),
        (&["-m", "single"], 128),
        (&["--mixed"], 80),
        (&["-m", "dup", "-d", "dup"], 256),
    ] {
        let scratch = Scratch::in_memory("promised-space");
        let image = image(&scratch, megabytes, arguments);
        let filesystem = open(&image);
        for number in 0..5_000 {
            create(&filesystem, &format!("{number}-{}", "with-a-long-name".repeat(12))).unwrap();
        }
        let file = create(&filesystem, "data").unwrap();
        let parts = write(&filesystem, &file, 1000);
        assert!((20..1000).contains(&parts), "{arguments:?}: {parts}");
        filesystem.sync().unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        compare(&filesystem, &file, parts);
        drop(file);
        filesystem.close().unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        btrfs_check_data(&image).unwrap();
    }
}

#[test]
fn a_snapshot_goes_from_a_full_file_system_that_shares_it() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    for (arguments, megabytes) in [(&["-n", "4096"][..], 128), (&["--mixed"], 64)] {
        let scratch = Scratch::in_memory("promised-space");
        let image = image(&scratch, megabytes, arguments);
        let filesystem = open(&image);
        let root = filesystem.root().unwrap();
        let caller = root_user();
        let mut snapshots = 0;
        let name = |number: u64| format!("{number}-{}", "with-a-long-name".repeat(12));
        let mut made = 0;
        while create(&filesystem, &name(made)).map_err(|error| assert!(is_no_space(&error))).is_ok() {
            made += 1;
            // Sharing all that there is, while there is room for that, and at last without.
            if made % 5_000 == 0 {
                let shot = format!("snapshot{snapshots}");
                filesystem
                    .subvolumes()
                    .snapshot(&caller, root.id().root, &root, shot.as_bytes(), false)
                    .unwrap();
                snapshots += 1;
            }
        }
        filesystem.sync().unwrap();
        let unlink = |number: u64| filesystem.names().unlink(&caller, &root, name(number).as_bytes());
        // What is shared has to be copied: that may be refused, until the snapshots go.
        let refused = (0..made).filter(|number| unlink(*number).is_err()).collect::<Vec<_>>();
        for number in 0..snapshots {
            let shot = format!("snapshot{number}");
            filesystem.subvolumes().delete(&caller, &root, shot.as_bytes()).unwrap_or_else(|error| {
                panic!("{arguments:?}, {number} of {snapshots}, {} refused: {error}", refused.len())
            });
        }
        filesystem.maintenance().finish_deletions().unwrap();
        filesystem.sync().unwrap();
        for number in refused {
            unlink(number).unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        }
        assert_eq!(filesystem.attributes().of(&root).size_bytes, 0);
        drop(root);
        filesystem.close().unwrap();
        btrfs_check_data(&image).unwrap();
    }
}

/// A write over dirty bytes shares their promise; a flush that takes them meanwhile takes that too.
/// (`flush::take` asserts that each dirty byte has its own.)
#[test]
fn bytes_written_over_during_a_flush_keep_their_reservation() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("promised-race");
    let image = image(&scratch, 256, &[]);
    let filesystem = open(&image);
    let file = create(&filesystem, "file").unwrap();
    let end = vlinder_base::sync::atomic::AtomicBool::new(false);
    let relaxed = vlinder_base::sync::atomic::Ordering::Relaxed;
    vlinder_base::thread::scope(|scope| {
        scope.spawn(|| {
            while !end.load(relaxed) {
                vlinder_fs::data::flush(&filesystem, &file).unwrap();
            }
        });
        for number in 0..30_000_u32 {
            let bytes = vec![number as u8; 1 << 16];
            filesystem.files().write_at(&root_user(), &file, 0, bytes.into()).unwrap();
        }
        end.store(true, relaxed);
    });
    drop((file, filesystem));
}

/// Parts of one call that do not fit together fit one after the other: each gives back what it overwrites.
#[test]
fn parts_without_common_room_overwrite_a_full_file_one_by_one() {
    const BLOCK: usize = 4096;
    const END: u64 = 30_000;
    /// More than a batch has.
    const OVERWRITTEN: u64 = 9_000;
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::in_memory("promised-space");
    let image = image(&scratch, 110, &["-m", "single"]);
    let filesystem = open(&image);
    let spare = create(&filesystem, "spare").unwrap();
    assert_eq!(write(&filesystem, &spare, 4), 4);
    filesystem.sync().unwrap();
    drop(spare);
    let file = create(&filesystem, "data").unwrap();
    let write = |parts: &[(u64, &[u8])]| {
        filesystem.files().write_file_direct(&root_user(), &file, parts, WriteOrigin::Caller)
    };
    // From the end on, so that no two blocks lie in one extent. Where one does not fit, a commit may settle
    // what was reckoned for those before.
    let (mut first, mut settled) = (END, false);
    while first > 0 {
        match write(&[((first - 1) * BLOCK as u64, &[1; BLOCK])]) {
            Ok(_) => (first, settled) = (first - 1, false),
            Err(error) if is_no_space(&error) && !settled => {
                filesystem.sync().unwrap();
                settled = true;
            }
            Err(error) if is_no_space(&error) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert!((1..END - OVERWRITTEN).contains(&first), "the first of {END} blocks is {first}");
    filesystem.names().unlink(&root_user(), &filesystem.root().unwrap(), b"spare").unwrap();
    filesystem.sync().unwrap();
    let from = END - OVERWRITTEN;
    let bytes = [2; BLOCK];
    let parts: Vec<(u64, &[u8])> = (from..END).map(|block| (block * BLOCK as u64, &bytes[..])).collect();
    write(&parts).unwrap();
    let (again, file) = opened_again(filesystem, &image);
    let mut found = vec![0; OVERWRITTEN as usize * BLOCK];
    let cache = vlinder_fs::data::OpenCache::new();
    let count = again.files().read_at(&file, &cache, from * BLOCK as u64, &mut found).unwrap();
    assert!(count == found.len() && found.iter().all(|byte| *byte == 2));
    drop(file);
    again.close().unwrap();
}

/// What was written directly has its items later; room for these is there, whatever came between.
#[test]
fn items_of_direct_writes_find_room_that_others_left_them() {
    const BLOCK: usize = 4096;
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    for (arguments, megabytes) in [(&["-n", "4096"][..], 128), (&["-m", "single"], 110), (&["--mixed"], 80)] {
        let scratch = Scratch::in_memory("promised-space");
        let image = image(&scratch, megabytes, arguments);
        let filesystem = open(&image);
        let file = create(&filesystem, "data").unwrap();
        let mut expected = std::collections::BTreeMap::new();
        let mut state = 7_u64;
        let mut write = |expected: &mut std::collections::BTreeMap<u64, u8>| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Every other block of 64 MiB, so that no two extents become one.
            let offset = (state >> 33) % 8192 * 2 * BLOCK as u64;
            let byte = (state >> 20) as u8;
            let bytes = [byte; BLOCK];
            let parts = [(offset, &bytes[..])];
            let written =
                filesystem.files().write_file_direct(&root_user(), &file, &parts, WriteOrigin::Caller);
            match written {
                Ok(_) => {
                    expected.insert(offset, byte);
                    true
                }
                Err(error) if is_no_space(&error) => false,
                Err(error) => panic!("{arguments:?}: {error}"),
            }
        };
        let mut accepted = 0;
        while accepted < 6_000 && write(&mut expected) {
            accepted += 1;
        }
        let names = fill_with_names(&filesystem);
        let mut more = 0;
        while more < 20_000 && write(&mut expected) {
            more += 1;
        }
        assert!(
            accepted == 6_000 && names > 1_000 && more < 20_000,
            "{arguments:?}: {accepted} {names} {more}"
        );
        filesystem.sync().unwrap_or_else(|error| panic!("{arguments:?}: {error}"));
        drop(file);
        let (again, file) = opened_again(filesystem, &image);
        let cache = vlinder_fs::data::OpenCache::new();
        let mut bytes = [0; BLOCK];
        for (offset, byte) in expected {
            again.files().read_at(&file, &cache, offset, &mut bytes).unwrap();
            assert!(bytes == [byte; BLOCK], "{arguments:?}: {offset}");
        }
    }
}

/// A small file's bytes lie in its tree. A file without bytes gets that item, and needs no room for data;
/// into a longer one the bytes are written. A copy that finds no room changes nothing.
#[test]
fn a_copy_that_is_refused_leaves_its_target_as_it_was() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("refused-copy");
    let image = image(&scratch, 128, &[]);
    let filesystem = open(&image);
    let source = create(&filesystem, "source").unwrap();
    filesystem.files().write_at(&root_user(), &source, 0, vec![7; 1800].into()).unwrap();
    let targets: Vec<_> =
        (0..64).map(|number| create(&filesystem, &format!("target{number}")).unwrap()).collect();
    for target in targets.iter().skip(32) {
        let longer = SetAttributes { size: Some(3000), ..SetAttributes::default() };
        filesystem.attributes().set(&root_user(), target, &longer).unwrap();
    }
    filesystem.sync().unwrap();
    let filler = create(&filesystem, "filler").unwrap();
    // Data are full then, metadata are not.
    let parts = write(&filesystem, &filler, u64::MAX);
    let sectors = (parts * MEBIBYTE..).step_by(4096);
    let accepts =
        |at: &u64| filesystem.files().write_at(&root_user(), &filler, *at, vec![1; 4096].into()).is_ok();
    assert!(sectors.take_while(accepts).count() < 256);
    let (mut done, mut refused) = (0, 0);
    for target in &targets {
        let before = target.size();
        let origin = WriteOrigin::OpenFile { times: ContentTimes::Move };
        match filesystem.files().copy_file_range(&root_user(), (&source, 0), (target, 0), 1800, origin) {
            Ok(change) => {
                assert_eq!((change.length_bytes, target.size()), (1800, before.max(1800)));
                done += 1;
            }
            Err(error) => {
                assert!(is_no_space(&error), "{error}");
                assert_eq!(target.size(), before);
                assert!(crate::support::read(&filesystem, target).iter().all(|byte| *byte == 0));
                refused += 1;
            }
        }
    }
    assert!(done >= 32 && refused > 0, "{done} copies found room");
}
