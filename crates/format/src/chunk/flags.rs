//! The type of a chunk or block group: a bit for each kind of content, and one for the profile.

use crate::record::wrapped;

/// What a chunk or block group holds, and how it is replicated. Unknown bits are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BlockGroupFlags(pub u64);

wrapped! { BlockGroupFlags => u64; }

impl BlockGroupFlags {
    /// File data.
    pub const DATA: Self = Self(1);
    /// The chunk tree.
    pub const SYSTEM: Self = Self(1 << 1);
    /// Tree blocks of every other tree.
    pub const METADATA: Self = Self(1 << 2);
    /// Striped, no redundancy.
    pub const RAID0: Self = Self(1 << 3);
    /// Two copies on two devices.
    pub const RAID1: Self = Self(1 << 4);
    /// Two copies on one device.
    pub const DUP: Self = Self(1 << 5);
    /// Striped over mirrored pairs.
    pub const RAID10: Self = Self(1 << 6);
    /// Striped with one parity.
    pub const RAID5: Self = Self(1 << 7);
    /// Striped with two parities.
    pub const RAID6: Self = Self(1 << 8);
    /// Three copies on three devices.
    pub const RAID1C3: Self = Self(1 << 9);
    /// Four copies on four devices.
    pub const RAID1C4: Self = Self(1 << 10);
    /// Moved elsewhere by the tree of remappings (experimental).
    pub const REMAPPED: Self = Self(1 << 11);
    /// Holds the tree of remappings (experimental).
    pub const METADATA_REMAP: Self = Self(1 << 12);

    /// All kinds of content.
    pub const TYPE_MASK: Self =
        Self(Self::DATA.0 | Self::SYSTEM.0 | Self::METADATA.0 | Self::METADATA_REMAP.0);
    /// All profiles; none of them set is *single*.
    pub const PROFILE_MASK: Self = Self(0b111_1111_1000);

    /// Whether every bit of `flags` is set.
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// With the bits of both.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// The kind of content alone.
    #[must_use]
    pub const fn content(self) -> Self {
        Self(self.0 & Self::TYPE_MASK.0)
    }

    /// The profile alone.
    #[must_use]
    pub const fn profile(self) -> Self {
        Self(self.0 & Self::PROFILE_MASK.0)
    }
}
