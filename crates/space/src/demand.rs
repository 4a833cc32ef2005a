//! What is asked of space: changes and data, and what may be drawn on for them.

use crate::charge::{Charge, given_back};

/// Which part of the reserve a handle may draw on, beside what every change may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReserveAccess {
    /// On nothing: it leaves the margin that Linux, too, keeps for what comes after.
    #[default]
    Nothing,
    /// On the margin.
    Margin,
    /// On what Linux's snapshots draw on: of the reserve, what they take beyond what they ask for.
    Snapshot,
    /// On what Linux's removals of names draw on: they leave a part of the reserve.
    Removal,
    /// On the global reserve, for what gives back more than it takes; not on the part for deleting trees.
    /// (What a snapshot shares is copied to be changed, so that deleting files may give back nothing until
    /// the snapshot goes.)
    Reserve,
    /// On as much of it, for what was accepted before: it leaves no room for the tickets of other threads.
    Accepted,
    /// On all of it but the commit's own part, for deleting trees.
    LastReserve,
}

/// An amount of promised data space. Sums saturate and give back as those of [`Charge`]s do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservedData {
    /// Bytes of data.
    pub bytes: u64,
    /// Runs of a file's bytes that these lie in, each of which takes metadata of its own.
    pub runs: u64,
    /// Of the bytes, those that become preallocated extents, which are as long as free space allows.
    pub preallocated_bytes: u64,
    /// References that copies of leaves add into which the bytes go, where other trees share these leaves.
    pub leaf_copies: Charge,
}

impl ReservedData {
    /// Bytes that are written, in so many runs.
    #[must_use]
    pub const fn written(bytes: u64, runs: u64) -> Self {
        Self { bytes, runs, preallocated_bytes: 0, leaf_copies: Charge::NOTHING }
    }

    /// Bytes of preallocated extents, in so many runs.
    #[must_use]
    pub const fn preallocated(bytes: u64, runs: u64) -> Self {
        Self { bytes, runs, preallocated_bytes: bytes, leaf_copies: Charge::NOTHING }
    }

    /// The same, with what copies of shared leaves add.
    #[must_use]
    pub const fn with_leaf_copies(self, leaf_copies: Charge) -> Self {
        Self { leaf_copies, ..self }
    }
}

impl std::ops::AddAssign for ReservedData {
    fn add_assign(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.runs = self.runs.saturating_add(other.runs);
        self.preallocated_bytes = self.preallocated_bytes.saturating_add(other.preallocated_bytes);
        self.leaf_copies += other.leaf_copies;
    }
}

impl std::ops::SubAssign for ReservedData {
    fn sub_assign(&mut self, other: Self) {
        self.bytes = given_back(self.bytes, other.bytes);
        self.runs = given_back(self.runs, other.runs);
        self.preallocated_bytes = given_back(self.preallocated_bytes, other.preallocated_bytes);
        self.leaf_copies -= other.leaf_copies;
    }
}

/// What promises have to leave room for beside one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Changes that a handle asks for.
    pub changes: Charge,
    /// Data that a write asks for.
    pub data: ReservedData,
    /// What the same operation was promised before, which is among the promises. What an operation may take
    /// is judged as a whole, whether it asks at once or bit by bit.
    pub held: Charge,
}

/// A caller that asks for changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// What the operation may draw on.
    pub access: ReserveAccess,
    /// What it was promised before.
    pub held: Charge,
}

impl From<ReserveAccess> for Asker {
    /// An operation that begins.
    fn from(access: ReserveAccess) -> Self {
        Self { access, held: Charge::default() }
    }
}
