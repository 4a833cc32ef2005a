//! Making file systems.

mod mkfs;
mod mkfs_raw;
