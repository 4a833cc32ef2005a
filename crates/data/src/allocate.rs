//! fallocate: preallocation, holes and zeroed ranges.

use std::collections::HashSet;

use vlinder_base::sync::Arc;
use vlinder_extent_state::ByteRange;
use vlinder_format::Logical;
use vlinder_format::file_extent::FileExtent;
use vlinder_format::inode::InodeFlags;
use vlinder_transaction::{ChangeKind, DataExtent, Engine, Handle, Reservation, ReservedData};

use crate::apply::{ITEMS_IN_STEP, apply, file_changes};
use crate::begin::begin;
use crate::deletion_steps::DeletionSteps;
use crate::dirty_bytes::put_sectors;
use crate::extent::Extent;
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::inode_state::InodeState;
use crate::open_cache::OpenCache;
use crate::read_whole::read_whole;
use crate::rewrite::Rewrite;
use crate::sectors::MAX_FILE_SIZE;
use crate::truncate::{drop_behind_end, drop_unflushed_range, extend, inline_bytes, settle_size, zero_tail};
use crate::{DataRefusal, Result, flush, items};

/// The largest preallocated extent that Linux makes.
const LARGEST_PREALLOCATED: u64 = 256 << 20;
/// Preallocated extents made in one transaction.
const EXTENTS_IN_STEP: usize = 64;

/// What fallocate(2) is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocate {
    /// Space for every byte of the range that has none.
    Reserve {
        /// The size stays, even if the range ends behind it.
        keep_size: bool,
    },
    /// No space: the range reads as zeros. The size stays.
    PunchHole,
    /// Space for every byte, and the range reads as zeros.
    ZeroRange {
        /// The size stays, even if the range ends behind it.
        keep_size: bool,
    },
}

/// fallocate(2). The caller holds the operation lock exclusively and has set the times in the inode's state
/// already.
///
/// # Errors
/// [`DataRefusal::InvalidArgument`], [`DataRefusal::FileTooLarge`], [`DataRefusal::NoSpace`]; what the trees
/// and devices met.
pub fn allocate(
    store: &FileStore,
    node: &Arc<FileNode>,
    what: Allocate,
    offset: u64,
    length: u64,
) -> Result<()> {
    if length == 0 {
        return Err(DataRefusal::InvalidArgument.into());
    }
    let range = ByteRange::with_length(offset, length).filter(|range| range.end() <= MAX_FILE_SIZE);
    let range = range.ok_or(DataRefusal::FileTooLarge)?;
    let _extents = flush::lock_settled(store, node);
    match what {
        Allocate::Reserve { keep_size } => {
            flush::flush_locked(store, node)?;
            preallocate(store, node, range)?;
            grow(store, node, range, keep_size)
        }
        Allocate::PunchHole => {
            punch(store, node, range)?;
            touch(store, node)
        }
        Allocate::ZeroRange { keep_size } => {
            let space = ReservedData::preallocated(range.length_bytes(), 1);
            let space = store.engine().reserve_data(space);
            if space.is_err_and(|error| error.is_no_space()) {
                return Err(DataRefusal::NoSpace.into());
            }
            punch(store, node, range)?;
            flush::flush_locked(store, node)?;
            preallocate(store, node, range)?;
            grow(store, node, range, keep_size)
        }
    }
}

/// The whole sectors inside of a range; none if there is none.
fn inner_sectors(range: ByteRange, sector_size: u64) -> Option<ByteRange> {
    let start = range.start().next_multiple_of(sector_size);
    ByteRange::new(start, range.end() / sector_size * sector_size).filter(|inner| !inner.is_empty())
}

/// The size grows to the end of the range, unless it is to stay.
fn grow(store: &FileStore, node: &Arc<FileNode>, range: ByteRange, keep_size: bool) -> Result<()> {
    let size = node.size();
    if keep_size || range.end() <= size {
        return touch(store, node);
    }
    zero_tail(store, node, size)?;
    extend(store, node, range.end())
}

/// The inode's new times get into a transaction.
fn touch(store: &FileStore, node: &FileNode) -> Result<()> {
    let mut handle = begin(store, Reservation::items(1).of(ChangeKind::Preallocation))?;
    node.charge_item(&mut handle)?;
    let mut state = node.state();
    node.put(&mut handle, &mut state);
    Ok(())
}

