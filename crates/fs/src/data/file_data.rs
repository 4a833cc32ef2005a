//! What is in memory of a file's data: the bytes that are not on disk yet, and where they are.

use std::time::Duration;

use vlinder_base::serial;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex, MutexGuard, OnceLock};
use vlinder_extent_state::{ByteRange, ExtentState, Options, Owner, StateBits};
use vlinder_transaction::PromisedData;

use super::flush::Ordered;
use super::runs::Runs;
use super::write_back::WriteBack;
use crate::ids::InodeId;
use crate::{FsError, Result};

/// Bytes that no extent on disk holds yet.
pub(crate) const DELALLOC: StateBits = StateBits(1);
const LOCKED: StateBits = StateBits(1 << 1);

/// What is in memory of a file's data.
///
/// Bytes are *dirty* from their write until a flush takes them, *being written* until they are on the devices
/// and their extents in the tree, and on disk from then on. Those of direct writes are *ordered* in between:
/// on the devices, while their extents wait to be *entered* with many others. Readers see the newest of all
/// these. A range of the state map has [`DELALLOC`] as long as it is in any of them.
///
/// Locks: [`Inode::operation`](crate::Inode::operation) → `extents` → `storing` → [ranges](Self::lock_range)
/// → a transaction handle → [`Inode::state`](crate::Inode::state) → `unflushed`. Who finishes the batch
/// [under way](super::flush_ahead) has the batch first, with `extents` of other files perhaps, and takes
/// those of its files then.
#[derive(Debug)]
pub struct FileData {
    /// Held by whoever changes the file's EXTENT_DATA items: a flush, a truncation, a clone and so on.
    extents: Mutex<()>,
    /// Held by whoever takes dirty bytes and brings them to the devices, so that extents become ordered as
    /// bytes were taken.
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
pub(crate) struct ExtentsGuard<'a> {
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

/// The bytes in memory.
#[derive(Debug, Default)]
pub(crate) struct Unflushed {
    /// Written since the last flush took what there was.
    pub(crate) dirty: Runs,
    /// Taken by a flush that is not done; older than `dirty` where both have a byte.
    pub(crate) writing: Option<Arc<Runs>>,
    /// On the devices, with extents that no item refers to; older than `writing`, which comes behind it.
    pub(crate) ordered: Ordered,
    /// What was ordered and is being entered; older than all others.
    pub(crate) entering: Option<Arc<Runs>>,
    /// Space that is promised to `dirty` (see `Engine::promise_data`).
    pub(crate) promised: PromisedData,
    /// The same for `writing`.
    pub(crate) writing_promised: PromisedData,
    /// The file had content that was dropped as a whole; what is written now replaces it.
    pub(crate) replaced: bool,
    /// The last flush could not store all that it took.
    pub(crate) is_held: bool,
    /// When the oldest of `dirty` came, by the monotonic clock.
    pub(crate) dirty_since: Option<Duration>,
}

impl Unflushed {
    /// What there is, oldest first: where two have a byte, the later one's is the newer.
    fn layers(&self) -> impl DoubleEndedIterator<Item = &Runs> {
        let entering = self.entering.as_deref();
        let ordered = [&self.ordered.runs];
        entering.into_iter().chain(ordered).chain(self.writing.as_deref()).chain([&self.dirty])
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.layers().all(Runs::is_empty)
    }

    /// How many bytes there are, twice where a byte was written again while being written.
    pub(crate) fn bytes(&self) -> u64 {
        self.layers().map(Runs::bytes).sum()
    }

    /// Whether they lie in several runs.
    pub(crate) fn is_scattered(&self) -> bool {
        self.layers().flat_map(Runs::iter).nth(1).is_some()
    }

