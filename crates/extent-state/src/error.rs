use crate::{ByteRange, StateBits};
use std::fmt;

/// Whose map it is, for messages: two numbers that mean something to its maker, such as a tree and an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner(pub u64, pub u64);

impl fmt::Display for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.0, self.1)
    }
}

/// Why the map did not do what it was asked to; it is unchanged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Somebody holds a lock in the range (only from [`try_lock`](crate::ExtentState::try_lock)).
    #[error("bytes {range} of {owner} are locked (bits {bits}); wait for them or try again")]
    Locked {
        /// The first part that is locked.
        range: ByteRange,
        /// All bits of that part.
        bits: StateBits,
        /// Whose bytes.
        owner: Owner,
    },
    /// An unlock of bytes that are not locked: a mistake in the program.
    #[error("bytes {range} of {owner} are not locked (bits {bits}); this is a defect, please report it")]
    NotLocked {
        /// The first part that is not locked.
        range: ByteRange,
        /// All bits of that part.
        bits: StateBits,
        /// Whose bytes.
        owner: Owner,
    },
    /// The lock bit was to be set without taking the lock: a mistake in the program.
    #[error(
        "bits {bits} of bytes {range} of {owner} contain the lock's, which only locking sets; this is a defect, please report it"
    )]
    LockBit {
        /// The range that was to be changed.
        range: ByteRange,
        /// The bits that were to be set.
        bits: StateBits,
        /// Whose bytes.
        owner: Owner,
    },
    /// The records are not in order: a mistake in this crate.
    #[error(
        "the record {range} (bits {bits}) of {owner} overlaps another or is empty; this is a defect, please report it"
    )]
    Disordered {
        /// The record that is out of order.
        range: ByteRange,
        /// Its bits.
        bits: StateBits,
        /// Whose bytes.
        owner: Owner,
    },
}
