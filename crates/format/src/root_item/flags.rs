//! The flags of a subvolume.

use crate::record::wrapped;

/// The flags of a subvolume. Unknown bits are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RootFlags(pub u64);

wrapped! { RootFlags => u64; }

impl RootFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The subvolume cannot be written.
    pub const READ_ONLY: Self = Self(1);
    /// The subvolume is being deleted.
    pub const DEAD: Self = Self(1 << 48);
    /// Every flag that this crate knows.
    pub const KNOWN: Self = Self(Self::READ_ONLY.0 | Self::DEAD.0);

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These flags and those of `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}
