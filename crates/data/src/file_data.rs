//! What is in memory of a file's data: the bytes that are not on disk yet, and where they are.

use vlinder_base::serial;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex, MutexGuard, OnceLock};
use vlinder_extent_state::{ByteRange, ExtentState, Metrics, Options, Owner, StateBits};

use crate::ids::InodeId;
use crate::unflushed::Unflushed;
use crate::{DataError, Result};

/// Bytes that no extent on disk holds yet.
pub(crate) const DELALLOC: StateBits = StateBits(1);

const LOCKED: StateBits = StateBits(1 << 1);

/// How a file system keeps the state maps of its files.
#[derive(Debug)]
pub(crate) struct StateMaps {
    metrics: Arc<Metrics>,
    /// Maps join records that say the same (`state_trim`).
    trims: bool,
}

impl StateMaps {
    pub(crate) fn new(metrics: Arc<Metrics>, trims: bool) -> Self {
        Self { metrics, trims }
    }
}

/// What is in memory of a file's data.
///
/// Bytes are *dirty* from their write until a flush takes them, *being written* until they are on the devices
/// and their extents in the tree, and on disk from then on. Those of direct writes are *ordered* in between:
/// on the devices, while their extents wait to be *entered* with many others. Readers see the newest of all
/// these. A range of the state map has [`DELALLOC`] as long as it is in any of them.
///
/// Invariants, and the function that keeps each:
/// 1. A byte that a write brought is in a layer of [`Unflushed`] until an item in the tree has it: a layer is
///    emptied after the items came, never before (`flush::settled`).
/// 2. Items change only under the lock of the items, and the version is 0 meanwhile and another one
///    afterwards ([`lock_items`](Self::lock_items)). So a reader that met one version before and after its
///    look-ups, and took what is unflushed first, read one state of the file
///    ([`version`](Self::version)).
/// 3. Where a reader read without a version, no extent is entered into its range meanwhile
///    ([`lock_range`](Self::lock_range)).
/// 4. One flush at a time takes dirty bytes, so extents become ordered in the order in which the bytes were
///    taken ([`lock_storing`](Self::lock_storing)).
/// 5. Dirty bytes have a promise of data space, or go to where the file has space: bytes and promise come
///    under one lock (`put_sectors_promised`).
///
/// Locks: the operation lock → `extents` → `storing` → [ranges](Self::lock_range) → a transaction handle →
/// the inode's state → `unflushed`. What finishes the batch [under way](crate::flush::flush_ahead) has the
/// batch first, with `extents` of other files perhaps, and takes those of its files then.
#[derive(Debug)]
pub struct FileData {
    /// Held by what changes the file's EXTENT_DATA items: a flush, a truncation, a clone and so on.
    extents: Mutex<()>,
    /// Held by the flush that takes dirty bytes and brings them to the devices, so that extents become
    /// ordered as bytes were taken.
    storing: Mutex<()>,
    /// Of the items, while nobody may be changing them: each time they may have changed another [`serial`]; 0
    /// while they may be changing.
    version: AtomicU64,
    unflushed: Mutex<Unflushed>,
    states: OnceLock<ExtentState>,
}

/// A file's EXTENT_DATA items, and with them the bytes on disk, as they were at some time: of all files and
/// times no other has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u64);

/// A locked range of a file: nobody else enters extents into it, or has it locked for reading.
#[derive(Debug)]
pub(crate) struct RangeGuard<'a> {
    states: &'a ExtentState,
    range: ByteRange,
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.states.unlock(self.range) {
            tracing::error!(%error, "a range that was locked is not");
        }
    }
}

/// The right to change a file's EXTENT_DATA items, while direct writes go on.
#[derive(Debug)]
pub(crate) struct ItemsGuard<'a> {
    version: &'a AtomicU64,
    _lock: MutexGuard<'a, ()>,
}

/// The right to change a file's EXTENT_DATA items, while nobody takes its dirty bytes.
#[derive(Debug)]
pub struct ExtentsGuard<'a> {
    _storing: MutexGuard<'a, ()>,
    _items: ItemsGuard<'a>,
}

impl<'a> ItemsGuard<'a> {
    fn new(version: &'a AtomicU64, lock: MutexGuard<'a, ()>) -> Self {
        version.store(0, Ordering::Release);
        Self { version, _lock: lock }
    }
}

