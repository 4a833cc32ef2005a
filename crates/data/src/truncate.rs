//! Changing a file's size, and removing what a deleted file had.

use std::collections::HashSet;

use vlinder_base::sync::Arc;
use vlinder_codec::compress::{Compression, compress, decompress};
use vlinder_extent_state::ByteRange;
use vlinder_format::file_extent::{CompressionId, FileExtent};
use vlinder_transaction::{ChangeKind, Handle, Reservation, ReservedData};

use crate::apply::{apply, file_changes};
use crate::bytes_error::{BytesError, DataFault};
use crate::deletion_steps::DeletionSteps;
use crate::dirty_bytes::put_sectors;
use crate::extent::{Content, Extent};
use crate::file_data::DELALLOC;
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::open_cache::OpenCache;
use crate::read_whole::read_whole;
use crate::rewrite::Rewrite;
use crate::sectors::MAX_FILE_SIZE;
use crate::{DataError, DataRefusal, Result, flush, items};

/// Gives a file another size: what is cut off is gone, what is added reads as zeros. The caller holds
/// the operation lock exclusively and has set the times in the inode's state already.
///
/// # Errors
/// [`DataRefusal::FileTooLarge`]; [`DataRefusal::NoSpace`] where the zeros behind the end of the last sector
/// find none; what the trees and devices met.
pub fn truncate(store: &FileStore, node: &Arc<FileNode>, size: u64) -> Result<()> {
    if size > MAX_FILE_SIZE {
        return Err(DataRefusal::FileTooLarge.into());
    }
    let _extents = flush::lock_settled(store, node);
    let old_size = node.size();
    if size < old_size {
        zero_tail(store, node, size)?;
        node.state().item.size_bytes = size;
        node.data().unflushed().replaced |= size == 0;
        drop_unflushed(store, node, size)?;
        return shrink_items(store, node, size);
    }
    zero_tail(store, node, old_size)?;
    extend(store, node, size)
}

/// Removes all of a deleted file's data, in as many transactions as it takes. The inode has no names any
/// more; its orphan item stays until the caller removes it with the inode.
///
/// # Errors
/// What the trees met.
pub fn remove_all(store: &FileStore, node: &Arc<FileNode>) -> Result<()> {
    let _extents = flush::lock_settled(store, node);
    node.state().item.size_bytes = 0;
    drop_unflushed(store, node, 0)?;
    if items::last(store.engine(), node.tree(), node.number())?.is_none() {
        return Ok(());
    }
    shrink_items(store, node, 0)
}

/// The bytes of the last sector behind a size become zeros, so that they do not come back when the file
/// grows. Also asked when it grows, since a crash can come between cutting and zeroing. The caller holds the
/// extents locked.
pub(crate) fn zero_tail(store: &FileStore, node: &Arc<FileNode>, size: u64) -> Result<()> {
    let sector_size = u64::from(store.sector_size());
    let start = size / sector_size * sector_size;
    if start == size {
        return Ok(());
    }
    let sector = ByteRange::with_length(start, sector_size).unwrap_or_default();
    let inside = (size - start) as usize;
    {
        let mut unflushed = node.data().unflushed();
        if unflushed.dirty.covers(sector) {
            unflushed.dirty.overwrite(size, &vec![0; sector_size as usize - inside]);
            return Ok(());
        }
    }
    let tree = node.tree();
    let found = items::load(store.engine(), tree, node.number(), sector, 1)?.extents.pop();
    let on_disk =
        found.is_some_and(|extent| matches!(extent.content, Content::Regular(_)) && !extent.is_hole());
    if !on_disk {
        // An inline extent is cut with its item.
        return Ok(());
    }
    let mut bytes = vec![0; sector_size as usize];
    read_whole(store, node, &OpenCache::new(), start, &mut bytes)?;
    if bytes[inside..].iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    bytes[inside..].fill(0);
    put_sectors(store, node, start, bytes)
}

/// Forgets what is unflushed behind a size. No flush is running: the caller holds the extents locked.
pub(crate) fn drop_unflushed(store: &FileStore, node: &FileNode, size: u64) -> Result<()> {
    let start = size.next_multiple_of(u64::from(store.sector_size()));
    let range = ByteRange::new(start, u64::MAX).unwrap_or_default();
    drop_unflushed_range(store, node, range)
}

