//! Quota groups: what subvolumes, and groups of them, use and may use. All in the quota tree.
//!
//! | key | data |
//! |---|---|
//! | (0, QUOTA_GROUP_STATUS, 0) | the state of quotas: 32 bytes, 40 since Linux 6.7 |
//! | (0, QUOTA_GROUP_INFO, group) | what a group uses: 40 bytes |
//! | (0, QUOTA_GROUP_LIMIT, group) | what a group may use: 40 bytes |
//! | (group, QUOTA_GROUP_RELATION, group) | none; parent and member, and the same the other way round |
//!
//! A group's number has its level in the top 16 bits; on level 0 the rest is a subvolume. Simple quotas
//! (feature simple_quota) keep the same items. Source: `struct btrfs_qgroup_status_item` and its neighbours.

use core::fmt;

use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::record::{record, wrapped};
use crate::rules::ItemContext;
use crate::types::{Generation, Logical, ObjectId, RootId};

/// How an item of the quota tree can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaFault {
    /// The item has another size.
    #[error("a {item_type} of {found} bytes instead of {expected}")]
    Size {
        /// In the key.
        item_type: ItemType,
        /// Bytes of the item.
        found: usize,
        /// Bytes that it must have.
        expected: usize,
    },
    /// The key has parts that no such item has.
    #[error("no {} lies under {found}", found.item_type)]
    Key {
        /// The item's.
        found: Key,
    },
}

/// A quota group's number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QuotaGroupId(pub u64);

/// The state of quotas, as bits. Unknown ones are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QuotaStatusFlags(pub u64);

/// Which limits of a group count, as bits. Unknown ones are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QuotaLimitFlags(pub u64);

wrapped! {
    QuotaGroupId => u64;
    QuotaStatusFlags => u64;
    QuotaLimitFlags => u64;
}

impl QuotaGroupId {
    const LEVEL_SHIFT: u32 = 48;

    /// The group of one subvolume.
    #[must_use]
    pub const fn of_subvolume(subvolume: RootId) -> Self {
        Self(subvolume.0)
    }

    /// The level; groups of level 0 are subvolumes.
    #[must_use]
    pub const fn level(self) -> u64 {
        self.0 >> Self::LEVEL_SHIFT
    }

    /// The number within the level.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0 & ((1 << Self::LEVEL_SHIFT) - 1)
    }
}

impl fmt::Display for QuotaGroupId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.level(), self.number())
    }
}

impl QuotaStatusFlags {
    /// Quotas are on.
    pub const ON: Self = Self(1);
    /// Usage is being counted afresh.
    pub const RESCAN: Self = Self(1 << 1);
    /// Usage is not right until a rescan.
    pub const INCONSISTENT: Self = Self(1 << 2);
    /// Simple quotas.
    pub const SIMPLE: Self = Self(1 << 3);

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl QuotaLimitFlags {
    /// The bytes that a group refers to are limited.
    pub const MAX_REFERENCED: Self = Self(1);
    /// The bytes that only a group refers to are limited.
    pub const MAX_EXCLUSIVE: Self = Self(1 << 1);
    /// The reservation of referenced bytes counts.
    pub const RESERVED_REFERENCED: Self = Self(1 << 2);
    /// The reservation of exclusive bytes counts.
    pub const RESERVED_EXCLUSIVE: Self = Self(1 << 3);
    /// Compressed sizes are meant for referenced bytes.
    pub const REFERENCED_COMPRESSED: Self = Self(1 << 4);
    /// Compressed sizes are meant for exclusive bytes.
    pub const EXCLUSIVE_COMPRESSED: Self = Self(1 << 5);

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

mod raw {
    use super::{Generation, Logical, QuotaStatusFlags, record};

    record! {
        /// The state of quotas in every form.
        #[derive(Clone, Copy)]
        pub struct StatusBase in RawStatusBase, 32 bytes {
            /// Always 1.
            version: u64,
            /// The last commit that kept quotas.
            generation: Generation,
            /// On, rescanning, wrong, simple.
            flags: QuotaStatusFlags,
            /// How far a rescan is.
            rescan: Logical,
        }
    }

    record! {
        /// The state of quotas since Linux 6.7.
        #[derive(Clone, Copy)]
        pub struct StatusExtension in RawStatusExtension, 8 bytes {
            /// When simple quotas were turned on.
            enable_generation: Generation,
        }
    }
}
use raw::{StatusBase, StatusExtension};

/// The state of quotas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaStatus {
    /// Always 1.
    pub version: u64,
    /// The last commit that kept quotas; when it is not the file system's, usage is not right.
    pub generation: Generation,
    /// On, rescanning, wrong, simple.
    pub flags: QuotaStatusFlags,
    /// How far a rescan is: the next extent.
    pub rescan_progress: Logical,
    /// When simple quotas were turned on; the form before Linux 6.7 has no such field.
    pub enable_generation: Option<Generation>,
}

record! {
    /// What a quota group uses, in bytes: 40 bytes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct QuotaGroupInfo in RawQuotaGroupInfo, 40 bytes {
        /// The transaction that last changed it.
        generation: Generation,
        /// Bytes that the group refers to.
        referenced_bytes: u64,
        /// The same with compression; Linux keeps it equal.
        referenced_compressed_bytes: u64,
        /// Bytes that only the group refers to.
        exclusive_bytes: u64,
        /// The same with compression; Linux keeps it equal.
        exclusive_compressed_bytes: u64,
    }
}

