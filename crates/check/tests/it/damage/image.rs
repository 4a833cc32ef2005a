//! The image that is damaged, its parts by name, and places in it.

use crate::common;
use vlinder_base::sync::ProcessOnce;
use vlinder_device::MemoryDevice;
use vlinder_format::file_extent::{ExtentRange, FileExtent};
use vlinder_format::free_space::FreeSpaceInfo;
use vlinder_format::{ItemType as Type, Key, Logical, ObjectId, Place, RootId};
use vlinder_testkit::mutator::{Found, Mutator};

pub use crate::common::{place, place_of};

pub const FS: RootId = RootId::FS_TREE;
/// The subvolume `s`, which has one file of its own, and the snapshot of it.
pub const SUBVOLUMES: [RootId; 2] = [RootId(256), RootId(257)];
/// Where the superblock's sums are found wrong: in no tree.
pub const NOWHERE: Place = Place { tree: None, block: None, slot: None, key: None };
/// The root directory of every subvolume.
pub const ROOT_DIRECTORY: ObjectId = ObjectId(256);
pub const SECTOR: u64 = 4096;

/// Files of every kind, hard links, clones, a nested subvolume and a snapshot, and enough names for a tree of
/// two levels.
pub const FILL: &str = r"
    mkdir d; dd if=/dev/urandom of=d/file bs=4096 count=80 status=none; printf hello > d/small; ln d/file d/hard
    ln -s target link; mkfifo fifo; fallocate -l 1M prealloc; truncate -s 1M sparse
    dd if=/dev/urandom of=sparse bs=4096 count=2 seek=50 conv=notrunc status=none
    setfattr -n user.name -v value d/file; cp --reflink=always d/file clone
    mkdir packed; chattr +c packed; seq 200000 > packed/text; touch nosum; chattr +C nosum
    dd if=/dev/urandom of=nosum bs=4096 count=4 conv=notrunc status=none
    btrfs subvolume create s > /dev/null; cp d/file s/inside; sync -f .
    btrfs subvolume snapshot s t > /dev/null
    i=0; while [ $i -lt 700 ]; do echo $i > name-$i; i=$((i+1)); done
";

/// The image of it, made once.
pub fn filled() -> &'static MemoryDevice {
    static IMAGE: ProcessOnce<MemoryDevice> = ProcessOnce::new();
    IMAGE.get_or_init(|| common::image(&[], FILL))
}

/// A tree, and no place in it.
pub fn in_tree(tree: RootId) -> Place {
    Place { tree: Some(tree), ..NOWHERE }
}

pub fn at_block(tree: RootId, block: Logical) -> Place {
    Place { block: Some(block), ..in_tree(tree) }
}

/// A key, wherever it stands.
pub fn at_key(tree: RootId, key: Key) -> Place {
    Place { key: Some(key), ..in_tree(tree) }
}

/// An item in the place of one that was removed, or beside one.
pub fn beside(m: &Mutator, found: Found, slots: isize) -> Found {
    let slot = found.slot.checked_add_signed(slots).unwrap();
    Found { slot, key: m.block(found.leaf).key(slot), ..found }
}

pub fn data_of(m: &Mutator, found: Found) -> Vec<u8> {
    m.block(found.leaf).data(found.slot).to_vec()
}

/// A number in an item.
pub fn u64_at(m: &Mutator, found: Found, offset: usize) -> u64 {
    u64::from_le_bytes(data_of(m, found)[offset..offset + 8].try_into().unwrap())
}

pub fn u32_at(m: &Mutator, found: Found, offset: usize) -> u32 {
    u32::from_le_bytes(data_of(m, found)[offset..offset + 4].try_into().unwrap())
}

/// The entry of a name in the index of its directory, in the top-level subvolume.
pub fn indexed(m: &Mutator, name: &str) -> Found {
    m.find(FS, |key, data| key.item_type == Type::DIR_INDEX && &data[30..] == name.as_bytes())
}

/// The entry of a name by its hash.
pub fn hashed(m: &Mutator, name: &str) -> Found {
    m.find(FS, |key, data| key.item_type == Type::DIR_ITEM && &data[30..] == name.as_bytes())
}

/// The inode that a name leads to.
pub fn inode(m: &Mutator, name: &str) -> ObjectId {
    ObjectId(u64_at(m, indexed(m, name), 0))
}

/// An item of the inode that a name leads to.
pub fn of(m: &Mutator, name: &str, item_type: Type) -> Found {
    m.find_of(inode(m, name), item_type)
}

/// The inode item of the root directory, which all names but a few lie in.
pub fn root_directory(m: &Mutator) -> Found {
    m.find_of(ROOT_DIRECTORY, Type::INODE_ITEM)
}

/// Where a file's first bytes lie.
pub fn range_of(m: &Mutator, extent: Found) -> ExtentRange {
    FileExtent::decode(&data_of(m, extent)).unwrap().range().unwrap()
}

/// The file of a subvolume's own.
pub fn inside(m: &Mutator, subvolume: RootId) -> Found {
    m.find(subvolume, |key, _| key.item_type == Type::EXTENT_DATA)
}

/// As reports name a file that uses an extent.
pub fn user(tree: RootId, extent: Found) -> String {
    format!("inode {} of tree {tree} at offset 0", extent.key.objectid)
}

/// The extent item at an address.
pub fn extent_item(m: &Mutator, logical: Logical) -> Found {
    m.find(RootId::EXTENT_TREE, |key, _| {
        key.objectid.0 == logical.0 && matches!(key.item_type, Type::EXTENT_ITEM | Type::METADATA_ITEM)
    })
}

/// The item of the block group that an address lies in.
pub fn group_of(m: &Mutator, logical: Logical) -> Found {
    m.find(RootId::EXTENT_TREE, |key, _| {
        key.item_type == Type::BLOCK_GROUP_ITEM
            && (key.objectid.0..key.objectid.0 + key.offset).contains(&logical.0)
    })
}

/// The chunk that an address lies in.
pub fn chunk_of(m: &Mutator, logical: Logical) -> Found {
    m.find(RootId::CHUNK_TREE, |key, data| {
        let length = || u64::from_le_bytes(data[..8].try_into().unwrap());
        key.item_type == Type::CHUNK_ITEM && (key.offset..key.offset + length()).contains(&logical.0)
    })
}

/// The free-space tree's record of a group.
pub fn free_space_info(m: &Mutator, group: Found) -> Found {
    let info = FreeSpaceInfo::key(Logical(group.key.objectid.0), group.key.offset);
    m.find(RootId::FREE_SPACE_TREE, |key, _| key == info)
}

/// A range of data that is free, in the group where `file` lies.
pub fn free_range(m: &Mutator) -> Found {
    let group = group_of(m, range_of(m, of(m, "file", Type::EXTENT_DATA)).address).key.objectid;
    m.find(RootId::FREE_SPACE_TREE, |key, _| {
        key.item_type == Type::FREE_SPACE_EXTENT && key.objectid >= group
    })
}

pub fn root_item(m: &Mutator, root: RootId) -> Found {
    m.find(RootId::ROOT_TREE, |key, _| key.objectid == root.object_id() && key.item_type == Type::ROOT_ITEM)
}