/// Forgets what is unflushed of a range of whole sectors.
pub(crate) fn drop_unflushed_range(store: &FileStore, node: &FileNode, range: ByteRange) -> Result<()> {
    let Some(states) = node.data().states_if_any() else { return Ok(()) };
    let write_back = store.write_back();
    let mut settled = ReservedData::default();
    {
        let mut unflushed = node.data().unflushed();
        let before = unflushed.dirty.bytes();
        // A run with a hole in it is two, each of which takes metadata of its own.
        let cut = ReservedData::written(0, u64::from(unflushed.dirty.surrounds(range)));
        unflushed.promised += cut;
        store.engine().reservations().reserve_accepted_data(cut);
        unflushed.dirty.remove(range);
        let removed = before - unflushed.dirty.bytes();
        write_back.account(-i64::try_from(removed).unwrap_or(i64::MAX));
        if unflushed.is_empty() {
            settled = std::mem::take(&mut unflushed.promised);
            unflushed.dirty_since = None;
        }
        states.clear(range, DELALLOC).map_err(DataError::State)?;
    }
    store.engine().reservations().unreserve_data(settled, 0);
    write_back.remove_if_clean(node);
    Ok(())
}

/// Removes items behind a size from the last one on, so that a crash leaves a file that is merely longer. The
/// item on disk gets the size that each step reached.
fn shrink_items(store: &FileStore, node: &FileNode, size: u64) -> Result<()> {
    let sector_size = u64::from(store.sector_size());
    let keep = size.next_multiple_of(sector_size);
    let mut steps = DeletionSteps::of_extents(store);
    loop {
        let (extents, more) = last_items(store, node, size, steps.most_items())?;
        let found = extents.len();
        let changes = file_changes(found, 0);
        let Some(mut handle) = steps.begin(found, changes)? else { continue };
        let first = extents.first().map_or(keep, |extent| extent.offset.max(keep));
        let mut rewrite = Rewrite::new(sector_size, extents);
        if let Some(range) = ByteRange::new(first, u64::MAX).filter(|range| !range.is_empty()) {
            cut(store, node, &mut rewrite, size, range, &handle)?;
        }
        let reached = if more { first } else { size };
        let applied = apply(&mut handle, node, rewrite, &HashSet::new(), |state| {
            state.disk_size = state.disk_size.min(reached);
        });
        if steps.end(found, handle, applied)?.is_some() && !more {
            break;
        }
    }
    settle_size(store, node)
}

/// The size on disk may have waited for unflushed bytes that are dropped now; it waits no more. (Where some
/// are left, their flush sets it.) The caller holds the extents locked.
pub(crate) fn settle_size(store: &FileStore, node: &FileNode) -> Result<()> {
    let (size, disk_size) = {
        let state = node.state();
        (state.item.size_bytes, state.disk_size)
    };
    let waits = disk_size < size && node.data().may_be_forgotten();
    if waits { extend(store, node, size) } else { Ok(()) }
}

/// The last items that reach behind a size, at most so many; and whether there are more before them.
fn last_items(
    store: &FileStore,
    node: &FileNode,
    size: u64,
    most_items: usize,
) -> Result<(Vec<Extent>, bool)> {
    let sector_size = u64::from(store.sector_size());
    let tree = node.tree();
    let mut extents = Vec::new();
    let mut before = u64::MAX;
    while let Some(extent) = items::last_at(store.engine(), tree, node.number(), before)? {
        let is_inline = extent.range().is_none();
        let reaches = extent.file_range(sector_size).end() > size.next_multiple_of(sector_size)
            || (is_inline && extent.ram_bytes > size);
        if !reaches {
            break;
        }
        if extents.len() >= most_items {
            return Ok((extents, true));
        }
        let offset = extent.offset;
        extents.insert(0, extent);
        match offset.checked_sub(1) {
            Some(next) => before = next,
            None => break,
        }
    }
    Ok((extents, false))
}

/// Cuts items off at a size.
fn cut(
    store: &FileStore,
    node: &FileNode,
    rewrite: &mut Rewrite,
    size: u64,
    range: ByteRange,
    handle: &Handle<'_>,
) -> Result<()> {
    let first_sector = ByteRange::with_length(0, u64::from(store.sector_size())).unwrap_or_default();
    let inline = rewrite.overlapping(first_sector).into_iter().find(|extent| extent.range().is_none());
    let Some(extent) = inline.filter(|extent| extent.ram_bytes > size) else {
        return Ok(rewrite.drop_range(range).map_err(|_| DataRefusal::NotSupported)?);
    };
    let whole = ByteRange::new(0, u64::MAX).unwrap_or_default();
    let kept = if size > 0 { inline_bytes(store, node, &extent)? } else { Vec::new() };
    rewrite.drop_range(whole).map_err(|_| DataRefusal::NotSupported)?;
    let length = usize::try_from(size).unwrap_or(usize::MAX).min(kept.len());
    if length > 0 {
        // Compressed as it was: plain, the bytes might not fit a leaf.
        let mut packed = Vec::new();
        let sector_size = store.sector_size() as usize;
        let is_packed = match Compression::from_disk(extent.compression.0) {
            Some(algorithm) => {
                let level = algorithm.default_level();
                compress(algorithm, level, &kept[..length], sector_size, length - 1, &mut packed)
                    .map_err(|error| BytesError { inode: node.id(), offset: 0, fault: error.into() })?
            }
            None => false,
        };
        let plain = FileExtent::inline(&kept[..length], handle.generation());
        let item = if is_packed {
            let compression = extent.compression;
            FileExtent {
                compression,
                ram_bytes: plain.ram_bytes,
                ..FileExtent::inline(&packed, plain.generation)
            }
        } else {
            plain
        };
        rewrite.insert(Extent::new(0, &item));
    }
    Ok(())
}

