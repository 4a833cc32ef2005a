//! The content of one file as commands.

use std::io::Write;

use vlinder_base::sync::Arc;
use vlinder_data::{Extent, extents_in_tree};
use vlinder_extent_state::ByteRange;
use vlinder_format::ObjectId;
use vlinder_format::inode::{InodeFlags, InodeItem};

use super::changed::{Changed, changed_parts, has_bytes};
use super::outlet::{Outlet, Target};
use crate::send::SendError;
use crate::send::tree_names::TreeNames;
use crate::wire::Command;

/// Extents of a file that are held at once.
const MAX_EXTENTS: usize = 4096;
/// A range that differs is looked at when it has grown so long; its extents are held meanwhile.
const MAX_PENDING_BYTES: u64 = 64 << 20;
/// Bits of fallocate(2).
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;

/// A regular file of the new state while its extents come.
pub(crate) struct ContentTurn {
    inode: ObjectId,
    size: u64,
    has_checksums: bool,
    /// The size in the old state, if the file is there.
    old_size: Option<u64>,
    /// The size that the receiver's file has by now.
    receiver_size: u64,
    /// Where items differ, as far as they have come.
    pending: Option<ByteRange>,
    /// The item in which the old file ended differs.
    old_end_differs: bool,
}

impl ContentTurn {
    pub fn new(inode: ObjectId, old: Option<&InodeItem>, new: &InodeItem) -> Self {
        Self {
            inode,
            size: new.size_bytes,
            has_checksums: !new.flags.has(InodeFlags::NODATASUM),
            old_size: old.map(|old| old.size_bytes),
            receiver_size: old.map_or(0, |old| old.size_bytes),
            pending: None,
            old_end_differs: false,
        }
    }

    /// Whether the receiver has the file with content already.
    pub fn is_changed(&self) -> bool {
        self.old_size.is_some()
    }

    /// Sends an extent of a file that the receiver has empty.
    pub fn send_extent<W: Write>(
        &mut self,
        path: &Arc<[u8]>,
        extent: &Extent,
        outlet: &mut Outlet<'_, '_, W>,
    ) -> Result<(), SendError> {
        let range = extent.file_range(u64::from(outlet.source.sector_bytes));
        if has_bytes(extent) {
            self.write(path, extent, range, outlet)
        } else if extent.is_preallocated() && !outlet.options.no_data && outlet.has_holes() {
            self.preallocate(path, extent, range, outlet)
        } else {
            Ok(())
        }
    }

    /// Sends all of a file that the receiver has empty.
    pub fn send_all<W: Write>(
        &mut self,
        path: &Arc<[u8]>,
        tree: &TreeNames<'_>,
        outlet: &mut Outlet<'_, '_, W>,
    ) -> Result<(), SendError> {
        let sector_bytes = u64::from(outlet.source.sector_bytes);
        let mut rest = ByteRange::new(0, self.size).filter(|rest| !rest.is_empty());
        while let Some(range) = rest {
            let extents = extents_in_tree(tree.tree(), self.inode, range, sector_bytes, MAX_EXTENTS)?;
            for extent in &extents {
                self.send_extent(path, extent, outlet)?;
            }
            let is_all = extents.len() < MAX_EXTENTS;
            let last = extents.last().filter(|_| !is_all).map(|extent| extent.file_range(sector_bytes));
            // Extents that lie in one another are damage, and would not lead on.
            let end = last.map(|last| last.end()).filter(|end| (range.start() + 1..self.size).contains(end));
            rest = end.and_then(|end| ByteRange::new(end, self.size));
        }
        Ok(())
    }

