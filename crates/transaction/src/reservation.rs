//! Space promised before it is used, so that what was accepted never fails for lack of it: metadata to handles, data to
//! writes that are not allocated yet.

use vlinder_base::sync::atomic::Ordering;

use crate::EngineError;
use crate::engine::Engine;
use crate::space::Promised;

/// What a handle may need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Items that may be inserted, changed or removed, in different leaves at worst.
    pub metadata_items: u32,
    /// What it may draw on where there is no other room.
    pub draw: Draw,
}

/// What a handle may draw on beside what anybody may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Draw {
    /// On nothing.
    #[default]
    Nothing,
    /// On the global reserve, for what gives back more than it takes; not on the part for deleting trees. (What a snapshot
    /// shares is copied to be changed, so that deleting files may give back nothing until the snapshot goes.)
    Reserve,
    /// On all of it but the commit's own part, for deleting trees.
    LastReserve,
}

impl Reservation {
    /// For an operation that may change so many items.
    pub const fn items(metadata_items: u32) -> Self {
        Self { metadata_items, draw: Draw::Nothing }
    }

    /// For what gives back more than it takes.
    pub const fn deletion(metadata_items: u32) -> Self {
        Self { metadata_items, draw: Draw::Reserve }
    }

    /// For deleting a subvolume and freeing its blocks.
    pub const fn tree_deletion(metadata_items: u32) -> Self {
        Self { metadata_items, draw: Draw::LastReserve }
    }
}

/// The global reserve has room for a deletion that changes so many items, and once more for one of trees, so that a full file
/// system can be emptied. Larger ones may be refused, and then go in parts.
pub const LARGEST_DELETION_ITEMS: u32 = 16;

/// Data space promised to a write that is not allocated yet; settles on drop.
pub struct DataPromise<'a> {
    engine: &'a Engine,
    bytes: u64,
}

/// What a new extent's item, its header and its share of half-full leaves take.
const EXTENT_ITEM_BYTES: u64 = 128;

/// Above this, what pending items may take is worked out more closely.
const MANY_OWED_BYTES: u64 = 1 << 20;

/// How often a promise is tried, with a commit between two tries.
const TRIES: u32 = 3;

/// How often who may draw on the reserve tries to, when others have drawn on all of it.
const RESERVE_TRIES: u32 = 16;

impl Engine {
    /// What changes of so many items can take: for each a path copied, and one split.
    pub(crate) fn metadata_bytes(&self, items: u32) -> u64 {
        let height = u64::from(self.fixed.extent.root().pointer().level.0).max(1);
        u64::from(items) * (height + 2) * u64::from(self.node_size())
    }

    /// Whether one item more can be changed outside a transaction, for a participant to put in before the next commit. Who
    /// hears no leaves the item as it was: a commit that found no space for it could not end.
    pub fn has_room_for_item(&self) -> bool {
        let bytes = self.metadata_bytes(1);
        let has_room = self.try_metadata(bytes, Draw::Nothing);
        if has_room {
            self.space.unpromise(bytes);
        }
        has_room
    }

    /// So many items changed outside a transaction: the next commit owes room for them.
    pub fn await_items(&self, count: u64) {
        self.awaited_items.fetch_add(count, Ordering::Relaxed);
    }

    /// So many of the items that were awaited are in a transaction, or not needed any more.
    pub fn settle_awaited_items(&self, count: u64) {
        self.awaited_items.fetch_sub(count, Ordering::Relaxed);
    }

    /// What the next commit will take beside what is kept for it: a leaf for each pending item at worst, but not more
    /// than every block that there is copied and split, with the items in half-full leaves of their own; and items for
    /// extents that are not in the extent tree yet.
    pub(crate) fn owed_metadata(&self) -> u64 {
        let references = u64::try_from(self.delayed.lock().len()).unwrap_or(u64::MAX);
        let node_size = u64::from(self.node_size());
        let awaited = self.awaited_items.load(Ordering::Relaxed);
        let mut items = (self.pending.entries() + awaited) * node_size;
        if items > MANY_OWED_BYTES {
            let everywhere = 2 * (self.space.metadata_taken() + self.pending.bytes());
            items = items.min(everywhere);
        }
        items + references * EXTENT_ITEM_BYTES
    }

