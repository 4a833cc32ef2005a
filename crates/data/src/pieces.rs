//! What of a range is no hole, piece by piece.

use vlinder_extent_state::ByteRange;
use vlinder_format::file_extent::CompressionId;

use crate::extent::{Content, Extent};

/// A part of a file that has bytes: in an item, or on the devices.
#[derive(Debug)]
pub(crate) struct ReadPiece {
    /// Which part.
    pub(crate) range: ByteRange,
    /// The item that says where its bytes are.
    pub(crate) extent: Extent,
}

impl ReadPiece {
    /// Whether its bytes are to be decoded.
    pub(crate) fn is_compressed(&self) -> bool {
        self.extent.compression != CompressionId::NONE
    }

    /// Where it begins in its extent, uncompressed.
    pub(crate) fn offset_in_extent(&self) -> u64 {
        let on_disk = self.extent.range().map_or(0, |range| range.offset_bytes);
        on_disk + (self.range.start() - self.extent.offset)
    }
}

/// The pieces of a part of a file that has these items, in order and apart, those that are not compressed
/// with at most so many bytes. What lies between them reads as zeros.
pub(crate) fn pieces_of(
    part: ByteRange,
    extents: Vec<Extent>,
    most_bytes: u64,
    sector_size: u64,
) -> Vec<ReadPiece> {
    let mut pieces = Vec::with_capacity(extents.len());
    let mut at = part.start();
    for extent in extents {
        let Some(run) = extent.file_range(sector_size).intersection(part) else { continue };
        // Overlapping items are damage that only a check tells; here the first one counts.
        let Some(range) = ByteRange::new(run.start().max(at), run.end()).filter(|run| !run.is_empty()) else {
            continue;
        };
        at = range.end();
        let has_bytes = match &extent.content {
            Content::Inline(_) => true,
            Content::Regular(on_disk) => !on_disk.is_hole(),
            Content::Preallocated(_) => false,
        };
        if !has_bytes {
            continue;
        }
        let mut whole = ReadPiece { range, extent };
        while whole.range.length_bytes() > most_bytes && !whole.is_compressed() {
            let border = whole.range.start() + most_bytes;
            let (now, later) =
                (ByteRange::new(whole.range.start(), border), ByteRange::new(border, range.end()));
            pieces.push(ReadPiece { range: now.unwrap_or_default(), extent: whole.extent.clone() });
            whole.range = later.unwrap_or_default();
        }
        pieces.push(whole);
    }
    pieces
}