    /// The item of a range is not the same in both states. Items come in the order of their offsets.
    pub fn note<W: Write>(
        &mut self,
        range: ByteRange,
        path: &Arc<[u8]>,
        (old, new): (&TreeNames<'_>, &TreeNames<'_>),
        outlet: &mut Outlet<'_, '_, W>,
    ) -> Result<(), SendError> {
        self.old_end_differs |= self.old_size.is_some_and(|end| range.start() <= end && end < range.end());
        let Some(pending) = self.pending.take() else {
            self.pending = Some(range);
            return Ok(());
        };
        if range.start() <= pending.end() && pending.length_bytes() < MAX_PENDING_BYTES {
            self.pending = ByteRange::new(pending.start(), pending.end().max(range.end()));
            return Ok(());
        }
        // Nothing that begins before this range will come, but what came may reach into it.
        let done = ByteRange::new(pending.start(), pending.end().min(range.start())).unwrap_or_default();
        self.send_changed(done, path, (old, new), outlet)?;
        self.pending = ByteRange::new(range.start(), range.end().max(pending.end()));
        Ok(())
    }

    /// Sends what is left, and the size.
    pub fn finish<W: Write>(
        &mut self,
        path: &Arc<[u8]>,
        trees: Option<(&TreeNames<'_>, &TreeNames<'_>)>,
        outlet: &mut Outlet<'_, '_, W>,
    ) -> Result<(), SendError> {
        if let (Some(trees), Some(pending)) = (trees, self.pending.take()) {
            self.send_changed(pending, path, trees, outlet)?;
        }
        if let Some(trees) = trees {
            self.send_behind_old_end(path, trees, outlet)?;
        }
        if self.receiver_size != self.size {
            outlet.output.put(&Command::Truncate { path, size: self.size })?;
        }
        Ok(())
    }

    /// Sends what an unchanged item shows behind the old end of a file that grew, in the sector of that end.
    fn send_behind_old_end<W: Write>(
        &mut self,
        path: &Arc<[u8]>,
        trees: (&TreeNames<'_>, &TreeNames<'_>),
        outlet: &mut Outlet<'_, '_, W>,
    ) -> Result<(), SendError> {
        let sector_bytes = u64::from(outlet.source.sector_bytes);
        let Some(end) = self.old_size.filter(|end| *end < self.size && !self.old_end_differs) else {
            return Ok(());
        };
        match ByteRange::new(end, end.next_multiple_of(sector_bytes)).filter(|rest| !rest.is_empty()) {
            Some(rest) => self.send_changed(rest, path, trees, outlet),
            None => Ok(()),
        }
    }

    /// Cuts a file that is too long before it gets anything: a clone up to the end of a file may end within a
    /// sector only where the target ends there, too.
    fn cut<W: Write>(&mut self, path: &Arc<[u8]>, outlet: &mut Outlet<'_, '_, W>) -> Result<(), SendError> {
        if self.receiver_size > self.size {
            outlet.output.put(&Command::Truncate { path, size: self.size })?;
            self.receiver_size = self.size;
        }
        Ok(())
    }

    fn send_changed<W: Write>(
        &mut self,
        range: ByteRange,
        path: &Arc<[u8]>,
        (old, new): (&TreeNames<'_>, &TreeNames<'_>),
        outlet: &mut Outlet<'_, '_, W>,
    ) -> Result<(), SendError> {
        let sector_bytes = u64::from(outlet.source.sector_bytes);
        let Some(range) = ByteRange::new(range.start(), range.end().min(self.size)) else { return Ok(()) };
        if range.is_empty() {
            return Ok(());
        }
        let before = extents_in_tree(old.tree(), self.inode, range, sector_bytes, usize::MAX)?;
        let after = extents_in_tree(new.tree(), self.inode, range, sector_bytes, usize::MAX)?;
        let old_size = self.old_size.unwrap_or(0);
        for (part, change) in changed_parts(range, (&before, old_size), &after, sector_bytes) {
            match change {
                Changed::Bytes(index) => {
                    // Whole sectors are read, for their checksums.
                    let start = part.start() - part.start() % sector_bytes;
                    let part = ByteRange::new(start, part.end()).unwrap_or(part);
                    self.write(path, &after[index], part, outlet)?;
                }
                Changed::Hole { had_bytes } => self.clear(path, part, had_bytes, outlet)?,
                Changed::Preallocated { .. } if outlet.options.no_data => {
                    self.name_range(path, part, outlet)?;
                }
                Changed::Preallocated { index, .. } if outlet.has_holes() => {
                    self.preallocate(path, &after[index], part, outlet)?;
                }
                // Zeros, but for what can be cloned.
                Changed::Preallocated { index, had_bytes: true } => {
                    self.write(path, &after[index], part, outlet)?;
                }
                Changed::Preallocated { had_bytes: false, .. } => {}
            }
        }
        Ok(())
    }

