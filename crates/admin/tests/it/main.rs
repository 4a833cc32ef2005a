//! Making file systems.

mod archives;
mod hostile_archives;
mod inode_flags;
mod mkfs;
mod mkfs_raw;
mod owners;
mod packed;
