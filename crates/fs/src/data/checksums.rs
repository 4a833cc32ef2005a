//! The checksums of data sectors: looking up what is expected, working out those of new data.

use vlinder_base::parallel;
use vlinder_base::sync::Arc;
use vlinder_codec::checksum::{ChecksumKind, checksum, checksum_many};
use vlinder_format::checksum_item::ChecksumGeometry;
use vlinder_format::{ItemType, Key, Logical, RootId};
use vlinder_transaction::Engine;
use vlinder_tree::{Readahead, Root};

use super::error::DataFault;
use crate::Result;

/// Data from this size on are worth spreading over the cores: to wake a worker and wait for it takes some 50 microseconds,
/// and half a millisecond where all cores are busy.
const fn parallel_bytes(kind: ChecksumKind) -> usize {
    match kind {
        // Ten gigabytes a second and more.
        ChecksumKind::Crc32c | ChecksumKind::Xxhash64 => 8 << 20,
        // One or two.
        ChecksumKind::Sha256 | ChecksumKind::Blake2b => 256 << 10,
    }
}

/// What the sectors of a run of data must have as checksums.
#[derive(Debug)]
pub(crate) struct Expected {
    kind: ChecksumKind,
    /// One after the other.
    checksums: Vec<u8>,
}

impl Expected {
    /// All of them.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.checksums
    }

    /// Whether a sector, counted from the start of the run, has its checksum.
    pub(crate) fn is_good(&self, sector: usize, bytes: &[u8]) -> bool {
        let size = self.kind.size_bytes();
        let expected = self.checksums.get(sector * size..(sector + 1) * size);
        expected == Some(checksum(self.kind, bytes).as_bytes(self.kind))
    }
}

/// The checksum tree of a file system, for look-ups.
pub(crate) struct Lookup<'a> {
    engine: &'a Engine,
    root: Arc<Root>,
    geometry: ChecksumGeometry,
}

impl<'a> Lookup<'a> {
    pub(crate) fn new(engine: &'a Engine) -> Result<Self> {
        let root = Arc::clone(engine.tree(RootId::CHECKSUM_TREE)?.root());
        Ok(Self { engine, root, geometry: engine.checksum_geometry() })
    }

    /// The checksums of `length` bytes (whole sectors) at an address, or which sector has none.
    pub(crate) fn expected(
        &self,
        start: Logical,
        length: u64,
    ) -> Result<std::result::Result<Expected, DataFault>> {
        let kind = self.engine.checksum_kind();
        let mut checksums = Vec::with_capacity(self.geometry.bytes_for(length).unwrap_or(0));
        let end = Logical(start.0.saturating_add(length));
        let floor = self.engine.trees().floor(&self.root, &ChecksumGeometry::key(start))?;
        let floor = floor.filter(|found| found.key().item_type == ItemType::EXTENT_CHECKSUM);
        let first = floor.as_ref().map(|found| (found.key(), found.data()));
        let mut at = start;
        if let Some((key, data)) = first {
            at = self.take(key, data, start..end, &mut checksums).unwrap_or(start);
        }
        // Mostly one item has them all.
        if at < end {
            let from = first.map_or(ChecksumGeometry::key(at), |(key, _)| key);
            let mut cursor = self.engine.trees().cursor(&self.root, &from, Readahead::None)?;
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
            return Ok(Err(DataFault::MissingChecksum { logical: at }));
        }
        Ok(Ok(Expected { kind, checksums }))
    }

    /// Takes what an item that begins at or before a range has of its checksums, and gives up to where it has them; none if
    /// the item has no whole ones.
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

/// The checksums of several pieces of new data, in their order, worked out on all cores where that pays.
pub(crate) fn of_pieces(kind: ChecksumKind, pieces: &[&[u8]], sector_bytes: usize) -> Vec<Vec<u8>> {
    let one = |piece: &&[u8]| {
        let mut checksums = Vec::new();
        checksum_many(kind, piece, sector_bytes, &mut checksums);
        checksums
    };
    let total: usize = pieces.iter().map(|piece| piece.len()).sum();
    if total < parallel_bytes(kind) || pieces.len() < 2 {
        return pieces.iter().map(one).collect();
    }
    parallel::map(pieces, one)
}
