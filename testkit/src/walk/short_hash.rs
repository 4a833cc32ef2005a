//! Hashes that are short enough for a line.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// The first 20 hexadecimal digits of the SHA-256 of these bytes.
pub fn short_hash(bytes: &[u8]) -> String {
    shorten(&Sha256::digest(bytes))
}

pub(crate) fn shorten(digest: &[u8]) -> String {
    digest.iter().take(10).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
