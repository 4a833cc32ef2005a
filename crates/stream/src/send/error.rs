//! What ends a send.

use vlinder_codec::compress::CodecError;
use vlinder_data::StoredBytesError;
use vlinder_forest::{ForestError, MissingChecksum};
use vlinder_format::{Logical, ObjectId};
use vlinder_volume::VolumeError;

use crate::wire::WireError;

/// An error of sending.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The state could not be read.
    #[error(transparent)]
    Forest(#[from] ForestError),
    /// The stream could not be written.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// An inode that another one names is not there.
    #[error("inode {inode} of the subvolume is missing; check the file system")]
    MissingInode {
        /// Its number.
        inode: ObjectId,
    },
    /// No copy of a file's bytes is good.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A sector has no checksum, and its file says that it has.
    #[error("the data at {} have no checksum; check the file system", .0.logical)]
    MissingChecksum(MissingChecksum),
    /// Bytes can't be decompressed.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// An extent is compressed in a way that this program does not know.
    #[error("compression {number} is unknown; a newer version may know it")]
    UnknownCompression {
        /// Its number.
        number: u8,
    },
    /// A compressed extent that claims more bytes than one may have.
    #[error("the compressed extent at {start} claims {bytes} bytes; check the file system")]
    CompressedTooLong {
        /// Where it begins.
        start: Logical,
        /// Bytes on disk.
        bytes: u64,
    },
    /// A thread that read data ended before it had read them all.
    #[error("a thread that read data ended early; this is a mistake of this program, please report it")]
    WorkerEnded,
    /// A symbolic link without its target.
    #[error("the target of the symbolic link with inode {inode} is missing; check the file system")]
    MissingContent {
        /// Its number.
        inode: ObjectId,
    },
    /// An inode of no type that a command could make.
    #[error("inode {inode} is neither file, directory, link, device, pipe nor socket; check the file system")]
    UnknownType {
        /// Its number.
        inode: ObjectId,
    },
    /// An inode has no name, or a directory has several.
    #[error("inode {inode} has {names} names, and its kind needs another number; check the file system")]
    WrongNames {
        /// Its number.
        inode: ObjectId,
        /// How many it has.
        names: usize,
    },
    /// A path that no command can hold, or one that never ends at the root.
    #[error(
        "the path of inode {inode} has more than 65,535 bytes, or goes in a circle; check the file system"
    )]
    PathTooLong {
        /// The inode.
        inode: ObjectId,
    },
}

impl From<StoredBytesError> for SendError {
    fn from(error: StoredBytesError) -> Self {
        match error {
            StoredBytesError::Forest(error) => error.into(),
            StoredBytesError::Volume(error) => error.into(),
            StoredBytesError::MissingChecksum(missing) => Self::MissingChecksum(missing),
        }
    }
}
