//! What lost its item and may not be taken yet: until the superblock of the transaction that freed it is
//! durable, and the leases have ended that reach it.

use vlinder_format::{Fault, Logical};

use crate::leased::Needing;
use crate::ledger::Ledger;
use crate::pinned::{PinStage, PinnedRanges};

/// The pinned space of a file system.
///
/// 1. No byte is pinned twice: what is freed again was damaged before.
/// 2. What the running transaction freed is not offered before its superblock is durable.
/// 3. What a leased state reaches is not offered before the lease has ended.
#[derive(Clone, Copy, Debug)]
pub struct Pins<'a> {
    ledger: &'a Ledger,
}

impl<'a> Pins<'a> {
    pub(crate) fn new(ledger: &'a Ledger) -> Self {
        Self { ledger }
    }

    /// Used space lost its item: it is free once this transaction is durable, and those leases have ended
    /// that reach it.
    ///
    /// # Errors
    /// What the disk said of it before contradicts that it was in use.
    pub fn pin_used(&self, logical: Logical, length: u64, needing: Option<Needing>) -> Result<(), Fault> {
        let mut state = self.ledger.state.lock();
        state.pinned.check_unpinned(logical, length)?;
        state.groups.pin_used(logical, length)?;
        state.pinned.running.add(logical.0, length);
        if let Some(needing) = needing {
            state.pinned.running_needed.add(needing, logical.0, length);
        }
        Ok(())
    }

    /// Reserved space that may have been written is not needed: it is free once this transaction is durable.
    ///
    /// # Errors
    /// As [`Pins::pin_used`].
    pub fn pin_reserved(&self, logical: Logical, length: u64) -> Result<(), Fault> {
        let mut state = self.ledger.state.lock();
        state.pinned.check_unpinned(logical, length)?;
        state.groups.pin_reserved(logical, length);
        state.pinned.running.add(logical.0, length);
        Ok(())
    }

    /// Bytes that the running transaction freed.
    pub fn pinned_bytes(&self) -> u64 {
        self.ledger.state.lock().pinned.running.total()
    }

    /// Bytes that the transaction freed that is being written, and that may not be taken yet.
    pub fn committing_bytes(&self) -> u64 {
        self.ledger.state.lock().pinned.committing.total()
    }

    /// The running transaction has ended; what it freed waits for its superblock.
    pub fn freeze_pinned(&self) {
        let mut state = self.ledger.state.lock();
        let pinned = &mut state.pinned;
        assert_eq!(pinned.committing.total(), 0, "the commit before is not done");
        pinned.committing = std::mem::take(&mut pinned.running);
        pinned.committing_needed = std::mem::take(&mut pinned.running_needed);
    }

    /// The superblock is durable: what leased states reach of what the transaction freed is held for them.
    /// `needing` gives those that are left of the leases between two.
    pub fn hold_leased(&self, needing: impl Fn(Needing) -> Option<Needing>) {
        let mut state = self.ledger.state.lock();
        let PinnedRanges { committing, committing_needed, held, .. } = &mut state.pinned;
        committing_needed.sift(needing, |_, _| {});
        committing_needed.move_to(held, |start, length| {
            committing.remove(start, length);
        });
    }

    /// A lease ended: what no other needs is on its way to be free ([`PinStage::Released`]).
    pub fn release_unleased(&self, needing: impl Fn(Needing) -> Option<Needing>) {
        let mut state = self.ledger.state.lock();
        let PinnedRanges { held, released, .. } = &mut state.pinned;
        held.sift(needing, |start, length| released.add(start, length));
    }

    /// Bytes that only leases keep from being free, and in how many pieces.
    pub fn held(&self) -> (u64, usize) {
        let held = &self.ledger.state.lock().pinned.held;
        (held.bytes(), held.pieces())
    }

    /// What waits to be free, each range within one group.
    pub fn waiting_ranges(&self, stage: PinStage) -> Vec<(Logical, u64)> {
        let mut state = self.ledger.state.lock();
        let state = &mut *state;
        let mut ranges = Vec::new();
        for (start, length) in stage.of(&mut state.pinned).iter() {
            let (mut at, end) = (start, start + length);
            while at < end {
                let part = state.groups.part_within(Logical(at), end - at);
                ranges.push((Logical(at), part));
                at += part;
            }
        }
        ranges
    }

    /// What waits to be free may be taken.
    pub fn unpin(&self, stage: PinStage) {
        while self.unpin_one(stage) {}
    }

    /// Frees one range and drops its pin under one lock. If the group were loaded between the two steps, the
    /// range would be lost for ever. False when there is none.
    pub(crate) fn unpin_one(&self, stage: PinStage) -> bool {
        let mut state = self.ledger.state.lock();
        let state = &mut *state;
        let ranges = stage.of(&mut state.pinned);
        let Some((start, length)) = ranges.first() else { return false };
        let part = state.groups.part_within(Logical(start), length);
        state.groups.unpin(Logical(start), part);
        ranges.remove(start, part);
        true
    }
}
