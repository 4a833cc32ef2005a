//! Logical addresses → chunks.

use std::collections::BTreeMap;

use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Arc, RwLock};
use vlinder_format::Logical;

use crate::error::VolumeError;
use crate::mapped_chunk::MappedChunk;

/// No sound file system has more chunks: at 64 MiB each this is 64 TiB, at the usual 1 GiB a pebibyte.
const MAX_CHUNKS: usize = 1 << 20;

/// All chunks that are known. Where they are looked for one by one ([`crate::Volume::look_up_chunks`]), only
/// [`get`](Self::get) and [`covering`](Self::covering) may be asked before all were loaded.
#[derive(Debug, Default)]
pub struct ChunkMap {
    chunks: RwLock<BTreeMap<Logical, Arc<MappedChunk>>>,
    /// There are more, which nobody has needed so far.
    is_partial: AtomicBool,
}

impl ChunkMap {
    /// Adds a chunk whose rules were checked. One that is there already, [the
    /// same](vlinder_format::chunk::Chunk::is_same_as), is no error: the system chunks come from the
    /// superblock and from the chunk tree.
    ///
    /// # Errors
    /// [`VolumeError::ChunkOverlap`], [`VolumeError::TooManyChunks`].
    pub(crate) fn insert(&self, mapped: MappedChunk) -> Result<(), VolumeError> {
        let mut chunks = self.chunks.write();
        let before = chunks.range(..mapped.end()).next_back().map(|(_, chunk)| chunk);
        if let Some(other) = before
            && other.end() > mapped.logical
        {
            if other.logical == mapped.logical && other.chunk.is_same_as(&mapped.chunk) {
                return Ok(());
            }
            return Err(VolumeError::ChunkOverlap { logical: mapped.logical, other: other.logical });
        }
        if chunks.len() >= MAX_CHUNKS {
            return Err(VolumeError::TooManyChunks { most: MAX_CHUNKS });
        }
        chunks.insert(mapped.logical, Arc::new(mapped));
        Ok(())
    }

    /// Forgets the chunk that starts here.
    pub(crate) fn remove(&self, logical: Logical) -> Option<Arc<MappedChunk>> {
        self.chunks.write().remove(&logical)
    }

    /// The known chunk that covers an address.
    pub fn get(&self, logical: Logical) -> Option<Arc<MappedChunk>> {
        let chunks = self.chunks.read();
        let (_, chunk) = chunks.range(..=logical).next_back()?;
        (logical < chunk.end()).then(|| Arc::clone(chunk))
    }

    /// The known chunk that covers a whole range.
    ///
    /// # Errors
    /// [`VolumeError::Unmapped`]; [`VolumeError::Request`] for a range of no bytes.
    pub fn covering(&self, logical: Logical, length: u64) -> Result<Arc<MappedChunk>, VolumeError> {
        if length == 0 {
            return Err(VolumeError::Request { logical, length });
        }
        let chunk = self.get(logical).filter(|chunk| chunk.contains(logical, length));
        chunk.ok_or(VolumeError::Unmapped { logical, length })
    }

    /// All chunks by address, as they are now.
    pub fn snapshot(&self) -> Vec<Arc<MappedChunk>> {
        self.assert_complete();
        self.chunks.read().values().map(Arc::clone).collect()
    }

    /// The chunk that covers an address, or the first one behind it.
    pub fn at_or_behind(&self, logical: Logical) -> Option<Arc<MappedChunk>> {
        self.assert_complete();
        self.get(logical)
            .or_else(|| self.chunks.read().range(logical..).next().map(|(_, chunk)| Arc::clone(chunk)))
    }

    /// Where Linux would put the next chunk: right after the last (`find_next_chunk`).
    pub fn next_logical(&self) -> Logical {
        self.assert_complete();
        self.chunks.read().values().next_back().map_or(Logical(0), |chunk| chunk.end())
    }

    /// The same chunks once more, for a reader that must not see those that come later.
    pub(crate) fn copy(&self) -> Self {
        Self { chunks: RwLock::new(self.chunks.read().clone()), is_partial: AtomicBool::default() }
    }

    /// Tells whether there are chunks that are not known.
    pub(crate) fn set_partial(&self, is_partial: bool) {
        self.is_partial.store(is_partial, Ordering::Release);
    }

    /// A caller that took some of the chunks for all of them would give out space that is taken.
    fn assert_complete(&self) {
        assert!(!self.is_partial.load(Ordering::Acquire), "a list of chunks before all were read");
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.assert_complete();
        self.chunks.read().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
