//! Reading as callers do: up to the end of the file, verified by a Merkle tree where there is one, or only
//! data without holes.

use vlinder_format::inode::InodeFlags;

use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::held::Stretch;
use crate::open_cache::OpenCache;
use crate::read_whole::read_whole;
use crate::reader::{Reader, to_index};
use crate::seek::{Seek, seek};
use crate::verity::read_verified;
use crate::{DataRefusal, Result};

/// Bytes of data that are read together where nothing may be read ahead.
const LONGEST_RUN: u64 = 1 << 20;

/// Reads the bytes of a file from `offset` on into `target`, and gives how many: fewer than asked for only at
/// the end of the file. The caller holds the operation lock, shared or exclusive.
///
/// # Errors
/// What the trees met, or a [`BytesError`](crate::BytesError) for the first part of the file that no
/// copy has.
pub fn read(
    store: &FileStore,
    node: &FileNode,
    cache: &OpenCache,
    offset: u64,
    target: &mut [u8],
) -> Result<usize> {
    let (size, flags) = node.size_and_flags();
    let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
    let length = target.len().min(left);
    if flags.has(InodeFlags::VERITY) {
        read_verified(store, node, cache, offset, &mut target[..length])?;
    } else {
        read_whole(store, node, cache, offset, &mut target[..length])?;
    }
    Ok(length)
}

/// Reads data, and no holes: a stretch of the file, of a mebibyte at most, that begins with the first data at
/// or after an offset; none where only a hole follows. Preallocated ranges are holes. The memory of `used` is
/// used again. The caller holds the operation lock, shared or exclusive.
///
/// # Errors
/// As [`read`], for the first run of data.
pub fn read_data(
    store: &FileStore,
    node: &FileNode,
    cache: &OpenCache,
    offset: u64,
    used: Option<Stretch>,
) -> Result<Option<Stretch>> {
    let start = match seek(store, node, cache, offset, Seek::Data) {
        Err(error) if error.is_refusal(DataRefusal::NoSuchOffset) => return Ok(None),
        found => found?,
    };
    let reader = Reader { store, node, cache, base: start };
    if let Some(stretch) = reader.read_stretch(start, used) {
        return Ok(Some(stretch));
    }
    let end = seek(store, node, cache, start, Seek::Hole)?.min(start.saturating_add(LONGEST_RUN));
    let mut bytes = vec![0; to_index(start, end)];
    let count = read(store, node, cache, start, &mut bytes)?;
    bytes.truncate(count);
    Ok((count > 0).then(|| Stretch::of_run(start, bytes)))
}
