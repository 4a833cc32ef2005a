//! A small image that has as many kinds of structures as can be made.

use vlinder_base::sync::Arc;
use vlinder_device::{Device, MemoryDevice};
use vlinder_format::balance::BalanceItem;
use vlinder_format::device_replace::DeviceReplace;
use vlinder_format::device_statistics::DeviceStatistics;
use vlinder_format::directory::DirectoryIndex;
use vlinder_format::file_extent::FileExtent;
use vlinder_format::free_space::{self, FREE_SPACE_USING_BITMAPS, FreeSpaceInfo};
use vlinder_format::log::DirectoryLogRange;
use vlinder_format::quota::{QuotaGroupId, QuotaGroupLimit};
use vlinder_format::uuid_item::{self, UuidKind};
use vlinder_format::verity::VerityDescriptor;
use vlinder_format::{DeviceId, FileOffset, Generation, ItemType, Key, Logical, ObjectId, RootId, Uuid};
use vlinder_fs::data::Allocate;
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, ContentTimes, Filesystem, OpenOptions, WriteOrigin};

use super::floods;
use super::lies::log_blocks;
use crate::mutator::Mutator;

/// A file with several extents, and names enough for an INODE_EXTREF.
pub const LINKED: &str = "/linked";

/// Files with a hole, before some are removed.
const HOLED: u32 = 24;

/// Sectors of the images.
const SECTOR: u32 = 4096;

/// An image with files, extents of every kind, attributes, hard links, subvolumes, snapshots, quotas, a log,
/// and the items of a balance, a replacement and error counters.
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
        files.write("/plain", noise(30_000)).unwrap();
        for number in 0..HOLED {
            let file = files.create(format!("/holes-{number}")).unwrap();
            file.write_at(&[9; 5000], 1 << 20).unwrap();
        }
        // Leaves that were filled in order have no room.
        for number in (1..HOLED).filter(|number| number % 3 == 2) {
            files.remove_file(format!("/holes-{number}")).unwrap();
        }
        preallocate(files, "/reserved");
        files.copy("/plain", "/cloned").unwrap();
        many_users(files);
    });
    let image = compressed(&image);
    let image = logged(&image);
    // Nothing may be written any more: the space of what is planted is said to be free.
    let mutator = Mutator::new(&floods::small_quotas(&image));
    plant_items(&mutator);
    plant_bitmaps(&mutator);
    Arc::clone(&mutator.device()).snapshot()
}

/// Bytes that no compression makes fewer.
fn noise(length: u32) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn preallocate(files: &Files, path: &str) {
    let file = files.create(path).unwrap();
    file.write_at(&noise(5_000), 0).unwrap();
    let (filesystem, caller) = (files.filesystem(), Caller::superuser());
    let (what, origin) =
        (Allocate::Reserve { keep_size: false }, WriteOrigin::OpenFile { times: ContentTimes::Move });
    filesystem.files().allocate_file(&caller, file.inode(), what, 8192, 65_536, origin).unwrap();
}

/// An extent with more users than its item has room for, in a leaf that a snapshot shares and the subvolume
/// then changes. All in a subvolume, so that the first leaf of the root tree keeps room for one more root.
fn many_users(files: &Files) {
    files.write("/volume/0", noise(20_000)).unwrap();
    for number in 1..24 {
        files.copy("/volume/0", format!("/volume/{number}")).unwrap();
    }
    files.sync().unwrap();
    files.snapshot("/volume", "/volume/before", true).unwrap();
    files.sync().unwrap();
    for number in 0..24 {
        files.set_permissions(format!("/volume/{number}"), 0o600).unwrap();
    }
}

/// With files of each compression, inline and not.
fn compressed(image: &MemoryDevice) -> MemoryDevice {
    ["zlib", "lzo", "zstd"].into_iter().fold(image.snapshot(), |image, method| {
        let device = Arc::new(image);
        let options = OpenOptions::parse(&format!("compress-force={method}")).unwrap();
        let devices = vec![Arc::clone(&device) as Arc<dyn Device>];
        let files = Files::new(Filesystem::open_devices(devices, options).unwrap(), Caller::superuser());
        files.write(format!("/{method}"), vec![1; 300_000]).unwrap();
        files.write(format!("/{method}-small"), vec![2; 1_500]).unwrap();
        files.close().unwrap();
        device.snapshot()
    })
}

/// With a log: the image as a cut of power leaves it after files and a directory were synchronized.
fn logged(image: &MemoryDevice) -> MemoryDevice {
    let device = Arc::new(image.snapshot());
    let devices = vec![Arc::clone(&device) as Arc<dyn Device>];
    let filesystem = Filesystem::open_devices(devices, OpenOptions::default()).unwrap();
    let files = Files::new(filesystem, Caller::superuser());
    files.write("/many/logged", noise(9_000)).unwrap();
    files.hard_link("/many/logged", "/many/logged-too").unwrap();
    files.open_file("/many/logged").unwrap().sync_all().unwrap();
    files.remove_file("/many/file-4").unwrap();
    files.open_file("/many").unwrap().sync_all().unwrap();
    let cut = device.snapshot();
    files.close().unwrap();
    cut
}

