//! The newtypes of the whole workspace: no bare integer crosses a module border.

use core::fmt;

pub use vlinder_base::units::Physical;

macro_rules! newtype {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            /// The bare number, for encoding and arithmetic inside one module.
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, formatter)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                Self(value)
            }
        }
    };
}

newtype!(
    /// A byte address in the file system's own address space, mapped to devices by the chunk tree.
    Logical(u64)
);
newtype!(
    /// The number of a member device within its file system (`devid`); the first is 1.
    DeviceId(u64)
);
newtype!(
    /// The number of a transaction (`transid`): each commit adds one.
    Generation(u64)
);
newtype!(
    /// The first part of a key: an inode number, a root, a logical address, according to the item.
    ObjectId(u64)
);
newtype!(
    /// The number of a tree: one of the fixed trees, or a subvolume from 256 on.
    RootId(u64)
);
newtype!(
    /// The height of a block above the leaves: a leaf has level 0, no block is above 7.
    Level(u8)
);
newtype!(
    /// A byte position in a file.
    FileOffset(u64)
);

impl Logical {
    /// The address `bytes` further on, unless that overflows.
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }
}

impl Generation {
    /// The generation after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Level {
    /// The level of every leaf.
    pub const LEAF: Self = Self(0);
    /// No tree is higher than this many blocks (`BTRFS_MAX_LEVEL`).
    pub const COUNT: usize = 8;

    /// The level of this block's children; a leaf has none.
    pub const fn below(self) -> Option<Self> {
        match self.0.checked_sub(1) {
            Some(level) => Some(Self(level)),
            None => None,
        }
    }

    /// The level of this block's parent.
    #[must_use]
    pub const fn above(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// As an index into an array of [`Level::COUNT`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl ObjectId {
    /// `BTRFS_DEV_ITEMS_OBJECTID`: device items in the chunk tree.
    pub const DEVICE_ITEMS: Self = Self(1);
    /// `BTRFS_DEV_STATS_OBJECTID`: error counters in the device tree.
    pub const DEVICE_STATS: Self = Self(0);
    /// `BTRFS_BALANCE_OBJECTID`: the state of an interrupted balance.
    pub const BALANCE: Self = Self(u64::MAX - 3);
    /// `BTRFS_ORPHAN_OBJECTID`: inodes and roots that await deletion.
    pub const ORPHAN: Self = Self(u64::MAX - 4);
    /// `BTRFS_EXTENT_CSUM_OBJECTID`: every checksum item.
    pub const EXTENT_CHECKSUM: Self = Self(u64::MAX - 9);
    /// `BTRFS_FREE_SPACE_OBJECTID`: v1 space cache headers in the root tree.
    pub const FREE_SPACE: Self = Self(u64::MAX - 10);
    /// `BTRFS_FREE_INO_OBJECTID`: remnants of the inode cache.
    pub const FREE_INODE: Self = Self(u64::MAX - 11);
    /// `BTRFS_ROOT_TREE_DIR_OBJECTID`: the directory in the root tree that names the default subvolume.
    pub const ROOT_TREE_DIRECTORY: Self = Self(6);
    /// `BTRFS_FIRST_CHUNK_TREE_OBJECTID`: the one chunk tree.
    pub const FIRST_CHUNK_TREE: Self = Self(256);
    /// `BTRFS_FIRST_FREE_OBJECTID`: the first inode of a subvolume (its root directory), and the first
    /// subvolume.
    pub const FIRST_FREE: Self = Self(256);
    /// `BTRFS_LAST_FREE_OBJECTID`: the last inode or subvolume number.
    pub const LAST_FREE: Self = Self(u64::MAX - 255);
    /// `BTRFS_EMPTY_SUBVOL_DIR_OBJECTID`: the inode shown where a snapshot has a nested subvolume's name.
    pub const EMPTY_SUBVOLUME_DIRECTORY: Self = Self(2);
}

impl RootId {
    /// The tree of tree roots.
    pub const ROOT_TREE: Self = Self(1);
    /// The tree of allocated extents and their back references.
    pub const EXTENT_TREE: Self = Self(2);
    /// The tree of chunks and devices.
    pub const CHUNK_TREE: Self = Self(3);
    /// The tree of device extents.
    pub const DEVICE_TREE: Self = Self(4);
    /// The top-level subvolume.
    pub const FS_TREE: Self = Self(5);
    /// The tree of data checksums.
    pub const CHECKSUM_TREE: Self = Self(7);
    /// The tree of quota groups.
    pub const QUOTA_TREE: Self = Self(8);
    /// The tree that finds subvolumes by UUID.
    pub const UUID_TREE: Self = Self(9);
    /// The tree of free space.
    pub const FREE_SPACE_TREE: Self = Self(10);
    /// The tree of block-group items (feature block-group-tree).
    pub const BLOCK_GROUP_TREE: Self = Self(11);
    /// The tree of RAID stripes (feature raid-stripe-tree).
    pub const RAID_STRIPE_TREE: Self = Self(12);
    /// `BTRFS_TREE_LOG_OBJECTID`: the fsync log and the tree of log roots.
    pub const TREE_LOG: Self = Self(u64::MAX - 5);
    /// `BTRFS_TREE_RELOC_OBJECTID`: trees of an unfinished relocation.
    pub const TREE_RELOCATION: Self = Self(u64::MAX - 7);
    /// `BTRFS_DATA_RELOC_TREE_OBJECTID`: inodes that carry data under relocation.
    pub const DATA_RELOCATION_TREE: Self = Self(u64::MAX - 8);