record! {
    /// What a quota group may use, in bytes: 40 bytes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct QuotaGroupLimit in RawQuotaGroupLimit, 40 bytes {
        /// Which of the fields count.
        flags: QuotaLimitFlags,
        /// The most bytes that the group may refer to.
        most_referenced_bytes: u64,
        /// The most bytes that only the group may refer to.
        most_exclusive_bytes: u64,
        /// Reserved of the first; unused.
        reserved_referenced_bytes: u64,
        /// Reserved of the second; unused.
        reserved_exclusive_bytes: u64,
    }
}

impl QuotaStatus {
    /// Where the state of quotas lies.
    pub const KEY: Key = Key::new(ObjectId(0), ItemType::QUOTA_GROUP_STATUS, 0);
    /// Bytes since Linux 6.7.
    pub const SIZE: usize = StatusBase::SIZE.saturating_add(StatusExtension::SIZE);
    /// Bytes before.
    pub const LEGACY_SIZE: usize = StatusBase::SIZE;

    /// Reads the state from an item's data.
    ///
    /// # Errors
    /// [`QuotaFault::Size`].
    pub fn decode(data: &[u8]) -> Result<Self, QuotaFault> {
        let fault = || size_fault(ItemType::QUOTA_GROUP_STATUS, data, Self::SIZE);
        let (base, rest) = StatusBase::split_from(data).ok_or_else(fault)?;
        let extension = match rest {
            [] => None,
            rest => Some(StatusExtension::read_whole(rest).ok_or_else(fault)?),
        };
        Ok(Self {
            version: base.version,
            generation: base.generation,
            flags: base.flags,
            rescan_progress: base.rescan,
            enable_generation: extension.map(|extension| extension.enable_generation),
        })
    }

    /// The item's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let base = StatusBase {
            version: self.version,
            generation: self.generation,
            flags: self.flags,
            rescan: self.rescan_progress,
        };
        let mut item = base.to_array().to_vec();
        if let Some(enable_generation) = self.enable_generation {
            item.extend_from_slice(&StatusExtension { enable_generation }.to_array());
        }
        item
    }
}

macro_rules! fixed_size {
    ($name:ident, $item_type:ident) => {
        impl $name {
            /// Where a group's item lies.
            #[must_use]
            pub const fn key(group: QuotaGroupId) -> Key {
                Key::new(ObjectId(0), ItemType::$item_type, group.0)
            }

            /// Reads the item's data.
            ///
            /// # Errors
            /// [`QuotaFault::Size`].
            pub fn decode(data: &[u8]) -> Result<Self, QuotaFault> {
                Self::read_whole(data).ok_or_else(|| size_fault(ItemType::$item_type, data, Self::SIZE))
            }

            /// The item's bytes.
            #[must_use]
            pub fn encode(&self) -> [u8; Self::SIZE] {
                self.to_array()
            }
        }
    };
}
fixed_size!(QuotaGroupInfo, QUOTA_GROUP_INFO);
fixed_size!(QuotaGroupLimit, QUOTA_GROUP_LIMIT);

