//! Sharing extents between files (reflink), and copying where that can't be.

use std::borrow::Cow;
use std::collections::HashSet;

use vlinder_base::sync::Arc;
use vlinder_extent_state::ByteRange;
use vlinder_format::inode::InodeFlags;
use vlinder_transaction::{ChangeKind, Reservation};

use crate::apply::{ITEMS_IN_STEP, apply, file_changes, inline_charge};
use crate::extent::Extent;
use crate::file_data::ExtentsGuard;
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::open_cache::OpenCache;
use crate::read::read;
use crate::rewrite::Rewrite;
use crate::sectors::MAX_FILE_SIZE;
use crate::truncate::{drop_behind_end, zero_tail};
use crate::write::write;
use crate::{DataError, DataRefusal, Result, flush, items};

/// How much a copy that shares nothing reads at a time.
const COPY_BYTES: u64 = 1 << 20;

/// Makes `length` bytes of `target` at `target_offset` show the same extents as `source` at `source_offset`.
/// Offsets are at sector borders, and so is the end, unless it is the end of the source and not inside of the
/// target. The caller holds the operation lock of both exclusively and has set the times of the target.
///
/// # Errors
/// [`DataRefusal::InvalidArgument`] where the range is not as above, overlaps itself, or only one of the
/// files has checksums; what the trees met.
pub fn clone_range(
    store: &FileStore,
    source: &Arc<FileNode>,
    source_offset: u64,
    target: &Arc<FileNode>,
    target_offset: u64,
    length: u64,
) -> Result<()> {
    let plan = ClonePlan::new(store, source, source_offset, target, target_offset, length)?;
    let Some(mut plan) = plan else { return Ok(()) };
    // Bytes that lie in an item can't be shared. Their item is copied, or they are written, before all else:
    // for want of room that may fail, and then nothing is changed. No lock is held while they are written,
    // since that may flush.
    if let Some(part) = plan.inline_part(store)? {
        let rest = plan.after(part);
        if !plan.copy_item(store, part)? {
            let mut copy = Copy { store, source, source_offset, target, target_offset, done: 0 };
            copy.rewrite(part.length_bytes())?;
        }
        match rest {
            Some(rest) => plan = rest,
            None => return Ok(()),
        }
    }
    share_with(store, &plan)
}

/// Carries out a plan of which no byte lies in an item.
pub(crate) fn share_with(store: &FileStore, plan: &ClonePlan<'_>) -> Result<()> {
    let target = plan.target;
    let _locked = plan.lock_flushed(store)?;
    let old_size = target.size();
    if plan.to.start() > old_size {
        zero_tail(store, target, old_size)?;
        flush::flush_locked(store, target)?;
        drop_behind_end(store, target, old_size, plan.to.start())?;
    }
    plan.share(store)
}

/// Copies bytes as copy_file_range(2) does: what lies at sector borders of both files is shared, the rest
/// read and written. Gives how many bytes: fewer than asked for only at the end of the source, or where an
/// error came after a part. Locks and times as for [`clone_range`].
///
/// # Errors
/// As [`clone_range`], [`read`] and [`write()`]; nothing is copied then.
pub fn copy_range(
    store: &FileStore,
    source: &Arc<FileNode>,
    source_offset: u64,
    target: &Arc<FileNode>,
    target_offset: u64,
    length: u64,
) -> Result<u64> {
    let length = length.min(source.size().saturating_sub(source_offset));
    let mut copy = Copy { store, source, source_offset, target, target_offset, done: 0 };
    match copy.run(length) {
        // The caller learns of it when asking for the rest, and would take nothing for copied otherwise.
        Err(error) if copy.done > 0 => tracing::debug!(%error, copied = copy.done, "a copy ended early"),
        other => other?,
    }
    Ok(copy.done)
}

/// A copy on its way.
struct Copy<'a> {
    store: &'a FileStore,
    source: &'a Arc<FileNode>,
    source_offset: u64,
    target: &'a Arc<FileNode>,
    target_offset: u64,
    /// Bytes copied, from the start.
    done: u64,
}