    /// Whether this is a subvolume: the top level, or any number from 256 to 2^64 - 256.
    pub const fn is_subvolume(self) -> bool {
        self.0 == Self::FS_TREE.0 || (self.0 >= ObjectId::FIRST_FREE.0 && self.0 <= ObjectId::LAST_FREE.0)
    }

    /// Whether blocks of this tree may be shared with a snapshot (`BTRFS_ROOT_SHAREABLE`): subvolumes and
    /// relocation trees are, the data relocation tree too.
    pub const fn is_shareable(self) -> bool {
        self.is_subvolume() || self.0 == Self::TREE_RELOCATION.0 || self.0 == Self::DATA_RELOCATION_TREE.0
    }

    /// As the object id of this root's item in the root tree.
    pub const fn object_id(self) -> ObjectId {
        ObjectId(self.0)
    }
}

/// Sixteen bytes that name a file system, device, chunk tree or subvolume.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// All zero: "none" in every field that holds a UUID.
    pub const NIL: Self = Self([0; 16]);

    /// Whether this is the nil UUID.
    pub fn is_nil(&self) -> bool {
        *self == Self::NIL
    }

    /// Reads the canonical form of 36 characters (8-4-4-4-12 hexadecimal digits, either case).
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        if bytes.len() != 36 {
            return None;
        }
        let mut uuid = [0u8; 16];
        let mut digits = 0usize;
        for (position, character) in bytes.iter().enumerate() {
            if matches!(position, 8 | 13 | 18 | 23) {
                if *character != b'-' {
                    return None;
                }
                continue;
            }
            let value = u8::try_from(char::from(*character).to_digit(16)?).ok()?;
            let byte = uuid.get_mut(digits / 2)?;
            *byte = byte.wrapping_shl(4) | value;
            digits = digits.checked_add(1)?;
        }
        Some(Self(uuid))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, byte) in self.0.iter().enumerate() {
            if matches!(position, 4 | 6 | 8 | 10) {
                formatter.write_str("-")?;
            }
            write!(formatter, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_read_as_it_is_shown() {
        let text = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
        assert_eq!(Uuid::parse(text).unwrap().to_string(), text);
        assert_eq!(Uuid::parse("0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f"), None);
        assert_eq!(Uuid::parse("0a1b2c3d04e5f-6071-8293-a4b5c6d7e8f9"), None);
    }

    #[test]
    fn subvolumes_are_the_top_level_and_the_free_numbers() {
        assert!(RootId::FS_TREE.is_subvolume() && RootId(256).is_subvolume());
        assert!(!RootId::CHECKSUM_TREE.is_subvolume() && !RootId::TREE_RELOCATION.is_subvolume());
        assert!(RootId::TREE_RELOCATION.is_shareable() && !RootId::ROOT_TREE.is_shareable());
    }
}
