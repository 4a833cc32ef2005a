//! What happens without anybody's asking: commits when the clock says so, and data written out before writers
//! must wait.

use std::borrow::Cow;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use crate::support::{self, image, root_user};
use vlinder_base::clock::{FixedClock, Timestamp};
use vlinder_base::sync::Arc;
use vlinder_base::thread;
use vlinder_fs::data::Allocate;
use vlinder_fs::{AccessTimes, ContentTimes, Filesystem, Inode, OpenOptions, WriteOrigin};
use vlinder_testkit::kernel::btrfs_check_data;
use vlinder_testkit::{Scratch, require};

/// Looks until something holds, for at most so long.
fn holds_within(most: Duration, condition: impl Fn() -> bool) -> bool {
    let step = Duration::from_millis(20);
    for _ in 0..most.as_millis() / step.as_millis() {
        if condition() {
            return true;
        }
        thread::sleep(step);
    }
    condition()
}

fn write(filesystem: &Filesystem, bytes: usize) -> Arc<Inode> {
    let root = filesystem.root().unwrap();
    let file = filesystem.names().create_file(&root_user(), &root, b"file", 0o644).unwrap();
    for offset in (0..bytes).step_by(1 << 16) {
        let part = vec![offset as u8; (bytes - offset).min(1 << 16)];
        filesystem.files().write_at(&root_user(), &file, offset as u64, Cow::Owned(part)).unwrap();
    }
    file
}

/// As a crash at this moment leaves the file: without what this process has in memory.
fn size_on_disk(image: &Path, scratch: &Scratch) -> Option<u64> {
    let copy = scratch.join("copy");
    std::fs::copy(image, &copy).unwrap();
    let filesystem = Filesystem::open(&[&copy], OpenOptions::read_only()).unwrap();
    let root = filesystem.root().unwrap();
    let found = filesystem.names().lookup(&root_user(), &root, b"file").ok()?;
    Some(found.size())
}

#[test]
fn data_older_than_the_interval_are_committed_by_the_clock() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("background-clock");
    let image = image(&scratch, 256, &[]);
    let clock = Arc::new(FixedClock::new(Timestamp::new(1_700_000_000, 0)));
    let options = OpenOptions {
        clock: Arc::clone(&clock) as _,
        commit_interval: Duration::from_millis(500),
        ..OpenOptions::default()
    };
    let filesystem = Filesystem::open(&[&image], options).unwrap();
    let file = write(&filesystem, 300_000);
    let generation = filesystem.engine().generation();
    assert!(!holds_within(Duration::from_millis(1_500), || filesystem.engine().generation() > generation));
    clock.advance(Duration::from_millis(400));
    assert!(!holds_within(Duration::from_millis(1_000), || filesystem.engine().generation() > generation));
    assert!(file.data().unwritten_bytes() >= 300_000);
    assert_eq!(size_on_disk(&image, &scratch), None);
    clock.advance(Duration::from_millis(200));
    let committed = || file.data().unwritten_bytes() == 0 && filesystem.engine().generation() > generation;
    assert!(holds_within(Duration::from_secs(20), committed));
    assert!(holds_within(Duration::from_secs(20), || size_on_disk(&image, &scratch) == Some(300_000)));
    drop(file);
    filesystem.close().unwrap();
    btrfs_check_data(&image).unwrap();
}

/// Commits once changes have stopped for a second of this clock, and at no interval that a test sees.
fn idle_options(clock: &Arc<FixedClock>) -> OpenOptions {
    OpenOptions {
        clock: Arc::clone(clock) as _,
        commit_interval: Duration::from_secs(3600),
        idle_commit: Some(Duration::from_secs(1)),
        ..OpenOptions::default()
    }
}

