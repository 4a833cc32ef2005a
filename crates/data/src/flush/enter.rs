//! What was stored becomes part of the files: items, references, checksums and inodes, in one transaction.

use std::borrow::Cow;
use std::collections::HashSet;

use vlinder_base::sync::Arc;
use vlinder_extent_state::ByteRange;
use vlinder_forest::OpenTree;
use vlinder_format::file_extent::{CompressionId, ExtentRange, FileExtent, FileExtentContent};
use vlinder_format::inode::{InodeFlags, InodeItem};
use vlinder_format::{FileOffset, Generation, Key, Logical};
use vlinder_transaction::{Charge, DataExtent, Handle};
use vlinder_tree::{Change, Edit};

use super::file_flush::{DirtyRange, FileFlush};
use crate::apply::file_changes_over;
use crate::extent::Extent;
use crate::file_data::RangeGuard;
use crate::file_store::FileStore;
use crate::rewrite::{ItemChanges, Rewrite};
use crate::written_extent::{Place, WrittenExtent, release};
use crate::{DataError, DataRefusal, Result, items, references};

/// Bytes of an inode item, or of a checksum item without its checksums, with the header.
const INODE_ITEM_BYTES: u64 = 185;

/// What was loaded around a batch.
#[derive(Clone, Copy, Debug, Default)]
struct Loaded {
    /// Items.
    items: usize,
    /// Of these, extents that lose bytes to the batch.
    overwritten: usize,
}

/// The items of one file's part of a batch, before and after.
struct FileRewrite {
    job: usize,
    rewrite: Rewrite,
    /// The size that the item on disk gets.
    disk_size: u64,
    /// Where holes need items: what the size on disk grows over, without feature no_holes.
    fill: Option<ByteRange>,
    /// All that any of its items may speak for, before or after; in order and apart.
    ranges: Vec<ByteRange>,
}

/// What became of a batch that is on the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a batch that was overtaken is planned anew"]
pub(super) enum Entered {
    /// It is in the tree.
    Done,
    /// A snapshot came to share preallocated space that was written to. It holds the space as preallocated
    /// still, so the bytes belong elsewhere: nothing was changed, and what new space was taken is given back.
    Overtaken,
}

/// Enters a batch. On an error nothing was changed and the space is given back, except for damage met
/// half-way, after which the file system is read-only.
pub(super) fn enter(
    store: &FileStore,
    jobs: &[FileFlush],
    batch: &[DirtyRange],
    stored: Vec<WrittenExtent>,
) -> Result<Entered> {
    let result = enter_stored(store, jobs, batch, &stored);
    match &result {
        Ok(Entered::Done) => {}
        Err((error, true)) => store.engine().become_read_only(error),
        Ok(Entered::Overtaken) | Err((_, false)) => release(store.engine(), &stored),
    }
    result.map_err(|(error, _)| error)
}

/// An error, and whether items may refer to what was stored.
type Failure = (DataError, bool);

fn enter_stored(
    store: &FileStore,
    jobs: &[FileFlush],
    batch: &[DirtyRange],
    stored: &[WrittenExtent],
) -> std::result::Result<Entered, Failure> {
    let before = |error: DataError| (error, false);
    let (mut files, loaded) = load(store, jobs, batch).map_err(before)?;
    let _ranges = lock_ranges(store, jobs, &files).map_err(before)?;
    let Some(tree) = files.first().map(|file| Arc::clone(jobs[file.job].node.tree())) else {
        return Ok(Entered::Done);
    };
    let mut handle = store.begin_flush(changes_of(&loaded, stored, files.len())).map_err(before)?;
    // As long as the handle is open, no further snapshot comes.
    let last_snapshot = tree.root().last_snapshot();
    let is_overtaken = |file: &FileRewrite| {
        let pieces = stored.iter().filter(|piece| piece.job == file.job && piece.is_in_place());
        pieces.into_iter().any(|piece| file.rewrite.shares_preallocated(piece.range, last_snapshot))
    };
    if files.iter().any(is_overtaken) {
        return Ok(Entered::Overtaken);
    }
    let generation = handle.generation();
    let mut changes = Vec::with_capacity(files.len());
    for file in &mut files {
        rewrite(stored, file, generation).map_err(before)?;
        changes.push(std::mem::replace(&mut file.rewrite, Rewrite::new(1, [])).finish());
    }
    edit_items(&mut handle, &tree, jobs, &files, &changes).map_err(before)?;
    let new: HashSet<Logical> = stored
        .iter()
        .filter_map(|piece| match piece.place {
            Place::New { extent, .. } => Some(extent.logical),
            Place::Inline { .. } | Place::Present => None,
        })
        .collect();
    for (file, changes) in files.iter().zip(&changes) {
        references::change(&mut handle, &jobs[file.job].node, changes, |address| new.contains(&address));
    }
    let stored = release_covered(&mut handle, stored, &changes);
    enter_checksums(store, &mut handle, &stored).map_err(|error| (error, true))?;
    for (file, changes) in files.iter().zip(&changes) {
        put_inode(&mut handle, &jobs[file.job], file, changes);
    }
    count(store, &stored);
    Ok(Entered::Done)
}

