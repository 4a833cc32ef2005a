//! The bytes of one stream.

use std::io::{self, ErrorKind, Read};

use super::header::HEADER_BYTES;
use super::{COMMAND_HEAD_BYTES, CommandKind, MAX_COMMAND_BYTES};

/// The bytes of an input up to the first end command, behind which not one is read: what follows stays in
/// the input for its next reader. Nothing else is judged; [`StreamReader`](super::StreamReader) does
/// that with these bytes.
pub struct OneStream<R> {
    input: R,
    /// Of the last command's head, what was read of it.
    head: [u8; COMMAND_HEAD_BYTES],
    /// The part of `head` that was not handed on yet.
    pending: std::ops::Range<usize>,
    /// Bytes that may be handed on as they come: of the header, or of a command's attributes.
    left: usize,
    /// Nothing follows `pending` and `left`.
    ends: bool,
}

impl<R: Read> OneStream<R> {
    /// The first stream of `input`, header included.
    pub fn new(input: R) -> Self {
        Self { input, head: [0; COMMAND_HEAD_BYTES], pending: 0..0, left: HEADER_BYTES, ends: false }
    }

    /// Reads the head of the next command, or what there is of it.
    fn read_head(&mut self) -> io::Result<()> {
        let mut filled = 0;
        while filled < COMMAND_HEAD_BYTES {
            match self.input.read(&mut self.head[filled..]) {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let [l0, l1, l2, l3, k0, k1, ..] = self.head;
        let (bytes, number) = (u32::from_le_bytes([l0, l1, l2, l3]), u16::from_le_bytes([k0, k1]));
        self.pending = 0..filled;
        // A head that is cut off or wrong ends the stream for its reader.
        self.ends = filled < COMMAND_HEAD_BYTES
            || bytes as usize > MAX_COMMAND_BYTES
            || CommandKind::from_number(number) == Some(CommandKind::End);
        self.left = if filled < COMMAND_HEAD_BYTES { 0 } else { (bytes as usize).min(MAX_COMMAND_BYTES) };
        Ok(())
    }
}

impl<R: Read> Read for OneStream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.pending.is_empty() && self.left == 0 && !self.ends && !buffer.is_empty() {
            self.read_head()?;
        }
        if !self.pending.is_empty() {
            let head = &self.head[self.pending.clone()];
            let bytes = head.len().min(buffer.len());
            buffer[..bytes].copy_from_slice(&head[..bytes]);
            self.pending.start += bytes;
            return Ok(bytes);
        }
        let wanted = self.left.min(buffer.len());
        let read = self.input.read(&mut buffer[..wanted])?;
        self.left -= read;
        if read == 0 && wanted > 0 {
            (self.left, self.ends) = (0, true);
        }
        Ok(read)
    }
}
