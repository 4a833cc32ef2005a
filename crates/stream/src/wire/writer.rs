//! Writing a stream.

use std::io::Write;

use super::encode::encode;
use super::header::{self, HEADER_BYTES};
use super::{Command, Protocol, WireError};

/// Bytes that are gathered before the output gets them.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes one stream after another.
pub struct StreamWriter<W> {
    output: W,
    protocol: Protocol,
    buffer: Vec<u8>,
    position: u64,
}

impl<W: Write> StreamWriter<W> {
    /// Writes streams of a version to `output`. Nothing is written yet.
    pub fn new(output: W, protocol: Protocol) -> Self {
        Self { output, protocol, buffer: Vec::with_capacity(BUFFER_BYTES), position: 0 }
    }

    /// The version.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Bytes so far, with those that the output does not have yet.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Writes the header of a stream.
    ///
    /// # Errors
    /// The output failed.
    pub fn begin(&mut self) -> Result<(), WireError> {
        self.buffer.extend_from_slice(&header::encode(self.protocol));
        self.position += HEADER_BYTES as u64;
        self.write_if_full()
    }

    /// Writes a command.
    ///
    /// # Errors
    /// The output failed. The stream's version does not have the command, or a value is longer than its
    /// attribute can be: then nothing of it is written.
    pub fn put(&mut self, command: &Command<'_>) -> Result<(), WireError> {
        let before = self.buffer.len();
        encode(command, self.protocol, &mut self.buffer)?;
        self.position += (self.buffer.len() - before) as u64;
        self.write_if_full()
    }

    /// Writes commands that `encode` made for this version.
    ///
    /// # Errors
    /// The output failed.
    #[cfg(feature = "filesystem")]
    pub(crate) fn put_encoded(&mut self, commands: &[u8]) -> Result<(), WireError> {
        self.position += commands.len() as u64;
        if commands.len() < BUFFER_BYTES {
            self.buffer.extend_from_slice(commands);
            return self.write_if_full();
        }
        self.output.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(self.output.write_all(commands)?)
    }

    /// Gives the output all that was written so far.
    ///
    /// # Errors
    /// The output failed.
    pub fn flush(&mut self) -> Result<(), WireError> {
        self.output.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(self.output.flush()?)
    }

    /// The output. What it was not given yet is lost: [`flush`](Self::flush) comes first.
    pub fn into_output(self) -> W {
        self.output
    }

    fn write_if_full(&mut self) -> Result<(), WireError> {
        if self.buffer.len() >= BUFFER_BYTES {
            self.output.write_all(&self.buffer)?;
            self.buffer.clear();
        }
        Ok(())
    }
}
