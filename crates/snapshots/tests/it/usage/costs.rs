//! What is read follows what is asked.

use vlinder_base::sync::Arc;
use vlinder_device::MemoryDevice;
use vlinder_format::RootId;
use vlinder_fs::data::Allocate;
use vlinder_fs::{Filesystem, WriteOrigin};
use vlinder_snapshots::usage::{DeletionSet, Freed, UsageReader, UsageTarget};
use vlinder_testkit::subject::Recipe;

use super::support::{blocks_of, open, superuser};

const FILES: u64 = 6000;
const SNAPSHOTS: u64 = 40;

/// A subvolume of many files, and snapshots with a change between each and the next.
fn image() -> (Arc<MemoryDevice>, Vec<RootId>) {
    let device = Arc::new(Recipe { node_size: 4096, ..Recipe::default() }.in_memory());
    let filesystem = open(&device, "");
    let (caller, top) = (superuser(), filesystem.root().unwrap());
    let source = filesystem.subvolumes().create(&caller, &top, b"source").unwrap();
    let root = filesystem.inode(source).unwrap();
    let reserve = |filesystem: &Filesystem, number: u64, place: u64| {
        let name = format!("file-{number}");
        let names = filesystem.names();
        let file = names.lookup(&caller, &root, name.as_bytes());
        let file = file.or_else(|_| names.create_file(&caller, &root, name.as_bytes(), 0o644)).unwrap();
        let what = Allocate::Reserve { keep_size: false };
        let files = filesystem.files();
        files.allocate_file(&caller, &file, what, place * 4096, 4096, WriteOrigin::Caller).unwrap();
    };
    (0..FILES).for_each(|number| reserve(&filesystem, number, 0));
    let mut roots = Vec::new();
    for number in 0..SNAPSHOTS {
        reserve(&filesystem, number * 97, number + 1);
        let name = format!("snapshot-{number}");
        filesystem.subvolumes().snapshot(&caller, source.root, &top, name.as_bytes(), true).unwrap();
        roots.push(filesystem.subvolumes().at(name.as_bytes()).unwrap());
    }
    drop((root, top));
    filesystem.close().unwrap();
    (device, roots)
}

fn subvolume(root: RootId) -> UsageTarget<'static> {
    UsageTarget { root, inode: vlinder_format::ObjectId::FIRST_FREE, name: None }
}

/// What deleting these frees, with the blocks read and the descents made for it.
fn freed(device: &Arc<MemoryDevice>, roots: &[RootId]) -> (Freed, u64, u64) {
    let filesystem = open(device, "ro");
    let state = filesystem.lease().unwrap();
    let metrics = state.forest().trees().metrics().clone();
    let (read, descents) = (metrics.blocks_read.get(), metrics.descents.get());
    let mut set = DeletionSet::new();
    roots.iter().for_each(|root| set.add(state.forest(), &subvolume(*root)).unwrap());
    let freed = UsageReader::new(state.forest(), &|_| ()).unwrap().freed(set, &mut |_| ()).unwrap();
    (freed, metrics.blocks_read.get() - read, metrics.descents.get() - descents)
}

#[test]
fn what_is_read_follows_what_goes() {
    let (device, roots) = image();
    let tree_blocks = {
        let filesystem = open(&device, "ro");
        blocks_of(filesystem.lease().unwrap().forest(), roots[0]).len() as u64
    };
    let (one, read, descents) = freed(&device, &roots[7..8]);
    println!(
        "one of {SNAPSHOTS}: {one:?}, {read} blocks read, {descents} descents; its tree has {tree_blocks}"
    );
    assert!(one.metadata_bytes > 0 && one.metadata_bytes < 10 * 4096, "{one:?}");
    // What it holds alone; of the extent tree, the leaves that count its root's children and its extents.
    assert!(read * 4 < tree_blocks, "{read} blocks of {tree_blocks}");
    let (ten, read_of_ten, _) = freed(&device, &roots[10..20]);
    assert!(ten.metadata_bytes > one.metadata_bytes && read_of_ten < tree_blocks, "{read_of_ten}");
    // All of them read what they share once, and not forty times.
    let (all, read_of_all, descents_of_all) = freed(&device, &roots);
    println!("all {SNAPSHOTS}: {all:?}, {read_of_all} blocks read, {descents_of_all} descents");
    assert!(read_of_all < 4 * tree_blocks, "{read_of_all} blocks of {tree_blocks}");
}

#[test]
fn many_snapshots_cost_one_reading_and_their_differences() {
    let (device, roots) = image();
    let filesystem = open(&device, "ro");
    let state = filesystem.lease().unwrap();
    let read = std::cell::Cell::new(0_u64);
    let watch = |blocks: u64| read.set(read.get() + blocks);
    let mut reader = UsageReader::new(state.forest(), &watch).unwrap();
    let first = reader.summary(&subvolume(roots[0])).unwrap();
    let (of_first, mut last) = (read.get(), first);
    for root in &roots[1..] {
        let next = reader.summary(&subvolume(*root)).unwrap();
        assert_eq!(next.total_bytes, last.total_bytes + 4096, "a sector more than the one before");
        last = next;
    }
    assert_eq!((first.total_bytes, first.exclusive_bytes), ((FILES + 1) * 4096, 0));
    let of_others = read.get() - of_first;
    println!("the first reads {of_first} blocks, the {} others {of_others}", SNAPSHOTS - 1);
    assert!(of_others < 3 * of_first, "{of_others} after {of_first}");
}
