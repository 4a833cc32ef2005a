//! The checksums of new data.

use vlinder_base::parallel;
use vlinder_codec::checksum::{ChecksumKind, checksum_many};

/// Data from this size on are worth spreading over the cores: to wake a worker and wait for it takes some 50
/// microseconds, and half a millisecond where all cores are busy.
const fn parallel_bytes(kind: ChecksumKind) -> usize {
    match kind {
        // Ten gigabytes a second and more.
        ChecksumKind::Crc32c | ChecksumKind::Xxhash64 => 8 << 20,
        // One or two.
        ChecksumKind::Sha256 | ChecksumKind::Blake2b => 256 << 10,
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