impl Drop for ItemsGuard<'_> {
    fn drop(&mut self) {
        // Before the lock goes, which is the field's turn.
        self.version.store(serial::next(), Ordering::Release);
    }
}

impl Default for FileData {
    fn default() -> Self {
        Self::new()
    }
}

impl FileData {
    /// Nothing in memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            extents: Mutex::default(),
            storing: Mutex::default(),
            version: AtomicU64::new(serial::next()),
            unflushed: Mutex::default(),
            states: OnceLock::new(),
        }
    }

    /// Whether the inode may leave memory: nothing is waiting to be written.
    #[must_use]
    pub fn may_be_forgotten(&self) -> bool {
        self.unflushed.lock().is_empty()
    }

    /// Bytes written by callers that are in no extent yet.
    #[must_use]
    pub fn unwritten_bytes(&self) -> u64 {
        self.unflushed.lock().bytes()
    }

    /// As [`unwritten_bytes`](Self::unwritten_bytes), and whether they may be more than one run.
    #[must_use]
    pub fn unwritten(&self) -> (u64, bool) {
        let unflushed = self.unflushed.lock();
        (unflushed.bytes(), unflushed.is_scattered())
    }

    /// Bytes written by callers that are not on the devices yet.
    #[must_use]
    pub fn unstored_bytes(&self) -> u64 {
        let unflushed = self.unflushed.lock();
        unflushed.dirty.bytes() + unflushed.writing.as_ref().map_or(0, |writing| writing.bytes())
    }

    /// Keeps others from changing the file's items and from taking its dirty bytes. What is ordered stays so:
    /// all but a flush use [`lock_settled`](crate::flush::lock_settled).
    pub(crate) fn lock_extents(&self) -> ExtentsGuard<'_> {
        let items = self.lock_items();
        ExtentsGuard { _storing: self.lock_storing(), _items: items }
    }

    /// As [`Self::lock_extents`], if nobody holds any of it.
    pub(crate) fn try_lock_extents(&self) -> Option<ExtentsGuard<'_>> {
        let items = self.try_lock_items()?;
        Some(ExtentsGuard { _storing: self.storing.try_lock()?, _items: items })
    }

    /// Keeps others from changing the file's items.
    pub(crate) fn lock_items(&self) -> ItemsGuard<'_> {
        ItemsGuard::new(&self.version, self.extents.lock())
    }

    /// As [`Self::lock_items`], if nobody holds it.
    pub(crate) fn try_lock_items(&self) -> Option<ItemsGuard<'_>> {
        self.extents.try_lock().map(|lock| ItemsGuard::new(&self.version, lock))
    }

    /// Keeps others from taking the file's dirty bytes.
    pub(crate) fn lock_storing(&self) -> MutexGuard<'_, ()> {
        self.storing.lock()
    }

    /// The version of the file's items; none while somebody may be changing them. Who asks has taken what is
    /// unflushed before: bytes leave memory only after their items came, and the version went.
    pub(crate) fn version(&self) -> Option<Version> {
        match self.version.load(Ordering::Acquire) {
            0 => None,
            serial => Some(Version(serial)),
        }
    }

    /// Keeps others from entering extents into a range of whole sectors, so that what its items refer to
    /// stays theirs. Who enters has the ranges locked of all items that may change; a reader that can't go by
    /// the [version](Self::version) has one, and reads the devices meanwhile. Only who changes items has
    /// several at once.
    ///
    /// # Errors
    /// Only for defects of the state map.
    pub(crate) fn lock_range(
        &self,
        maps: &StateMaps,
        id: InodeId,
        range: ByteRange,
    ) -> Result<RangeGuard<'_>> {
        let states = self.states(maps, id);
        states.lock(range).map_err(DataError::State)?;
        Ok(RangeGuard { states, range })
    }

    pub(crate) fn unflushed(&self) -> MutexGuard<'_, Unflushed> {
        self.unflushed.lock()
    }

    /// The map of states; none as long as nothing was ever written.
    pub(crate) fn states_if_any(&self) -> Option<&ExtentState> {
        self.states.get()
    }

    /// The map of states.
    pub(crate) fn states(&self, maps: &StateMaps, id: InodeId) -> &ExtentState {
        self.states.get_or_init(|| {
            let owner = Owner(id.root.0, id.number.0);
            let options = Options { owner, lock_bit: LOCKED, trim: maps.trims };
            ExtentState::new(options, Arc::clone(&maps.metrics))
        })
    }
}
