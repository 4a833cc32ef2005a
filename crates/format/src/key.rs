//! Keys: what every item of every tree is sorted by.
//!
//! On disk a key has 17 bytes, little-endian: objectid u64, type u8, offset u64 (`struct btrfs_disk_key`).

use core::fmt;

use crate::layout::{Structure, structure};
use crate::types::ObjectId;

/// The middle part of a key: what the item is. Unknown types are kept as they are.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemType(pub u8);

macro_rules! item_types {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl ItemType {
            $($(#[$doc])* pub const $name: Self = Self($value);)*

            /// Every type that has a name.
            pub const NAMED: &[Self] = &[$(Self::$name,)*];

            /// The format's name of this type as btrfs-progs prints it, if the type is known.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

item_types! {
    /// An inode's stat data. Key: (inode, 1, 0).
    INODE_ITEM = 1, "INODE_ITEM";
    /// Names of an inode in one parent. Key: (inode, 12, parent).
    INODE_REF = 12, "INODE_REF";
    /// Names that do not fit the inode ref. Key: (inode, 13, hash of parent and name).
    INODE_EXTREF = 13, "INODE_EXTREF";
    /// An extended attribute. Key: (inode, 24, hash of the name).
    XATTR_ITEM = 24, "XATTR_ITEM";
    /// The descriptor of a file under fs-verity. Key: (inode, 36, offset).
    VERITY_DESCRIPTOR_ITEM = 36, "VERITY_DESC_ITEM";
    /// The Merkle tree of a file under fs-verity. Key: (inode, 37, offset).
    VERITY_MERKLE_ITEM = 37, "VERITY_MERKLE_ITEM";
    /// An inode or root that awaits deletion. Key: (-5, 48, inode or root).
    ORPHAN_ITEM = 48, "ORPHAN_ITEM";
    /// In the fsync log: a range of a directory's index that the log speaks for. Key: (directory, 60, first).
    DIR_LOG_ITEM = 60, "DIR_LOG_ITEM";
    /// In the fsync log: a range of directory indexes. Key: (directory, 72, first).
    DIR_LOG_INDEX = 72, "DIR_LOG_INDEX";
    /// A name in a directory by hash. Key: (directory, 84, hash of the name).
    DIR_ITEM = 84, "DIR_ITEM";
    /// A name in a directory by order of creation. Key: (directory, 96, index).
    DIR_INDEX = 96, "DIR_INDEX";
    /// A run of a file's bytes. Key: (inode, 108, file offset).
    EXTENT_DATA = 108, "EXTENT_DATA";
    /// Checksums of data sectors. Key: (-10, 128, logical address).
    EXTENT_CHECKSUM = 128, "EXTENT_CSUM";
    /// The root of a tree. Key: (root, 132, 0 or generation of the snapshot).
    ROOT_ITEM = 132, "ROOT_ITEM";
    /// A subvolume's place, seen from the subvolume. Key: (subvolume, 144, parent subvolume).
    ROOT_BACKREF = 144, "ROOT_BACKREF";
    /// A subvolume's place, seen from its parent. Key: (parent subvolume, 156, subvolume).
    ROOT_REF = 156, "ROOT_REF";
    /// An allocated extent. Key: (logical, 168, length).
    EXTENT_ITEM = 168, "EXTENT_ITEM";
    /// An allocated tree block (feature skinny-metadata). Key: (logical, 169, level).
    METADATA_ITEM = 169, "METADATA_ITEM";
    /// The owner of a data extent under simple quotas; only ever inline.
    EXTENT_OWNER_REF = 172, "EXTENT_OWNER_REF";
    /// A tree block's reference by root. Key: (logical, 176, root).
    TREE_BLOCK_REF = 176, "TREE_BLOCK_REF";
    /// A data extent's reference by root, inode and offset. Key: (logical, 178, hash).
    EXTENT_DATA_REF = 178, "EXTENT_DATA_REF";
    /// A tree block's reference by parent block. Key: (logical, 182, parent).
    SHARED_BLOCK_REF = 182, "SHARED_BLOCK_REF";
    /// A data extent's reference by leaf. Key: (logical, 184, parent).
    SHARED_DATA_REF = 184, "SHARED_DATA_REF";
    /// A block group. Key: (logical, 192, length).
    BLOCK_GROUP_ITEM = 192, "BLOCK_GROUP_ITEM";
    /// The head of a block group's free-space records. Key: (logical, 198, length).
    FREE_SPACE_INFO = 198, "FREE_SPACE_INFO";
    /// A free range, without data. Key: (logical, 199, length).
    FREE_SPACE_EXTENT = 199, "FREE_SPACE_EXTENT";
    /// A bitmap of free sectors. Key: (logical, 200, length).
    FREE_SPACE_BITMAP = 200, "FREE_SPACE_BITMAP";
    /// A run of a device that belongs to a chunk. Key: (device, 204, physical).
    DEVICE_EXTENT = 204, "DEV_EXTENT";
    /// A member device. Key: (1, 216, device).
    DEVICE_ITEM = 216, "DEV_ITEM";
    /// A chunk: where a run of logical addresses lies. Key: (256, 228, logical).
    CHUNK_ITEM = 228, "CHUNK_ITEM";
    /// Where a stripe lies (feature raid-stripe-tree). Key: (logical, 230, length).
    RAID_STRIPE = 230, "RAID_STRIPE";
    /// The state of quotas. Key: (0, 240, 0).
    QUOTA_GROUP_STATUS = 240, "QGROUP_STATUS";
    /// What a quota group uses. Key: (0, 242, quota group).
    QUOTA_GROUP_INFO = 242, "QGROUP_INFO";
    /// What a quota group may use. Key: (0, 244, quota group).
    QUOTA_GROUP_LIMIT = 244, "QGROUP_LIMIT";
    /// A quota group's parent or member. Key: (quota group, 246, quota group).
    QUOTA_GROUP_RELATION = 246, "QGROUP_RELATION";
    /// A temporary item: the state of a balance. Key: (-4, 248, 0).
    TEMPORARY_ITEM = 248, "TEMPORARY_ITEM";
    /// A lasting item: a device's error counters. Key: (0, 249, device).
    PERSISTENT_ITEM = 249, "PERSISTENT_ITEM";
    /// The state of a device replacement. Key: (0, 250, 0).
    DEVICE_REPLACE = 250, "DEV_REPLACE";
    /// A subvolume by its UUID. Key: (first half, 251, second half).
    UUID_SUBVOLUME = 251, "UUID_KEY_SUBVOL";
    /// A subvolume by its received UUID. Key: (first half, 252, second half).
    UUID_RECEIVED_SUBVOLUME = 252, "UUID_KEY_RECEIVED_SUBVOL";
    /// A string, such as the inode number cache. Key: (any, 253, any).
    STRING_ITEM = 253, "STRING_ITEM";
}

impl fmt::Debug for ItemType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Display for ItemType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => formatter.write_str(name),
            None => write!(formatter, "UNKNOWN.{}", self.0),
        }
    }
}

/// A key. Its order is that of its parts: object id, then type, then offset.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// An inode number, root or logical address, according to the type.
    pub objectid: ObjectId,
    /// What the item is.
    pub item_type: ItemType,
    /// A file offset, hash, parent, length …, according to the type.
    pub offset: u64,
}

