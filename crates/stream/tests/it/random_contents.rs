//! Random changes of files that share extents: what is received here shows what was sent. No kernel needed.

use std::borrow::Cow;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use vlinder_base::sync::Arc;
use vlinder_fs::data::{Allocate, OpenCache};
use vlinder_fs::{Caller, Filesystem, Inode, InodeId, OpenOptions, RootId, SetAttributes, WriteOrigin};
use vlinder_stream::send::SendOptions;
use vlinder_stream::wire::Protocol;
use vlinder_testkit::{Scratch, golden};

use crate::kernel_receives::{receive_here, send_as};

const FILES: usize = 4;
const SNAPSHOTS: [&[u8]; 3] = [b"s0", b"s1", b"s2"];

/// A change of a file. Offsets and lengths are bytes, some on sectors and some not.
#[derive(Clone, Debug)]
enum Change {
    Write {
        file: usize,
        offset: u64,
        length: u64,
        value: u8,
    },
    Clone {
        from: usize,
        to: usize,
        source: u64,
        target: u64,
        sectors: u64,
    },
    Resize {
        file: usize,
        size: u64,
    },
    Punch {
        file: usize,
        offset: u64,
        length: u64,
    },
    Reserve {
        file: usize,
        offset: u64,
        length: u64,
        keep_size: bool,
    },
    /// What was written becomes extents.
    Sync,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let file = 0..FILES;
    let offset = prop_oneof![(0..60_u64).prop_map(|sector| sector * 4096), 0..250_000_u64];
    let length = prop_oneof![(1..20_u64).prop_map(|sectors| sectors * 4096), 1..60_000_u64];
    let (at, long) = (offset.clone(), length.clone());
    let change = prop_oneof![
        4 => (file.clone(), at.clone(), long.clone(), any::<u8>())
            .prop_map(|(file, offset, length, value)| Change::Write { file, offset, length, value }),
        4 => (file.clone(), file.clone(), 0..40_u64, 0..40_u64, 1..20_u64).prop_map(
            |(from, to, source, target, sectors)| {
                Change::Clone { from, to, source: source * 4096, target: target * 4096, sectors }
            }
        ),
        1 => (file.clone(), offset).prop_map(|(file, size)| Change::Resize { file, size }),
        2 => (file.clone(), at.clone(), long.clone())
            .prop_map(|(file, offset, length)| Change::Punch { file, offset, length }),
        1 => (file, at, long, any::<bool>()).prop_map(|(file, offset, length, keep_size)| {
            Change::Reserve { file, offset, length, keep_size }
        }),
        2 => Just(Change::Sync),
    ];
    prop::collection::vec(change, 1..25)
}

fn apply(filesystem: &Filesystem, inodes: &[Arc<Inode>], change: &Change) {
    let (files, caller) = (filesystem.files(), Caller::superuser());
    let allocate = |file: usize, what, offset, length| {
        files.allocate_file(&caller, &inodes[file], what, offset, length, WriteOrigin::Caller).unwrap();
    };
    match *change {
        Change::Write { file, offset, length, value } => {
            let bytes = (0..length).map(|at| value.wrapping_add((at / 512) as u8)).collect();
            files.write_at(&caller, &inodes[file], offset, Cow::Owned(bytes)).unwrap();
        }
        Change::Clone { from, to, source, target, sectors } => {
            // Refused where the source ends before, or where a file would overlap itself.
            let (source, target) = ((&inodes[from], source), (&inodes[to], target));
            let _ = files.clone_range(&caller, source, target, sectors * 4096, WriteOrigin::Caller);
        }
        Change::Resize { file, size } => {
            let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
            filesystem.attributes().set(&caller, &inodes[file], &changes).unwrap();
        }
        Change::Punch { file, offset, length } => allocate(file, Allocate::PunchHole, offset, length),
        Change::Reserve { file, offset, length, keep_size } => {
            allocate(file, Allocate::Reserve { keep_size }, offset, length);
        }
        Change::Sync => {
            filesystem.sync().unwrap();
        }
    }
}

/// What the files of a snapshot hold.
fn contents(image: &Path, snapshot: &[u8]) -> Vec<Vec<u8>> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let filesystem = Filesystem::open(&[image], options).unwrap();
    let root: RootId = filesystem.subvolumes().at(snapshot).unwrap();
    let root = filesystem.inode(InodeId::root_of(root)).unwrap();
    let read = |number: usize| {
        let name = format!("f{number}");
        let inode = filesystem.names().lookup(&Caller::superuser(), &root, name.as_bytes()).unwrap();
        let mut bytes = vec![0; 1 << 20];
        let count = filesystem.files().read_at(&inode, &OpenCache::new(), 0, &mut bytes).unwrap();
        bytes.truncate(count);
        bytes
    };
    (0..FILES).map(read).collect()
}

#[test]
fn random_changes_of_files_are_received_as_they_are() {
    let cases = std::env::var("CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(40);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let scratch = Scratch::in_memory("stream-random-contents");
    let [source, target, stream] = ["source", "target", "stream"].map(|name| scratch.join(name));
    let rounds = prop::collection::vec(changes(), SNAPSHOTS.len());
    let how = (prop::sample::select(vec![Protocol::V1, Protocol::V2]), any::<bool>());
    runner
        .run(&(rounds, how), |(rounds, (protocol, compressed_data))| {
            for image in [&source, &target] {
                let _ = std::fs::remove_file(image);
                golden::unpack("empty", image).unwrap();
            }
            {
                let options = OpenOptions::parse("compress=zstd").unwrap();
                let filesystem = Filesystem::open(&[&source], options).unwrap();
                let (caller, root) = (Caller::superuser(), filesystem.root().unwrap());
                let made = (0..FILES).map(|number| {
                    let name = format!("f{number}");
                    filesystem.names().create_file(&caller, &root, name.as_bytes(), 0o600).unwrap()
                });
                let inodes: Vec<Arc<Inode>> = made.collect();
                for (changes, name) in rounds.iter().zip(SNAPSHOTS) {
                    changes.iter().for_each(|change| apply(&filesystem, &inodes, change));
                    let subvolumes = filesystem.subvolumes();
                    subvolumes.snapshot(&caller, RootId::FS_TREE, &root, name, true).unwrap();
                }
                drop(inodes);
                filesystem.close().unwrap();
            }
            let options = SendOptions { compressed_data, ..SendOptions::default() };
            let mut parent = None;
            for name in SNAPSHOTS {
                send_as(&source, parent, name, &stream, (protocol, options));
                receive_here(&target, &stream);
                let same = contents(&source, name) == contents(&target, name);
                prop_assert!(same, "{}", String::from_utf8_lossy(name));
                parent = Some(name);
            }
            Ok(())
        })
        .unwrap();
}
