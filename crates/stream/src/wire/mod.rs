//! The stream as bytes, as Linux's `send` ioctl writes it and `btrfs receive` reads it (`fs/btrfs/send.h`).
//!
//! A stream is a header ([`Protocol`]) and commands up to [`Command::End`]. Several streams may follow one
//! another in one file. A command is a head (length of what follows, kind, CRC-32C of all of it) and attributes
//! (type, length, bytes).
//!
//! Reading path: [`Protocol`], [`CommandKind`], `attribute` (what a command is made of), [`Command`] (one
//! with its attributes in types), [`StreamWriter`], [`StreamReader`].

mod attribute;
mod command;
mod encode;
mod decode;
mod error;
mod kind;
mod protocol;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use attribute::AttributeType;
pub use command::{Command, EncodedWrite, Node, Snapshot, Times};
pub use error::WireError;
pub use kind::CommandKind;
pub use protocol::Protocol;
pub use reader::StreamReader;
pub use writer::StreamWriter;

/// Bytes of a command's head: length (4), kind (2), checksum (4).
const COMMAND_HEAD_BYTES: usize = 10;

/// The most bytes of attributes that a command may have. Linux's own commands have at most 64 KiB in version
/// 1 and 144 KiB after it; what claims more is refused before anything is allocated for it.
pub const MAX_COMMAND_BYTES: usize = 1 << 20;
