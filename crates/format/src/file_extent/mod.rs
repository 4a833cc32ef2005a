//! File extents: where a run of a file's bytes lies.
//!
//! Key (inode, EXTENT_DATA, offset in the file) in subvolume, log and data relocation trees, and in the root
//! tree for the v1 free-space cache. A file without feature no_holes has an item for each hole too: a regular
//! extent at address 0.
//!
//! ```text
//! 0            8           16            17           18               20     21
//! | generation | ram bytes | compression | encryption | other encoding | type |
//! inline:                 21 the bytes themselves, compressed or not
//! regular, preallocated:  21             29           37       45          53
//!                         | disk address | disk bytes | offset | file bytes |
//! ```
//! Lengths and offsets are bytes. `offset` counts in the uncompressed extent; `ram bytes` is the uncompressed
//! length of the whole extent. Source: `struct btrfs_file_extent_item`.

mod compression_id;
mod fault;
mod item;
mod raw;
mod rules;

pub use compression_id::{CompressionId, LARGEST_COMPRESSED_EXTENT};
pub use fault::{ExtentField, FileExtentFault};
pub use item::{ExtentRange, FileExtent, FileExtentContent};
pub use raw::{INLINE_HEADER_SIZE, REGULAR_SIZE};
pub use rules::check;

pub(crate) use item::lay_out;
pub(crate) use rules::is_past_its_extent;

#[cfg(test)]
mod tests;
