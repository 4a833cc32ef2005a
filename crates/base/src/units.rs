//! Quantities that more than one floor speaks of, and alignment.

use std::fmt;

/// A byte offset on one device (not in the logical address space, which spans devices).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Physical(pub u64);

impl Physical {
    /// This offset plus `bytes`, if it is still one.
    #[must_use]
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(offset) => Some(Self(offset)),
            None => None,
        }
    }
}

impl fmt::Display for Physical {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// `value` rounded up to a multiple of `alignment`; none if `alignment` is 0 or the result is past
/// `u64::MAX`.
#[must_use]
pub const fn align_up(value: u64, alignment: u64) -> Option<u64> {
    value.checked_next_multiple_of(alignment)
}

/// Whether `value` is a multiple of `alignment`; nothing is a multiple of 0.
#[must_use]
pub const fn is_aligned(value: u64, alignment: u64) -> bool {
    matches!(value.checked_rem(alignment), Some(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_is_exact_at_the_edges() {
        assert_eq!(align_up(1, 4096), Some(4096));
        assert_eq!(align_up(4096, 4096), Some(4096));
        assert_eq!(align_up(u64::MAX, 4096), None);
        assert_eq!(align_up(5, 0), None);
        assert!(is_aligned(0, 4096) && is_aligned(8192, 4096));
        assert!(!is_aligned(1, 4096) && !is_aligned(0, 0));
    }

    #[test]
    fn physical_offsets_do_not_wrap() {
        assert_eq!(Physical(5).checked_add(3), Some(Physical(8)));
        assert_eq!(Physical(u64::MAX).checked_add(1), None);
        assert_eq!(Physical(1 << 20).to_string(), "1048576");
        assert_eq!(format!("{:>4}", Physical(7)), "   7");
    }
}
