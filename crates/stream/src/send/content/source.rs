//! Where the bytes of files are.

use vlinder_forest::ChecksumLookup;
use vlinder_volume::Volume;

/// Where the bytes of files are read, each sector compared with its checksum.
pub struct ContentSource<'a> {
    /// The devices.
    pub volume: &'a Volume,
    /// The checksums of the state that is sent.
    pub checksums: ChecksumLookup<'a>,
    /// Bytes of a sector.
    pub sector_bytes: u32,
}
