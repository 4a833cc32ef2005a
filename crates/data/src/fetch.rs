//! What the devices are asked for: pieces of a file that lie one behind the other are asked for together.

use vlinder_base::sync::Arc;
use vlinder_forest::ExpectedChecksums;
use vlinder_format::Logical;
use vlinder_format::file_extent::ExtentRange;
use vlinder_volume::{ReadsInFlight, Volume, VolumeError};

use crate::bytes_error::DataFault;
use crate::pieces::ReadPiece;

/// No more is asked for together by who waits for it: what is judged and copied should still lie in the
/// processor's cache.
pub(crate) const MAX_BYTES: u64 = 512 << 10;

/// Bytes that lie together.
#[derive(Debug)]
pub(crate) struct Fetch {
    /// Where they begin.
    pub(crate) start: Logical,
    /// Bytes.
    pub(crate) length: u64,
    /// Where each piece of a file begins in it, with its offset in the file; ascending.
    parts: Vec<(Logical, u64)>,
    /// Where the chunk ends; nothing is asked for across that.
    limit: Logical,
    compressed: bool,
}

impl Fetch {
    fn new(start: Logical, length: u64, offset: u64, compressed: bool, volume: &Volume) -> Self {
        // Why there is none is told of when it is read.
        let limit = volume.chunk(start, 1).map_or(start, |chunk| chunk.end());
        Self { start, length, parts: vec![(start, offset)], limit, compressed }
    }

    fn end(&self) -> Logical {
        Logical(self.start.0.saturating_add(self.length))
    }

    /// Takes a piece in, if it lies right behind.
    fn continue_with(&mut self, start: Logical, length: u64, offset: u64, most_bytes: u64) -> bool {
        let fits = self.length.saturating_add(length) <= most_bytes;
        let end = start.0.checked_add(length).is_some_and(|end| end <= self.limit.0);
        if self.compressed || start != self.end() || !fits || !end {
            return false;
        }
        self.parts.push((start, offset));
        self.length += length;
        true
    }

    /// The offset in the file of the piece that something is wrong with.
    pub(crate) fn offset_of(&self, fault: &DataFault) -> u64 {
        let logical = match fault {
            DataFault::Volume(VolumeError::NoGoodCopy { logical, .. })
            | DataFault::MissingChecksum { logical } => *logical,
            _ => self.start,
        };
        let part = self.parts.iter().rev().find(|(start, _)| *start <= logical).or(self.parts.first());
        part.map_or(0, |(_, offset)| *offset)
    }
}

/// Where the bytes of a piece are.
#[derive(Debug)]
pub(crate) enum Source {
    /// In its item.
    Inline,
    /// In an extent that was decoded before, whose bytes these are.
    Decoded(Arc<Vec<u8>>),
    /// In the fetch of this number, from this byte on; of a compressed extent all of it.
    Fetched(usize, usize),
}

/// What is fetched for some pieces.
#[derive(Debug, Default)]
pub(crate) struct Fetches {
    pub(crate) all: Vec<Fetch>,
    /// The pieces in their order, each with where its bytes will be.
    pub(crate) pieces: Vec<(ReadPiece, Source)>,
}

/// Pieces that the devices were asked for.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) fetches: Fetches,
    /// What each fetch must have as checksums; shorter or none where nothing is verified.
    pub(crate) expected: Vec<Option<ExpectedChecksums>>,
    pub(crate) reads: ReadsInFlight,
}

/// Pieces that the devices brought, verified.
#[derive(Debug)]
pub(crate) struct Fetched {
    /// In order and apart.
    pub(crate) pieces: Vec<(ReadPiece, Source)>,
    /// Of each fetch.
    pub(crate) bytes: Vec<Vec<u8>>,
}

impl Fetched {
    /// The number of the last piece that is compressed: reads will go on from there.
    pub(crate) fn last_to_decode(&self) -> Option<usize> {
        self.pieces.iter().rposition(|(piece, _)| piece.is_compressed())
    }

    /// The bytes of each fetch; of those that were to be decoded none.
    pub(crate) fn into_plain_bytes(mut self) -> impl Iterator<Item = Vec<u8>> {
        for (piece, source) in &self.pieces {
            if let Source::Fetched(fetch, _) = source
                && piece.is_compressed()
            {
                self.bytes[*fetch] = Vec::new();
            }
        }
        self.bytes.into_iter()
    }
}

impl Fetches {
    /// Plans what to ask for, in the order of the pieces, at most so many bytes at a time of what is not
    /// compressed. `decoded` gives the extent of a piece if it was decoded before.
    pub(crate) fn plan(
        pieces: Vec<ReadPiece>,
        most_bytes: u64,
        sector_size: u64,
        volume: &Volume,
        decoded: impl Fn(&ReadPiece) -> Option<Arc<Vec<u8>>>,
    ) -> Self {
        let mut fetches = Self { all: Vec::new(), pieces: Vec::with_capacity(pieces.len()) };
        for piece in pieces {
            let source = match (piece.extent.range(), piece.is_compressed()) {
                (None, _) => Source::Inline,
                (Some(on_disk), true) => match decoded(&piece) {
                    Some(bytes) => Source::Decoded(bytes),
                    None => Source::Fetched(fetches.compressed(on_disk, piece.range.start(), volume), 0),
                },
                (Some(on_disk), false) => fetches.plain(&piece, on_disk, most_bytes, sector_size, volume),
            };
            fetches.pieces.push((piece, source));
        }
        fetches
    }

    /// The fetch of a compressed extent: several pieces may show parts of one, which is read once.
    fn compressed(&mut self, on_disk: &ExtentRange, offset: u64, volume: &Volume) -> usize {
        let same = |fetch: &Fetch| {
            fetch.compressed && fetch.start == on_disk.address && fetch.length == on_disk.disk_bytes
        };
        self.all.iter().rposition(same).unwrap_or_else(|| {
            self.all.push(Fetch::new(on_disk.address, on_disk.disk_bytes, offset, true, volume));
            self.all.len() - 1
        })
    }

    fn plain(
        &mut self,
        piece: &ReadPiece,
        on_disk: &ExtentRange,
        most_bytes: u64,
        sector_size: u64,
        volume: &Volume,
    ) -> Source {
        let offset = piece.range.start();
        // Runs end at sector borders, so rounding up stays inside.
        let first = offset / sector_size * sector_size;
        let length = piece.range.end().div_ceil(sector_size) * sector_size - first;
        let start = Logical(on_disk.address.0 + on_disk.offset_bytes + (first - piece.extent.offset));
        let inside = (offset - first) as usize;
        if let Some(last) = self.all.last_mut() {
            let before = last.length as usize;
            if last.continue_with(start, length, first, most_bytes) {
                return Source::Fetched(self.all.len() - 1, before + inside);
            }
        }
        self.all.push(Fetch::new(start, length, first, false, volume));
        Source::Fetched(self.all.len() - 1, inside)
    }
}
