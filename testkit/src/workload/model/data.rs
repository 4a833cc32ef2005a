//! File data.

use rustix::io::Errno;

use super::node::{FileId, flag};
use super::state::ModelState;
use crate::workload::content::Pattern;
use crate::workload::operation::{AllocateMode, OpenSlot, Place};

/// Operations that change the bytes of files.
pub(super) struct DataOperations<'m> {
    state: &'m mut ModelState,
}

impl<'m> DataOperations<'m> {
    pub(super) fn new(state: &'m mut ModelState) -> Self {
        Self { state }
    }

    pub(super) fn write(
        &mut self,
        place: Place,
        offset: u64,
        length: u64,
        pattern: Pattern,
    ) -> Result<(), Errno> {
        let (file, _) = self.state.writable_file(place, flag::APPEND)?;
        self.put(file, offset, length, pattern);
        Ok(())
    }

    pub(super) fn append(&mut self, place: Place, length: u64, pattern: Pattern) -> Result<(), Errno> {
        let (file, node) = self.state.writable_file(place, 0)?;
        let end = node.content.size();
        self.put(file, end, length, pattern);
        Ok(())
    }

    pub(super) fn write_open(
        &mut self,
        slot: OpenSlot,
        offset: u64,
        length: u64,
        pattern: Pattern,
    ) -> Result<(), Errno> {
        let file = self.state.open_files().check_open(slot)?;
        let node = self.state.node(file).ok_or(Errno::STALE)?;
        if node.has(flag::IMMUTABLE | flag::APPEND) {
            return Err(Errno::PERM);
        }
        self.state.tree().writable(file)?;
        self.put(file, offset, length, pattern);
        Ok(())
    }

    fn put(&mut self, file: FileId, offset: u64, length: u64, pattern: Pattern) {
        if self.state.is_trial() || length == 0 {
            return;
        }
        let now = self.state.now();
        let node = self.state.change(file);
        node.content.write(offset, &pattern.bytes(offset, length));
        node.modified = Some(now);
    }

    pub(super) fn truncate(&mut self, place: Place, size: u64) -> Result<(), Errno> {
        let (file, _) = self.state.writable_file(place, flag::APPEND)?;
        if !self.state.is_trial() {
            let node = self.state.change(file);
            node.content.resize(size);
            // Whether an unchanged size changes the time depends on the call.
            node.modified = None;
        }
        Ok(())
    }

    pub(super) fn allocate(
        &mut self,
        place: Place,
        mode: AllocateMode,
        offset: u64,
        length: u64,
    ) -> Result<(), Errno> {
        let forbidden = match mode {
            AllocateMode::Extend | AllocateMode::KeepSize => 0,
            _ => flag::APPEND,
        };
        let (file, _) = self.state.writable_file(place, forbidden)?;
        if length == 0 {
            return Err(Errno::INVAL);
        }
        if self.state.is_trial() {
            return Ok(());
        }
        let node = self.state.change(file);
        node.modified = None;
        let end = offset + length;
        if !matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize) {
            node.content.zero(offset, length);
        }
        if matches!(mode, AllocateMode::Extend | AllocateMode::ZeroRange) && end > node.content.size() {
            node.content.resize(end);
        }
        Ok(())
    }

    pub(super) fn copy_range(
        &mut self,
        (source, source_offset): (Place, u64),
        (target, target_offset): (Place, u64),
        length: u64,
    ) -> Result<(), Errno> {
        let (from, from_node) = self.state.regular(source)?;
        let size = from_node.content.size();
        let (to, _) = self.state.writable_file(target, flag::APPEND)?;
        let length = length.min(size.saturating_sub(source_offset));
        let overlaps = source_offset < target_offset.saturating_add(length)
            && target_offset < source_offset.saturating_add(length);
        if from == to && overlaps && length > 0 {
            return Err(Errno::INVAL);
        }
        if self.state.is_trial() || length == 0 {
            return Ok(());
        }
        let bytes = from_node.content.read(source_offset, length);
        let node = self.state.change(to);
        node.content.write(target_offset, &bytes);
        node.modified = None;
        Ok(())
    }
}