/// The key that says that two groups are parent and member; the tree has the same the other way round.
#[must_use]
pub const fn relation_key(from: QuotaGroupId, to: QuotaGroupId) -> Key {
    Key::new(ObjectId(from.0), ItemType::QUOTA_GROUP_RELATION, to.0)
}

const fn size_fault(item_type: ItemType, data: &[u8], expected: usize) -> QuotaFault {
    QuotaFault::Size { item_type, found: data.len(), expected }
}

/// Checks an item of the quota tree. Linux does not.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(key: &Key, data: &[u8], _context: &ItemContext<'_>) -> Result<(), QuotaFault> {
    if key.item_type == ItemType::QUOTA_GROUP_RELATION {
        // A group that contains itself would have no end.
        if key.objectid.0 == key.offset {
            return Err(QuotaFault::Key { found: *key });
        }
        return if data.is_empty() { Ok(()) } else { Err(size_fault(key.item_type, data, 0)) };
    }
    if key.objectid != ObjectId(0) {
        return Err(QuotaFault::Key { found: *key });
    }
    match key.item_type {
        ItemType::QUOTA_GROUP_INFO => QuotaGroupInfo::decode(data).map(drop),
        ItemType::QUOTA_GROUP_LIMIT => QuotaGroupLimit::decode(data).map(drop),
        _ if key.offset != 0 => Err(QuotaFault::Key { found: *key }),
        _ => QuotaStatus::decode(data).map(drop),
    }
}

/// The fields of the state of quotas, in either form.
pub(crate) fn lay_out_status(layout: &mut Layout<'_>) {
    layout.record::<StatusBase>();
    layout.record::<StatusExtension>();
}

/// The fields of what a group uses.
pub(crate) fn lay_out_info(layout: &mut Layout<'_>) {
    layout.record::<QuotaGroupInfo>();
}

/// The fields of what a group may use.
pub(crate) fn lay_out_limit(layout: &mut Layout<'_>) {
    layout.record::<QuotaGroupLimit>();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::tests::{assert_fault, assert_sound};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decode_and_encode_are_inverse(bytes in any::<[u8; 40]>()) {
            prop_assert_eq!(QuotaGroupInfo::decode(&bytes).unwrap().encode(), bytes);
            prop_assert_eq!(QuotaGroupLimit::decode(&bytes).unwrap().encode(), bytes);
            prop_assert_eq!(&QuotaStatus::decode(&bytes).unwrap().encode()[..], &bytes[..]);
            prop_assert_eq!(&QuotaStatus::decode(&bytes[..32]).unwrap().encode()[..], &bytes[..32]);
        }
    }

    #[test]
    fn group_numbers_have_levels() {
        assert_eq!(QuotaGroupId((1 << 48) | 100).to_string(), "1/100");
        assert_eq!(QuotaGroupId::of_subvolume(RootId(256)).to_string(), "0/256");
    }

    #[test]
    fn sizes_are_exact() {
        let group = QuotaGroupId(256);
        for (key, expected) in
            [(QuotaGroupInfo::key(group), 40), (QuotaGroupLimit::key(group), 40), (QuotaStatus::KEY, 40)]
        {
            assert_sound(&key, &[0; 40], None);
            for found in [0, 31, 33, 39, 41, 48] {
                let fault = QuotaFault::Size { item_type: key.item_type, found, expected };
                assert_fault(&key, &vec![0; found], None, fault);
            }
        }
        assert_sound(&QuotaStatus::KEY, &[0; 32], None);
        let key = relation_key(group, QuotaGroupId(1 << 48));
        assert_sound(&key, &[], None);
        assert_fault(&key, &[0], None, QuotaFault::Size { item_type: key.item_type, found: 1, expected: 0 });
    }

    #[test]
    fn keys_are_those_of_the_format() {
        let found = Key::new(ObjectId(1), ItemType::QUOTA_GROUP_INFO, 256);
        assert_fault(&found, &[0; 40], None, QuotaFault::Key { found });
        let found = Key::new(ObjectId(0), ItemType::QUOTA_GROUP_STATUS, 1);
        assert_fault(&found, &[0; 40], None, QuotaFault::Key { found });
        let found = relation_key(QuotaGroupId(256), QuotaGroupId(256));
        assert_fault(&found, &[], None, QuotaFault::Key { found });
    }
}