#[test]
fn changes_are_committed_once_they_have_stopped_and_not_again() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("background-idle");
    let image = image(&scratch, 256, &[]);
    let clock = Arc::new(FixedClock::new(Timestamp::new(1_700_000_000, 0)));
    let options = idle_options(&clock);
    let filesystem = Filesystem::open(&[&image], options).unwrap();
    let (caller, root) = (root_user(), filesystem.root().unwrap());
    let generation = || filesystem.engine().generation();
    let (before, pause) = (generation(), Duration::from_millis(400));
    for number in 0..20 {
        let name = format!("directory{number}");
        filesystem.names().create_directory(&caller, &root, name.as_bytes(), 0o755).unwrap();
        clock.advance(pause);
        assert!(!holds_within(Duration::from_millis(30), || generation() > before), "changes go on");
    }
    let file = write(&filesystem, 300_000);
    assert!(holds_within(Duration::from_secs(20), || {
        clock.advance(pause);
        thread::sleep(Duration::from_millis(20));
        generation() > before
    }));
    assert!(holds_within(Duration::from_secs(20), || size_on_disk(&image, &scratch) == Some(300_000)));
    let after = generation();
    for _ in 0..20 {
        clock.advance(pause);
        assert!(!holds_within(Duration::from_millis(30), || generation() > after), "all is committed");
    }
    // Each kind of change of a file's data, alone, as a mount makes it whose kernel keeps the times.
    let open = WriteOrigin::OpenFile { times: ContentTimes::Stay };
    let copy = filesystem.names().create_file(&caller, &root, b"copy", 0o644).unwrap();
    filesystem.sync().unwrap();
    let changes: [(&str, &dyn Fn()); 5] = [
        ("a hole", &|| {
            filesystem.files().allocate_file(&caller, &file, Allocate::PunchHole, 0, 65536, open).unwrap();
        }),
        ("space", &|| {
            let reserve = Allocate::Reserve { keep_size: true };
            filesystem.files().allocate_file(&caller, &file, reserve, 1 << 20, 65536, open).unwrap();
        }),
        ("a copy", &|| {
            filesystem.files().copy_file_range(&caller, (&file, 65536), (&copy, 0), 65536, open).unwrap();
        }),
        ("a clone", &|| {
            filesystem
                .files()
                .clone_range(&caller, (&file, 131_072), (&copy, 65536), 65536, WriteOrigin::Caller)
                .unwrap()
        }),
        ("a direct write", &|| {
            filesystem.files().write_file_direct(&caller, &file, &[(131_072, &[7; 4096])], open).unwrap();
        }),
    ];
    for (what, change) in changes {
        let before = generation();
        change();
        let is_committed = holds_within(Duration::from_secs(5), || {
            clock.advance(pause);
            thread::sleep(Duration::from_millis(20));
            generation() > before
        });
        assert!(is_committed, "{what} waits for the interval");
    }
    drop((file, copy, root));
    filesystem.close().unwrap();
    btrfs_check_data(&image).unwrap();
}

/// Turns a bit of each block of a tree whose metadata lie in single copies, also of those that were its
/// blocks before.
fn spoil(image: &Path, owner: u64) {
    let bytes = std::fs::read(image).unwrap();
    let (fsid, node) = (&bytes[(64 << 10) + 32..][..16], 16 << 10);
    let is_owned = |block: &[u8]| block[32..48] == *fsid && block[88..96] == owner.to_le_bytes();
    let last = node - 1;
    let file = std::fs::OpenOptions::new().write(true).open(image).unwrap();
    for (number, block) in bytes.chunks(node).enumerate().filter(|(_, block)| is_owned(block)) {
        file.write_all_at(&[block[last] ^ 1], (number * node + last) as u64).unwrap();
    }
}

#[test]
fn a_deleted_subvolume_that_stays_keeps_no_commit_away() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("background-dead");
    let image = image(&scratch, 256, &["-m", "single"]);
    let (clock, caller) = (Arc::new(FixedClock::new(Timestamp::new(1_700_000_000, 0))), root_user());
    let open = || {
        let options = OpenOptions {
            clock: Arc::clone(&clock) as _,
            commit_interval: Duration::from_millis(500),
            ..OpenOptions::default()
        };
        Filesystem::open(&[&image], options).unwrap()
    };
    let filesystem = open();
    let root = filesystem.root().unwrap();
    let subvolume = filesystem.subvolumes().create(&caller, &root, b"subvolume").unwrap();
    let kept = filesystem.inode(subvolume).unwrap();
    filesystem.sync().unwrap();
    filesystem.subvolumes().delete(&caller, &root, b"subvolume").unwrap();
    filesystem.sync().unwrap();
    drop(root);
    drop(filesystem);
    drop(kept);
    spoil(&image, subvolume.root.0);
    let filesystem = open();
    assert_eq!(filesystem.engine().dead_trees().ids(), [subvolume.root]);
    let file = write(&filesystem, 300_000);
    let is_told = || {
        clock.advance(Duration::from_millis(600));
        filesystem.engine().troubles().failed_commit().is_some()
    };
    assert!(holds_within(Duration::from_secs(20), is_told), "the tree was freed");
    assert!(holds_within(Duration::from_secs(20), || file.data().unwritten_bytes() == 0));
    assert!(holds_within(Duration::from_secs(20), || size_on_disk(&image, &scratch) == Some(300_000)));
    assert_eq!(filesystem.engine().dead_trees().ids(), [subvolume.root]);
    assert!(!filesystem.is_read_only());
}

