//! Files with the same bytes, which `--dedupe` stores once.
//!
//! A fingerprint only proposes: the later file shares the extents of the earlier one when each of its bytes
//! was compared with what the image holds, and its holes are the same. Files of less than a sector lie in
//! their trees and have nothing to share.

use std::collections::HashMap;
use std::ops::Range;

use vlinder_codec::checksum::{ChecksumKind, checksum};
use vlinder_fs::data::{self, OpenCache};
use vlinder_fs::{Filesystem, FsError, Inode, InodeId};

/// Files that were stored, by size.
#[derive(Default)]
pub(super) struct StoredFiles {
    by_size: HashMap<u64, Vec<StoredFile>>,
}

struct StoredFile {
    content: Fingerprint,
    inode: InodeId,
}

/// What a file holds, in short: equal files have equal fingerprints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fingerprint {
    hash: [u8; 8],
    /// Where there are data, ranges that touch each other as one.
    ranges: Vec<Range<u64>>,
}

impl Fingerprint {
    /// Bytes of data.
    pub(super) fn data_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Of a file that is one piece.
    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut whole = Self::default();
        whole.add(0, bytes);
        whole
    }

    /// The next piece of the file. Equal files come in equal pieces.
    pub(super) fn add(&mut self, offset: u64, bytes: &[u8]) {
        let mut chained = [0; 24];
        chained[..8].copy_from_slice(&self.hash);
        chained[8..16].copy_from_slice(&offset.to_le_bytes());
        chained[16..].copy_from_slice(&hash(bytes));
        self.hash = hash(&chained);
        let end = offset + u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        match self.ranges.last_mut() {
            Some(last) if last.end == offset => last.end = end,
            _ => self.ranges.push(offset..end),
        }
    }
}

fn hash(bytes: &[u8]) -> [u8; 8] {
    let sum = checksum(ChecksumKind::Xxhash64, bytes);
    let mut hash = [0; 8];
    hash.copy_from_slice(&sum.as_field()[..8]);
    hash
}

impl StoredFiles {
    /// Whether a file of this size was stored.
    pub(super) fn has_size(&self, size: u64) -> bool {
        self.by_size.contains_key(&size)
    }

    /// Files that may be equal.
    pub(super) fn candidates(&self, size: u64, content: &Fingerprint) -> Vec<InodeId> {
        let same_size = self.by_size.get(&size).map(Vec::as_slice).unwrap_or_default();
        same_size.iter().filter(|stored| stored.content == *content).map(|stored| stored.inode).collect()
    }

    /// A file was stored.
    pub(super) fn note(&mut self, size: u64, content: Fingerprint, inode: InodeId) {
        self.by_size.entry(size).or_default().push(StoredFile { content, inode });
    }
}

/// Whether a stored file has these bytes at an offset.
pub(super) fn holds(
    filesystem: &Filesystem,
    stored: &Inode,
    offset: u64,
    bytes: &[u8],
) -> Result<bool, FsError> {
    let mut found = vec![0; bytes.len()];
    let count = data::read(filesystem, stored, &OpenCache::default(), offset, &mut found)?;
    Ok(count == bytes.len() && found == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_tell_bytes_places_and_holes_apart() {
        let of = |pieces: &[(u64, &[u8])]| {
            let mut content = Fingerprint::default();
            pieces.iter().for_each(|(offset, bytes)| content.add(*offset, bytes));
            content
        };
        assert_eq!(of(&[(0, b"ab")]), Fingerprint::of(b"ab"));
        assert_ne!(of(&[(0, b"ab")]), of(&[(0, b"ac")]));
        assert_ne!(of(&[(0, b"ab")]), of(&[(2, b"ab")]));
        assert_ne!(of(&[(0, b"a"), (1, b"b")]), of(&[(0, b"b"), (1, b"a")]), "the order of pieces");
        assert_ne!(of(&[(0, b"a"), (4, b"b")]), of(&[(0, b"a"), (8, b"b")]), "a longer hole");
        assert_eq!(of(&[(0, b"a"), (1, b"b")]).ranges, core::iter::once(0..2).collect::<Vec<_>>());
    }
}
