//! Ranges that wait to be free, by what they wait for.

use vlinder_format::free_space::FreeSpaceFault;
use vlinder_format::{Fault, Logical};

use crate::free_ranges::FreeRanges;
use crate::leased::NeededRanges;

/// Space that is about to be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinStage {
    /// For the superblock of the transaction that freed it.
    Committing,
    /// For nothing any more; a lease held it.
    Released,
}

impl PinStage {
    pub(crate) fn of(self, pinned: &mut PinnedRanges) -> &mut FreeRanges {
        match self {
            Self::Committing => &mut pinned.committing,
            Self::Released => &mut pinned.released,
        }
    }
}

/// All ranges that wait to be free.
#[derive(Debug, Default)]
pub(crate) struct PinnedRanges {
    /// Freed by the running transaction.
    pub(crate) running: FreeRanges,
    /// Freed by the transaction that is being written.
    pub(crate) committing: FreeRanges,
    /// Of `running`, what leased states reach.
    pub(crate) running_needed: NeededRanges,
    /// Of `committing`, what leased states reach.
    pub(crate) committing_needed: NeededRanges,
    /// Freed by durable transactions, and reached by leased states.
    pub(crate) held: NeededRanges,
    /// Held before, on its way to be free.
    pub(crate) released: FreeRanges,
}

impl PinnedRanges {
    /// Whether a range may be pinned.
    ///
    /// # Errors
    /// A part of it is pinned already.
    pub(crate) fn check_unpinned(&self, start: Logical, length: u64) -> Result<(), Fault> {
        let mut waiting = [&self.running, &self.committing, &self.released].into_iter();
        if waiting.any(|ranges| ranges.overlaps(start.0, length)) || self.held.overlaps(start.0, length) {
            return Err(FreeSpaceFault::FreedTwice { start, length }.into());
        }
        Ok(())
    }
}