    /// Sends the bytes of an extent in a range, as far as the file reaches.
    fn write<W: Write>(
        &mut self,
        path: &Arc<[u8]>,
        extent: &Extent,
        range: ByteRange,
        outlet: &mut Outlet<'_, '_, W>,
    ) -> Result<(), SendError> {
        let Some(range) = ByteRange::new(range.start(), range.end().min(self.size)) else { return Ok(()) };
        self.cut(path, outlet)?;
        outlet.send(self.target(path), extent, range)?;
        self.receiver_size = self.receiver_size.max(range.end());
        Ok(())
    }

    fn target<'p>(&self, path: &'p Arc<[u8]>) -> Target<'p> {
        let (inode, size, has_checksums) = (self.inode, self.size, self.has_checksums);
        Target { path, inode, size, receiver_size: self.receiver_size, has_checksums }
    }

    /// Makes a hole of what the old state has; behind its end there is nothing. Without a command for holes
    /// the receiver gets zeros where it has bytes.
    fn clear<W: Write>(
        &mut self,
        path: &Arc<[u8]>,
        range: ByteRange,
        had_bytes: bool,
        outlet: &mut Outlet<'_, '_, W>,
    ) -> Result<(), SendError> {
        let limit = self.size.min(self.old_size.unwrap_or(0));
        let Some(part) = ByteRange::new(range.start(), range.end().min(limit)) else { return Ok(()) };
        if part.is_empty() {
            return Ok(());
        }
        if outlet.has_holes() {
            // Up to the end of the last sector, or the receiver keeps one of zeros.
            let end = part.end().next_multiple_of(u64::from(outlet.source.sector_bytes)).min(range.end());
            return outlet.fallocate(path, PUNCH_HOLE | KEEP_SIZE, part.start(), end - part.start());
        }
        match (had_bytes, outlet.options.no_data) {
            (false, _) => Ok(()),
            (true, true) => self.name_range(path, part, outlet),
            (true, false) => {
                self.cut(path, outlet)?;
                self.receiver_size = self.receiver_size.max(part.end());
                outlet.write_zeros(path, part)
            }
        }
    }

    /// Makes a range a preallocated one, as far as the file reaches. The stream has commands for that.
    fn preallocate<W: Write>(
        &mut self,
        path: &Arc<[u8]>,
        extent: &Extent,
        range: ByteRange,
        outlet: &mut Outlet<'_, '_, W>,
    ) -> Result<(), SendError> {
        let end = range.end().min(self.size.next_multiple_of(u64::from(outlet.source.sector_bytes)));
        let Some(range) = ByteRange::new(range.start(), end).filter(|range| !range.is_empty()) else {
            return Ok(());
        };
        self.cut(path, outlet)?;
        let target = self.target(path);
        let clear = self.old_size.is_some();
        let cloned_to = outlet.send_or(target, extent, range, &mut |outlet, at, length| {
            if clear {
                outlet.fallocate(path, PUNCH_HOLE | KEEP_SIZE, at, length)?;
            }
            outlet.fallocate(path, KEEP_SIZE, at, length)?;
            Ok(length)
        })?;
        // A clone moves the end of the file, and reserving does not.
        self.receiver_size = self.receiver_size.max(cloned_to);
        Ok(())
    }

    /// Names a range in a stream without data.
    fn name_range<W: Write>(
        &mut self,
        path: &Arc<[u8]>,
        range: ByteRange,
        outlet: &mut Outlet<'_, '_, W>,
    ) -> Result<(), SendError> {
        match ByteRange::new(range.start(), range.end().min(self.size)) {
            Some(part) if !part.is_empty() => {
                self.cut(path, outlet)?;
                self.receiver_size = self.receiver_size.max(part.end());
                outlet.name_range(path, part)
            }
            _ => Ok(()),
        }
    }
}
