//! The superblock: 4096 bytes that name the file system, its features, and where its roots and system chunks
//! are.
//!
//! It lies at 64 KiB of each device, with copies at 64 MiB and 256 GiB where the device is long enough
//! ([`SuperblockMirror`]). Bytes 0..32 hold the checksum of the other 4064, of the kind that the superblock
//! names. All integers are little-endian, all lengths and addresses bytes. Fields came with features as
//! noted; what has no meaning yet is kept.
//!
//! ```text
//! 0 csum | 32 fsid | 48 bytenr | 56 flags | 64 magic | 72 generation | 80 root | 88 chunk root
//! 96 log root | 104 (log root transid) | 112 total bytes | 120 bytes used | 128 root dir | 136 devices
//! 144 sector size | 148 node size | 152 leaf size | 156 stripe size | 160 system array size
//! 164 chunk root generation | 172 compat | 180 compat_ro | 188 incompat | 196 checksum kind
//! 198 levels of root, chunk root, log root | 201 device item | 299 label | 555 cache generation
//! 563 UUID tree generation | 571 metadata UUID | 587 global roots | 595 reserved | 811 system chunk array
//! 2859 four backup roots | 3531 padding
//! ```

mod backup_root;
mod check;
mod fault;
mod flags;
mod label;
mod mirror;
mod record;
mod system_array;

pub use backup_root::{BACKUP_ROOTS, BackupRoot};
pub use fault::SuperblockFault;
pub use flags::{
    SUPERBLOCK_FLAG_CHANGING_FSID, SUPERBLOCK_FLAG_CHANGING_FSID_V2, SUPERBLOCK_FLAG_ERROR,
    SUPERBLOCK_FLAG_METADUMP, SUPERBLOCK_FLAG_METADUMP_V2, SUPERBLOCK_FLAG_SEEDING, SUPERBLOCK_FLAG_WRITTEN,
    SUPERBLOCK_FLAGS_KNOWN,
};
pub use label::{Label, LabelFault};
pub use mirror::SuperblockMirror;
pub use record::{MAGIC, SUPERBLOCK_SIZE, Superblock};
pub use system_array::{SYSTEM_CHUNK_ARRAY_SIZE, SystemArrayFault, SystemChunkArray, SystemChunks};

#[cfg(test)]
mod tests;