/// What entering may change: the files' items, as many as were loaded beside what is stored, their inodes,
/// and checksums.
fn changes_of(loaded: &Loaded, stored: &[WrittenExtent], files: usize) -> Charge {
    let files = files as u64;
    let inline_bytes: u64 = stored.iter().map(WrittenExtent::inline_bytes).sum();
    let checksum_bytes: u64 = stored.iter().map(WrittenExtent::checksum_bytes).sum();
    file_changes_over(loaded.items, loaded.overwritten, stored.len())
        + Charge::items(files, files * INODE_ITEM_BYTES + inline_bytes)
        + Charge { checksum_bytes, ..Charge::default() }
}

/// Gives back the space of what later pieces of the same batch cover, and leaves the others.
fn release_covered<'s>(
    handle: &mut Handle<'_>,
    stored: &'s [WrittenExtent],
    changes: &[ItemChanges],
) -> Vec<&'s WrittenExtent> {
    let references = changes.iter().flat_map(|changes| &changes.references);
    let referred: HashSet<Logical> = references
        .filter(|reference| reference.change > 0)
        .map(|reference| reference.extent.address)
        .collect();
    let mut left = Vec::with_capacity(stored.len());
    for piece in stored {
        match piece.place {
            Place::New { extent, .. } if !referred.contains(&extent.logical) => handle.release_data(extent),
            _ => left.push(piece),
        }
    }
    left
}

/// Loads the items around what was stored, with no transaction held up; and says how many there are.
fn load(store: &FileStore, jobs: &[FileFlush], batch: &[DirtyRange]) -> Result<(Vec<FileRewrite>, Loaded)> {
    let mut loaded = Loaded::default();
    let sector_size = u64::from(store.sector_size());
    let needs_holes = !store.engine().no_holes();
    let mut files: Vec<FileRewrite> = Vec::new();
    for parts in batch.chunk_by(|left, right| left.job == right.job) {
        let Some(last) = parts.last() else { continue };
        let job = &jobs[last.job];
        let (memory_size, old_disk_size) = {
            let state = job.node.state();
            (state.item.size_bytes, state.disk_size)
        };
        let reached = if last.last { job.size } else { job.size.min(last.range.end()) };
        let disk_size = old_disk_size.max(reached.min(memory_size));
        let mut ranges: Vec<ByteRange> = parts
            .iter()
            .filter_map(|part| {
                ByteRange::new(part.range.start().saturating_sub(sector_size), part.range.end() + sector_size)
            })
            .collect();
        let grown = (old_disk_size / sector_size * sector_size, disk_size.next_multiple_of(sector_size));
        let fill = ByteRange::new(grown.0, grown.1).filter(|_| needs_holes && disk_size > old_disk_size);
        ranges.extend(fill);
        let tree = job.node.tree();
        let extents = items::load_each(store.engine(), tree, job.node.number(), &ranges)?;
        loaded.items += extents.len();
        // Parts are in order and apart, as extents are.
        let is_overwritten = |extent: &&Extent| {
            let range = extent.file_range(sector_size);
            let first = parts.partition_point(|part| part.range.end() <= range.start());
            !extent.is_hole() && parts.get(first).is_some_and(|part| part.range.overlaps(range))
        };
        loaded.overwritten += extents.iter().filter(is_overwritten).count();
        ranges.extend(extents.iter().map(|extent| extent.file_range(sector_size)));
        files.push(FileRewrite {
            job: last.job,
            rewrite: Rewrite::new(sector_size, extents),
            disk_size,
            fill,
            ranges: joined(ranges),
        });
    }
    Ok((files, loaded))
}

/// Ranges in order, with those as one that overlap or touch.
fn joined(mut ranges: Vec<ByteRange>) -> Vec<ByteRange> {
    ranges.sort_by_key(|range| range.start());
    ranges.dedup_by(|range, last| {
        let touches = range.start() <= last.end();
        if touches {
            *last = ByteRange::new(last.start(), last.end().max(range.end())).unwrap_or(*last);
        }
        touches
    });
    ranges
}

/// Waits for readers of the ranges whose items change, and keeps others away: who looked some of these items
/// up before, and the rest afterwards, would see holes where there are none, and who reads what they referred
/// to needs it unchanged.
fn lock_ranges<'a>(
    store: &FileStore,
    jobs: &'a [FileFlush],
    files: &[FileRewrite],
) -> Result<Vec<RangeGuard<'a>>> {
    let maps = store.write_back().state_maps();
    let mut guards = Vec::new();
    for file in files {
        let node = &jobs[file.job].node;
        for range in &file.ranges {
            guards.push(node.data().lock_range(maps, node.id(), *range)?);
        }
    }
    Ok(guards)
}

