//! What an extent holds.

use crate::record::wrapped;

/// What an extent holds. Unknown bits are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExtentFlags(pub u64);

wrapped! { ExtentFlags => u64; }

impl ExtentFlags {
    /// File data.
    pub const DATA: Self = Self(1);
    /// A tree block.
    pub const TREE_BLOCK: Self = Self(1 << 1);
    /// A tree block whose children are referenced by parent, not by root (`BTRFS_BLOCK_FLAG_FULL_BACKREF`).
    pub const FULL_BACK_REFERENCE: Self = Self(1 << 8);

    /// Whether every bit of `flags` is set.
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// With the bits of both.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}
