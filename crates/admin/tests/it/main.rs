//! Making file systems.

mod mkfs;
mod mkfs_dedupe;
mod mkfs_raw;
mod mkfs_sizes;
