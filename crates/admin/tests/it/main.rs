//! Making file systems.

mod archives;
mod changing_sources;
mod hostile_archives;
mod inode_flags;
mod mkfs;
mod mkfs_dedupe;
mod mkfs_raw;
mod mkfs_sizes;
mod owners;
mod packed;