/// Takes space for what has none of the sectors of a range. Nothing of it is unflushed.
fn preallocate(store: &FileStore, node: &Arc<FileNode>, range: ByteRange) -> Result<()> {
    let engine = store.engine();
    let sector_size = u64::from(store.sector_size());
    let start = range.start() / sector_size * sector_size;
    let sectors = ByteRange::new(start, range.end().next_multiple_of(sector_size)).unwrap_or(range);
    drop_behind_end(store, node, node.size(), sectors.end())?;
    let missing = missing_parts(store, node, sectors)?;
    let needed = missing.iter().map(|part| part.length_bytes()).sum();
    let extents = missing.iter().map(|part| part.length_bytes().div_ceil(LARGEST_PREALLOCATED)).sum();
    let promise = engine.reserve_data(ReservedData::preallocated(needed, extents));
    if promise.as_ref().is_err_and(|error| error.is_no_space()) {
        return Err(DataRefusal::NoSpace.into());
    }
    let mut promise = promise?;
    let mut left: Vec<ByteRange> = missing.into_iter().rev().collect();
    while !left.is_empty() {
        let taken = preallocate_step(store, node, &mut left)?;
        engine.reservations().unreserve_data(promise.split(taken).keep(), taken);
    }
    Ok(())
}

/// The parts of a range that have no space: gaps and hole items.
fn missing_parts(store: &FileStore, node: &FileNode, sectors: ByteRange) -> Result<Vec<ByteRange>> {
    let sector_size = u64::from(store.sector_size());
    let tree = node.tree();
    let mut missing: Vec<ByteRange> = Vec::new();
    let mut at = sectors.start();
    while let Some(rest) = ByteRange::new(at, sectors.end()).filter(|rest| !rest.is_empty()) {
        let items = items::load(store.engine(), tree, node.number(), rest, ITEMS_IN_STEP)?;
        let part = ByteRange::new(at, items.complete_to.max(at + 1)).unwrap_or(rest);
        let present = items.extents.into_iter().filter(|extent| !extent.is_hole());
        for gap in Rewrite::new(sector_size, present).gaps(part) {
            match missing.last_mut() {
                Some(last) if last.end() == gap.start() => {
                    *last = ByteRange::new(last.start(), gap.end()).unwrap_or(gap);
                }
                _ => missing.push(gap),
            }
        }
        at = part.end();
    }
    Ok(missing)
}

/// Preallocates some of the ranges, given last first; gives how many bytes.
fn preallocate_step(store: &FileStore, node: &FileNode, left: &mut Vec<ByteRange>) -> Result<u64> {
    let engine = store.engine();
    let sector_size = u64::from(store.sector_size());
    let ranges: Vec<ByteRange> = left.iter().rev().take(EXTENTS_IN_STEP).copied().collect();
    let extents = items::load_each(engine, node.tree(), node.number(), &ranges)?;
    let changes = file_changes(extents.len(), EXTENTS_IN_STEP);
    let mut handle = engine.begin(Reservation::items(1).and(changes).of(ChangeKind::Preallocation))?;
    let mut rewrite = Rewrite::new(sector_size, extents);
    let mut taken: Vec<DataExtent> = Vec::new();
    let result = fill(engine, &mut handle, &mut rewrite, left, &mut taken);
    let new: HashSet<Logical> = taken.iter().map(|extent| extent.logical).collect();
    let applied = result.and_then(|()| apply(&mut handle, node, rewrite, &new, mark_preallocated));
    if applied.is_err() {
        engine.reservations().displace_data(taken.iter().map(|extent| extent.length).sum());
        taken.iter().for_each(|extent| handle.release_data(*extent));
    }
    applied.map(|()| taken.iter().map(|extent| extent.length).sum())
}

fn mark_preallocated(state: &mut InodeState) {
    state.item.flags = state.item.flags.with(InodeFlags::PREALLOC);
}

fn fill(
    engine: &Engine,
    handle: &mut Handle<'_>,
    rewrite: &mut Rewrite,
    left: &mut Vec<ByteRange>,
    taken: &mut Vec<DataExtent>,
) -> Result<()> {
    let sector_size = u64::from(engine.sector_size());
    while taken.len() < EXTENTS_IN_STEP
        && let Some(range) = left.pop()
    {
        let most = range.length_bytes().min(LARGEST_PREALLOCATED);
        let extent = handle.allocate_data(sector_size, most)?;
        // Else it would count twice: as promised, and as taken.
        engine.reservations().place_data(extent.length);
        taken.push(extent);
        let item = FileExtent::preallocated(extent.logical, extent.length, handle.generation());
        rewrite.replace(Extent::new(range.start(), &item)).map_err(|_| DataRefusal::NotSupported)?;
        left.extend(
            ByteRange::new(range.start() + extent.length, range.end()).filter(|rest| !rest.is_empty()),
        );
    }
    Ok(())
}

