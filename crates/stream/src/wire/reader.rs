//! Reading a stream.

use std::io::{ErrorKind, Read};

use vlinder_codec::checksum::crc32c;

use super::decode::decode;
use super::header::{self, HEADER_BYTES};
use super::limits::COMMAND_HEAD_BYTES;
use super::{Command, CommandKind, MAX_COMMAND_BYTES, Protocol, WireError};

/// Reads one stream after another. What a command claims is believed only after its checksum was compared,
/// its length only up to [`MAX_COMMAND_BYTES`].
pub struct StreamReader<R> {
    input: R,
    /// The last command, head and attributes.
    command: Vec<u8>,
    position: u64,
    last_start: u64,
}

/// A command, and where it lies.
#[derive(Clone, Copy, Debug)]
pub struct PlacedCommand<'a> {
    /// The command.
    pub command: Command<'a>,
    bytes: &'a [u8],
    start: u64,
}

impl<'a> PlacedCommand<'a> {
    /// Its bytes, head and attributes, with zeros in place of its checksum.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The first byte of the input that is the command's.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The first byte of the input that is `part`, which is a value of the command.
    #[must_use]
    pub fn place_of(&self, part: &[u8]) -> u64 {
        let place = part.as_ptr().addr().wrapping_sub(self.bytes.as_ptr().addr());
        assert!(place <= self.bytes.len(), "the part is one of this command");
        self.start + place as u64
    }
}

impl<R: Read> StreamReader<R> {
    /// Reads streams from `input`, in large pieces if that is buffered.
    pub fn new(input: R) -> Self {
        Self { input, command: Vec::new(), position: 0, last_start: 0 }
    }

    /// Bytes of the input that were read: the first one of the next header or command.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Where the header or command begins that was read last, or that could not be read.
    pub fn last_start(&self) -> u64 {
        self.last_start
    }

    /// The last command that was read, head and attributes, with zeros in place of its checksum.
    pub fn last_command(&self) -> &[u8] {
        &self.command
    }

    /// Reads the header of the next stream; none if the input is at its end.
    ///
    /// # Errors
    /// What follows is no header of a stream, or of one from the future.
    pub fn begin(&mut self) -> Result<Option<Protocol>, WireError> {
        self.last_start = self.position;
        let mut header = [0; HEADER_BYTES];
        match self.read_up_to(&mut header)? {
            0 => Ok(None),
            HEADER_BYTES => {
                self.position += HEADER_BYTES as u64;
                header::decode(&header).map(Some)
            }
            read if header::can_begin_with(&header[..read]) => Err(WireError::Truncated),
            _ => Err(WireError::NotAStream),
        }
    }

    /// Reads the next command of a stream of a version.
    ///
    /// # Errors
    /// The input ends or failed; its bytes are no command.
    pub fn next_command(&mut self, protocol: Protocol) -> Result<Command<'_>, WireError> {
        self.next_placed(protocol).map(|placed| placed.command)
    }

    /// As [`StreamReader::next_command`], with where in the input the command's parts lie.
    ///
    /// # Errors
    /// As there.
    pub fn next_placed(&mut self, protocol: Protocol) -> Result<PlacedCommand<'_>, WireError> {
        let start = self.position;
        self.last_start = start;
        let mut head = [0; COMMAND_HEAD_BYTES];
        if !self.fill(&mut head)? {
            return Err(WireError::Unfinished);
        }
        let [l0, l1, l2, l3, k0, k1, c0, c1, c2, c3] = head;
        let (bytes, number) = (u32::from_le_bytes([l0, l1, l2, l3]), u16::from_le_bytes([k0, k1]));
        let stored = u32::from_le_bytes([c0, c1, c2, c3]);
        if bytes as usize > MAX_COMMAND_BYTES {
            return Err(WireError::TooLong { bytes });
        }
        let kind = CommandKind::from_number(number)
            .filter(|kind| kind.since() <= protocol)
            .ok_or(WireError::UnknownCommand { number })?;
        let mut command = std::mem::take(&mut self.command);
        command.clear();
        command.extend_from_slice(&head[..COMMAND_HEAD_BYTES - size_of::<u32>()]);
        command.resize(COMMAND_HEAD_BYTES + bytes as usize, 0);
        let is_whole = bytes == 0 || self.fill(&mut command[COMMAND_HEAD_BYTES..])?;
        self.command = command;
        if !is_whole {
            return Err(WireError::Truncated);
        }
        let computed = crc32c(0, &self.command);
        if computed != stored {
            return Err(WireError::Checksum { kind, stored, computed });
        }
        let command = decode(kind, protocol, &self.command[COMMAND_HEAD_BYTES..])?;
        Ok(PlacedCommand { command, bytes: &self.command, start })
    }

    /// Fills a buffer; false if the input was at its end before the first byte.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<bool, WireError> {
        let read = self.read_up_to(buffer)?;
        if read == buffer.len() {
            self.position += read as u64;
            return Ok(true);
        }
        if read == 0 { Ok(false) } else { Err(WireError::Truncated) }
    }

    /// Reads until a buffer is full or the input ends; gives the bytes that were read.
    fn read_up_to(&mut self, buffer: &mut [u8]) -> Result<usize, WireError> {
        let mut read = 0;
        while read < buffer.len() {
            match self.input.read(&mut buffer[read..]) {
                Ok(0) => break,
                Ok(bytes) => read += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(read)
    }
}
