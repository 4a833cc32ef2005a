//! A piece of a file that is to be sent.

use vlinder_base::sync::Arc;
use vlinder_format::Logical;
use vlinder_format::file_extent::CompressionId;

/// A range of a file, and where its bytes are.
pub(crate) struct Piece {
    /// The file at the receiver.
    pub path: Arc<[u8]>,
    /// Where in the file.
    pub offset: u64,
    /// Bytes of the file.
    pub length: u64,
    /// What is stored for the piece.
    pub raw: RawBytes,
    /// What becomes of the stored bytes.
    pub form: Form,
}

/// Bytes as the file system has them.
pub(crate) enum RawBytes {
    /// Those of an inline extent.
    Item(Vec<u8>),
    /// Those at an address that begins a sector. Whole sectors are read, for their checksums.
    Disk { start: Logical, length: u64, has_checksums: bool },
}

/// How the stored bytes become those of the file.
pub(crate) enum Form {
    /// They are those of the file, from `skip` on. Zeros follow their end.
    Plain { skip: u64 },
    /// Decompressed, they are those of the file from `skip` on.
    Compressed { compression: CompressionId, decompressed_bytes: u64, skip: u64 },
    /// They are sent as they are; the receiver takes the file's from `skip` on.
    Encoded { compression: u32, decompressed_bytes: u64, skip: u64 },
}

impl Piece {
    /// Bytes of memory that the piece takes at most while it is worked at.
    pub(super) fn cost(&self) -> u64 {
        let stored = match &self.raw {
            RawBytes::Item(stored) => stored.len() as u64,
            RawBytes::Disk { length, .. } => *length,
        };
        stored.saturating_add(self.length)
    }
}
