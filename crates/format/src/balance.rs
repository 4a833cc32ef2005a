//! The state of an interrupted balance.
//!
//! Key (-4, TEMPORARY_ITEM, 0) in the root tree: what to balance of data, metadata and system chunks, in
//! three filters of 136 bytes. Source: `struct btrfs_balance_item`, `struct btrfs_disk_balance_args`.

use crate::chunk::BlockGroupFlags;
use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::record::{Reserved, record, wrapped};
use crate::rules::ItemContext;
use crate::types::{DeviceId, Logical, ObjectId, Physical};

/// How the state of a balance can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BalanceFault {
    /// The item has another size.
    #[error("{found} bytes instead of {}", BalanceItem::SIZE)]
    Size {
        /// Bytes of the item.
        found: usize,
    },
}

/// Which kinds of chunks a balance goes through, and how, as bits. Unknown ones are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BalanceFlags(pub u64);

/// Which fields of a filter count, as bits. Unknown ones are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BalanceFilterFlags(pub u64);

wrapped! {
    BalanceFlags => u64;
    BalanceFilterFlags => u64;
}

macro_rules! bits {
    ($set:ident { $($(#[$doc:meta])* $name:ident = $bit:literal;)* }) => {
        impl $set {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit);)*

            /// Whether all flags of `other` are set.
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }
    };
}

bits! {
    BalanceFlags {
        /// Data chunks.
        DATA = 0;
        /// System chunks.
        SYSTEM = 1;
        /// Metadata chunks.
        METADATA = 2;
        /// Also where redundancy shrinks.
        FORCE = 3;
        /// Resumed after an interruption.
        RESUME = 4;
    }
}

bits! {
    BalanceFilterFlags {
        /// Chunks of certain profiles.
        PROFILES = 0;
        /// Chunks used less than so much.
        USAGE = 1;
        /// Chunks on a device.
        DEVICE = 2;
        /// Chunks in a range of a device.
        DEVICE_RANGE = 3;
        /// Chunks in a range of logical addresses.
        LOGICAL_RANGE = 4;
        /// So many chunks.
        LIMIT = 5;
        /// So many chunks, at least and at most.
        LIMIT_RANGE = 6;
        /// Chunks of so many stripes.
        STRIPES_RANGE = 7;
        /// To another profile.
        CONVERT = 8;
        /// Not those that have the profile already.
        SOFT = 9;
        /// Chunks used between so much and so much.
        USAGE_RANGE = 10;
    }
}

record! {
    /// Which chunks of one kind a balance goes through: 136 bytes. A field counts if its flag is set.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct BalanceFilter in RawBalanceFilter, 136 bytes {
        /// Profiles, *single* as its own bit.
        profiles: BlockGroupFlags,
        /// The least usage in per cent, where there is a range; otherwise the low half of the only limit.
        least_usage: u32,
        /// The most usage in per cent, where there is a range; otherwise the high half of the only limit.
        most_usage: u32,
        /// A device.
        device: DeviceId,
        /// First byte of a range of a device.
        device_start: Physical,
        /// End of that range, which does not belong to it.
        device_end: Physical,
        /// First byte of a range of logical addresses.
        logical_start: Logical,
        /// End of that range, which does not belong to it.
        logical_end: Logical,
        /// The profile to convert to.
        target: BlockGroupFlags,
        /// Which of the fields count.
        flags: BalanceFilterFlags,
        /// The least number of chunks, where there is a range; otherwise the low half of the only limit.
        least_chunks: u32,
        /// The most chunks, where there is a range; otherwise the high half of the only limit.
        most_chunks: u32,
        /// The least number of stripes.
        least_stripes: u32,
        /// The most stripes.
        most_stripes: u32,
        /// For future use; kept.
        reserved: Reserved<48>,
    }
}

record! {
    /// The state of an interrupted balance: 448 bytes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct BalanceItem in RawBalanceItem, 448 bytes {
        /// Which kinds of chunks, and how.
        flags: BalanceFlags,
        /// Of data chunks.
        data: BalanceFilter,
        /// Of metadata chunks.
        metadata: BalanceFilter,
        /// Of system chunks.
        system: BalanceFilter,
        /// For future use; kept.
        reserved: Reserved<32>,
    }
}

impl BalanceItem {
    /// Where the state of a balance lies.
    pub const KEY: Key = Key::new(ObjectId::BALANCE, ItemType::TEMPORARY_ITEM, 0);

    /// Reads the item's data.
    ///
    /// # Errors
    /// [`BalanceFault::Size`].
    pub fn decode(data: &[u8]) -> Result<Self, BalanceFault> {
        Self::read_whole(data).ok_or(BalanceFault::Size { found: data.len() })
    }

    /// The item's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        self.to_array()
    }
}

/// The fields of the state of a balance.
pub(crate) fn lay_out(layout: &mut Layout<'_>) {
    layout.record::<BalanceItem>();
}

/// Checks the state of a balance. Linux does not.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(_key: &Key, data: &[u8], _context: &ItemContext<'_>) -> Result<(), BalanceFault> {
    BalanceItem::decode(data).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::tests::{assert_fault, assert_sound};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decode_and_encode_are_inverse(bytes in proptest::collection::vec(any::<u8>(), 448)) {
            prop_assert_eq!(&BalanceItem::decode(&bytes).unwrap().encode()[..], &bytes[..]);
        }
    }

    #[test]
    fn the_state_has_one_size() {
        assert_sound(&BalanceItem::KEY, &[0; 448], None);
        assert_fault(&BalanceItem::KEY, &[0; 447], None, BalanceFault::Size { found: 447 });
        let other = Key::new(ObjectId(1), ItemType::TEMPORARY_ITEM, 0);
        assert_sound(&other, &[0; 3], None);
    }
}
