//! What ends a receive.

use vlinder_codec::compress::CodecError;
use vlinder_format::{Generation, Uuid};
use vlinder_fs::{FsError, Refusal};

use super::candidate::Told;
use super::{Candidate, PartialSubvolume, SourceChange};
use crate::resume::{ResumeToken, TokenError};
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
        "no subvolume here was received from {uuid} at its transaction {transid}, and none has that UUID; receive that \
         one first, or send it whole; {}",
        Told(.present)
    )]
    MissingSource {
        /// The UUID that the stream names.
        uuid: Uuid,
        /// The transaction that the stream names.
        transid: Generation,
        /// Its snapshots and what was received, the last first, at most four.
        present: Vec<Candidate>,
    },
    /// The receiver's copy of the parent, or of the source of a clone, was changed.
    #[error(
        "what is here of {uuid} is not what the stream is made for: {change}; receive {uuid} again under another \
         name and delete this one, or send the new one whole; {}",
        Told(std::slice::from_ref(.candidate))
    )]
    ChangedSource {
        /// The UUID that the stream names.
        uuid: Uuid,
        /// What shows the change.
        change: SourceChange,
        /// The subvolume here.
        candidate: Box<Candidate>,
    },
    /// A snapshot of a subvolume without a UUID.
    #[error("the stream makes a snapshot of a parent without a UUID; do not trust this stream")]
    NilParent,
    /// A partial subvolume is in the way.
    #[error(
        "{:?} was received in part before; go on with that (send --resume {}), or discard it first",
        .name.escape_ascii().to_string(),
        TokenOf(.token.as_deref())
    )]
    PartialExists {
        /// The name of the subvolume.
        name: Vec<u8>,
        /// Its token, if it was begun.
        token: Option<Box<ResumeToken>>,
    },
    /// Something that no receive left has a name that receiving needs.
    #[error(
        "{:?} is in the way: receiving needs that name for a while; rename what has it, or receive into another \
         directory",
        .name.escape_ascii().to_string()
    )]
    InTheWay {
        /// The name.
        name: Vec<u8>,
    },
    /// Another receiver is receiving a subvolume of this name.
    #[error(
        "{:?} is being received right now; wait until that receive has ended, or end it",
        .name.escape_ascii().to_string()
    )]
    UnderWay {
        /// The name of the subvolume.
        name: Vec<u8>,
    },
    /// The name of a partial subvolume was taken meanwhile, or receiving was at its end.
    #[error(
        "{:?} is there already; if that was received whole, nothing is left to do but to discard what is left in \
         part; otherwise rename it, and go on",
        .name.escape_ascii().to_string()
    )]
    NameTaken {
        /// The name.
        name: Vec<u8>,
    },
    /// There is no partial subvolume of a name.
    #[error(
        "{:?} is no subvolume that was received in part here; receive --partial lists those that are",
        .name.escape_ascii().to_string()
    )]
    NoSuchPartial {
        /// The name.
        name: Vec<u8>,
    },
    /// The rest of a stream came whose beginning is not here.
    #[error(
        "this is the rest of a stream of {} after {} bytes, and no subvolume in this directory was received up to \
         there{}; send with the token that is here, or begin anew",
        .token.uuid,
        .token.received.bytes(),
        TokensHere(.partial)
    )]
    NothingToResume {
        /// The token of what came.
        token: Box<ResumeToken>,
        /// What is here in part.
        partial: Vec<PartialSubvolume>,
    },
    /// The rest of a stream has no token.
    #[error("this is the rest of a stream, with a broken token: {0}")]
    Token(#[from] TokenError),
    /// The caller ended receiving.
    #[error("receiving was ended before the stream was; what came so far can be gone on with")]
    Interrupted,
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

impl ReceiveError {
    /// Whether the file system had no room.
    pub(super) fn is_no_space(&self) -> bool {
        match self {
            Self::Command { error, .. } => error.refusal() == Some(Refusal::NoSpace),
            Self::Filesystem(error) => error.refusal() == Some(Refusal::NoSpace),
            _ => false,
        }
    }
}

/// An error of the file system, with the command that met it.
pub(super) fn command_error(kind: CommandKind, path: &[u8], error: FsError) -> ReceiveError {
    ReceiveError::Command { kind, path: path.to_vec(), error: Box::new(error) }
}

/// A token, or the word for one.
struct TokenOf<'a>(Option<&'a ResumeToken>);

impl std::fmt::Display for TokenOf<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(token) => write!(formatter, "{token}"),
            None => write!(formatter, "TOKEN"),
        }
    }
}

/// The tokens of partial subvolumes as a part of a sentence.
struct TokensHere<'a>(&'a [PartialSubvolume]);

impl std::fmt::Display for TokensHere<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for partial in self.0 {
            write!(formatter, "; {}", partial.name.escape_ascii())?;
            match &partial.token {
                Some(token) => {
                    write!(formatter, " has {} bytes of {}: ", token.received.bytes(), token.uuid)?;
                    write!(formatter, "{token}")?;
                }
                None => write!(formatter, " was not begun")?,
            }
        }
        Ok(())
    }
}
