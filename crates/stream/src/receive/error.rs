//! What ends a receive.

use vlinder_codec::compress::CodecError;
use vlinder_format::{Generation, Uuid};
use vlinder_fs::FsError;

use crate::wire::{CommandKind, WireError};

/// An error of receiving.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// The stream's bytes are wrong.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A command could not be applied.
    #[error("{kind} {}: {error}", .path.escape_ascii())]
    Command {
        /// The command.
        kind: CommandKind,
        /// Its path, as the stream has it.
        path: Vec<u8>,
        /// Why.
        error: Box<FsError>,
    },
    /// The file system failed.
    #[error(transparent)]
    Filesystem(#[from] FsError),
    /// A path that leads out of the subvolume, or that no file can have.
    #[error("{kind}: the stream names {:?}, which is no path in the subvolume; do not trust this stream", .path.escape_ascii().to_string())]
    Path {
        /// The command.
        kind: CommandKind,
        /// The path.
        path: Vec<u8>,
    },
    /// A command about a file before any subvolume.
    #[error("the stream has a {kind} command before any subvolume")]
    NoSubvolume {
        /// The command.
        kind: CommandKind,
    },
    /// The receiver lacks the parent of a snapshot, or the source of a clone.
    #[error(
        "no subvolume here was received from {uuid} at its transaction {transid}, and none has that UUID; receive that one first"
    )]
    MissingSource {
        /// The UUID that the stream names.
        uuid: Uuid,
        /// The transaction that the stream names.
        transid: Generation,
    },
    /// The receiver's copy of the parent is not what the sender has.
    #[error(
        "the subvolume here with UUID {uuid} was changed since (transaction {found}, the stream is made for {expected}); send it whole, or receive the parent again"
    )]
    ChangedSource {
        /// The UUID that the stream names.
        uuid: Uuid,
        /// The transaction that the stream is made for.
        expected: Generation,
        /// The transaction of the last change.
        found: Generation,
    },
    /// Bytes can't be decompressed.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// What this version can't apply.
    #[error("{kind}: {what}")]
    Unsupported {
        /// The command.
        kind: CommandKind,
        /// What of it.
        what: &'static str,
    },
}
