//! Where the chunks of a file system lie while it is filled.
//!
//! ```text
//! device:   | 1 MiB | data, data, data ... as they are needed   | system, metadata: the scratch file
//!           0                                                   data_end
//! logical:  | system, metadata                     | data ...
//!           1 MiB                                  64 GiB
//! ```
//! Data lie at once where they stay. How many metadata there will be is not known yet, so they go to a file
//! without a name, and are written to their places when all is known (see [`super`]).

use vlinder_format::chunk::{BlockGroupFlags, Profile, STRIPE_LENGTH};
use vlinder_format::{Logical, Physical};

use crate::mkfs::raw::{Layout, MkfsFeatures, MkfsParameters, chunk_at};

const MEBIBYTE: u64 = 1 << 20;
const GIBIBYTE: u64 = 1 << 30;
/// The start of a device is left to boot loaders and the primary superblock.
pub(super) const FIRST_BYTE: u64 = MEBIBYTE;
/// Data begin at this logical address. In front of it is room for the metadata of any image, and Linux on
/// processors of 32 bits, whose page cache ends at 16 TiB, reads what lies behind it.
const DATA_LOGICAL: u64 = 64 * GIBIBYTE;
const SYSTEM_BYTES: u64 = 32 * MEBIBYTE;
/// Bytes of the scratch file, of which only what is written takes room.
pub(in crate::mkfs) const SCRATCH_BYTES: u64 = DATA_LOGICAL;
/// Data of a regular file, which grows as it is filled, may reach this far.
const UNLIMITED_DATA: u64 = 1 << 50;

/// The end of the data on a device of this length, or on a file that may grow.
pub(in crate::mkfs) fn data_end(device_bytes: Option<u64>) -> u64 {
    device_bytes.map_or(UNLIMITED_DATA, |bytes| bytes - bytes % STRIPE_LENGTH)
}

/// The file system that is filled: what reading the finished one will not show is left out, since it is made
/// anew for the finished one, and its metadata have one copy.
pub(in crate::mkfs) fn build_parameters(parameters: &MkfsParameters) -> MkfsParameters {
    let features = MkfsFeatures {
        mixed_groups: false,
        free_space_tree: false,
        block_group_tree: false,
        ..parameters.features
    };
    MkfsParameters { metadata_profile: Profile::Single, features, ..parameters.clone() }
}

/// The chunks of the file system that is filled; none where the device has no room for the first.
pub(in crate::mkfs) fn build_layout(parameters: &MkfsParameters, data_end: u64) -> Option<Layout> {
    let single = Profile::Single;
    let system_start = FIRST_BYTE;
    let metadata_start = system_start + SYSTEM_BYTES;
    let data_profile = parameters.data_profile;
    let room = data_end.checked_sub(FIRST_BYTE)? / u64::from(data_profile.copies());
    let data_bytes = room.min(GIBIBYTE) / STRIPE_LENGTH * STRIPE_LENGTH;
    if data_bytes == 0 {
        return None;
    }
    let chunk = |content, profile, logical, physical, length| {
        chunk_at(parameters, content, profile, Logical(logical), Physical(physical), length)
    };
    let metadata_bytes = DATA_LOGICAL - metadata_start;
    let chunks = vec![
        chunk(BlockGroupFlags::SYSTEM, single, system_start, data_end, SYSTEM_BYTES),
        chunk(BlockGroupFlags::METADATA, single, metadata_start, data_end + SYSTEM_BYTES, metadata_bytes),
        chunk(BlockGroupFlags::DATA, data_profile, DATA_LOGICAL, FIRST_BYTE, data_bytes),
    ];
    Some(Layout { chunks, total_bytes: data_end + SCRATCH_BYTES })
}
