//! Leases on committed states: what they hold back, for how long, and who gives way when space ends.

use std::borrow::Cow;
use std::path::Path;

use crate::support::{image, root_user, walk};
use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::sync::Arc;
use vlinder_check::Severity;
use vlinder_device::{Device, FileDevice};
use vlinder_fs::{Filesystem, OpenOptions, RootId};
use vlinder_testkit::kernel::{btrfs_check, btrfs_check_data};
use vlinder_testkit::{Scratch, require};
use vlinder_transaction::EngineError;
use vlinder_tree::CommitLease;

fn open(image: &Path) -> Filesystem {
    Filesystem::open(&[image], OpenOptions::parse("discard,commit=100000").unwrap()).unwrap()
}

/// The image for a second reader, who asks no lock.
fn device(image: &Path) -> Arc<dyn Device> {
    let options = vlinder_device::OpenOptions { read_only: true, ..Default::default() };
    Arc::new(FileDevice::open(image, &options).unwrap())
}

/// What a process that knows nothing but the lease reads from the device.
fn read_leased(image: &Path, lease: &CommitLease) -> Result<String, String> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let opened = Filesystem::open_leased(vec![device(image)], lease.superblocks().to_vec(), options);
    let filesystem = opened.map_err(|error| error.to_string())?;
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| walk(&filesystem)))
        .map_err(|_| "the walk failed".to_owned())
}

/// What the judge of all trees and data says of a leased state.
fn check_leased(image: &Path, lease: &CommitLease) -> String {
    let options = vlinder_check::Options { data_checksums: true, ..Default::default() };
    let report =
        vlinder_check::check_leased(vec![device(image)], lease.superblocks().to_vec(), &options).unwrap();
    assert!(report.blocks > 10);
    // Of mkfs.btrfs there are leftovers in the free-space tree, which are warnings.
    let errors = report.findings.iter().filter(|finding| finding.kind.severity() == Severity::Error);
    errors.map(|finding| format!("{finding}\n")).collect()
}

fn held_bytes(filesystem: &Filesystem) -> i64 {
    let samples = filesystem.options().registry.snapshot();
    let sample = samples.iter().find(|sample| sample.name == "commit.lease_held_bytes").unwrap();
    match sample.value {
        vlinder_base::metrics::Value::Gauge(value) => value,
        ref other => panic!("{other:?}"),
    }
}

fn pinned_bytes(filesystem: &Filesystem) -> u64 {
    filesystem.engine().space().unwrap().kinds.iter().map(|kind| kind.pinned_bytes).sum()
}

/// Files of one directory that come, go and change.
struct Churn<'a> {
    filesystem: &'a Filesystem,
    random: SeededRandom,
    files: u64,
}

impl Churn<'_> {
    fn new(filesystem: &Filesystem, files: u64) -> Churn<'_> {
        Churn { filesystem, random: SeededRandom::new(11), files }
    }

    /// So many changes, and a commit.
    fn round(&self, changes: u64) {
        let (root, caller) = (self.filesystem.root().unwrap(), root_user());
        for _ in 0..changes {
            let name = format!("file-{}", self.random.next_u64() % self.files);
            let removed = self.filesystem.names().unlink(&caller, &root, name.as_bytes()).is_ok();
            if removed && self.random.next_u64().is_multiple_of(3) {
                continue;
            }
            let file = self.filesystem.names().create_file(&caller, &root, name.as_bytes(), 0o644).unwrap();
            let mut content = vec![0; (self.random.next_u64() % 60_000) as usize];
            self.random.fill(&mut content);
            self.filesystem.files().write_at(&caller, &file, 0, Cow::Owned(content)).unwrap();
        }
        self.filesystem.sync().unwrap();
    }
}

fn a_state_stays(arguments: &[&str]) {
    let scratch = Scratch::new("lease");
    let image = image(&scratch, 256, arguments);
    let filesystem = open(&image);
    let churn = Churn::new(&filesystem, 400);
    churn.round(600);
    let lease = filesystem.engine().lease().unwrap();
    let before = walk(&filesystem);
    assert_eq!(read_leased(&image, &lease).unwrap(), before);
    for round in 0..24 {
        churn.round(60);
        if round % 8 == 7 {
            assert_ne!(walk(&filesystem), before);
            assert_eq!(read_leased(&image, &lease).unwrap(), before, "round {round}");
            assert_eq!(check_leased(&image, &lease), "");
        }
    }
    // In the same process, through the same cache.
    let engine = filesystem.engine();
    let tree = engine.reader().leased_tree(&lease, RootId::FS_TREE).unwrap();
    let mut cursor = engine
        .forest()
        .trees()
        .cursor(&tree, &vlinder_format::Key::MIN, vlinder_tree::Readahead::None)
        .unwrap();
    let mut items = 0;
    while cursor.item().is_some() {
        items += 1;
        cursor.advance().unwrap();
    }
    assert!(items > 1000, "{items}");
    lease.confirm().unwrap();
    let held = held_bytes(&filesystem);
    assert!(held > 1 << 20, "{held}");
    assert_eq!(pinned_bytes(&filesystem), held as u64);
    let superblocks = lease.superblocks().to_vec();
    drop(lease);
    assert_eq!((held_bytes(&filesystem), pinned_bytes(&filesystem)), (0, 0));
    // Without the lease that state is gone at once: the same readers see it.
    let options = vlinder_check::Options::default();
    let gone = vlinder_check::check_leased(vec![device(&image)], superblocks, &options);
    assert!(gone.is_err() || !gone.unwrap().is_clean(), "nothing was held back");
    churn.round(60);
    filesystem.close().unwrap();
    btrfs_check_data(&image).unwrap();
}