/// Works out the file's items as they will be.
fn rewrite(stored: &[WrittenExtent], file: &mut FileRewrite, generation: Generation) -> Result<()> {
    let mut joins = false;
    for piece in stored.iter().filter(|piece| piece.job == file.job) {
        let start = piece.range.start();
        match &piece.place {
            Place::Present => {
                file.rewrite.mark_written(piece.range, generation);
                joins = true;
            }
            Place::New { extent, compression } => {
                let item = new_item(*extent, *compression, piece.range.length_bytes(), generation);
                file.rewrite.replace(Extent::new(start, &item)).map_err(|_| DataRefusal::NotSupported)?;
            }
            Place::Inline { bytes, compression, ram_bytes } => {
                let item = FileExtent {
                    compression: *compression,
                    ram_bytes: *ram_bytes,
                    ..FileExtent::inline(bytes, generation)
                };
                file.rewrite.replace(Extent::new(start, &item)).map_err(|_| DataRefusal::NotSupported)?;
            }
        }
    }
    if let Some(range) = file.fill {
        file.rewrite.fill_holes(range, generation);
        joins = true;
    }
    if joins {
        file.rewrite.join_neighbours();
    }
    Ok(())
}

fn new_item(
    extent: DataExtent,
    compression: CompressionId,
    file_bytes: u64,
    generation: Generation,
) -> FileExtent<'static> {
    let range =
        ExtentRange { address: extent.logical, disk_bytes: extent.length, offset_bytes: 0, file_bytes };
    FileExtent {
        ram_bytes: file_bytes,
        compression,
        content: FileExtentContent::Regular(range),
        ..FileExtent::whole(extent.logical, extent.length, generation)
    }
}

/// Changes the items of all files at once.
fn edit_items(
    handle: &mut Handle<'_>,
    tree: &OpenTree,
    jobs: &[FileFlush],
    files: &[FileRewrite],
    changes: &[ItemChanges],
) -> Result<()> {
    let mut items: Vec<(Key, Option<&[u8]>)> = Vec::new();
    for (file, changes) in files.iter().zip(changes) {
        let inode = jobs[file.job].node.number();
        items.extend(
            changes
                .items
                .iter()
                .map(|(offset, data)| (FileExtent::key(inode, FileOffset(*offset)), data.as_deref())),
        );
    }
    items.sort_by_key(|(key, _)| *key);
    let edits: Vec<Edit<'_>> = items
        .into_iter()
        .map(|(key, data)| Edit::new(key, data.map_or(Change::Remove, Change::Put)))
        .collect();
    if tree.may_share_blocks() {
        let inodes = files.iter().map(|file| InodeItem::key(jobs[file.job].node.number()));
        handle.charge_pending(tree, &inodes.collect::<Vec<Key>>())?;
    }
    Ok(handle.edit(tree, &edits)?)
}

/// Enters checksums in the order of their addresses, neighbours in one go.
fn enter_checksums(store: &FileStore, handle: &mut Handle<'_>, stored: &[&WrittenExtent]) -> Result<()> {
    let mut all: Vec<(Logical, &[u8])> = stored
        .iter()
        .filter_map(|piece| piece.checksums.as_ref().map(|(start, checksums)| (*start, checksums.as_slice())))
        .collect();
    all.sort_by_key(|(start, _)| *start);
    let geometry = store.engine().checksum_geometry();
    let mut rest = all.as_slice();
    while let Some(((start, first), behind)) = rest.split_first() {
        let mut joined = Cow::Borrowed(*first);
        let mut behind = behind;
        while let Some(((next, checksums), further)) = behind.split_first() {
            if start.checked_add(geometry.covered(joined.len())) != Some(*next) {
                break;
            }
            joined.to_mut().extend_from_slice(checksums);
            behind = further;
        }
        handle.insert_checksums(*start, &joined)?;
        rest = behind;
    }
    Ok(())
}

fn put_inode(handle: &mut Handle<'_>, job: &FileFlush, file: &FileRewrite, changes: &ItemChanges) {
    let mut state = job.node.state();
    state.item.allocated_bytes = state.item.allocated_bytes.saturating_add_signed(changes.allocated_bytes);
    state.disk_size = file.disk_size;
    if job.incompressible {
        state.item.flags = state.item.flags.with(InodeFlags::NOCOMPRESS);
    }
    job.node.put(handle, &mut state);
}

fn count(store: &FileStore, stored: &[&WrittenExtent]) {
    let metrics = &store.write_back().metrics;
    for piece in stored {
        match &piece.place {
            Place::Inline { .. } => metrics.inline.increment(),
            Place::Present => metrics.in_place.increment(),
            Place::New { compression, .. } => {
                metrics.extents.increment();
                if *compression != CompressionId::NONE {
                    metrics.compressed_extents.increment();
                }
            }
        }
    }
}
