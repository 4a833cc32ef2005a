//! What a stream begins with.

use super::{Protocol, WireError};

const MAGIC: &[u8; 13] = b"btrfs-stream\0";

/// Bytes of a stream's header: the magic and the version (4, little-endian).
pub(crate) const HEADER_BYTES: usize = MAGIC.len() + 4;

/// The header of a stream of a version.
pub(super) fn encode(protocol: Protocol) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..MAGIC.len()].copy_from_slice(MAGIC);
    header[MAGIC.len()..].copy_from_slice(&protocol.number().to_le_bytes());
    header
}

/// Whether a header can begin with these bytes, which are fewer than a header has.
pub(super) fn can_begin_with(bytes: &[u8]) -> bool {
    let common = bytes.len().min(MAGIC.len());
    bytes[..common] == MAGIC[..common]
}

/// The version that a header names.
///
/// # Errors
/// These bytes begin no stream, or one from the future.
pub(super) fn decode(header: &[u8; HEADER_BYTES]) -> Result<Protocol, WireError> {
    let (magic, version) = header.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(WireError::NotAStream);
    }
    let number = u32::from_le_bytes(version.try_into().unwrap_or_default());
    Protocol::from_number(number).ok_or(WireError::UnknownProtocol { number })
}