impl Copy<'_> {
    fn run(&mut self, length: u64) -> Result<()> {
        if length == 0 || self.share(length)? {
            return Ok(());
        }
        let sector_size = u64::from(self.store.sector_size());
        let head = (self.source_offset.next_multiple_of(sector_size) - self.source_offset).min(length);
        let middle = (length - head) / sector_size * sector_size;
        let same_phase = self.source_offset % sector_size == self.target_offset % sector_size;
        if same_phase && middle > 0 {
            self.rewrite(head)?;
            if !self.share(middle)? {
                self.rewrite(middle)?;
            }
        }
        self.rewrite(length - self.done)
    }

    /// Shares the next bytes; false where that is not possible with these.
    fn share(&mut self, length: u64) -> Result<bool> {
        let (from, to) = (self.source_offset + self.done, self.target_offset + self.done);
        match clone_range(self.store, self.source, from, self.target, to, length) {
            Err(error) if error.is_refusal(DataRefusal::InvalidArgument) => Ok(false),
            Err(error) => Err(error),
            Ok(()) => {
                self.done += length;
                Ok(true)
            }
        }
    }

    /// Reads and writes the next bytes.
    fn rewrite(&mut self, length: u64) -> Result<()> {
        let cache = OpenCache::new();
        let end = self.done + length;
        while self.done < end {
            let mut bytes = vec![0; (end - self.done).min(COPY_BYTES) as usize];
            let from = self.source_offset + self.done;
            let count = read(self.store, self.source, &cache, from, &mut bytes)?;
            if count == 0 {
                break;
            }
            bytes.truncate(count);
            write(self.store, self.target, self.target_offset + self.done, Cow::Owned(bytes))?;
            self.done += count as u64;
        }
        Ok(())
    }
}

/// A clone that may be done.
pub(crate) struct ClonePlan<'a> {
    source: &'a Arc<FileNode>,
    target: &'a Arc<FileNode>,
    /// Whole sectors of the source.
    from: ByteRange,
    /// Whole sectors of the target.
    to: ByteRange,
    /// The target's size afterwards, if it grows.
    end: u64,
}

impl<'a> ClonePlan<'a> {
    /// None where there is nothing to clone.
    pub(crate) fn new(
        store: &FileStore,
        source: &'a Arc<FileNode>,
        source_offset: u64,
        target: &'a Arc<FileNode>,
        target_offset: u64,
        length: u64,
    ) -> Result<Option<Self>> {
        let sector_size = u64::from(store.sector_size());
        if length == 0 {
            return Ok(None);
        }
        let from = ByteRange::with_length(source_offset, length).filter(|range| range.end() <= source.size());
        let to = ByteRange::with_length(target_offset, length).filter(|range| range.end() <= MAX_FILE_SIZE);
        let (Some(from), Some(to)) = (from, to) else { return Err(DataRefusal::InvalidArgument.into()) };
        let whole = from.end().is_multiple_of(sector_size) && to.end().is_multiple_of(sector_size);
        let ends_both = from.end() == source.size() && to.end() >= target.size();
        let starts = source_offset.is_multiple_of(sector_size) && target_offset.is_multiple_of(sector_size);
        let same_checksums =
            source.flags().has(InodeFlags::NODATASUM) == target.flags().has(InodeFlags::NODATASUM);
        let round = |range: ByteRange| {
            ByteRange::new(range.start(), range.end().next_multiple_of(sector_size)).unwrap_or(range)
        };
        let overlaps = Arc::ptr_eq(source, target) && round(from).overlaps(round(to));
        if !starts || !(whole || ends_both) || !same_checksums || overlaps {
            return Err(DataRefusal::InvalidArgument.into());
        }
        Ok(Some(Self { source, target, from: round(from), to: round(to), end: to.end() }))
    }

    fn shifted(&self, offset: u64) -> u64 {
        offset - self.from.start() + self.to.start()
    }

    /// The sectors of the source whose bytes lie in an item, which is the file's first, as far as they are to
    /// be cloned.
    pub(crate) fn inline_part(&self, store: &FileStore) -> Result<Option<ByteRange>> {
        if self.from.start() > 0 {
            return Ok(None);
        }
        let _settled = flush::lock_settled(store, self.source);
        flush::flush_locked(store, self.source)?;
        let (tree, number) = (self.source.tree(), self.source.number());
        let loaded = items::load(store.engine(), tree, number, self.from, 1)?;
        let inline = loaded.extents.first().filter(|extent| extent.range().is_none());
        Ok(inline.and_then(|extent| {
            let sectors = extent.ram_bytes.next_multiple_of(u64::from(store.sector_size()));
            ByteRange::new(0, sectors.min(self.source.size()).min(self.from.end()))
                .filter(|part| !part.is_empty())
        }))
    }

    /// Keeps others from changing the items of both files, whose bytes are all in items then.
    fn lock_flushed(&self, store: &FileStore) -> Result<(ExtentsGuard<'a>, Option<ExtentsGuard<'a>>)> {
        let (source, target) = (self.source, self.target);
        let same = Arc::ptr_eq(source, target);
        let (first, second) = if source.id() < target.id() { (source, target) } else { (target, source) };
        let first = flush::lock_settled(store, first);
        let second = (!same).then(|| flush::lock_settled(store, second));
        flush::flush_locked(store, source)?;
        if !same {
            flush::flush_locked(store, target)?;
        }
        Ok((first, second))
    }

