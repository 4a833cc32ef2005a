//! What tells an image from other files.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;

use vlinder_format::superblock::MAGIC;

/// Where [`MAGIC`] stands in an image: 64 bytes into the primary superblock, at 64 KiB.
const PRIMARY_MARK_OFFSET: u64 = 65536 + 64;

/// Whether a file, or a block device, holds a Btrfs file system, as far as its primary superblock tells.
///
/// # Errors
/// What the host said; an end before the mark is none.
pub fn has_filesystem(file: &File) -> io::Result<bool> {
    let mut mark = [0; size_of::<u64>()];
    match file.read_exact_at(&mut mark, PRIMARY_MARK_OFFSET) {
        Ok(()) => Ok(u64::from_le_bytes(mark) == MAGIC),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
