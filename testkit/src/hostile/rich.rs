//! A small image that has as many kinds of structures as can be made.

use vlinder_base::sync::Arc;
use vlinder_device::MemoryDevice;
use vlinder_format::balance::BalanceItem;
use vlinder_format::device_replace::DeviceReplace;
use vlinder_format::device_statistics::DeviceStatistics;
use vlinder_format::verity::VerityDescriptor;
use vlinder_format::{DeviceId, ItemType, Key, RootId};

use super::floods;
use crate::mutator::Mutator;

/// A file with several extents, and names enough for an INODE_EXTREF.
pub const LINKED: &str = "/linked";

/// An image with files, extents of every kind, attributes, hard links, subvolumes, a snapshot, quotas, and the items of a
/// balance, a replacement and error counters.
///
/// # Panics
/// If it can't be made: it is a test's own.
#[must_use]
pub fn rich() -> MemoryDevice {
    let image = floods::with(&super::sound(12), |files| {
        files.write(LINKED, vec![5; 300]).unwrap();
        for number in 0..40 {
            files.hard_link(LINKED, format!("/{}-{number}", "a-long-name".repeat(9))).unwrap();
        }
        files.symlink("linked", "/symbolic").unwrap();
        files
            .write(
                "/plain",
                (0..30_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<_>>(),
            )
            .unwrap();
        let file = files.options().write(true).create(true).open("/holes").unwrap();
        file.write_at(&[9; 5000], 1 << 20).unwrap();
        drop(file);
        files.copy("/plain", "/cloned").unwrap();
    });
    let mutator = Mutator::new(&floods::small_quotas(&image));
    insert(&mutator, RootId::ROOT_TREE, BalanceItem::KEY, &BalanceItem::default().encode());
    let counters = DeviceStatistics::default().encode();
    insert(&mutator, RootId::DEVICE_TREE, DeviceStatistics::key(DeviceId(1)), &counters);
    insert(&mutator, RootId::DEVICE_TREE, DeviceReplace::KEY, &DeviceReplace::default().encode());
    let file = mutator
        .find(RootId::FS_TREE, |key, data| key.item_type == ItemType::DIR_INDEX && data.ends_with(b"plain"));
    let location = mutator.block(file.leaf).data(file.slot).first_chunk().map(Key::decode);
    if let Some(location) = location {
        let descriptor = VerityDescriptor { size_bytes: 256, ..VerityDescriptor::default() };
        insert(&mutator, RootId::FS_TREE, VerityDescriptor::key(location.objectid), &descriptor.encode());
    }
    Arc::clone(&mutator.device()).snapshot()
}

/// Puts an item in where its leaf has room.
fn insert(mutator: &Mutator, tree: RootId, key: Key, data: &[u8]) {
    let is_there = !mutator.all(tree, |found, _| found == key).is_empty();
    if !is_there {
        mutator.insert_where_room(tree, key, data);
    }
}
