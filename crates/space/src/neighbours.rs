//! Groups for the tests of this module.

use vlinder_format::Logical;
use vlinder_format::chunk::BlockGroupFlags;

use crate::charge::Charge;
use crate::group_range::GroupRange;
use crate::groups::Group;
use crate::manager::SpaceManager;
use crate::promises::Unallocated;
use crate::reservations::{CountedBlocks, LookUps};

pub(crate) const BLOCK: u64 = 16 << 10;
pub(crate) const GROUP: GroupRange = GroupRange { start: Logical(1 << 20), length: 64 * BLOCK };

const NOTHING: Unallocated = Unallocated { bytes: 0, data_copies: 1, metadata_copies: 1 };

pub(crate) const BLOCKS: u64 = GROUP.length / BLOCK;

/// Groups beside one another, of this content and with so many blocks used.
pub(crate) fn neighbours(groups: &[(BlockGroupFlags, u64)]) -> SpaceManager {
    let space = SpaceManager::new(BLOCK as u32);
    for (number, (flags, used)) in (0..).zip(groups) {
        let range = GroupRange { start: place(number), length: GROUP.length };
        space.add_group(Group::existing(range, *flags, used * BLOCK, 0, false));
    }
    space.ledger().state.lock().unallocated = Some(NOTHING);
    space
}

/// What is to be looked up of neighbours is known.
pub(crate) struct Neighbours;

impl LookUps for Neighbours {
    fn unallocated(&self) -> Unallocated {
        NOTHING
    }

    fn count_trees(&self, _: &Charge) -> Option<CountedBlocks> {
        None
    }
}

/// Where a group begins.
pub(crate) fn place(number: u64) -> Logical {
    Logical(GROUP.start.0 + number * GROUP.length)
}
