use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// A set of up to 32 state bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StateBits(pub u32);

impl StateBits {
    /// No bit.
    pub const EMPTY: Self = Self(0);

    /// Whether there is no bit.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every bit of `other` is here too.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is here too.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The bits of either; `|` in constants.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The bits that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for StateBits {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitOrAssign for StateBits {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.union(other);
    }
}

/// In hexadecimal digits.
impl fmt::Display for StateBits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#x}", self.0)
    }
}
