//! Where chunks come from that are not known yet, and what is kept while there are some.

use vlinder_base::sync::Arc;
use vlinder_format::Logical;
use vlinder_format::chunk::Chunk;

use crate::chunk_map::ChunkMap;
use crate::error::VolumeError;

/// Takes a chunk and its address in; refuses one that breaks its rules, as
/// [`Volume::add_chunk`](crate::Volume::add_chunk) does.
pub type AddChunk<'a> = dyn FnMut(Logical, Chunk) -> Result<(), VolumeError> + 'a;

/// Where chunks that are not known yet come from. The volume knows no trees; this is what it asks instead.
pub trait ChunkSource: Send + Sync {
    /// Adds the chunk that covers an address, if there is one.
    ///
    /// # Errors
    /// What reading it met, or which rule it breaks.
    fn look_up(&self, logical: Logical, add: &mut AddChunk<'_>) -> Result<(), VolumeError>;

    /// Adds all chunks.
    ///
    /// # Errors
    /// What reading them met, or which rule one of them breaks.
    fn load_all(&self, add: &mut AddChunk<'_>) -> Result<(), VolumeError>;
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
    pub(crate) source: Arc<dyn ChunkSource>,
    /// The chunks that were known at the start.
    pub(crate) system: ChunkMap,
}

impl std::fmt::Debug for Unread {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Unread").field("system", &self.system).finish_non_exhaustive()
    }
}
