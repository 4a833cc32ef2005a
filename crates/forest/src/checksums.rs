//! The checksums of data sectors, as the checksum tree has them.

use vlinder_base::sync::Arc;
use vlinder_codec::checksum::{ChecksumKind, checksum};
use vlinder_format::checksum_item::ChecksumGeometry;
use vlinder_format::{ItemType, Key, Logical, RootId};
use vlinder_tree::Readahead;

use crate::{Forest, ForestError, OpenTree};

/// The checksums that the sectors of a run of data must have.
#[derive(Debug)]
pub struct ExpectedChecksums {
    kind: ChecksumKind,
    /// One after the other.
    checksums: Vec<u8>,
}

impl ExpectedChecksums {
    /// All of them.
    pub fn bytes(&self) -> &[u8] {
        &self.checksums
    }

    /// The checksum of a sector, counted from the start of the run.
    #[must_use]
    pub fn of_sector(&self, sector: usize) -> Option<&[u8]> {
        let size = self.kind.size_bytes();
        let start = sector.checked_mul(size)?;
        self.checksums.get(start..start.checked_add(size)?)
    }

    /// Whether a sector, counted from the start of the run, has its checksum.
    #[must_use]
    pub fn is_good(&self, sector: usize, bytes: &[u8]) -> bool {
        let size = self.kind.size_bytes();
        let expected = self.checksums.get(sector * size..(sector + 1) * size);
        expected == Some(checksum(self.kind, bytes).as_bytes(self.kind))
    }
}

/// A sector without a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingChecksum {
    /// Its address.
    pub logical: Logical,
}

/// The checksum tree of a state, for look-ups.
pub struct ChecksumLookup<'a> {
    forest: &'a Forest,
    tree: Arc<OpenTree>,
    geometry: ChecksumGeometry,
    kind: ChecksumKind,
}

impl<'a> ChecksumLookup<'a> {
    /// For a state whose file system has checksums of this kind and geometry.
    ///
    /// # Errors
    /// What opening the checksum tree met.
    pub fn new(
        forest: &'a Forest,
        geometry: ChecksumGeometry,
        kind: ChecksumKind,
    ) -> Result<Self, ForestError> {
        Ok(Self { forest, tree: forest.tree(RootId::CHECKSUM_TREE)?, geometry, kind })
    }

    /// The checksums of `length_bytes` bytes (whole sectors) at an address, or the first sector that has
    /// none.
    ///
    /// # Errors
    /// What reading the checksum tree met.
    pub fn expected(
        &self,
        start: Logical,
        length_bytes: u64,
    ) -> Result<Result<ExpectedChecksums, MissingChecksum>, ForestError> {
        let (trees, root) = (self.forest.trees(), self.tree.root());
        let mut checksums = Vec::with_capacity(self.geometry.bytes_for(length_bytes).unwrap_or(0));
        let end = Logical(start.0.saturating_add(length_bytes));
        let floor = trees.floor(root, &ChecksumGeometry::key(start))?;
        let floor = floor.filter(|found| found.key().item_type == ItemType::EXTENT_CHECKSUM);
        let first = floor.as_ref().map(|found| (found.key(), found.data()));
        let mut at = start;
        if let Some((key, data)) = first {
            at = self.take(key, data, start..end, &mut checksums).unwrap_or(start);
        }
        // Mostly one item has them all.
        if at < end {
            let from = first.map_or(ChecksumGeometry::key(at), |(key, _)| key);
            let mut cursor = trees.cursor(root, &from, Readahead::None)?;
            while let Some((key, data)) = cursor.item() {
                if key.item_type != ItemType::EXTENT_CHECKSUM || key.offset > at.0 {
                    break;
                }
                let Some(taken_to) = self.take(key, data, at..end, &mut checksums) else { break };
                at = taken_to;
                // The next leaf may be damaged, and has nothing of the range.
                if at >= end {
                    break;
                }
                cursor.advance()?;
            }
        }
        if at < end {
            return Ok(Err(MissingChecksum { logical: at }));
        }
        Ok(Ok(ExpectedChecksums { kind: self.kind, checksums }))
    }

    /// Takes what an item that begins at or before a range has of its checksums, and gives up to where it has
    /// them; none if the item has no whole ones.
    fn take(
        &self,
        key: Key,
        data: &[u8],
        range: std::ops::Range<Logical>,
        checksums: &mut Vec<u8>,
    ) -> Option<Logical> {
        let item_end = self.geometry.end(Logical(key.offset), data.len()).unwrap_or(Logical(u64::MAX));
        if item_end <= range.start {
            return Some(range.start);
        }
        let taken_to = item_end.min(range.end);
        let skip = self.geometry.bytes_for(range.start.0.checked_sub(key.offset)?)?;
        let length = self.geometry.bytes_for(taken_to.0 - range.start.0)?;
        let found = data.get(skip..skip.checked_add(length)?).filter(|found| !found.is_empty())?;
        checksums.extend_from_slice(found);
        Some(taken_to)
    }
}
