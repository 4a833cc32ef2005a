//! Images whose counts or names are wrong: an error that says where, and no more.

use std::ops::ControlFlow;

use vlinder_base::sync::Arc;
use vlinder_device::MemoryDevice;
use vlinder_format::extent::{ExtentFlags, ExtentItem};
use vlinder_format::{ItemType, Logical, ObjectId, RootId};
use vlinder_fs::WriteOrigin;
use vlinder_fs::data::Allocate;
use vlinder_snapshots::usage::{DeletionSet, ExtentKind, Freed, UsageError, UsageReader, UsageTarget};
use vlinder_testkit::mutator::Mutator;
use vlinder_testkit::subject::Recipe;

use super::support::{blocks_of, open, superuser};

/// A subvolume of many files that a snapshot shares, with a directory in a directory.
fn image() -> (Arc<MemoryDevice>, [RootId; 2]) {
    let device = Arc::new(Recipe { node_size: 4096, ..Recipe::default() }.in_memory());
    let filesystem = open(&device, "");
    let (caller, top, names) = (superuser(), filesystem.root().unwrap(), filesystem.names());
    let source = filesystem.subvolumes().create(&caller, &top, b"source").unwrap();
    let root = filesystem.inode(source).unwrap();
    let outer = names.create_directory(&caller, &root, b"outer", 0o755).unwrap();
    names.create_directory(&caller, &outer, b"inner", 0o755).unwrap();
    for number in 0..300 {
        let file = names.create_file(&caller, &root, format!("file-{number}").as_bytes(), 0o644).unwrap();
        let what = Allocate::Reserve { keep_size: false };
        filesystem.files().allocate_file(&caller, &file, what, 0, 4096, WriteOrigin::Caller).unwrap();
    }
    filesystem.subvolumes().snapshot(&caller, source.root, &top, b"shot", true).unwrap();
    let shot = filesystem.subvolumes().at(b"shot").unwrap();
    drop((outer, root, top));
    filesystem.close().unwrap();
    (device, [source.root, shot])
}

fn subvolume(root: RootId) -> UsageTarget<'static> {
    UsageTarget { root, inode: ObjectId::FIRST_FREE, name: None }
}

fn freed(device: &Arc<MemoryDevice>, roots: &[RootId]) -> Result<Freed, UsageError> {
    let filesystem = open(device, "ro");
    let state = filesystem.lease().unwrap();
    let mut set = DeletionSet::new();
    roots.iter().try_for_each(|root| set.add(state.forest(), &subvolume(*root)))?;
    UsageReader::new(state.forest(), &|_| ())?.freed(set, &mut |_| ())
}

/// An extent item by its kind, of a subvolume's.
fn is_counted(data: &[u8], is_data: bool, references: u64) -> bool {
    ExtentItem::decode_header(data)
        .is_ok_and(|header| header.flags.has(ExtentFlags::DATA) == is_data && header.references == references)
}

#[test]
fn an_extent_that_is_not_allocated_is_told() {
    let (device, roots) = image();
    assert!(freed(&device, &roots).unwrap().data_bytes == 300 * 4096);
    let mutator = Mutator::new(&device);
    let all = mutator.all(RootId::EXTENT_TREE, |key, data| {
        key.item_type == ItemType::EXTENT_ITEM && is_counted(data, true, 1)
    });
    // A leaf whose first item is gone is not what its parent says.
    let found = *all.iter().find(|found| found.slot > 0).unwrap();
    mutator.remove(found);
    let error = freed(&mutator.device(), &roots).unwrap_err();
    let expected = Logical(found.key.objectid.0);
    assert!(
        matches!(error, UsageError::NotAllocated { kind: ExtentKind::Data, address } if address == expected),
        "{error}"
    );
    assert!(error.to_string().contains(&expected.to_string()), "{error}");
    // What is shared alone is not looked up, and shows what it shows.
    let filesystem = open(&mutator.device(), "ro");
    let state = filesystem.lease().unwrap();
    let mut reader = UsageReader::new(state.forest(), &|_| ()).unwrap();
    assert_eq!(reader.summary(&subvolume(roots[1])).unwrap().set_shared_bytes, 300 * 4096);
}

