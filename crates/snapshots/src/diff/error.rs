//! What ends a comparison.

use vlinder_codec::compress::CodecError;
use vlinder_data::StoredBytesError;
use vlinder_forest::ForestError;
use vlinder_format::{ObjectId, RootId};

use crate::NamesError;

/// An error of comparing two subvolumes.
#[derive(Debug, thiserror::Error)]
pub enum DiffError {
    /// A tree could not be read.
    #[error(transparent)]
    Forest(#[from] ForestError),
    /// A name leads nowhere.
    #[error(transparent)]
    Names(#[from] NamesError),
    /// Bytes of a file can't be had.
    #[error("subvolume {subvolume}, inode {inode}, byte {offset}: {fault}")]
    Content {
        /// The subvolume.
        subvolume: RootId,
        /// The file.
        inode: ObjectId,
        /// The first byte of the part in the file.
        offset: u64,
        /// Why not.
        fault: ContentFault,
    },
    /// An inode of no type that a file may have.
    #[error(
        "subvolume {subvolume}: inode {inode} is neither file, directory, link, device, pipe nor socket; \
         check the file system"
    )]
    UnknownType {
        /// The subvolume.
        subvolume: RootId,
        /// The inode.
        inode: ObjectId,
    },
    /// A symbolic link without its target.
    #[error(
        "subvolume {subvolume}: the target of the symbolic link with inode {inode} is missing; check the file system"
    )]
    MissingTarget {
        /// The subvolume.
        subvolume: RootId,
        /// The link.
        inode: ObjectId,
    },
}

/// Why bytes of a file can't be had.
#[derive(Debug, thiserror::Error)]
pub enum ContentFault {
    /// They can't be read, or no copy has the right checksum.
    #[error(transparent)]
    Stored(#[from] StoredBytesError),
    /// They can't be decompressed.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// They are compressed in a way that this version does not know.
    #[error("compression {method} is unknown; a newer version may know it")]
    UnknownCompression {
        /// The number in the item.
        method: u8,
    },
    /// A compressed extent that claims more bytes than one may have.
    #[error(
        "the compressed extent claims {bytes} bytes, and none has more than 131072; check the file system"
    )]
    CompressedTooLong {
        /// On disk or decompressed.
        bytes: u64,
    },
}
