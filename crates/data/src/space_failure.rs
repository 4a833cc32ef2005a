//! Errors that may be a lack of space: which of two is told, and what is worth trying again.

use core::fmt;

/// An error that may be a lack of space.
pub trait SpaceFailure: fmt::Display + Sized {
    /// Whether the image is full.
    fn is_no_space(&self) -> bool;

    /// Whether the host that keeps the image is full.
    fn is_host_full(&self) -> bool;

    /// Bytes of metadata for which there was no room; 0 if there was another reason, or it is not known.
    fn lacking_metadata_bytes(&self) -> u64;

    /// Whether the image or the host that keeps it is full: either may have space later.
    fn finds_no_space(&self) -> bool {
        self.is_no_space() || self.is_host_full()
    }

    /// Of two errors the one to be told, this one of two alike: that the image has no space hides no host
    /// that is full, and neither hides a failure of another kind.
    #[must_use]
    fn or_graver(self, other: Self) -> Self {
        let gravity = |error: &Self| match error {
            error if error.is_host_full() => 1,
            error if error.is_no_space() => 0,
            _ => 2,
        };
        if gravity(&other) > gravity(&self) { other } else { self }
    }

    /// Of two results the one to be told, the graver error of two.
    ///
    /// # Errors
    /// Where one of them is an error.
    fn graver(first: Result<(), Self>, second: Result<(), Self>) -> Result<(), Self> {
        match (first, second) {
            (Err(first), Err(second)) => Err(first.or_graver(second)),
            (first, second) => first.and(second),
        }
    }
}