#[test]
fn more_references_than_are_counted_are_told() {
    let (device, roots) = image();
    let shared: Vec<Logical> = {
        let filesystem = open(&device, "ro");
        let state = filesystem.lease().unwrap();
        let [one, other] = roots.map(|root| blocks_of(state.forest(), root));
        one.intersection(&other).map(|block| block.0).collect()
    };
    assert!(shared.len() > 10);
    let mutator = Mutator::new(&device);
    let blocks = mutator.all(RootId::EXTENT_TREE, |key, data| {
        key.item_type == ItemType::METADATA_ITEM
            && shared.contains(&Logical(key.objectid.0))
            && is_counted(data, false, 2)
    });
    let found = blocks[0];
    // A sound item of one reference alone: the counts are right in themselves, and the trees say otherwise.
    let item = mutator.block(found.leaf).data(found.slot).to_vec();
    let one_reference = 24 + 9;
    let is_inline = item.len() > one_reference;
    let mut item = item[..one_reference.min(item.len())].to_vec();
    item[..8].copy_from_slice(&1_u64.to_le_bytes());
    mutator.remove(found);
    mutator.insert(RootId::EXTENT_TREE, found.key, &item);
    let error = freed(&mutator.device(), &roots).unwrap_err();
    let expected = Logical(found.key.objectid.0);
    assert!(
        matches!(error, UsageError::Miscounted { address, met: 2, counted: 1, .. } if address == expected),
        "{error}, inline {is_inline}"
    );
    // One of the two alone is told to free what the other has: no walk of one tree can know.
    assert!(freed(&mutator.device(), &roots[..1]).is_ok());
}

#[test]
fn directories_in_a_circle_are_told() {
    let (device, roots) = image();
    let mutator = Mutator::new(&device);
    let inner =
        mutator.find(roots[0], |key, data| key.item_type == ItemType::DIR_INDEX && data.ends_with(b"inner"));
    // The name of the inner directory leads to the outer one.
    mutator.set_u64(inner, 0, inner.key.objectid.0);
    let filesystem = open(&mutator.device(), "ro");
    let state = filesystem.lease().unwrap();
    let mut reader = UsageReader::new(state.forest(), &|_| ()).unwrap();
    let found = reader.list(&subvolume(roots[0]), &mut |_| ControlFlow::Continue(()));
    let expected = inner.key.objectid;
    assert!(matches!(found, Err(UsageError::Circle { inode, .. }) if inode == expected), "{found:?}");
    // All in the directory goes once.
    let mut set = DeletionSet::new();
    set.add(state.forest(), &UsageTarget { root: roots[0], inode: expected, name: None }).unwrap();
    assert_eq!(reader.freed(set, &mut |_| ()).unwrap(), Freed::default());
}

#[test]
fn a_name_without_an_inode_is_told() {
    let (device, roots) = image();
    let mutator = Mutator::new(&device);
    let file =
        mutator.find(roots[0], |key, data| key.item_type == ItemType::DIR_INDEX && data.ends_with(b"file-7"));
    mutator.set_u64(file, 0, 1 << 40);
    let filesystem = open(&mutator.device(), "ro");
    let state = filesystem.lease().unwrap();
    let mut reader = UsageReader::new(state.forest(), &|_| ()).unwrap();
    let found = reader.list(&subvolume(roots[0]), &mut |_| ControlFlow::Continue(()));
    let is_told =
        |error: &UsageError| matches!(error, UsageError::NoInode { inode, .. } if inode.0 == 1 << 40);
    assert!(found.as_ref().is_err_and(is_told), "{found:?}");
}