#[test]
fn much_data_is_written_before_a_writer_waits_or_commits() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("background-crowd");
    let image = image(&scratch, 256, &[]);
    let filesystem =
        Filesystem::open(&[&image], OpenOptions::parse("dirty=8m,commit=100000").unwrap()).unwrap();
    let generation = filesystem.engine().generation();
    let file = write(&filesystem, 7 << 20);
    assert!(holds_within(Duration::from_secs(20), || file.data().unwritten_bytes() <= 4 << 20));
    assert_eq!(filesystem.engine().generation(), generation);
    assert_eq!(size_on_disk(&image, &scratch), None);
    assert_eq!(support::read(&filesystem, &file).len(), 7 << 20);
    drop(file);
    filesystem.close().unwrap();
    btrfs_check_data(&image).unwrap();
}

/// While files are only read the device is left alone until the interval's commit, also where an earlier
/// change is being committed.
#[test]
fn access_times_ask_for_no_commit_of_their_own() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("background-access");
    let image = image(&scratch, 256, &[]);
    let clock = Arc::new(FixedClock::new(Timestamp::new(1_700_000_000, 0)));
    let options = OpenOptions { access_times: AccessTimes::Strict, ..idle_options(&clock) };
    let filesystem = Filesystem::open(&[&image], options).unwrap();
    let (caller, root) = (root_user(), filesystem.root().unwrap());
    let file = write(&filesystem, 300_000);
    filesystem.sync().unwrap();
    let generation = || filesystem.engine().generation();
    let read_on = || {
        filesystem.attributes().note_access(&file);
        clock.advance(Duration::from_millis(400));
        thread::sleep(Duration::from_millis(30));
    };
    let before = generation();
    filesystem.names().create_directory(&caller, &root, b"change", 0o755).unwrap();
    assert!(holds_within(Duration::from_secs(20), || {
        read_on();
        generation() > before
    }));
    let after = generation();
    (0..100).for_each(|_| read_on());
    assert_eq!(generation(), after);
    drop((file, root));
    filesystem.close().unwrap();
    btrfs_check_data(&image).unwrap();
}

/// Both happen by the clock alone; which comes first is not seen from here.
#[test]
fn idle_changes_are_committed_and_a_dead_subvolume_is_freed() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("background-deletion");
    let image = image(&scratch, 256, &["-n", "4096"]);
    let clock = Arc::new(FixedClock::new(Timestamp::new(1_700_000_000, 0)));
    let options = OpenOptions {
        clock: Arc::clone(&clock) as _,
        idle_commit: Some(Duration::from_secs(1)),
        ..OpenOptions::default()
    };
    let filesystem = Filesystem::open(&[&image], options).unwrap();
    let (root, caller) = (filesystem.root().unwrap(), root_user());
    for number in 0..2_000 {
        filesystem.names().create_file(&caller, &root, format!("{number}").as_bytes(), 0o644).unwrap();
    }
    filesystem.subvolumes().snapshot(&caller, root.id().root, &root, b"snapshot", false).unwrap();
    filesystem.subvolumes().delete(&caller, &root, b"snapshot").unwrap();
    let file = write(&filesystem, 300_000);
    // Looks at half the time of an idle commit, and again.
    let moved_on = || {
        clock.advance(Duration::from_millis(600));
        size_on_disk(&image, &scratch) == Some(300_000)
    };
    assert!(holds_within(Duration::from_secs(20), moved_on));
    assert!(holds_within(Duration::from_secs(20), || filesystem.engine().dead_trees().is_empty()));
    drop((file, root));
    filesystem.close().unwrap();
    btrfs_check_data(&image).unwrap();
}
