//! Chunks that are looked for when an address needs them: opening for reading then costs the same however
//! many there are.
//!
//! Invariants:
//! 1. What looks for a chunk reads the chunk tree through the chunks that were known before (those of the
//!    superblock), never through one that it would have to look for: a look-up never causes another, whatever
//!    the image says.
//! 2. A chunk is judged by [`Volume::add_chunk`] before anything is read through it, however it came to be
//!    known.
//! 3. A caller that needs all chunks asks for them ([`Volume::load_chunks`]); a list of the map while some
//!    are unread is a mistake of ours, and asserted.

use vlinder_base::sync::Arc;
use vlinder_format::Logical;

use crate::chunk_source::{ChunkSource, MappedBy, Unread};
use crate::error::VolumeError;
use crate::mapped_chunk::MappedChunk;
use crate::volume::Volume;

impl Volume {
    /// From now on looks for chunks that are not known where an address needs them. Those that are known now
    /// are all that the source may read through.
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
        unread.source.load_all(&mut |logical, chunk| self.add_chunk(logical, chunk))?;
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
        unread.source.look_up(logical, &mut |logical, chunk| self.add_chunk(logical, chunk))?;
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
