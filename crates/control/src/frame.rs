//! Messages on a stream: a length of four bytes, little-endian, then so many bytes of JSON.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest request.
pub(crate) const MAX_REQUEST_BYTES: u32 = 1 << 20;
/// The longest answer: a list of a million subvolumes fits.
pub(crate) const MAX_ANSWER_BYTES: u32 = 1 << 29;

/// A message that could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The stream failed.
    #[error(
        "the connection to the control socket failed: {source}; try again, and look at the server's log if it stays so"
    )]
    Stream {
        /// Why.
        #[from]
        source: io::Error,
    },
    /// The other side closed the stream at a message's end.
    #[error(
        "the other side closed the connection to the control socket; look whether the mount is still there, and try again"
    )]
    Closed,
    /// A length past what this side takes.
    #[error(
        "a message on the control socket of {length} bytes is longer than the {most} that are allowed; ask for less at a time, with the version of vlinder that serves the mount"
    )]
    TooLong {
        /// What was announced, or was to be sent.
        length: u64,
        /// The bound.
        most: u32,
    },
    /// No JSON, or not what is expected.
    #[error(
        "a message on the control socket can't be understood: {source}; use the version of vlinder that serves the mount"
    )]
    Content {
        /// Why.
        #[from]
        source: serde_json::Error,
    },
}

/// Sends a message.
pub(crate) fn send(stream: &mut impl Write, message: &impl Serialize, most: u32) -> Result<(), FrameError> {
    let body = serde_json::to_vec(message)?;
    let length = u32::try_from(body.len()).ok().filter(|length| *length <= most);
    let length = length.ok_or(FrameError::TooLong { length: body.len() as u64, most })?;
    let mut frame = Vec::with_capacity(body.len() + 4);
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&body);
    stream.write_all(&frame)?;
    Ok(())
}

/// Receives a message.
pub(crate) fn receive<T: DeserializeOwned>(stream: &mut impl Read, most: u32) -> Result<T, FrameError> {
    let mut length = [0; 4];
    match stream.read(&mut length[..1])? {
        0 => return Err(FrameError::Closed),
        _ => stream.read_exact(&mut length[1..])?,
    }
    let length = u32::from_le_bytes(length);
    if length > most {
        return Err(FrameError::TooLong { length: length.into(), most });
    }
    let mut body = Vec::new();
    // The length is the peer's word, so memory is taken only for what has come.
    stream.take(length.into()).read_to_end(&mut body)?;
    if body.len() as u64 != u64::from(length) {
        return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
    }
    Ok(serde_json::from_slice(&body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_and_a_torn_stream_is_told_from_a_closed() {
        let mut bytes = Vec::new();
        send(&mut bytes, &("abc", 7), 100).unwrap();
        let mut reader = bytes.as_slice();
        assert_eq!(receive::<(String, u32)>(&mut reader, 100).unwrap(), ("abc".to_owned(), 7));
        assert!(matches!(receive::<u32>(&mut reader, 100), Err(FrameError::Closed)));
        for cut in 1..bytes.len() {
            let torn = receive::<(String, u32)>(&mut &bytes[..cut], 100);
            assert!(matches!(torn, Err(FrameError::Stream { .. })), "cut at {cut}: {torn:?}");
        }
    }

    #[test]
    fn lengths_are_bounded_on_both_sides() {
        let mut bytes = Vec::new();
        assert!(matches!(
            send(&mut bytes, &"x".repeat(100), 50),
            Err(FrameError::TooLong { length: 102, most: 50 })
        ));
        assert!(bytes.is_empty());
        let announced = u32::MAX.to_le_bytes();
        assert!(matches!(receive::<u32>(&mut announced.as_slice(), 50), Err(FrameError::TooLong { .. })));
    }

    #[test]
    fn what_is_no_json_is_refused() {
        let mut bytes = vec![3, 0, 0, 0];
        bytes.extend_from_slice(b"{a}");
        assert!(matches!(receive::<u32>(&mut bytes.as_slice(), 50), Err(FrameError::Content { .. })));
    }
}
