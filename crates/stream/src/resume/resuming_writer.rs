//! The sender's side: what the receiver has is made again, and held back.

use std::io::{self, Write};

use super::{ResumeToken, RunningHash, TOKEN_ATTRIBUTE};
use crate::wire::{COMMAND_HEAD_BYTES, Command, HEADER_BYTES, MAX_COMMAND_BYTES, StreamWriter, WireError};

/// Why a stream can't go on where a token says. It comes as the source of an [`io::Error`], because it is met
/// while a stream is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResumeError {
    /// The bytes before that place are not those that the receiver has.
    #[error(
        "the stream made now is not the one that was interrupted: its first {bytes} bytes differ. Go on with the \
         same snapshots, the same options and the same version of this program, or discard what was received and \
         begin anew (a stream that btrfs send made can't be gone on with)"
    )]
    Differs {
        /// Bytes that the receiver has.
        bytes: u64,
    },
    /// That place is not between two commands, or behind all of them.
    #[error(
        "the stream made now has no command that ends after {bytes} bytes, so it is not the one that was \
         interrupted; discard what was received and begin anew"
    )]
    NoSuchPlace {
        /// Bytes that the receiver has.
        bytes: u64,
    },
    /// What is written is no stream.
    #[error("what is sent is no stream of whole commands")]
    NoStream,
}

impl From<ResumeError> for io::Error {
    fn from(error: ResumeError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// Takes a stream from its header on, and passes on its rest, as a stream of its own. It holds back one
/// command at most.
///
/// After the last command, [`finish`](Self::finish) tells whether the rest was reached.
pub struct ResumingWriter<W> {
    output: W,
    token: ResumeToken,
    /// What came of a header or command that is not whole yet.
    held: Vec<u8>,
    has_header: bool,
    so_far: RunningHash,
    /// All that comes is passed on.
    is_passing: bool,
}

impl<W: Write> ResumingWriter<W> {
    /// Passes on to `output` what comes after the place of the token.
    pub fn new(output: W, token: ResumeToken) -> Self {
        Self {
            output,
            token,
            held: Vec::new(),
            has_header: false,
            so_far: RunningHash::default(),
            is_passing: false,
        }
    }

    /// Gives the output back.
    ///
    /// # Errors
    /// [`ResumeError::NoSuchPlace`] where the stream ended before.
    pub fn finish(self) -> Result<W, ResumeError> {
        let bytes = self.token.received.bytes();
        if self.is_passing { Ok(self.output) } else { Err(ResumeError::NoSuchPlace { bytes }) }
    }

    /// Bytes of the part that is held whole.
    fn wanted(&self) -> Result<usize, ResumeError> {
        if !self.has_header {
            return Ok(HEADER_BYTES);
        }
        let Some(length) = self.held.first_chunk::<4>() else { return Ok(COMMAND_HEAD_BYTES) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_COMMAND_BYTES { Err(ResumeError::NoStream) } else { Ok(COMMAND_HEAD_BYTES + length) }
    }

    /// Takes in a header or command that is whole.
    fn take_held(&mut self) -> io::Result<()> {
        if self.has_header {
            self.so_far.add(&self.held);
        }
        self.has_header = true;
        self.held.clear();
        let (reached, wanted) = (self.so_far.bytes(), self.token.received.bytes());
        if reached > wanted {
            return Err(ResumeError::NoSuchPlace { bytes: wanted }.into());
        }
        if reached == wanted {
            if self.so_far != self.token.received {
                return Err(ResumeError::Differs { bytes: wanted }.into());
            }
            self.begin_rest()?;
        }
        Ok(())
    }

    fn begin_rest(&mut self) -> io::Result<()> {
        let text = self.token.to_string();
        let mut writer = StreamWriter::new(&mut self.output, self.token.protocol);
        let token = Command::SetXattr { path: b"", name: TOKEN_ATTRIBUTE, value: text.as_bytes() };
        let begun = writer.begin().and_then(|()| writer.put(&token)).and_then(|()| writer.flush());
        self.is_passing = true;
        begun.map_err(|error| match error {
            WireError::Io(error) => error,
            other => io::Error::other(other),
        })
    }
}

impl<W: Write> Write for ResumingWriter<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let mut rest = buffer;
        while !rest.is_empty() && !self.is_passing {
            let wanted = self.wanted()?;
            let (now, later) = rest.split_at(rest.len().min(wanted - self.held.len()));
            self.held.extend_from_slice(now);
            rest = later;
            // Of a command, the length came only now.
            if self.held.len() == self.wanted()? {
                self.take_held()?;
            }
        }
        self.output.write_all(rest)?;
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}