structure! {
    /// What [`Key::decode`] reads.
    KEY: "Key", 17 bytes {
        objectid: 0, 8;
        item_type: 8, 1;
        offset: 9, 8;
    }
}

impl Key {
    /// The fields of a key.
    pub(crate) const STRUCTURE: &'static Structure = KEY;
    /// Bytes of a key on disk.
    pub const SIZE: usize = 17;
    /// The smallest key.
    pub const MIN: Self = Self::new(ObjectId(0), ItemType(0), 0);
    /// The largest key.
    pub const MAX: Self = Self::new(ObjectId(u64::MAX), ItemType(u8::MAX), u64::MAX);

    /// A key of its three parts.
    pub const fn new(objectid: ObjectId, item_type: ItemType, offset: u64) -> Self {
        Self { objectid, item_type, offset }
    }

    /// The key right after this one, unless this is the largest.
    pub const fn next(self) -> Option<Self> {
        if let Some(offset) = self.offset.checked_add(1) {
            return Some(Self { offset, ..self });
        }
        if let Some(item_type) = self.item_type.0.checked_add(1) {
            return Some(Self::new(self.objectid, ItemType(item_type), 0));
        }
        match self.objectid.0.checked_add(1) {
            Some(objectid) => Some(Self::new(ObjectId(objectid), ItemType(0), 0)),
            None => None,
        }
    }

    /// The key right before this one, unless this is the smallest.
    pub const fn previous(self) -> Option<Self> {
        if let Some(offset) = self.offset.checked_sub(1) {
            return Some(Self { offset, ..self });
        }
        if let Some(item_type) = self.item_type.0.checked_sub(1) {
            return Some(Self::new(self.objectid, ItemType(item_type), u64::MAX));
        }
        match self.objectid.0.checked_sub(1) {
            Some(objectid) => Some(Self::new(ObjectId(objectid), ItemType(u8::MAX), u64::MAX)),
            None => None,
        }
    }

    /// Reads a key from its 17 bytes.
    #[inline]
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Self {
        let [a, b, c, d, e, f, g, h, item_type, offset @ ..] = *bytes;
        Self {
            objectid: ObjectId(u64::from_le_bytes([a, b, c, d, e, f, g, h])),
            item_type: ItemType(item_type),
            offset: u64::from_le_bytes(offset),
        }
    }

    /// The 17 bytes of this key.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let [a, b, c, d, e, f, g, h] = self.objectid.0.to_le_bytes();
        let [i, j, k, l, m, n, o, p] = self.offset.to_le_bytes();
        [a, b, c, d, e, f, g, h, self.item_type.0, i, j, k, l, m, n, o, p]
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "({} {} {})", self.objectid, self.item_type, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_comes_back_from_its_bytes() {
        let key = Key::new(ObjectId(0x0102_0304_0506_0708), ItemType::DIR_ITEM, 0xf1f2_f3f4_f5f6_f7f8);
        assert_eq!(Key::decode(&key.encode()), key);
        assert_eq!(key.encode()[0], 8);
        assert_eq!(key.encode()[8], 84);
    }

    #[test]
    fn next_and_previous_are_inverse_and_ordered() {
        let keys = [
            Key::new(ObjectId(5), ItemType(1), u64::MAX),
            Key::new(ObjectId(5), ItemType(255), u64::MAX),
            Key::new(ObjectId(5), ItemType(3), 7),
        ];
        for key in keys {
            let next = key.next().unwrap();
            assert!(next > key);
            assert_eq!(next.previous(), Some(key));
        }
        assert_eq!(Key::MAX.next(), None);
        assert_eq!(Key::MIN.previous(), None);
    }
}
