//! What is to be written for a range of a chunk.

use smallvec::SmallVec;

use super::stripes::StripeRange;

/// What a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WriteRole {
    /// The bytes that a read asks for first.
    Data,
    /// Another copy of them.
    Copy,
    /// What they can be worked out of together with others. (No plan has one yet: chunks with parity are not
    /// written.)
    Parity,
}

/// One write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedWrite {
    /// Where, and which bytes of the range.
    pub place: StripeRange,
    /// What for.
    pub role: WriteRole,
}

/// All writes of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePlan {
    /// By copy, each in the order of the range.
    pub writes: SmallVec<[PlannedWrite; 2]>,
    /// So many of the writes may fail, and the range still counts as written.
    pub tolerated_failures: u8,
}

impl WritePlan {
    /// Where the writes go.
    pub fn places(&self) -> impl ExactSizeIterator<Item = StripeRange> + '_ {
        self.writes.iter().map(|write| write.place)
    }
}