/// The bytes of an inline extent.
pub(crate) fn inline_bytes(store: &FileStore, node: &FileNode, extent: &Extent) -> Result<Vec<u8>> {
    let Content::Inline(bytes) = &extent.content else { return Ok(Vec::new()) };
    if extent.compression == CompressionId::NONE {
        return Ok(bytes.clone());
    }
    let error = |fault: DataFault| BytesError { inode: node.id(), offset: extent.offset, fault };
    let method = extent.compression.0;
    let compression =
        Compression::from_disk(method).ok_or_else(|| error(DataFault::UnknownCompression { method }))?;
    let mut decoded = vec![0; usize::try_from(extent.ram_bytes).unwrap_or(0)];
    decompress(compression, bytes, &mut decoded, store.sector_size() as usize)
        .map_err(|fault| error(fault.into()))?;
    Ok(decoded)
}

/// Makes a file longer. The caller holds the extents locked.
pub(crate) fn extend(store: &FileStore, node: &FileNode, size: u64) -> Result<()> {
    let engine = store.engine();
    let sector_size = u64::from(store.sector_size());
    let (old_size, old_disk_size) = {
        let state = node.state();
        (state.item.size_bytes, state.disk_size)
    };
    drop_behind_end(store, node, old_size, size)?;
    let flushed = node.data().may_be_forgotten();
    let fill = ByteRange::new(old_disk_size / sector_size * sector_size, size.next_multiple_of(sector_size))
        .filter(|_| flushed && !engine.no_holes());
    let extents = match fill {
        Some(range) => items::load(engine, node.tree(), node.number(), range, usize::MAX)?.extents,
        None => Vec::new(),
    };
    let changes = file_changes(extents.len(), 2);
    let mut rewrite = Rewrite::new(sector_size, extents);
    let mut handle = engine.begin(Reservation::items(1).and(changes).of(ChangeKind::Truncation))?;
    if let Some(range) = fill {
        rewrite.fill_holes(range, handle.generation());
        rewrite.join_neighbours();
    }
    apply(&mut handle, node, rewrite, &HashSet::new(), |state| {
        state.item.size_bytes = size;
        if flushed {
            state.disk_size = size;
        }
    })
}

/// Drops extents between the old and the new end of a file: a crash can leave some there, and their bytes
/// must not show when the file grows over them. Preallocated ones stay. The caller holds the extents locked.
pub(crate) fn drop_behind_end(store: &FileStore, node: &FileNode, old_end: u64, new_end: u64) -> Result<()> {
    let engine = store.engine();
    let sector_size = u64::from(store.sector_size());
    let (start, end) = (old_end.next_multiple_of(sector_size), new_end.next_multiple_of(sector_size));
    let Some(range) = ByteRange::new(start, end).filter(|range| !range.is_empty()) else { return Ok(()) };
    let extents = items::load(engine, node.tree(), node.number(), range, usize::MAX)?.extents;
    let stale: Vec<ByteRange> = extents
        .iter()
        .filter(|extent| matches!(extent.content, Content::Regular(_)) && !extent.is_hole())
        .filter_map(|extent| extent.file_range(sector_size).intersection(range))
        .collect();
    if stale.is_empty() {
        return Ok(());
    }
    let mut handle = engine.begin({
        let changes = file_changes(extents.len(), stale.len());
        Reservation::items(1).and(changes).of(ChangeKind::Truncation)
    })?;
    let mut rewrite = Rewrite::new(sector_size, extents);
    for range in stale {
        rewrite.drop_range(range).map_err(|_| DataRefusal::NotSupported)?;
    }
    apply(&mut handle, node, rewrite, &HashSet::new(), |_| {})
}
