//! What a handle asks for when it begins.

use crate::change_kind::ChangeKind;
use vlinder_space::{Charge, ReserveAccess};

/// Leaves, each with its path and a split, that taking away the name of a subvolume comes to at most: three
/// of the directory's tree, four of the root tree (root item, two references, orphan), two each of the trees
/// of UUIDs and quotas. None of them splits, and those of one tree share its root.
pub const SUBVOLUME_DELETION_LEAVES: u32 = 9;

/// What a handle may need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// What it may change.
    pub changes: Charge,
    /// What it may draw on where there is no other room.
    pub access: ReserveAccess,
    /// What it is for.
    pub kind: ChangeKind,
}

impl Reservation {
    /// For an operation that may change so many leaves.
    pub const fn items(leaves: u32) -> Self {
        Self::new(leaves, ReserveAccess::Nothing)
    }

    /// For making a subvolume or a snapshot.
    pub const fn subvolume(leaves: u32) -> Self {
        Self::new(leaves, ReserveAccess::Snapshot)
    }

    /// For removing a name.
    pub const fn removal(leaves: u32) -> Self {
        Self::new(leaves, ReserveAccess::Removal)
    }

    /// For what gives back more than it takes.
    pub const fn deletion(leaves: u32) -> Self {
        Self::new(leaves, ReserveAccess::Reserve)
    }

    /// For what was accepted before, and must find room now.
    pub const fn accepted(leaves: u32) -> Self {
        Self::new(leaves, ReserveAccess::Accepted)
    }

    /// For deleting a subvolume and freeing its blocks.
    pub const fn tree_deletion(leaves: u32) -> Self {
        Self::new(leaves, ReserveAccess::LastReserve)
    }

    const fn new(leaves: u32, access: ReserveAccess) -> Self {
        Self { changes: Charge::leaves(leaves as u64), access, kind: ChangeKind::Other }
    }

    /// Of a kind.
    #[must_use]
    pub const fn of(mut self, kind: ChangeKind) -> Self {
        self.kind = kind;
        self
    }

    /// With further changes.
    #[must_use]
    pub fn and(mut self, changes: Charge) -> Self {
        self.changes += changes;
        self
    }
}
