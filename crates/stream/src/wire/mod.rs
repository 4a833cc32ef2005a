//! The stream as bytes, as Linux's `send` ioctl writes it and `btrfs receive` reads it (`fs/btrfs/send.h`).
//!
//! A stream is a header ([`Protocol`]) and commands up to [`Command::End`]. Several streams may follow one
//! another in one file. A command is a head (length of what follows, kind, CRC-32C of all of it) and
//! attributes (type, length, bytes).
//!
//! Reading path: [`Protocol`], [`CommandKind`], `attribute` (what a command is made of), [`Command`] (one
//! with its attributes in types), [`StreamWriter`], [`StreamReader`].

mod attribute;
mod command;
mod decode;
mod encode;
mod error;
#[cfg(feature = "filesystem")]
mod gathered;
mod header;
mod kind;
mod limits;
mod one_stream;
mod protocol;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use attribute::AttributeType;
pub use command::{Command, EncodedWrite, Node, Snapshot, Times};
#[cfg(feature = "filesystem")]
pub(crate) use encode::encode;
pub use error::WireError;
#[cfg(feature = "filesystem")]
pub(crate) use gathered::{decode_gathered, split_command};
pub(crate) use header::HEADER_BYTES;
pub use kind::CommandKind;
pub(crate) use limits::COMMAND_HEAD_BYTES;
pub use limits::MAX_COMMAND_BYTES;
pub use one_stream::OneStream;
pub use protocol::Protocol;
pub use reader::{PlacedCommand, StreamReader};
pub use writer::StreamWriter;