    /// The sectors that have such bytes, sorted; neighbours are one range.
    pub(crate) fn sectors(&self, sector_size: u64) -> Vec<ByteRange> {
        let mut all: Vec<(u64, u64)> = self
            .layers()
            .flat_map(Runs::iter)
            .map(|(offset, bytes)| {
                let end = offset.saturating_add(bytes.len() as u64);
                (offset / sector_size * sector_size, end.checked_next_multiple_of(sector_size).unwrap_or(end))
            })
            .collect();
        all.sort_unstable();
        all.dedup_by(|next, last| {
            let joins = next.0 <= last.1;
            if joins {
                last.1 = last.1.max(next.1);
            }
            joins
        });
        all.into_iter().filter_map(|(start, end)| ByteRange::new(start, end)).collect()
    }

    /// Bytes that could not be stored when that was tried last.
    pub(crate) fn held_bytes(&self) -> u64 {
        if self.is_held { self.dirty.bytes() } else { 0 }
    }

    /// Copies what there is of a range into `target`, whose first byte is at `offset`; gives the parts that
    /// are on disk.
    pub(crate) fn copy_to(&self, offset: u64, target: &mut [u8]) -> Vec<ByteRange> {
        let Some(range) = ByteRange::with_length(offset, target.len() as u64) else { return Vec::new() };
        // Mostly nothing lies below.
        if self.dirty.copy_to(offset, target) == target.len() {
            return Vec::new();
        }
        self.layers().for_each(|layer| {
            layer.copy_to(offset, target);
        });
        self.gaps(range)
    }

    /// The parts of a range that are on disk.
    pub(crate) fn gaps(&self, range: ByteRange) -> Vec<ByteRange> {
        let others = self.layers().rev().filter(|layer| !layer.is_empty());
        others.fold(vec![range], |gaps, layer| gaps.into_iter().flat_map(|gap| layer.gaps(gap)).collect())
    }

    /// The offset behind the last byte here.
    pub(crate) fn end(&self) -> Option<u64> {
        self.layers().filter_map(Runs::end).max()
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

    /// Bytes written by callers that are not on the devices yet.
    #[must_use]
    pub fn unstored_bytes(&self) -> u64 {
        let unflushed = self.unflushed.lock();
        unflushed.dirty.bytes() + unflushed.writing.as_ref().map_or(0, |writing| writing.bytes())
    }

    /// Keeps others from changing the file's items and from taking its dirty bytes. What is ordered stays so:
    /// all but a flush use [`lock_settled`](super::flush::lock_settled).
    pub(super) fn lock_extents(&self) -> ExtentsGuard<'_> {
        let items = self.lock_items();
        ExtentsGuard { _storing: self.lock_storing(), _items: items }
    }

    /// As [`Self::lock_extents`], if nobody holds any of it.
    pub(super) fn try_lock_extents(&self) -> Option<ExtentsGuard<'_>> {
        let items = self.try_lock_items()?;
        Some(ExtentsGuard { _storing: self.storing.try_lock()?, _items: items })
    }

    /// Keeps others from changing the file's items.
    pub(super) fn lock_items(&self) -> ItemsGuard<'_> {
        ItemsGuard::new(&self.version, self.extents.lock())
    }

    /// As [`Self::lock_items`], if nobody holds it.
    pub(super) fn try_lock_items(&self) -> Option<ItemsGuard<'_>> {
        self.extents.try_lock().map(|lock| ItemsGuard::new(&self.version, lock))
    }

    /// Keeps others from taking the file's dirty bytes.
    pub(super) fn lock_storing(&self) -> MutexGuard<'_, ()> {
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
    pub(super) fn lock_range(
        &self,
        write_back: &WriteBack,
        id: InodeId,
        range: ByteRange,
    ) -> Result<RangeGuard<'_>> {
        let states = self.states(write_back, id);
        states.lock(range).map_err(FsError::State)?;
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
    pub(crate) fn states(&self, write_back: &WriteBack, id: InodeId) -> &ExtentState {
        self.states.get_or_init(|| {
            let owner = Owner(id.root.0, id.number.0);
            let options = Options { owner, lock_bit: LOCKED, trim: write_back.trims_states() };
            ExtentState::new(options, write_back.state_metrics())
        })
    }
}
