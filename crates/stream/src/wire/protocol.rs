//! The versions of the stream, and the header that names one.

use super::WireError;

/// What each stream begins with.
const MAGIC: &[u8; 13] = b"btrfs-stream\0";

/// Bytes of a stream's header: the magic and the version (4, little-endian).
pub(super) const HEADER_BYTES: usize = MAGIC.len() + 4;

/// A version of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// What every Linux since 3.6 writes and reads.
    #[default]
    V1,
    /// Since Linux 6.0: birth times, encoded writes (compressed extents as they are), preallocation,
    /// attributes of files.
    V2,
    /// Linux 6.x with debugging on: fs-verity.
    V3,
}

impl Protocol {
    /// Its number.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }

    /// Of a number; none for one that this program does not know.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::V1, Self::V2, Self::V3].into_iter().find(|protocol| protocol.number() == number)
    }

    /// True if the bytes of a write go to the end of the command and have no length of their own.
    pub(super) fn has_open_data(self) -> bool {
        self >= Self::V2
    }

    /// The header of a stream.
    pub(super) fn header(self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..MAGIC.len()].copy_from_slice(MAGIC);
        header[MAGIC.len()..].copy_from_slice(&self.number().to_le_bytes());
        header
    }

    /// The version that a header names.
    pub(super) fn of_header(header: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        let (magic, version) = header.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(WireError::NotAStream);
        }
        let number = u32::from_le_bytes(version.try_into().unwrap_or_default());
        Self::from_number(number).ok_or(WireError::UnknownProtocol { number })
    }
}
