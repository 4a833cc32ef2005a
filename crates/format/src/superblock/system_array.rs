//! The system chunk array: where the chunk tree lies, so that it can be read before any chunk is known.

use crate::chunk::{Chunk, ChunkFault, lay_out_chunk};
use crate::key::{ItemType, Key};
use crate::layout::{Inner, Layout, PlacedField};
use crate::record::Field;
use crate::types::{Logical, ObjectId};

/// Bytes of the field.
pub const SYSTEM_CHUNK_ARRAY_SIZE: usize = 2048;

/// The field, used and unused bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SystemChunkArray(pub [u8; SYSTEM_CHUNK_ARRAY_SIZE]);

/// How the system chunk array can be broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SystemArrayFault {
    /// The size is larger than the field, or too small for one chunk.
    #[error("the system chunk array claims {found} bytes, where 97 to 2048 are possible")]
    Size {
        /// In the superblock.
        found: u32,
    },
    /// An entry is cut off by the end of the array.
    #[error("the system chunk array ends inside the entry at byte {at}")]
    CutOff {
        /// Start of the entry.
        at: usize,
    },
    /// An entry is not a chunk.
    #[error("the system chunk array has an entry {found} that is no chunk")]
    Entry {
        /// The entry's key.
        found: Key,
    },
    /// An entry is a chunk of another type than SYSTEM.
    #[error("the system chunk array has a chunk at {logical} that is not of type SYSTEM")]
    NotSystem {
        /// The chunk's start.
        logical: Logical,
    },
    /// A chunk breaks its own rules.
    #[error("the system chunk at {logical} is broken")]
    Chunk {
        /// The chunk's start.
        logical: Logical,
        /// Which rule.
        source: ChunkFault,
    },
    /// The chunks given do not fit the field.
    #[error("{found} bytes of system chunks do not fit the superblock's 2048")]
    Full {
        /// Bytes that the chunks need.
        found: usize,
    },
}

impl SystemChunkArray {
    /// No chunk.
    pub const EMPTY: Self = Self([0; SYSTEM_CHUNK_ARRAY_SIZE]);

    /// The field and its used size for these chunks, in the order given.
    ///
    /// # Errors
    /// [`SystemArrayFault::Full`].
    pub fn of<'a>(
        chunks: impl IntoIterator<Item = (Logical, &'a Chunk)>,
    ) -> Result<(Self, u32), SystemArrayFault> {
        let mut bytes = Vec::new();
        for (logical, chunk) in chunks {
            bytes.extend_from_slice(
                &Key::new(ObjectId::FIRST_CHUNK_TREE, ItemType::CHUNK_ITEM, logical.0).encode(),
            );
            bytes.extend_from_slice(&chunk.encode());
        }
        let mut array = Self::EMPTY;
        let full = SystemArrayFault::Full { found: bytes.len() };
        let size = u32::try_from(bytes.len()).map_err(|_| full.clone())?;
        array.0.get_mut(..bytes.len()).ok_or(full)?.copy_from_slice(&bytes);
        Ok((array, size))
    }

    /// The fields in the array, of which `size` bytes are used.
    pub(super) fn fields(&self, size: u32) -> Vec<PlacedField> {
        let mut layout = Layout::new(&self.0);
        let unused = SYSTEM_CHUNK_ARRAY_SIZE.saturating_sub(usize::try_from(size).unwrap_or(usize::MAX));
        while layout.left().len() > unused && layout.structure(Key::STRUCTURE) {
            lay_out_chunk(&mut layout);
        }
        layout.rest("SystemChunkArray", "unused");
        layout.into_fields()
    }

    /// The chunks in the first `size` bytes.
    pub fn iterate(&self, size: u32) -> SystemChunks<'_> {
        match usize::try_from(size).ok().and_then(|size| self.0.get(..size)) {
            Some(rest) => SystemChunks { length: rest.len(), rest, fault: None },
            None => {
                SystemChunks { length: 0, rest: &[], fault: Some(SystemArrayFault::Size { found: size }) }
            }
        }
    }
}

impl core::fmt::Debug for SystemChunkArray {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("SystemChunkArray(2048 bytes)")
    }
}

impl Field for SystemChunkArray {
    type Raw = [u8; SYSTEM_CHUNK_ARRAY_SIZE];
    const INNER: Inner = Inner::Elsewhere;
    fn from_raw(raw: &Self::Raw) -> Self {
        Self(*raw)
    }
    fn to_raw(&self) -> Self::Raw {
        self.0
    }
}

/// Iterates over (logical start, chunk); ends after the first fault.
#[derive(Clone, Debug)]
pub struct SystemChunks<'a> {
    rest: &'a [u8],
    length: usize,
    fault: Option<SystemArrayFault>,
}

impl SystemChunks<'_> {
    fn step(&mut self) -> Result<(Logical, Chunk), SystemArrayFault> {
        let cut_off = SystemArrayFault::CutOff { at: self.length.saturating_sub(self.rest.len()) };
        let (key, rest) = self.rest.split_first_chunk::<{ Key::SIZE }>().ok_or(cut_off.clone())?;
        let key = Key::decode(key);
        if key.item_type != ItemType::CHUNK_ITEM || key.objectid != ObjectId::FIRST_CHUNK_TREE {
            return Err(SystemArrayFault::Entry { found: key });
        }
        let (chunk, rest) = Chunk::decode_prefix(rest).map_err(|_| cut_off)?;
        self.rest = rest;
        Ok((Logical(key.offset), chunk))
    }
}

impl Iterator for SystemChunks<'_> {
    type Item = Result<(Logical, Chunk), SystemArrayFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(fault) = self.fault.take() {
            return Some(Err(fault));
        }
        if self.rest.is_empty() {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.rest = &[];
        }
        Some(step)
    }
}
