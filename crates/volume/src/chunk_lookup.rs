//! Chunks that are looked for when an address needs them: opening for reading then costs the same however
//! many there are.
//!
//! Invariants:
//! 1. What looks for a chunk reads the chunk tree through the chunks that were known before (those of the
//!    superblock), never through one that it would have to look for: a look-up never causes another, whatever
//!    the image says.
//! 2. A chunk is judged by [`Volume::add_chunk`](crate::Volume::add_chunk) before anything is read through
//!    it, however it came to be known.
//! 3. A caller that needs all chunks asks for them ([`Volume::load_chunks`](crate::Volume::load_chunks)); a
//!    list of the map while some are unread is a mistake of ours, and asserted.

use vlinder_base::sync::{Arc, RwLock};
use vlinder_format::Logical;

use crate::chunk_map::ChunkMap;
use crate::chunk_source::{AddChunk, ChunkSource, MappedBy, Unread};
use crate::error::VolumeError;
use crate::mapped_chunk::MappedChunk;

/// The chunks that are known, and where others are looked for. What is found goes through the caller's `add`,
/// which judges it before it adds it to the known ones.
#[derive(Debug, Default)]
pub(crate) struct ChunkLookup {
    known: ChunkMap,
    unread: RwLock<Option<Arc<Unread>>>,
}

impl ChunkLookup {
    /// The chunks that are known.
    pub(crate) const fn known(&self) -> &ChunkMap {
        &self.known
    }

    /// From now on looks for chunks that are not known where an address needs them. Those that are known now
    /// are all that the source may read through.
    pub(crate) fn look_in(&self, source: Arc<dyn ChunkSource>) {
        let system = self.known.copy();
        self.known.set_partial(true);
        *self.unread.write() = Some(Arc::new(Unread { source, system }));
    }

    /// Makes sure that all chunks are known.
    ///
    /// # Errors
    /// What reading them met; which are known then is unsure, and they are still looked for one by one.
    pub(crate) fn load(&self, add: &mut AddChunk<'_>) -> Result<(), VolumeError> {
        let Some(unread) = self.unread() else { return Ok(()) };
        unread.source.load_all(add)?;
        self.known.set_partial(false);
        *self.unread.write() = None;
        Ok(())
    }

    /// The chunk that covers a whole range, looked for if it is not known yet.
    ///
    /// # Errors
    /// [`VolumeError::Unmapped`]; [`VolumeError::Request`] for a range of no bytes; what looking for it met.
    pub(crate) fn find(
        &self,
        logical: Logical,
        length: u64,
        add: &mut AddChunk<'_>,
    ) -> Result<Arc<MappedChunk>, VolumeError> {
        let known = self.known.covering(logical, length);
        // A range that leaves a known chunk lies in no other.
        if !matches!(known, Err(VolumeError::Unmapped { .. })) || self.known.get(logical).is_some() {
            return known;
        }
        let Some(unread) = self.unread() else { return known };
        unread.source.look_up(logical, add)?;
        self.known.covering(logical, length)
    }

    /// As [`find`](Self::find), among the chunks that a read may go through.
    pub(crate) fn find_by(
        &self,
        by: MappedBy,
        logical: Logical,
        length: u64,
        add: &mut AddChunk<'_>,
    ) -> Result<Arc<MappedChunk>, VolumeError> {
        match by {
            MappedBy::AnyChunk => self.find(logical, length, add),
            MappedBy::SystemChunks => match self.unread() {
                Some(unread) => unread.system.covering(logical, length),
                None => self.known.covering(logical, length),
            },
        }
    }

    fn unread(&self) -> Option<Arc<Unread>> {
        self.unread.read().clone()
    }
}
