//! Space promised before it is used, so that what was accepted never fails for lack of it: metadata to handles, data to
//! writes that are not allocated yet.

use crate::EngineError;
use crate::change_kind::ChangeKind;
use crate::engine::Engine;
use crate::space::{Charge, Draw, Promised, PromisedData, Wanted};

/// What a handle may need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// What it may change.
    pub changes: Charge,
    /// What it may draw on where there is no other room.
    pub draw: Draw,
    /// What it is for.
    pub kind: ChangeKind,
}

impl Reservation {
    /// For an operation that may change so many leaves.
    pub const fn items(leaves: u32) -> Self {
        Self::new(leaves, Draw::Nothing)
    }

    /// For what is asked for rarely, and told at once if there is no room: it may use the margin.
    pub const fn on_margin(leaves: u32) -> Self {
        Self::new(leaves, Draw::Margin)
    }

    /// For what gives back more than it takes.
    pub const fn deletion(leaves: u32) -> Self {
        Self::new(leaves, Draw::Reserve)
    }

    /// For deleting a subvolume and freeing its blocks.
    pub const fn tree_deletion(leaves: u32) -> Self {
        Self::new(leaves, Draw::LastReserve)
    }

    const fn new(leaves: u32, draw: Draw) -> Self {
        Self { changes: Charge::leaves(leaves as u64), draw, kind: ChangeKind::Other }
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

/// Data space promised to a write that is not allocated yet, and the metadata space for it; settles on drop.
pub struct DataPromise<'a> {
    engine: &'a Engine,
    space: PromisedData,
}

/// How often a promise is tried, with a commit between two tries.
const TRIES: u32 = 3;

/// How often a handle that may draw on the reserve tries to, when others have drawn on all of it.
const RESERVE_TRIES: u32 = 16;

impl Engine {
    /// Promises metadata. Chunks that can be made count as room, and are made when blocks are taken. Where there is no room,
    /// these make it: a commit, which does what waits and unpins, then what leases hold, then what `draw` allows of the
    /// reserve.
    pub(crate) fn promise_changes(&self, changes: Charge, draw: Draw) -> Result<(), EngineError> {
        if changes == Charge::default() {
            return Ok(());
        }
        if Self::is_committing_thread() {
            // A participant puts in what has waited in memory. It can't wait for a commit, which is this one; what finds no
            // room stays where it is.
            let promised = self.try_changes(changes, draw);
            return if promised { Ok(()) } else { Err(self.no_space(changes)) };
        }
        for attempt in 0..TRIES {
            if self.try_changes(changes, draw.min(Draw::Margin)) {
                return Ok(());
            }
            if !self.would_gain_by_committing() || attempt + 1 == TRIES {
                // Reading an older state matters less than any change.
                if self.revoke_leases() && self.try_changes(changes, draw.min(Draw::Margin)) {
                    return Ok(());
                }
                break;
            }
            self.commit()?;
        }
        let tries = if draw > Draw::Margin { RESERVE_TRIES } else { 0 };
        for _ in 0..tries {
            if self.try_changes(changes, draw) {
                return Ok(());
            }
            if !self.would_gain_by_committing() {
                break;
            }
            // Others draw on it at the moment: the commit waits for them, and gives back what they do not need.
            self.commit()?;
        }
        Err(self.no_space(changes))
    }

    fn no_space(&self, changes: Charge) -> EngineError {
        EngineError::NoSpace { kind: "metadata", needed_bytes: self.space.price_bytes(changes) }
    }

    /// Whether a commit could give back space: by writing what waits, by freeing what is pinned, or by waiting for handles that
    /// are open or about to be.
    #[must_use]
    pub fn would_gain_by_committing(&self) -> bool {
        self.waiting_changes() != Charge::default()
            || self.space.pinned_bytes() > 0
            || self.phase.lock().handles > 0
            || self.space.has_promised_changes()
    }

    /// Promises metadata if there is room; false where there is none.
    pub(crate) fn try_changes(&self, changes: Charge, draw: Draw) -> bool {
        self.try_promise(Wanted { changes, ..Wanted::default() }, draw)
    }