    /// Gives the target the item in which the bytes of a part lie, as it is: compressed bytes stay so. False
    /// where the bytes have to be written instead, as Linux has it (`clone_copy_inline_extent`,
    /// fs/btrfs/reflink.c): they go to another offset than 0, the target is longer, or it has other items
    /// than such a one.
    fn copy_item(&self, store: &FileStore, part: ByteRange) -> Result<bool> {
        if self.to.start() > 0 {
            return Ok(false);
        }
        let _locked = self.lock_flushed(store)?;
        let (engine, sector_size) = (store.engine(), u64::from(store.sector_size()));
        let first_item = |node: &FileNode| {
            let whole = ByteRange::new(0, MAX_FILE_SIZE).unwrap_or_default();
            let loaded = items::load(engine, node.tree(), node.number(), whole, 1)?;
            Ok::<_, DataError>(loaded.extents.into_iter().next())
        };
        let inline = first_item(self.source)?.filter(|extent| extent.range().is_none());
        let Some(inline) = inline else { return Ok(false) };
        let place = inline.file_range(sector_size);
        let present = first_item(self.target)?;
        let takes_it = self.target.size() <= inline.ram_bytes
            && present.as_ref().is_none_or(|extent| {
                extent.range().is_none() && extent.file_range(sector_size).end() <= place.end()
            });
        if !takes_it {
            return Ok(false);
        }
        let changes = file_changes(present.iter().len(), 1) + inline_charge([&inline]);
        let mut handle = engine.begin(Reservation::items(1).and(changes).of(ChangeKind::Clone))?;
        let mut rewrite = Rewrite::new(sector_size, present);
        rewrite.replace(inline).map_err(|_| DataRefusal::NotSupported)?;
        let end = part.end().min(self.end);
        apply(&mut handle, self.target, rewrite, &HashSet::new(), |state| {
            state.item.size_bytes = state.item.size_bytes.max(end);
            state.disk_size = state.disk_size.max(end);
        })?;
        Ok(true)
    }

    /// The same without a part at its start; none where that is all.
    pub(crate) fn after(&self, part: ByteRange) -> Option<Self> {
        let rest = ByteRange::new(part.end(), self.from.end()).filter(|_| part.end() < self.source.size())?;
        let to = ByteRange::new(self.shifted(part.end()), self.to.end())?;
        Some(Self { from: rest, to, ..*self }).filter(|plan| !plan.from.is_empty())
    }

    /// Shares what can be, step by step.
    fn share(&self, store: &FileStore) -> Result<()> {
        let mut at = self.from.start();
        while let Some(rest) = ByteRange::new(at, self.from.end()).filter(|rest| !rest.is_empty()) {
            let (tree, number) = (self.source.tree(), self.source.number());
            let loaded = items::load(store.engine(), tree, number, rest, ITEMS_IN_STEP)?;
            let sector_size = u64::from(store.sector_size());
            let step = ByteRange::new(at, loaded.complete_to.max(at + sector_size)).unwrap_or(rest);
            self.share_step(store, step, &loaded.extents)?;
            at = step.end();
        }
        Ok(())
    }

    fn share_step(&self, store: &FileStore, step: ByteRange, extents: &[Extent]) -> Result<()> {
        let engine = store.engine();
        let sector_size = u64::from(store.sector_size());
        let to = ByteRange::new(self.shifted(step.start()), self.shifted(step.end())).unwrap_or_default();
        let (tree, number) = (self.target.tree(), self.target.number());
        let disk_size = self.target.state().disk_size;
        // Without no_holes what lies between the old end and here needs items too.
        let hole_start = (disk_size / sector_size * sector_size).min(to.start());
        let needs_holes = !engine.no_holes();
        let affected = if needs_holes { ByteRange::new(hole_start, to.end()).unwrap_or(to) } else { to };
        let present = items::load(engine, tree, number, affected, usize::MAX)?.extents;
        let changes = file_changes(present.len(), extents.len() + 1);
        let mut handle = engine.begin(Reservation::items(1).and(changes).of(ChangeKind::Clone))?;
        let mut rewrite = Rewrite::new(sector_size, present);
        rewrite.drop_range(to).map_err(|_| DataRefusal::NotSupported)?;
        for part in extents.iter().filter_map(|extent| extent.part(step)).filter(|part| !part.is_hole()) {
            let offset = self.shifted(part.offset);
            rewrite.insert(part.moved_to(offset));
        }
        let end = if to.end() == self.to.end() { self.end } else { to.end() };
        if needs_holes {
            rewrite.fill_holes(affected, handle.generation());
            rewrite.join_neighbours();
        }
        let preallocated = extents.iter().any(Extent::is_preallocated);
        apply(&mut handle, self.target, rewrite, &HashSet::new(), |state| {
            state.item.size_bytes = state.item.size_bytes.max(end);
            state.disk_size = state.disk_size.max(end);
            if preallocated {
                state.item.flags = state.item.flags.with(InodeFlags::PREALLOC);
            }
        })
    }
}
