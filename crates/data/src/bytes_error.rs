//! Why bytes of a file can't be read or written, with the place in the file.

use vlinder_codec::compress::CodecError;
use vlinder_forest::MissingChecksum;
use vlinder_format::Logical;
use vlinder_volume::VolumeError;

use crate::ids::InodeId;

/// What is wrong with a part of a file's data.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DataFault {
    /// The devices failed, or no copy has the right checksum.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The compressed bytes are damaged although their checksum is right, or there was none.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The file has checksums, but not this sector.
    #[error("the checksum of the sector at {logical} is missing; restore the file from a copy")]
    MissingChecksum {
        /// Where the sector lies.
        logical: Logical,
    },
    /// The file is under fs-verity, and is not what its Merkle tree says, or the tree is not whole.
    #[error("fs-verity: {what}; restore the file from a copy")]
    Verity {
        /// What is wrong.
        what: &'static str,
    },
    /// Compressed by a method that this version does not know.
    #[error(
        "the data are compressed by method {method}, which this version does not know; read the file with a newer vlinder, or with Linux itself"
    )]
    UnknownCompression {
        /// The number in the item.
        method: u8,
    },
}

impl From<MissingChecksum> for DataFault {
    fn from(missing: MissingChecksum) -> Self {
        Self::MissingChecksum { logical: missing.logical }
    }
}

impl BytesError {
    /// Whether nothing is wrong with the bytes, but this program was built without their compression.
    #[must_use]
    pub fn lacks_codec(&self) -> bool {
        matches!(self.fault, DataFault::Codec(CodecError::NotBuiltIn { .. }))
    }
}

/// Bytes of a file that can't be read or written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{inode}, byte {offset}: {fault}")]
pub struct BytesError {
    /// The file.
    pub inode: InodeId,
    /// The first byte of the part that failed.
    pub offset: u64,
    /// Why.
    pub fault: DataFault,
}
