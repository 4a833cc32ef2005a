//! Bytes that a client hands over between two messages: chunks, each with its length before it (four bytes,
//! little-endian); one of no length ends them. So an end that the client meant is told from a connection that
//! broke.

use std::io::{self, Read, Write};

/// The longest chunk that is sent, and taken.
const MAX_CHUNK_BYTES: usize = 1 << 20;

/// What went wrong on one of the two sides of [`send`].
#[derive(Debug)]
pub(crate) enum UploadError {
    /// Reading what is to be handed over.
    Input(io::Error),
    /// The connection.
    Connection(io::Error),
}

/// Hands over all that `input` has. The end is not said where it fails: the other side must not take a part
/// for the whole.
pub(crate) fn send(input: &mut dyn Read, stream: &mut impl Write) -> Result<(), UploadError> {
    let mut chunk = vec![0; size_of::<u32>() + MAX_CHUNK_BYTES];
    loop {
        let (head, body) = chunk.split_at_mut(size_of::<u32>());
        let length = match input.read(body) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(UploadError::Input(error)),
        };
        head.copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
        stream.write_all(&chunk[..size_of::<u32>() + length]).map_err(UploadError::Connection)?;
        if length == 0 {
            return Ok(());
        }
    }
}

/// Reads what a client hands over.
pub(crate) struct Upload<R> {
    stream: R,
    /// Of the chunk that was begun.
    left: usize,
    has_ended: bool,
}

impl<R: Read> Upload<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self { stream, left: 0, has_ended: false }
    }

    /// Whether the client said that this was all. Otherwise the connection can carry no further message.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn begin_chunk(&mut self) -> io::Result<()> {
        let mut length = [0; size_of::<u32>()];
        self.stream.read_exact(&mut length).map_err(named_if_early)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_CHUNK_BYTES {
            let text = "the client announced more bytes at a time than are allowed";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        (self.left, self.has_ended) = (length, length == 0);
        Ok(())
    }
}

impl<R: Read> Read for Upload<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !self.has_ended && !buffer.is_empty() {
            self.begin_chunk()?;
        }
        let wanted = buffer.len().min(self.left);
        if wanted == 0 {
            return Ok(0);
        }
        let read = self.stream.read(&mut buffer[..wanted])?;
        if read == 0 {
            return Err(named_if_early(io::ErrorKind::UnexpectedEof.into()));
        }
        self.left -= read;
        Ok(read)
    }
}

/// An end of the connection in words; the client hears them where the mount ended.
fn named_if_early(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::UnexpectedEof {
        return error;
    }
    io::Error::new(error.kind(), "the mount ended, or the client did, before all of the stream had come")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte more at each call than at the one before.
    struct Growing<'a>(&'a [u8], usize);

    impl Read for Growing<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 += 1;
            let length = self.1.min(buffer.len());
            self.0.read(&mut buffer[..length])
        }
    }

    #[test]
    fn what_is_handed_over_comes_whole_or_not_as_an_end() {
        let bytes: Vec<u8> = (0..2000_u32).map(|number| number as u8).collect();
        let mut sent = Vec::new();
        send(&mut Growing(&bytes, 0), &mut sent).unwrap();
        let mut upload = Upload::new(Growing(&sent, 0));
        let mut came = Vec::new();
        upload.read_to_end(&mut came).unwrap();
        assert!(upload.has_ended());
        assert_eq!(came, bytes);
        for cut in 0..sent.len() {
            let mut upload = Upload::new(&sent[..cut]);
            let error = upload.read_to_end(&mut Vec::new()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "cut at {cut}");
            assert!(error.to_string().contains("the mount ended"), "cut at {cut}: {error}");
            assert!(!upload.has_ended());
        }
        let announced = u32::MAX.to_le_bytes();
        assert!(Upload::new(announced.as_slice()).read(&mut [0; 4]).is_err());
    }
}
