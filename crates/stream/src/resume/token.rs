//! What a receiver keeps of a stream that was interrupted.

use std::fmt;
use std::str::FromStr;

use vlinder_codec::checksum::crc32c;
use vlinder_format::{Generation, Uuid};

use super::RunningHash;
use super::base64;
use crate::wire::Protocol;

/// What the text of a token begins with; another number is another layout of the bytes.
const PREFIX: &str = "vlinder1-";
/// Protocol, both subvolumes with their transactions, how far, hash, checksum.
const TOKEN_BYTES: usize = 1 + 2 * (16 + 8) + 8 + 32 + 4;

/// Which stream was interrupted, and where. As text it is one word of letters, digits, `-` and `_`, with a
/// checksum in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResumeToken {
    /// The version of the stream.
    pub protocol: Protocol,
    /// The subvolume that is sent, as the stream names it.
    pub uuid: Uuid,
    /// The transaction of its last change.
    pub transid: Generation,
    /// The subvolume that it is sent as a change of; nil for one that is sent whole.
    pub parent_uuid: Uuid,
    /// The transaction of that one's last change.
    pub parent_transid: Generation,
    /// What was received: how many bytes of commands, from the one that makes the subvolume on, and their
    /// hash.
    pub received: RunningHash,
}

impl fmt::Display for ResumeToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(TOKEN_BYTES);
        bytes.push(self.protocol.number() as u8);
        for (uuid, transid) in [(self.uuid, self.transid), (self.parent_uuid, self.parent_transid)] {
            bytes.extend_from_slice(&uuid.0);
            bytes.extend_from_slice(&transid.0.to_le_bytes());
        }
        bytes.extend_from_slice(&self.received.bytes().to_le_bytes());
        bytes.extend_from_slice(self.received.hash());
        bytes.extend_from_slice(&crc32c(0, &bytes).to_le_bytes());
        write!(formatter, "{PREFIX}{}", base64::encode(&bytes))
    }
}

/// What is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It begins in another way.
    #[error("a token begins with {PREFIX:?}; copy the whole of it")]
    Prefix,
    /// It has other letters, or another number of them.
    #[error("the token is not whole, or has letters that none has; copy the whole of it")]
    Letters,
    /// Its checksum is wrong.
    #[error("the token was changed: its checksum is wrong; copy it again")]
    Checksum,
    /// It is of a version of the stream that this program does not know.
    #[error("the token is for version {number} of the stream, which this program does not know")]
    Protocol {
        /// The version.
        number: u8,
    },
}

impl FromStr for ResumeToken {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        let letters = text.strip_prefix(PREFIX).ok_or(TokenError::Prefix)?;
        let bytes = base64::decode(letters).filter(|bytes| bytes.len() == TOKEN_BYTES);
        let bytes = bytes.ok_or(TokenError::Letters)?;
        let mut rest = Fields(&bytes);
        let number = rest.take::<1>()?[0];
        let uuid = Uuid(rest.take()?);
        let transid = Generation(u64::from_le_bytes(rest.take()?));
        let parent_uuid = Uuid(rest.take()?);
        let parent_transid = Generation(u64::from_le_bytes(rest.take()?));
        let received = RunningHash::stored(u64::from_le_bytes(rest.take()?), rest.take()?);
        let checksum = u32::from_le_bytes(rest.take()?);
        if checksum != crc32c(0, &bytes[..TOKEN_BYTES - size_of::<u32>()]) {
            return Err(TokenError::Checksum);
        }
        let protocol = Protocol::from_number(number.into()).ok_or(TokenError::Protocol { number })?;
        Ok(Self { protocol, uuid, transid, parent_uuid, parent_transid, received })
    }
}

/// The bytes of a token that were not read yet.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], TokenError> {
        let (field, rest) = self.0.split_first_chunk().ok_or(TokenError::Letters)?;
        self.0 = rest;
        Ok(*field)
    }
}
