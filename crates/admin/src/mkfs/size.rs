//! How large an image must be to hold a source directory.

use vlinder_volume::Profile;

use super::raw::{self, MkfsParameters, ParameterError};
use super::source::Totals;

/// Bytes of items for each name: inode, reference, two directory entries, a few attributes; without the name
/// itself.
const BYTES_PER_ENTRY: u64 = 480;
/// The name stands in the reference and in both entries.
const NAMES_PER_ENTRY: u64 = 3;
/// Bytes of items for each extent: in the file, in the extent tree.
const BYTES_PER_EXTENT: u64 = 160;
/// Extents are at least as long as this where a file is (a compressed extent's worth).
const EXTENT_BYTES: u64 = 128 << 10;
/// The first chunks, which every new file system has, hold this much.
const FIRST_DATA_BYTES: u64 = 6 << 20;
const FIRST_METADATA_BYTES: u64 = 4 << 20;
/// What commits may need beside what is stored in the end.
const METADATA_RESERVE_BYTES: u64 = 64 << 20;

/// A size that holds the source. It need not be exact: an image that turns out full is made again with twice
/// the size, and what is too large is only a longer sparse file, which `--shrink` cuts.
pub(super) fn size_for(parameters: &MkfsParameters, totals: &Totals) -> Result<u64, ParameterError> {
    let least = raw::smallest_device(parameters)?;
    let checksums = u64::try_from(parameters.checksum_kind.size_bytes()).unwrap_or(u64::MAX);
    let sectors = totals.data_bytes / u64::from(parameters.sector_size);
    let extents = totals.files + totals.data_bytes / EXTENT_BYTES;
    let items = totals.entries * BYTES_PER_ENTRY
        + totals.name_bytes * NAMES_PER_ENTRY
        + totals.small_bytes
        + extents * BYTES_PER_EXTENT
        + sectors * checksums;
    // Blocks are at least half full.
    let metadata = 2 * items;
    let mut further = 0;
    if metadata > FIRST_METADATA_BYTES {
        further += (metadata + METADATA_RESERVE_BYTES) * copies(parameters.metadata_profile);
    }
    if totals.data_bytes > FIRST_DATA_BYTES {
        further += totals.data_bytes * copies(parameters.data_profile);
    }
    // Chunks take up to a tenth of the device each, and the last of each kind stays partly empty.
    let size = least + further + further / 3;
    Ok(size.next_multiple_of(1 << 20))
}

fn copies(profile: Profile) -> u64 {
    u64::from(profile.copies())
}
