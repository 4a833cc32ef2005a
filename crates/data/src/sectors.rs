//! Sectors, in which data are stored, and how large a file can be.

use vlinder_extent_state::ByteRange;

/// The largest file: offsets are signed in system calls.
pub const MAX_FILE_SIZE: u64 = i64::MAX as u64;

/// The sectors that a range touches.
pub(crate) fn whole_sectors(range: ByteRange, sector_size: u64) -> ByteRange {
    let start = range.start() / sector_size * sector_size;
    ByteRange::new(start, range.end().div_ceil(sector_size) * sector_size).unwrap_or(range)
}
