//! What an open file remembers from call to call. It holds no truth: each part knows of which version of the
//! file it is, and is dropped when the file has another.

use vlinder_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_extent_state::Position;
use vlinder_format::{Generation, Logical};

use crate::extent::Extent;
use crate::file_data::Version;
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::held::first_behind;
use crate::read_ahead::ReadAhead;
use crate::{Result, items};

/// Items that a first load decodes: mostly the next border is near.
const FIRST_ITEMS: usize = 8;
/// No load decodes more; a leaf of 64 KiB has fewer.
const MAX_ITEMS: usize = 1024;
/// One where who goes through the file is, and what is read ahead, which may begin in one leaf and end in the
/// next.
const MAX_WINDOWS: usize = 3;

/// What an open file remembers for its next read or seek.
#[derive(Debug, Default)]
pub struct OpenCache {
    /// The windows that were used last, the last of all first.
    windows: Mutex<Vec<Arc<Window>>>,
    /// Where the last search for unflushed data ended.
    pub(crate) position: Mutex<Position>,
    decoded: Mutex<Option<Decoded>>,
    pub(crate) ahead: Mutex<ReadAhead>,
    /// Bytes on disk that were given out unverified because their checksums can't be had.
    unverified_bytes: AtomicU64,
}

/// A compressed extent, decoded. Its space can be taken by another extent only in a later transaction.
#[derive(Clone, Debug)]
pub(crate) struct Decoded {
    pub(crate) address: Logical,
    pub(crate) generation: Generation,
    pub(crate) bytes: Arc<Vec<u8>>,
}

/// The items of a part of a file.
#[derive(Debug)]
pub(crate) struct Window {
    /// None where the items were changing, so that it is good for one use.
    version: Option<Version>,
    /// Where the part begins.
    start: u64,
    /// Up to here every item is among them.
    pub(crate) complete_to: u64,
    /// In order.
    extents: Vec<Extent>,
    /// How many the load might have decoded.
    limit: usize,
    /// Where the last search among the items ended.
    position: AtomicUsize,
}

impl Window {
    /// The items that end behind an offset, in order.
    pub(crate) fn extents_from(&self, offset: u64, sector_size: u64) -> &[Extent] {
        let position = self.position.load(Ordering::Relaxed);
        let ends_before = |extent: &Extent| extent.file_range(sector_size).end() <= offset;
        let first = first_behind(&self.extents, position, ends_before);
        self.position.store(first, Ordering::Relaxed);
        &self.extents[first..]
    }

    fn has(&self, at: u64, version: Option<Version>) -> bool {
        version.is_some() && self.version == version && self.start <= at && at < self.complete_to
    }
}

impl OpenCache {
    /// Remembers nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes on disk that were given out although their checksums can't be had, which happens only where a
    /// damaged file system is salvaged.
    #[must_use]
    pub fn unverified_bytes(&self) -> u64 {
        self.unverified_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn note_unverified(&self, bytes: u64) {
        self.unverified_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The items of the part of a file that begins at or before `at`, about `wanted` of them where that many
    /// lie in one leaf. Who asks has looked for what is unflushed before.
    pub(crate) fn window(
        &self,
        store: &FileStore,
        node: &FileNode,
        at: u64,
        wanted: usize,
    ) -> Result<Arc<Window>> {
        let version = node.data().version();
        let goes_on = {
            let mut windows = self.windows.lock();
            if let Some(number) = windows.iter().position(|window| window.has(at, version)) {
                windows[..=number].rotate_right(1);
                return Ok(Arc::clone(&windows[0]));
            }
            windows.iter().find(|window| window.complete_to == at).map(|window| window.limit)
        };
        // A reader that goes through a file in order looks at all that a leaf has.
        let limit = goes_on.map_or(FIRST_ITEMS, |limit| limit * 4).max(wanted).min(MAX_ITEMS);
        let (engine, tree) = (store.engine(), node.tree());
        let loaded = items::load_leaf(engine, tree, node.number(), at, limit, goes_on.is_some())?;
        let complete_to = loaded.complete_to.max(at.saturating_add(1));
        let (extents, position) = (loaded.extents, AtomicUsize::new(0));
        let window = Arc::new(Window { version, start: at, complete_to, extents, limit, position });
        if version.is_some() && store.write_back().caches_seeks() {
            let mut windows = self.windows.lock();
            windows.retain(|window| window.version == version);
            windows.truncate(MAX_WINDOWS - 1);
            windows.insert(0, Arc::clone(&window));
        }
        Ok(window)
    }

    /// The bytes of a compressed extent, if it was the last to be decoded in part.
    pub(crate) fn decoded(&self, address: Logical, generation: Generation) -> Option<Arc<Vec<u8>>> {
        let decoded = self.decoded.lock();
        let found =
            decoded.as_ref().filter(|found| found.address == address && found.generation == generation);
        found.map(|found| Arc::clone(&found.bytes))
    }

    pub(crate) fn keep_decoded(&self, decoded: Decoded) {
        *self.decoded.lock() = Some(decoded);
    }
}
