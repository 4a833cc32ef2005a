//! Writing: into memory, with the space promised.

use std::borrow::Cow;

use vlinder_base::sync::Arc;
use vlinder_extent_state::ByteRange;

use crate::dirty_bytes::{Promised, grow, promise, put_sectors_promised};
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::open_cache::OpenCache;
use crate::read_whole::read_whole;
use crate::sectors::{MAX_FILE_SIZE, whole_sectors};
use crate::{DataRefusal, Result, SpaceFailure, flush, truncate};

/// Writes bytes at an offset. They are in memory when this returns, with the space for them promised; a flush
/// puts them on disk. Bytes of an owned vector that begins at a sector border are not copied again, if it
/// ends at one or has capacity for the rest of its last sector. The size grows with what is written past the
/// end; times and set-id bits are the caller's, who holds the operation lock exclusively, or shared for
/// whole sectors inside a file with copy-on-write.
///
/// # Errors
/// [`DataRefusal::NoSpace`], [`DataRefusal::FileTooLarge`], or what reading the sectors that are written in
/// part met; nothing is written then. Or what flushing met, to make room for what comes next: the bytes are
/// in memory then, as without an error.
pub fn write(store: &FileStore, node: &Arc<FileNode>, offset: u64, data: Cow<'_, [u8]>) -> Result<()> {
    if data.is_empty() {
        return Ok(());
    }
    let range =
        ByteRange::with_length(offset, data.len() as u64).filter(|range| range.end() <= MAX_FILE_SIZE);
    let range = range.ok_or(DataRefusal::FileTooLarge)?;
    if store.engine().is_host_full() && store.write_back().is_over_limit() {
        return Err(store.engine().troubles().full_host().into());
    }
    let sectors = whole_sectors(range, u64::from(store.sector_size()));
    let size = node.size();
    if offset > size {
        let _extents = flush::lock_settled(store, node);
        truncate::zero_tail(store, node, size)?;
        truncate::drop_behind_end(store, node, size, sectors.start())?;
    }
    let promised = promise(store, node, &[sectors])?;
    put(store, node, (range, sectors), data, promised)?;
    flush_if_crowded(store)
}

/// Writes whole sectors at several places inside a file, as [`write`](fn@write) does each in turn. As
/// many as a batch of a flush has bytes share one promise, and the file's locks. The caller holds the
/// operation lock at least shared.
///
/// # Errors
/// As [`write`](fn@write); some of the parts are written then.
pub fn write_inside(store: &FileStore, node: &Arc<FileNode>, mut parts: &[(u64, &[u8])]) -> Result<()> {
    while !parts.is_empty() {
        let mut bytes = 0;
        let fits = |(_, data): &&(u64, &[u8])| {
            bytes += data.len() as u64;
            bytes <= flush::MAX_BATCH_BYTES
        };
        let count = parts.iter().take_while(fits).count().max(1);
        let (together, others) = parts.split_at(count);
        match write_together(store, node, together) {
            // One after the other gives back what it overwrites.
            Err(error) if count > 1 && error.is_no_space() => {
                for (offset, data) in together {
                    write(store, node, *offset, Cow::Borrowed(data))?;
                }
            }
            other => other?,
        }
        parts = others;
    }
    Ok(())
}

/// Writes whole sectors inside a file, all or none of them.
fn write_together(store: &FileStore, node: &Arc<FileNode>, parts: &[(u64, &[u8])]) -> Result<()> {
    let ranges = parts.iter().map(|(start, data)| ByteRange::with_length(*start, data.len() as u64));
    let ranges: Vec<ByteRange> = ranges.collect::<Option<_>>().ok_or(DataRefusal::FileTooLarge)?;
    let promised = promise(store, node, &ranges)?;
    // Before the locks are taken.
    let bytes: Vec<Vec<u8>> = parts.iter().map(|(_, data)| data.to_vec()).collect();
    put_sectors_promised(store, node, &ranges, bytes, promised, 0)?;
    flush_if_crowded(store)
}

/// Flushes where so much is in memory that writers have to wait, or has it done.
fn flush_if_crowded(store: &FileStore) -> Result<()> {
    let write_back = store.write_back();
    if write_back.is_over_limit() {
        match flush::flush_until_below_limit(store) {
            // The bytes are in memory, and the next are refused.
            Err(error) if error.is_host_full() => {}
            flushed => flushed?,
        }
    } else if write_back.is_crowded() {
        store.background().ask_for_write_out();
    }
    Ok(())
}

/// Puts a range's bytes into memory, with the rest of its sectors.
fn put(
    store: &FileStore,
    node: &Arc<FileNode>,
    (range, sectors): (ByteRange, ByteRange),
    data: Cow<'_, [u8]>,
    promised: Promised<'_>,
) -> Result<()> {
    let least_size = range.end();
    if range == sectors {
        let bytes = [data.into_owned()];
        return put_sectors_promised(store, node, &[sectors], bytes, promised, least_size);
    }
    {
        let mut state = node.state();
        let mut unflushed = node.data().unflushed();
        if unflushed.dirty.covers(sectors) {
            unflushed.dirty.overwrite(range.start(), &data);
            unflushed.promised += promised.keep(0);
            drop(unflushed);
            grow(store, node, &mut state, least_size);
            return Ok(());
        }
    }
    let bytes = [complete(store, node, range, sectors, data)?];
    put_sectors_promised(store, node, &[sectors], bytes, promised, least_size)
}

/// The sectors with the new bytes in them and the old ones around.
fn complete(
    store: &FileStore,
    node: &FileNode,
    range: ByteRange,
    sectors: ByteRange,
    data: Cow<'_, [u8]>,
) -> Result<Vec<u8>> {
    let length = sectors.length_bytes() as usize;
    let head = (range.start() - sectors.start()) as usize;
    let mut whole = match data {
        Cow::Owned(bytes) if head == 0 && bytes.capacity() >= length => bytes,
        data => {
            let mut whole = Vec::with_capacity(length);
            if head > 0 {
                let old = old_sector(store, node, sectors.start())?;
                whole.extend_from_slice(&old[..head]);
            }
            whole.extend_from_slice(&data);
            whole
        }
    };
    if range.end() >= node.size() {
        whole.resize(length, 0);
    } else if range.end() < sectors.end() {
        let sector_size = u64::from(store.sector_size());
        let old = old_sector(store, node, sectors.end() - sector_size)?;
        whole.extend_from_slice(&old[old.len() - (length - whole.len())..]);
    }
    Ok(whole)
}

/// A sector as readers see it, zeros behind the end of the file.
fn old_sector(store: &FileStore, node: &FileNode, start: u64) -> Result<Vec<u8>> {
    let mut sector = vec![0; store.sector_size() as usize];
    let inside = usize::try_from(node.size().saturating_sub(start)).unwrap_or(usize::MAX).min(sector.len());
    if inside > 0 {
        read_whole(store, node, &OpenCache::new(), start, &mut sector)?;
        sector[inside..].fill(0);
    }
    Ok(sector)
}