#[test]
fn a_leased_state_stays_while_others_commit() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    a_state_stays(&[]);
}

#[test]
fn a_leased_state_stays_with_small_nodes_and_single_metadata() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    a_state_stays(&["-n", "4096", "-m", "single"]);
}

#[test]
fn a_leased_state_stays_without_a_free_space_tree() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    a_state_stays(&["-R", "^free-space-tree"]);
}

#[test]
fn leases_end_in_any_order() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let scratch = Scratch::new("leases");
        let image = image(&scratch, 256, &[]);
        let filesystem = open(&image);
        let churn = Churn::new(&filesystem, 100);
        churn.round(150);
        let mut leases: Vec<Option<(CommitLease, String)>> = Vec::new();
        for _ in 0..3 {
            leases.push(Some((filesystem.engine().lease().unwrap(), walk(&filesystem))));
            churn.round(30);
            churn.round(30);
        }
        let mut held = held_bytes(&filesystem);
        for ended in order {
            for (lease, before) in leases.iter().flatten() {
                assert_eq!(
                    &read_leased(&image, lease).unwrap(),
                    before,
                    "{order:?}, before the end of {ended}"
                );
                assert_eq!(check_leased(&image, lease), "");
            }
            leases[ended] = None;
            let now = held_bytes(&filesystem);
            assert!(now < held, "{order:?}: {ended} gave nothing back");
            held = now;
            churn.round(10);
            held = held.max(held_bytes(&filesystem));
        }
        assert_eq!((held_bytes(&filesystem), pinned_bytes(&filesystem)), (0, 0));
        filesystem.close().unwrap();
        btrfs_check(&image).unwrap();
    }
}

/// Writes files of 1 MiB until there is no space; gives how many.
fn fill(filesystem: &Filesystem, name: &str) -> u64 {
    let (root, caller) = (filesystem.root().unwrap(), root_user());
    for number in 0.. {
        let name = format!("{name}-{number}");
        let written =
            filesystem.names().create_file(&caller, &root, name.as_bytes(), 0o644).and_then(|file| {
                filesystem.files().write_at(&caller, &file, 0, Cow::Owned(vec![number as u8; 1 << 20]))
            });
        match written {
            Ok(_) => {}
            Err(error) if error.to_string().contains("space") => {
                let _ = filesystem.names().unlink(&caller, &root, name.as_bytes());
                return number;
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

#[test]
fn a_full_disk_takes_its_leases_back_and_nothing_else_gives_way() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let scratch = Scratch::new("lease-full");
    let image = image(&scratch, 200, &[]);
    let filesystem = open(&image);
    let (root, caller) = (filesystem.root().unwrap(), root_user());
    let first = fill(&filesystem, "first");
    assert!(first > 80, "{first}");
    filesystem.sync().unwrap();
    let full = filesystem.engine().lease().unwrap();
    for number in (0..first).rev() {
        filesystem.names().unlink(&caller, &root, format!("first-{number}").as_bytes()).unwrap();
    }
    filesystem.sync().unwrap();
    full.confirm().unwrap();
    assert!(held_bytes(&filesystem) >= (first as i64 - 1) << 20);
    assert_eq!(check_leased(&image, &full), "");
    // All that is free is held by the lease: writing takes it back.
    let second = fill(&filesystem, "second");
    assert!(second + 2 >= first, "{second} of {first}");
    let revoked = full.confirm().unwrap_err();
    assert_eq!(revoked.generation, full.generation());
    match filesystem.engine().reader().leased_tree(&full, RootId::FS_TREE) {
        Err(EngineError::LeaseRevoked(error)) => assert_eq!(error, revoked),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a revoked lease still reads"),
    }
    assert_eq!((held_bytes(&filesystem), filesystem.engine().read_only_reason()), (0, None));
    // A new one is as good as the first; filling and deleting go on under it, again and again.
    let mut present = second;
    for round in 0..8 {
        let lease = filesystem.engine().lease().unwrap();
        for number in 0..present {
            filesystem.names().unlink(&caller, &root, format!("second-{number}").as_bytes()).unwrap();
            if number % 16 == round {
                filesystem.sync().unwrap();
            }
        }
        present = fill(&filesystem, "second");
        assert!(present.abs_diff(second) <= 3, "round {round}: {present} of {second}");
        assert!(lease.confirm().is_err());
    }
    drop((full, root));
    filesystem.close().unwrap();
    btrfs_check_data(&image).unwrap();
}
