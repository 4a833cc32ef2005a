//! Streams received into a directory, and what is told of that: the same for a mount and for an image that
//! nobody mounted.

use std::io::{BufReader, Read};

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::{Filesystem, Inode, Refusal};
use vlinder_stream::receive::{
    PartialSubvolume, ReceiveError, ReceiveOptions, Receiver, discard, partial_subvolumes,
};
use vlinder_stream::wire::{CommandKind, StreamReader, WireError};

use crate::protocol::{Answer, Name, PartialRecord, ReceivedSubvolume};
use crate::{ErrorBody, ErrorKind};

/// Bytes that are read at a time.
const BUFFER_BYTES: usize = 1 << 20;

/// Receives streams; `name_changed` is told of each name in the directory that came or went. All is durable
/// when this returns, also what an error left.
///
/// # Errors
/// What receiving or making it durable met. The hint tells how to go on with what was received in part.
pub fn receive(
    filesystem: &Filesystem,
    directory: &Arc<Inode>,
    options: ReceiveOptions,
    input: &mut dyn Read,
    mut name_changed: impl FnMut(&[u8]),
) -> Result<Answer, ErrorBody> {
    let mut streams = StreamReader::new(BufReader::with_capacity(BUFFER_BYTES, input));
    let mut receiver = Receiver::new(filesystem, Arc::clone(directory)).with_options(options);
    let received = receiver.receive(&mut streams);
    let error_start = receiver.error_start(&streams);
    receiver.names().for_each(&mut name_changed);
    let outcome = receiver.into_outcome();
    let synced = if filesystem.is_read_only() { Ok(()) } else { filesystem.sync().map(drop) };
    if let Err(error) = received {
        let body = body_of(&error, error_start);
        return Err(match (&outcome.partial, synced) {
            (Some(partial), Ok(())) => body.hint(advice(partial)),
            (Some(partial), Err(_)) => body.hint(advice_unless_durable(partial)),
            (None, _) => body,
        });
    }
    synced?;
    let whole = |made: &vlinder_stream::receive::Received| ReceivedSubvolume {
        number: made.id.0,
        name: Name(made.name.clone()),
        is_whole: made.is_whole,
    };
    Ok(Answer::Received {
        subvolumes: outcome.received.iter().map(whole).collect(),
        warnings: outcome.warnings.iter().map(ToString::to_string).collect(),
        errors: outcome.errors.iter().map(ToString::to_string).collect(),
    })
}

/// What was received in part in a directory.
///
/// # Errors
/// What reading met.
pub fn parts(filesystem: &Filesystem, directory: &Inode) -> Result<Answer, ErrorBody> {
    let all = partial_subvolumes(filesystem, directory).map_err(|error| body_of(&error, 0))?;
    let record = |partial: PartialSubvolume| PartialRecord {
        received_bytes: partial.token.map_or(0, |token| token.received.bytes()),
        token: partial.token.map(|token| token.to_string()),
        name: Name(partial.name),
    };
    Ok(Answer::Parts { parts: all.into_iter().map(record).collect() })
}

/// Removes what was received in part of a subvolume.
///
/// # Errors
/// There is nothing of that name; what removing met.
pub fn discard_part(
    filesystem: &Filesystem,
    directory: &Arc<Inode>,
    name: &[u8],
) -> Result<Answer, ErrorBody> {
    discard(filesystem, directory, name).map_err(|error| body_of(&error, 0))?;
    filesystem.sync()?;
    Ok(Answer::Done)
}

/// How to go on with what an interrupted stream left.
fn advice(partial: &PartialSubvolume) -> String {
    let (name, word) = (partial.name.escape_ascii(), discard_flag(&partial.name));
    match &partial.token {
        Some(token) => format!(
            "what came of {name} is kept: go on with vlinder send --resume {token}, or remove it with vlinder receive {word}"
        ),
        None => format!("remove what is left of {name} with vlinder receive {word}"),
    }
}

/// The flag with a name, as it is typed to a shell: a stream may name its subvolume with spaces, or worse.
fn discard_flag(name: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-+@:,%=/".contains(byte);
    match (name.first(), std::str::from_utf8(name)) {
        (Some(first), Ok(text)) if *first != b'-' && name.iter().all(is_plain) => format!("--discard {text}"),
        (_, Ok(text)) if !text.contains(|letter: char| letter == '\'' || letter.is_control()) => {
            format!("--discard='{text}'")
        }
        _ => {
            let escape = |byte: &u8| match byte {
                byte if is_plain(byte) => char::from(*byte).to_string(),
                byte => format!("\\x{byte:02x}"),
            };
            format!("--discard=$'{}'", name.iter().map(escape).collect::<String>())
        }
    }
}

/// The same where nothing could be made durable, so that it is unknown what will be left.
fn advice_unless_durable(partial: &PartialSubvolume) -> String {
    let name = partial.name.escape_ascii();
    format!(
        "what came of {name} could not be made durable: make that possible, then see with vlinder receive --partial what is left of it, or send it again"
    )
}

/// What ended a receive, at a byte of the stream.
fn body_of(error: &ReceiveError, position: u64) -> ErrorBody {
    let text = match position {
        0 => error.to_string(),
        _ => format!("{error} (byte {position} of the stream)"),
    };
    match error {
        ReceiveError::Filesystem(error) => ErrorBody::from_fs(error),
        ReceiveError::Command { kind, error, .. } => {
            let body = ErrorBody { message: text, ..ErrorBody::from_fs(error) };
            match (kind, error.refusal()) {
                (CommandKind::Subvolume | CommandKind::Snapshot, Some(Refusal::Exists)) => {
                    body.hint("delete or rename what has that name, or receive into another directory")
                }
                _ => body,
            }
        }
        ReceiveError::Wire(WireError::Io(_)) => ErrorBody::new(Errno::IO, text),
        ReceiveError::MissingSource { .. } | ReceiveError::NoSuchPartial { .. } => {
            ErrorBody::new(Errno::NOENT, text)
        }
        ReceiveError::UnderWay { .. } => ErrorBody::new(Errno::BUSY, text),
        ReceiveError::InTheWay { .. }
        | ReceiveError::PartialExists { .. }
        | ReceiveError::NameTaken { .. } => ErrorBody::new(Errno::EXIST, text),
        ReceiveError::Unsupported { .. } => ErrorBody::new(Errno::OPNOTSUPP, text),
        _ => ErrorBody { kind: ErrorKind::Invalid, ..ErrorBody::new(Errno::INVAL, text) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_as_a_shell_takes_it() {
        let cases: [(&[u8], &str); 6] = [
            (b"2026-11-30", "--discard 2026-11-30"),
            (b"-dash", "--discard='-dash'"),
            (b"sp ace", "--discard='sp ace'"),
            ("\u{fc}".as_bytes(), "--discard='\u{fc}'"),
            (b"it's\n\\", "--discard=$'it\\x27s\\x0a\\x5c'"),
            (b"\xff", "--discard=$'\\xff'"),
        ];
        for (name, flag) in cases {
            assert_eq!(discard_flag(name), flag);
        }
    }
}