    /// Asks for a promise; what the answer depends on is looked up where it is not known, and measured where it is known as
    /// a bound alone.
    fn try_promise(&self, wanted: Wanted, draw: Draw) -> bool {
        let mut has_measured = false;
        loop {
            // What may be put off does not keep away those who draw on the reserve.
            let postponable = if draw > Draw::Margin { Charge::default() } else { self.awaited_changes() };
            let counted = self.waiting_changes() + postponable;
            let promised = self.space.promise(wanted, counted, draw);
            let promised = match (promised, self.measured_changes()) {
                (Promised::Refused, Some(measured)) => {
                    self.space.promise(wanted, measured + postponable, draw)
                }
                _ => promised,
            };
            match promised {
                Promised::Given => return true,
                Promised::Refused if has_measured || counted == Charge::default() => return false,
                Promised::Refused => {
                    has_measured = self.measure_waiting();
                    if !has_measured {
                        return false;
                    }
                }
                Promised::Unmeasured(chunks) => self.space.set_unallocated(chunks, self.unallocated()),
                Promised::Uncounted(sizes) => self.space.set_counted(sizes, self.count_trees()),
            }
        }
    }

    /// Whether there is room for all that waits for the commit, for what the commit takes by itself, and for what handles were
    /// promised: what every promise leaves room for.
    pub(crate) fn has_room_for_promises(&self) -> bool {
        let nothing = Wanted::default();
        self.try_promise(nothing, Draw::LastReserve)
    }

    /// Promises data space to a write, and the metadata for it, so that its flush later cannot fail for lack of either. A write
    /// draws on the margin: Linux asks for little more for one than it takes, unlike for names.
    ///
    /// # Errors
    /// [`EngineError::NoSpace`], [`EngineError::ReadOnly`].
    pub fn promise_data(&self, space: PromisedData) -> Result<DataPromise<'_>, EngineError> {
        self.check_writable()?;
        let wanted = Wanted { data: space, ..Wanted::default() };
        let promise = || DataPromise { engine: self, space };
        for _ in 0..TRIES {
            if self.try_promise(wanted, Draw::Margin) {
                return Ok(promise());
            }
            if !self.would_gain_by_committing() {
                break;
            }
            self.commit()?;
        }
        if self.revoke_leases() && self.try_promise(wanted, Draw::Margin) {
            return Ok(promise());
        }
        Err(EngineError::NoSpace { kind: "data", needed_bytes: space.bytes })
    }

    /// Promises space to data that were accepted before, whatever there is.
    pub fn promise_accepted_data(&self, data: PromisedData) {
        self.space.promise_accepted_data(data);
    }

    /// Gives back a kept promise ([`DataPromise::keep`]), when its data have their items or were dropped; `placed_bytes` of
    /// them had their space ([`place_promised_data`](Self::place_promised_data)).
    pub fn settle_data_promise(&self, promised: PromisedData, placed_bytes: u64) {
        self.space.unpromise_data(promised, placed_bytes);
    }

    /// So many bytes of data that were promised space have it now, and count no longer beside it.
    pub fn place_promised_data(&self, bytes: u64) {
        self.space.place_data(bytes);
    }

    /// Data that had their space ([`place_promised_data`](Self::place_promised_data)) gave it back; it is promised to them still.
    pub fn displace_promised_data(&self, bytes: u64) {
        self.space.displace_data(bytes);
    }
}

impl DataPromise<'_> {
    /// What is promised.
    pub fn space(&self) -> PromisedData {
        self.space
    }

    /// Splits off a part of the promise.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.space.bytes);
        let preallocated_bytes = bytes.min(self.space.preallocated_bytes);
        let space = PromisedData { bytes, runs: 0, preallocated_bytes };
        self.space -= space;
        Self { engine: self.engine, space }
    }

    /// Gives back the promise for all but `runs` of the runs.
    pub fn keep_runs(&mut self, runs: u64) {
        let surplus = PromisedData::written(0, self.space.runs.saturating_sub(runs));
        self.space -= surplus;
        self.engine.space.unpromise_data(surplus, 0);
    }

    /// Takes the space out of this guard's care: the caller gives it back through
    /// [`Engine::settle_data_promise`]. For promises kept beside the data itself.
    pub fn keep(mut self) -> PromisedData {
        std::mem::take(&mut self.space)
    }
}

impl Drop for DataPromise<'_> {
    fn drop(&mut self) {
        self.engine.space.unpromise_data(self.space, 0);
    }
}