    /// Promises metadata. Chunks that can be made count as room, and are made when blocks are taken. Where there is no room,
    /// these make it: a commit, which settles what is owed and unpins, then what leases hold, then what `draw` allows of the
    /// reserve.
    pub(crate) fn promise_metadata(&self, bytes: u64, draw: Draw) -> Result<(), EngineError> {
        if bytes == 0 {
            return Ok(());
        }
        if Self::is_committing_thread() {
            // A participant puts in what was accepted long ago. It can't wait for a commit, which is this one, and
            // refusing it would lose what it has: the reserve is there for this.
            self.space.promise_at_once(bytes);
            return Ok(());
        }
        for attempt in 0..TRIES {
            if self.try_metadata(bytes, Draw::Nothing) {
                return Ok(());
            }
            let hopeless = self.owed_metadata() == 0 && self.space.pinned_bytes() == 0;
            if hopeless || attempt + 1 == TRIES {
                // Reading an older state matters less than any change.
                if self.revoke_leases() && self.try_metadata(bytes, Draw::Nothing) {
                    return Ok(());
                }
                break;
            }
            self.commit()?;
        }
        let tries = if draw == Draw::Nothing { 0 } else { RESERVE_TRIES };
        for _ in 0..tries {
            if self.try_metadata(bytes, draw) {
                return Ok(());
            }
            // Others draw on it at the moment: the commit waits for them, and gives back what they do not need.
            self.commit()?;
        }
        Err(EngineError::NoSpace { kind: "metadata", needed_bytes: bytes })
    }

    /// Promises metadata if there is room; false where there is none.
    pub(crate) fn try_metadata(&self, bytes: u64, draw: Draw) -> bool {
        self.try_promise(|| self.space.promise(bytes, self.owed_metadata(), draw))
    }

    /// Asks for a promise; what new chunks can have is looked up where the present ones do not do.
    fn try_promise(&self, promise: impl Fn() -> Promised) -> bool {
        loop {
            match promise() {
                Promised::Given => return true,
                Promised::Refused => return false,
                Promised::Unmeasured(chunks) => self.space.set_unallocated(chunks, self.unallocated()),
            }
        }
    }

    /// Promises data space to a write, and the metadata for it, so that its flush later cannot fail for lack of either.
    ///
    /// # Errors
    /// [`EngineError::NoSpace`], [`EngineError::ReadOnly`].
    pub fn promise_data(&self, bytes: u64) -> Result<DataPromise<'_>, EngineError> {
        self.check_writable()?;
        let fits = || self.try_promise(|| self.space.promise_data(bytes, self.owed_metadata()));
        for _ in 0..TRIES {
            if fits() {
                return Ok(DataPromise { engine: self, bytes });
            }
            if self.space.pinned_bytes() == 0 {
                break;
            }
            self.commit()?;
        }
        if self.revoke_leases() && fits() {
            return Ok(DataPromise { engine: self, bytes });
        }
        Err(EngineError::NoSpace { kind: "data", needed_bytes: bytes })
    }

    /// Gives back a kept promise ([`DataPromise::keep`]), when its data have their items or were dropped; `placed_bytes` of
    /// them had their space ([`place_promised_data`](Self::place_promised_data)).
    pub fn settle_data_promise(&self, bytes: u64, placed_bytes: u64) {
        self.space.unpromise_data(bytes, placed_bytes);
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
    /// Bytes promised.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Splits off a part of the promise.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { engine: self.engine, bytes }
    }

    /// Takes the bytes out of this guard's care: whoever does gives them back through
    /// [`Engine::settle_data_promise`]. For promises kept beside the data itself.
    pub fn keep(mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for DataPromise<'_> {
    fn drop(&mut self) {
        self.engine.space.unpromise_data(self.bytes, 0);
    }
}
