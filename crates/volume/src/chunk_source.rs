//! Chunks that are looked for when an address needs them: opening for reading then costs the same however many there are.
//!
//! Invariants:
//! 1. What looks for a chunk reads the chunk tree through the chunks that were known before (those of the superblock), never
//!    through one that it would have to look for: a look-up never causes another, whatever the image says.
//! 2. A chunk is judged by [`Volume::add_chunk`] before anything is read through it, however it came to be known.
//! 3. Whoever needs all chunks asks for them ([`Volume::load_chunks`]); a list of the map while some are unread is a mistake
//!    of ours, and asserted.

use vlinder_base::sync::Arc;
use vlinder_format::Logical;

use crate::chunk_map::{ChunkMap, MappedChunk};
use crate::error::VolumeError;
use crate::volume::Volume;

/// Where chunks that are not known yet come from. The volume knows no trees; this is what it asks instead.
pub trait ChunkSource: Send + Sync {
    /// Adds the chunk that covers an address, if there is one.
    ///
    /// # Errors
    /// What reading it met, or which rule it breaks.
    fn look_up(&self, volume: &Volume, logical: Logical) -> Result<(), VolumeError>;

    /// Adds all chunks.
    ///
    /// # Errors
    /// What reading them met, or which rule one of them breaks.
    fn load_all(&self, volume: &Volume) -> Result<(), VolumeError>;
}

/// Which chunks a read may go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappedBy {
    /// Any, looked for if need be.
    AnyChunk,
    /// Those that are known without the chunk tree: for the blocks of the chunk tree itself.
    SystemChunks,
}

/// What is needed while there are chunks that were not read.
pub(crate) struct Unread {
    source: Arc<dyn ChunkSource>,
    /// The chunks that were known at the start.
    system: ChunkMap,
}

impl std::fmt::Debug for Unread {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Unread").field("system", &self.system).finish_non_exhaustive()
    }
}

impl Volume {
    /// From now on looks for chunks that are not known where an address needs them. Those that are known now are all that
    /// the source may read through.
    pub fn look_up_chunks(&self, source: Arc<dyn ChunkSource>) {
        let system = self.chunks.copy();
        self.chunks.set_partial(true);
        *self.unread.write() = Some(Arc::new(Unread { source, system }));
    }

    /// Makes sure that all chunks are known.
    ///
    /// # Errors
    /// What reading them met; which are known then is unsure, and they are still looked for one by one.
    pub fn load_chunks(&self) -> Result<(), VolumeError> {
        let Some(unread) = self.unread() else { return Ok(()) };
        unread.source.load_all(self)?;
        self.chunks.set_partial(false);
        *self.unread.write() = None;
        Ok(())
    }

    /// The chunk that covers a whole range, looked for if it is not known yet.
    ///
    /// # Errors
    /// [`VolumeError::Unmapped`]; [`VolumeError::Request`] for a range of no bytes; what looking for it met.
    pub fn chunk(&self, logical: Logical, length: u64) -> Result<Arc<MappedChunk>, VolumeError> {
        let known = self.chunks.covering(logical, length);
        // A range that leaves a known chunk lies in no other.
        if !matches!(known, Err(VolumeError::Unmapped { .. })) || self.chunks.get(logical).is_some() {
            return known;
        }
        let Some(unread) = self.unread() else { return known };
        unread.source.look_up(self, logical)?;
        self.chunks.covering(logical, length)
    }

    pub(crate) fn chunk_by(
        &self,
        by: MappedBy,
        logical: Logical,
        length: u64,
    ) -> Result<Arc<MappedChunk>, VolumeError> {
        match by {
            MappedBy::AnyChunk => self.chunk(logical, length),
            MappedBy::SystemChunks => match self.unread() {
                Some(unread) => unread.system.covering(logical, length),
                None => self.chunks.covering(logical, length),
            },
        }
    }

    fn unread(&self) -> Option<Arc<Unread>> {
        self.unread.read().clone()
    }
}
