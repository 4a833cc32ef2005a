//! The state of all space, under one short lock, for the three objects that keep it: groups
//! ([`SpaceManager`](crate::SpaceManager)), pins ([`Pins`](crate::Pins)) and promises
//! ([`Reservations`](crate::Reservations)).

use vlinder_base::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use vlinder_base::sync::{Condvar, Mutex, MutexGuard};

use crate::groups::Groups;
use crate::pinned::PinnedRanges;
use crate::promises::{Promises, Unallocated};

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) groups: Groups,
    pub(crate) pinned: PinnedRanges,
    pub(crate) promises: Promises,
    /// What new chunks can have; none where that has to be looked up again, because chunks came or went.
    pub(crate) unallocated: Option<Unallocated>,
    /// Counts how often `unallocated` was forgotten.
    pub(crate) chunk_changes: u64,
    /// The sizes of trees were counted as closely as they can be, since they changed last.
    pub(crate) is_counted: bool,
    /// For so many blocks new places were looked for last.
    pub(crate) chosen_for: u64,
    /// Counts how often the sizes of trees were set.
    pub(crate) size_changes: u64,
    /// A chunk is on its way from what is unallocated into a group: for the moment its bytes count as
    /// neither.
    pub(crate) is_making_chunk: bool,
    /// Some groups hold data and metadata, so that what is promised to one is not there for the other.
    pub(crate) is_mixed: bool,
    /// See [`Ledger::is_ample`].
    pub(crate) is_ample: bool,
}

impl State {
    pub(crate) fn forget_unallocated(&mut self) {
        self.unallocated = None;
        self.chunk_changes += 1;
    }
}

/// The state, with those who wait for it to change.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) state: Mutex<State>,
    pub(crate) loaded: Condvar,
    pub(crate) chunk_made: Condvar,
    pub(crate) ticket_ended: Condvar,
    /// Counts how often a handle gave back what it was promised; changed under the lock.
    pub(crate) given_back: AtomicU64,
    /// Blocks that handles made in trees of files since these came to rest, less those they let go of again.
    pub(crate) made: AtomicI64,
    /// The groups had room for twice what the last promise needed beside all else.
    pub(crate) is_ample: AtomicBool,
}

impl Ledger {
    pub(crate) fn new(block_bytes: u32) -> Self {
        let state = State { promises: Promises::new(u64::from(block_bytes)), ..State::default() };
        Self {
            state: Mutex::new(state),
            loaded: Condvar::new(),
            chunk_made: Condvar::new(),
            ticket_ended: Condvar::new(),
            given_back: AtomicU64::new(0),
            made: AtomicI64::new(0),
            is_ample: AtomicBool::new(false),
        }
    }

    /// The state, with what was made of the trees and is left of chosen places by now.
    pub(crate) fn up_to_date(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        let chosen_bytes = state.groups.chosen_bytes();
        let sizes = state.promises.sizes_mut();
        sizes.made = u64::try_from(self.made.load(Ordering::Relaxed)).unwrap_or(0);
        sizes.chosen_blocks = chosen_bytes / sizes.block_bytes.max(1);
        state
    }
}