/// The items that no file makes, or none that this program makes.
fn plant_items(mutator: &Mutator) {
    insert(mutator, RootId::ROOT_TREE, BalanceItem::KEY, &BalanceItem::default().encode());
    let counters = DeviceStatistics::default().encode();
    insert(mutator, RootId::DEVICE_TREE, DeviceStatistics::key(DeviceId(1)), &counters);
    insert(mutator, RootId::DEVICE_TREE, DeviceReplace::KEY, &DeviceReplace::default().encode());
    let limit = QuotaGroupLimit::default().encode();
    insert(mutator, RootId::QUOTA_TREE, QuotaGroupLimit::key(QuotaGroupId(256)), &limit);
    let received = uuid_item::key(UuidKind::Received, Uuid([7; 16]));
    insert(mutator, RootId::UUID_TREE, received, &uuid_item::encode([RootId(256)]));
    let descriptor = VerityDescriptor { size_bytes: 256, ..VerityDescriptor::default() }.encode();
    let numbers = (0..HOLED).filter(|number| number % 3 != 2);
    let holed: Vec<ObjectId> =
        numbers.map(|number| inode(mutator, format!("holes-{number}").as_bytes())).collect();
    let insert_for_any = |key: &dyn Fn(ObjectId) -> Key, data: &[u8]| {
        let has_room = |inode: &ObjectId| mutator.insert_where_room(RootId::FS_TREE, key(*inode), data);
        assert!(holed.iter().any(has_room), "no room for {}", key(holed[0]));
    };
    insert_for_any(&VerityDescriptor::key, &descriptor);
    insert_for_any(&|inode| Key::new(inode, ItemType::VERITY_MERKLE_ITEM, 0), &[8; 64]);
    let hole = FileExtent::hole(1 << 20, Generation(7)).encode();
    insert_for_any(&|inode| FileExtent::key(inode, FileOffset(0)), &hole);
    // Linux wrote ranges of hashes into logs before 5.17, and reads them no more.
    let many = inode(mutator, b"many");
    let range = DirectoryLogRange { last: DirectoryIndex(u64::MAX) };
    let key = Key::new(many, ItemType::DIR_LOG_ITEM, 0);
    let is_log = |logical: &Logical| {
        let block = mutator.block(*logical);
        block.is_leaf() && !block.is_empty() && block.key(0).item_type != ItemType::ROOT_ITEM
    };
    let leaf = log_blocks(mutator).into_iter().rfind(is_log).expect("a log");
    mutator.change_block(leaf, |block| {
        let slot = block.search(&key).unwrap_err();
        block.items_mut().insert(slot, &[(key, &range.encode())]);
    });
}

/// The inode of a name of the top-level subvolume.
fn inode(mutator: &Mutator, name: &[u8]) -> ObjectId {
    let is_it = |key: Key, data: &[u8]| key.item_type == ItemType::DIR_INDEX && data.get(30..) == Some(name);
    let found = mutator.find(RootId::FS_TREE, is_it);
    let block = mutator.block(found.leaf);
    Key::decode(block.data(found.slot).first_chunk().expect("an entry")).objectid
}

/// Tells the free space of the smallest block group by bitmaps.
fn plant_bitmaps(mutator: &Mutator) {
    let tree = RootId::FREE_SPACE_TREE;
    let groups = mutator.all(tree, |key, _| key.item_type == ItemType::FREE_SPACE_INFO);
    let group = groups.into_iter().min_by_key(|found| found.key.offset).expect("a block group");
    let (start, length) = (group.key.objectid.0, group.key.offset);
    let range = free_space::bitmap_range(SECTOR);
    let mut bitmaps: Vec<(Key, Vec<u8>)> = (start..start + length)
        .step_by(usize::try_from(range).unwrap())
        .map(|at| {
            let covered = range.min(start + length - at);
            let bytes = free_space::bitmap_bytes(covered, SECTOR).unwrap();
            (free_space::bitmap_key(Logical(at), covered), vec![0; bytes])
        })
        .collect();
    let runs = mutator.all(tree, |key, _| {
        key.item_type == ItemType::FREE_SPACE_EXTENT && (start..start + length).contains(&key.objectid.0)
    });
    for run in runs.iter().rev() {
        for at in (run.key.objectid.0..run.key.objectid.0 + run.key.offset).step_by(SECTOR as usize) {
            let (key, bitmap) = &mut bitmaps[usize::try_from((at - start) / range).unwrap()];
            let sector = (at - key.objectid.0) / u64::from(SECTOR);
            free_space::bitmap_set(bitmap, sector, 1, true).unwrap();
        }
        mutator.remove(*run);
    }
    let info = mutator.find(tree, |key, _| key == group.key);
    mutator.change_item(info, |data| {
        let info = FreeSpaceInfo::decode(data).unwrap();
        data.copy_from_slice(&FreeSpaceInfo { flags: FREE_SPACE_USING_BITMAPS, ..info }.encode());
    });
    bitmaps.iter().for_each(|(key, bitmap)| insert(mutator, tree, *key, bitmap));
}

/// Puts an item in, unless it is there.
fn insert(mutator: &Mutator, tree: RootId, key: Key, data: &[u8]) {
    let is_there = !mutator.all(tree, |found, _| found == key).is_empty();
    assert!(is_there || mutator.insert_where_room(tree, key, data), "no room for {key} in tree {tree}");
}
