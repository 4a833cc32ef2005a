//! What is in memory of a file's data: the bytes that are not on disk yet, and where they are.

use std::time::Duration;

use vlinder_base::serial;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex, MutexGuard, OnceLock};
use vlinder_extent_state::{ByteRange, ExtentState, Options, Owner, StateBits};

use super::runs::Runs;
use super::write_back::WriteBack;
use crate::inode::InodeId;

/// Bytes that no extent on disk holds yet.
pub(crate) const DELALLOC: StateBits = StateBits(1);
const LOCKED: StateBits = StateBits(1 << 1);

/// What is in memory of a file's data.
///
/// Bytes are *dirty* from their write until a flush takes them, *being written* until their extents are in the tree, and
/// on disk from then on; readers see the newest of these. A range of the state map has [`DELALLOC`] as long as it is in
/// one of the first two.
///
/// Locks: [`Inode::operation`](crate::Inode::operation) → `extents` → a transaction handle →
/// [`Inode::state`](crate::Inode::state) → `unflushed`.
#[derive(Debug)]
pub struct FileData {
    /// Held by whoever changes the file's EXTENT_DATA items: a flush, a truncation, a clone and so on.
    extents: Mutex<()>,
    /// Of the items, while nobody may be changing them: each time they may have changed another [`serial`]; 0 while they
    /// may be changing.
    version: AtomicU64,
    unflushed: Mutex<Unflushed>,
    states: OnceLock<ExtentState>,
}

/// A file's EXTENT_DATA items, and with them the bytes on disk, as they were at some time: of all files and times no other
/// has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u64);

/// The right to change a file's EXTENT_DATA items.
#[derive(Debug)]
pub(crate) struct ExtentsGuard<'a> {
    version: &'a AtomicU64,
    _lock: MutexGuard<'a, ()>,
}

impl<'a> ExtentsGuard<'a> {
    fn new(version: &'a AtomicU64, lock: MutexGuard<'a, ()>) -> Self {
        version.store(0, Ordering::Release);
        Self { version, _lock: lock }
    }
}

impl Drop for ExtentsGuard<'_> {
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
    /// Data space that is promised to `dirty` (see `Engine::promise_data`), in bytes.
    pub(crate) promised: u64,
    /// The same for `writing`.
    pub(crate) writing_promised: u64,
    /// The file had content that was dropped as a whole; what is written now replaces it.
    pub(crate) replaced: bool,
    /// When the oldest of `dirty` came, by the monotonic clock.
    pub(crate) dirty_since: Option<Duration>,
}

impl Unflushed {
    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.dirty.is_empty() && self.writing.is_none()
    }

    /// How many bytes there are, twice where a byte was written again while being written.
    pub(crate) fn bytes(&self) -> u64 {
        self.dirty.bytes() + self.writing.as_ref().map_or(0, |writing| writing.bytes())
    }

    /// Copies what there is of a range into `target`, whose first byte is at `offset`; gives the parts that are on disk.
    pub(crate) fn copy_to(&self, offset: u64, target: &mut [u8]) -> Vec<ByteRange> {
        let Some(range) = ByteRange::with_length(offset, target.len() as u64) else { return Vec::new() };
        if let Some(writing) = &self.writing {
            writing.copy_to(offset, target);
        }
        self.dirty.copy_to(offset, target);
        self.gaps(range)
    }

    /// The parts of a range that are on disk.
    pub(crate) fn gaps(&self, range: ByteRange) -> Vec<ByteRange> {
        let gaps = self.dirty.gaps(range);
        match &self.writing {
            Some(writing) => gaps.into_iter().flat_map(|gap| writing.gaps(gap)).collect(),
            None => gaps,
        }
    }

    /// The offset behind the last byte here.
    pub(crate) fn end(&self) -> Option<u64> {
        let writing = self.writing.as_ref().and_then(|writing| writing.end());
        self.dirty.end().into_iter().chain(writing).max()
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

    /// Keeps others from changing the file's items.
    pub(crate) fn lock_extents(&self) -> ExtentsGuard<'_> {
        ExtentsGuard::new(&self.version, self.extents.lock())
    }

    /// As [`Self::lock_extents`], if nobody holds it.
    pub(crate) fn try_lock_extents(&self) -> Option<ExtentsGuard<'_>> {
        self.extents.try_lock().map(|lock| ExtentsGuard::new(&self.version, lock))
    }

    /// The version of the file's items; none while somebody may be changing them. Who asks has taken what is unflushed
    /// before: bytes leave memory only after their items came, and the version went.
    pub(crate) fn version(&self) -> Option<Version> {
        match self.version.load(Ordering::Acquire) {
            0 => None,
            serial => Some(Version(serial)),
        }
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
