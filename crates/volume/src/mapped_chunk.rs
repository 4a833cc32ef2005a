//! A chunk at its place in the address space.

use vlinder_format::Logical;
use vlinder_format::chunk::{Chunk, Profile};

/// A chunk at its place in the address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedChunk {
    /// First logical byte.
    pub logical: Logical,
    /// The chunk; its structure was checked.
    pub chunk: Chunk,
    /// Its profile.
    pub profile: Profile,
}

impl MappedChunk {
    /// The byte after the last.
    pub fn end(&self) -> Logical {
        Logical(self.logical.0.saturating_add(self.chunk.length))
    }

    /// Whether the whole range lies in this chunk.
    pub fn contains(&self, logical: Logical, length: u64) -> bool {
        logical >= self.logical && logical.checked_add(length).is_some_and(|end| end <= self.end())
    }
}
