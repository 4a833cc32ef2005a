//! What can be wrong with a stream whose commands make files.

use std::io;

use vlinder_codec::compress::CodecError;
use vlinder_format::{Generation, Uuid};

use crate::wire::{CommandKind, WireError};

/// A stream is wrong at a byte of the input.
#[derive(Debug, thiserror::Error)]
#[error("at byte {offset}: {cause}")]
pub struct IndexError {
    /// The first byte of the header or command that is wrong.
    pub offset: u64,
    /// What is wrong.
    pub cause: IndexFault,
}

/// What is wrong with a stream.
#[derive(Debug, thiserror::Error)]
pub enum IndexFault {
    /// Its bytes.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A command can't be carried out after those before it.
    #[error("{kind} {}: {fault}", .path.escape_ascii())]
    Command {
        /// The command.
        kind: CommandKind,
        /// Its path, as the stream has it.
        path: Vec<u8>,
        /// Why.
        fault: CommandFault,
    },
    /// The stream ends before any subvolume began.
    #[error("the stream ends and has made no subvolume")]
    NoSubvolume,
}

/// Why a command can't be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandFault {
    /// A path that leads out of the subvolume, or that no file can have.
    #[error("this is no path in the subvolume")]
    NotAPath,
    /// Nothing has that name.
    #[error("there is no such file")]
    NotFound,
    /// A part of the path that should be a directory is none.
    #[error("a part of the path is no directory")]
    NotADirectory,
    /// A directory where there should be none.
    #[error("it is a directory")]
    IsADirectory,
    /// Something else than a regular file.
    #[error("it is no regular file")]
    NotARegularFile,
    /// The name is taken.
    #[error("the name is taken")]
    Exists,
    /// A directory that is to go holds something.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A directory would come to lie in itself.
    #[error("a directory can't be moved into itself")]
    IntoItself,
    /// A command about a file before any subvolume.
    #[error("no subvolume has begun")]
    NoSubvolume,
    /// The first command is the mark that `send --resume` sets.
    #[error("this is the rest of a stream that was interrupted, without its beginning")]
    RestOfStream,
    /// A file would become longer than one can be.
    #[error("no file can be so long")]
    TooLong,
    /// An owner that no file can have.
    #[error("its owner has more than 32 bits")]
    OwnerTooLarge,
    /// A clone within a file whose ranges touch each other.
    #[error("the ranges of the clone overlap")]
    Overlaps,
    /// A clone of bytes behind the end of its source.
    #[error("the source of the clone ends before the range does")]
    SourceTooShort,
    /// The source of a clone is none of the files that were given.
    #[error("the source of the clone does not exist in the subvolume that it names")]
    NoSource,
    /// A mode of fallocate(2) that streams do not have.
    #[error("this mode of preallocation is unknown")]
    UnknownMode,
    /// A compressed extent that claims what none can be.
    #[error("{0}")]
    Encoded(&'static str),
}

/// A subvolume that streams need and that was not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeededSubvolume {
    /// Its UUID.
    pub uuid: Uuid,
    /// The transaction of its last change.
    pub transid: Generation,
    /// True if a subvolume begins as a snapshot of it; else it is only the source of clones.
    pub is_parent: bool,
}

/// Why the bytes of a file can't be had.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// Some of them are in a subvolume that was not given.
    #[error("some of it lies in the subvolume {uuid}, whose stream was not given")]
    Missing {
        /// The subvolume.
        uuid: Uuid,
    },
    /// The sender left them out.
    #[error("the stream was sent without data (--no-data)")]
    NotSent,
    /// It is no regular file.
    #[error("it is no regular file")]
    NotARegularFile,
    /// A compressed extent can't be decompressed.
    #[error("the compressed bytes at byte {offset} of the stream: {error}")]
    Codec {
        /// The first byte of the extent in its input.
        offset: u64,
        /// What is wrong with it.
        error: CodecError,
    },
    /// The stream can't be read a second time.
    #[error(transparent)]
    Io(#[from] io::Error),
}