/// Makes a hole: the sectors inside of the range lose their space, the parts of sectors at its ends become
/// zeros.
fn punch(store: &FileStore, node: &Arc<FileNode>, range: ByteRange) -> Result<()> {
    let sector_size = u64::from(store.sector_size());
    let inner = inner_sectors(range, sector_size);
    let mut ends = Vec::new();
    match inner {
        Some(inner) => {
            ends.extend(ByteRange::new(range.start(), inner.start()));
            ends.extend(ByteRange::new(inner.end(), range.end()));
        }
        // Inside of one sector, or across the border of two.
        None => {
            let border = range.start().next_multiple_of(sector_size).clamp(range.start(), range.end());
            ends.extend(ByteRange::new(range.start(), border));
            ends.extend(ByteRange::new(border, range.end()));
        }
    }
    for end in ends.into_iter().filter(|end| !end.is_empty()) {
        zero_part(store, node, end)?;
    }
    let Some(inner) = inner else { return Ok(()) };
    drop_unflushed_range(store, node, inner)?;
    uninline(store, node, inner)?;
    drop_items(store, node, inner)?;
    settle_size(store, node)
}

/// Writes zeros over a part of one sector, unless it reads as zeros anyway.
fn zero_part(store: &FileStore, node: &Arc<FileNode>, part: ByteRange) -> Result<()> {
    let sector_size = u64::from(store.sector_size());
    let start = part.start() / sector_size * sector_size;
    if start >= node.size() {
        return Ok(());
    }
    let mut sector = vec![0; sector_size as usize];
    read_whole(store, node, &OpenCache::new(), start, &mut sector)?;
    let bytes = &mut sector[(part.start() - start) as usize..(part.end() - start) as usize];
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    bytes.fill(0);
    put_sectors(store, node, start, sector)
}

/// An inline extent that reaches behind the range is written out, since it has no parts. (Only other systems
/// make inline extents of more than a sector.)
fn uninline(store: &FileStore, node: &Arc<FileNode>, inner: ByteRange) -> Result<()> {
    let sector_size = u64::from(store.sector_size());
    let found = items::load(store.engine(), node.tree(), node.number(), inner, 1)?.extents.pop();
    let Some(inline) = found.filter(|extent| extent.range().is_none()) else { return Ok(()) };
    let whole = inline.file_range(sector_size);
    if whole.end() <= inner.end() {
        return Ok(());
    }
    let mut bytes = inline_bytes(store, node, &inline)?;
    bytes.resize(whole.length_bytes() as usize, 0);
    let rest = bytes.split_off(inner.end() as usize);
    put_sectors(store, node, inner.end(), rest)?;
    flush::flush_locked(store, node)
}

/// Drops the items of a range of whole sectors, a step at a time.
fn drop_items(store: &FileStore, node: &FileNode, range: ByteRange) -> Result<()> {
    let engine = store.engine();
    let sector_size = u64::from(store.sector_size());
    let mut steps = DeletionSteps::of_extents(store);
    let mut at = range.start();
    while let Some(rest) = ByteRange::new(at, range.end()).filter(|rest| !rest.is_empty()) {
        let loaded = items::load(engine, node.tree(), node.number(), rest, steps.most_items())?;
        let step = ByteRange::new(at, loaded.complete_to.max(at + sector_size)).unwrap_or(rest);
        if loaded.extents.iter().all(Extent::is_hole) {
            at = step.end();
            continue;
        }
        let found = loaded.extents.len();
        let changes = file_changes(found, 1);
        let Some(mut handle) = steps.begin(found, changes)? else { continue };
        let mut rewrite = Rewrite::new(sector_size, loaded.extents);
        rewrite.drop_range(step).map_err(|_| DataRefusal::NotSupported)?;
        if !engine.no_holes() {
            let end = node.state().disk_size.next_multiple_of(sector_size);
            if let Some(hole) = ByteRange::new(0, end).and_then(|inside| inside.intersection(step)) {
                rewrite.fill_holes(hole, handle.generation());
                rewrite.join_neighbours();
            }
        }
        let applied = apply(&mut handle, node, rewrite, &HashSet::new(), |_| {});
        if steps.end(found, handle, applied)?.is_some() {
            at = step.end();
        }
    }
    Ok(())
}
