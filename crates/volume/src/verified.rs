//! What a read gives: the bytes of a good copy, and the copies that were not good.

use crate::error::CopyFailure;

/// A copy that was not good, while another was.
#[derive(Clone, Debug, PartialEq)]
pub struct BadCopy {
    /// Which, where and why.
    pub failure: CopyFailure,
    /// Whether it was rewritten from the good one. (Not on a volume that is read-only or written to in
    /// memory, nor while writes are in flight.)
    pub repaired: bool,
}

/// What was read from a good copy.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified<T> {
    /// What the caller made of the bytes.
    pub value: T,
    /// The copies that were not good.
    pub bad_copies: Vec<BadCopy>,
}

/// Whether copies on members that were away are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StaleCopies {
    /// Only those on members that were written to with the others.
    Refuse,
    /// Those too: where a checksum vouches for the bytes, or nothing else is left.
    Accept,
}
