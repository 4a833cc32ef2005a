//! Whole commands that were read and are kept one after the other, as
//! [`StreamReader::last_command`](super::StreamReader::last_command) gives them.

use super::decode::decode;
use super::limits::COMMAND_HEAD_BYTES;
use super::{Command, CommandKind, Protocol, WireError};

/// The first of some commands, and those after it; none if there are no more.
pub(crate) fn split_command(commands: &[u8]) -> Option<(&[u8], &[u8])> {
    let attributes = u32::from_le_bytes(*commands.first_chunk()?);
    commands.split_at_checked(COMMAND_HEAD_BYTES + attributes as usize)
}

/// A command from its bytes, whose checksum was compared when they were read.
///
/// # Errors
/// As when it was read first.
pub(crate) fn decode_gathered(command: &[u8], protocol: Protocol) -> Result<Command<'_>, WireError> {
    let (head, attributes) = command.split_at_checked(COMMAND_HEAD_BYTES).ok_or(WireError::Truncated)?;
    let [_, _, _, _, k0, k1, ..] = *head else { return Err(WireError::Truncated) };
    let number = u16::from_le_bytes([k0, k1]);
    let kind = CommandKind::from_number(number).ok_or(WireError::UnknownCommand { number })?;
    decode(kind, protocol, attributes)
}
