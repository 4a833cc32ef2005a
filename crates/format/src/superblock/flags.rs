//! The flags of a superblock.

/// The superblock was written (in all of them).
pub const SUPERBLOCK_FLAG_WRITTEN: u64 = 1;
/// The file system met errors.
pub const SUPERBLOCK_FLAG_ERROR: u64 = 1 << 2;
/// A seed: read only, to be extended by other devices.
pub const SUPERBLOCK_FLAG_SEEDING: u64 = 1 << 32;
/// A restored metadata image.
pub const SUPERBLOCK_FLAG_METADUMP: u64 = 1 << 33;
/// A restored metadata image, second form.
pub const SUPERBLOCK_FLAG_METADUMP_V2: u64 = 1 << 34;
/// An unfinished change of the UUID by rewriting every block.
pub const SUPERBLOCK_FLAG_CHANGING_FSID: u64 = 1 << 35;
/// An unfinished change of the UUID through the metadata UUID.
pub const SUPERBLOCK_FLAG_CHANGING_FSID_V2: u64 = 1 << 36;

/// Flags that Linux knows; any other makes it refuse. (Bit 1 is the relocation flag of tree blocks.)
pub const SUPERBLOCK_FLAGS_KNOWN: u64 = SUPERBLOCK_FLAG_WRITTEN
    | 1 << 1
    | SUPERBLOCK_FLAG_ERROR
    | SUPERBLOCK_FLAG_SEEDING
    | SUPERBLOCK_FLAG_METADUMP
    | SUPERBLOCK_FLAG_METADUMP_V2;
