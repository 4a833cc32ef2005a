//! What the devices are asked for: pieces of a file that lie one behind the other are asked for together.

use vlinder_format::Logical;
use vlinder_format::file_extent::CompressionId;
use vlinder_volume::{Volume, VolumeError};

use super::error::DataFault;
use super::read::Piece;

/// No more is asked for together: what is judged and copied should still lie in the processor's cache.
const MOST_BYTES: u64 = 512 << 10;

/// Bytes that lie together.
#[derive(Debug)]
pub(super) struct Fetch {
    /// Where they begin.
    pub(super) start: Logical,
    /// Bytes.
    pub(super) length: u64,
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
    fn continue_with(&mut self, start: Logical, length: u64, offset: u64) -> bool {
        let fits = self.length.saturating_add(length) <= MOST_BYTES;
        let end = start.0.checked_add(length).is_some_and(|end| end <= self.limit.0);
        if self.compressed || start != self.end() || !fits || !end {
            return false;
        }
        self.parts.push((start, offset));
        self.length += length;
        true
    }

    /// The offset in the file of the piece that something is wrong with.
    pub(super) fn offset_of(&self, fault: &DataFault) -> u64 {
        let logical = match fault {
            DataFault::Volume(VolumeError::NoGoodCopy { logical, .. })
            | DataFault::MissingChecksum { logical } => *logical,
            _ => self.start,
        };
        let part = self.parts.iter().rev().find(|(start, _)| *start <= logical).or(self.parts.first());
        part.map_or(0, |(_, offset)| *offset)
    }
}

/// The fetches of some pieces.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    pub(super) all: Vec<Fetch>,
    /// For each piece its fetch, and where in that its first byte lies (of uncompressed ones).
    pub(super) places: Vec<(usize, usize)>,
}

impl Fetches {
    /// Plans what to ask for, in the order of the pieces.
    pub(super) fn plan(pieces: &[Piece<'_>], sector_size: u64, volume: &Volume) -> Self {
        let mut fetches = Self::default();
        for piece in pieces {
            let place = fetches.place(piece, sector_size, volume);
            fetches.places.push(place);
        }
        fetches
    }

    fn place(&mut self, piece: &Piece<'_>, sector_size: u64, volume: &Volume) -> (usize, usize) {
        let (on_disk, offset) = (&piece.on_disk, piece.range.start());
        if piece.extent.compression != CompressionId::NONE {
            // Several runs may show parts of one compressed extent, which is read once.
            let same = |fetch: &Fetch| {
                fetch.compressed && fetch.start == on_disk.address && fetch.length == on_disk.disk_bytes
            };
            let number = self.all.iter().rposition(same).unwrap_or_else(|| {
                self.all.push(Fetch::new(on_disk.address, on_disk.disk_bytes, offset, true, volume));
                self.all.len() - 1
            });
            return (number, 0);
        }
        // Runs end at sector borders, so rounding up stays inside.
        let first = offset / sector_size * sector_size;
        let length = piece.range.end().div_ceil(sector_size) * sector_size - first;
        let start = Logical(on_disk.address.0 + on_disk.offset_bytes + (first - piece.extent.offset));
        let inside = (offset - first) as usize;
        if let Some(last) = self.all.last_mut() {
            let before = last.length as usize;
            if last.continue_with(start, length, first) {
                return (self.all.len() - 1, before + inside);
            }
        }
        self.all.push(Fetch::new(start, length, first, false, volume));
        (self.all.len() - 1, inside)
    }
}
