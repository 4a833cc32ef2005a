//! What can be wrong with the bytes of a stream.

use std::io;

use super::{AttributeType, CommandKind, MAX_COMMAND_BYTES};

/// An error of reading or writing a stream. What contains it says at which byte of the stream.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The bytes do not begin as a stream does.
    #[error("this is no stream of btrfs send: it does not begin with \"btrfs-stream\"")]
    NotAStream,
    /// The header names a version from the future.
    #[error("the stream has version {number}, and this program reads versions 1 to 3")]
    UnknownProtocol {
        /// The version.
        number: u32,
    },
    /// The bytes end inside a header or a command.
    #[error("the stream ends in the middle of a command; it was cut off, send it again")]
    Truncated,
    /// The bytes end without the command that ends a stream.
    #[error("the stream ends without its end command; it was cut off, send it again")]
    Unfinished,
    /// A command that claims to be larger than any.
    #[error("a command claims {bytes} bytes, more than the {MAX_COMMAND_BYTES} that one may have")]
    TooLong {
        /// What it claims.
        bytes: u32,
    },
    /// The checksum of a command is wrong.
    #[error("the checksum of a {kind} command is {stored:#010x} and its bytes give {computed:#010x}")]
    Checksum {
        /// What the head says.
        kind: CommandKind,
        /// The checksum in the head.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// A command that this version of the stream does not have.
    #[error("command {number} is unknown to this version of the stream")]
    UnknownCommand {
        /// Its number.
        number: u16,
    },
    /// An attribute that no command has.
    #[error("a {kind} command has an attribute of the unknown type {number}")]
    UnknownAttribute {
        /// The command.
        kind: CommandKind,
        /// The attribute's number.
        number: u16,
    },
    /// An attribute reaches past the end of its command.
    #[error("an attribute of a {kind} command is longer than the command")]
    Overlong {
        /// The command.
        kind: CommandKind,
    },
    /// A command has an attribute twice.
    #[error("a {kind} command has the attribute \"{attribute}\" twice")]
    Repeated {
        /// The command.
        kind: CommandKind,
        /// The attribute.
        attribute: AttributeType,
    },
    /// A command lacks what it needs.
    #[error("a {kind} command lacks the attribute \"{attribute}\"")]
    Missing {
        /// The command.
        kind: CommandKind,
        /// The attribute.
        attribute: AttributeType,
    },
    /// An attribute has another length than its type.
    #[error("the attribute \"{attribute}\" of a {kind} command has {bytes} bytes")]
    WrongLength {
        /// The command.
        kind: CommandKind,
        /// The attribute.
        attribute: AttributeType,
        /// How many it has.
        bytes: usize,
    },
    /// A value that does not fit into its attribute.
    #[error("{bytes} bytes do not fit into the attribute \"{attribute}\" of a {kind} command")]
    DoesNotFit {
        /// The command.
        kind: CommandKind,
        /// The attribute.
        attribute: AttributeType,
        /// How many there are.
        bytes: usize,
    },
    /// A command was to be written that the stream's version does not have.
    #[error("a {kind} command needs a later version of the stream (--proto)")]
    NotInProtocol {
        /// The command.
        kind: CommandKind,
    },
    /// The reader or the writer failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}
