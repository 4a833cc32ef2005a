//! Keeps the count of blocks true that the kernel shows of files that are open for writing.
//!
//! With the writeback cache the kernel keeps the count that the server told last, and drops it when the file is closed alone
//! (`fuse_flush`, fs/fuse/file.c). A count of 0 is dangerous: tar takes such a file for one hole and stores none of its bytes.
//!
//! 1. While a file is open for writing the kernel may have bytes that the server does not know of, so a count of 0 is told as
//!    one sector ([`MountService::shown`]).
//! 2. When bytes came from the kernel's cache, the kernel is told that the count changed: at fsync before that is answered, and
//!    otherwise at the next look of the keeper ([`MountService::tell_blocks`], [`MountService::tell_all_blocks`]).

use std::collections::HashSet;

use vlinder_base::sync::Mutex;
use vlinder_fs::{Attributes, FileType, InodeId};

use super::MountService;
use super::convert::attributes_of;
use crate::transport::NodeAttributes;

/// Files of whose new bytes the kernel was not told.
#[derive(Default)]
pub(super) struct Blocks(Mutex<HashSet<InodeId>>);

impl Blocks {
    /// Bytes of a file came from the kernel's cache.
    pub(super) fn note_come(&self, id: InodeId) {
        self.0.lock().insert(id);
    }
}

impl MountService {
    /// The attributes of a file, with what has to hold besides for the kernel.
    pub(super) fn shown(&self, mut attributes: Attributes) -> NodeAttributes {
        attributes.size_bytes = self.size_with_unplaced(attributes.id, attributes.size_bytes);
        let is_regular = attributes.file_type == FileType::Regular;
        if is_regular
            && attributes.allocated_bytes == 0
            && self.writeback
            && self.handles.is_written(attributes.id)
        {
            attributes.allocated_bytes = attributes.block_size.into();
        }
        attributes_of(&attributes, self.numbers.number(attributes.id))
    }

    /// Before an fsync of a file is answered.
    pub(super) fn tell_blocks(&self, id: InodeId) {
        if self.blocks.0.lock().remove(&id) {
            self.attributes_changed(id);
        }
    }

    /// At intervals, while files are open for writing. Of those that were closed since the kernel knows that.
    pub(super) fn tell_all_blocks(&self) {
        let changed = std::mem::take(&mut *self.blocks.0.lock());
        for id in changed.into_iter().filter(|id| self.handles.is_written(*id)) {
            self.attributes_changed(id);
        }
    }

    /// Has the kernel ask for a file's attributes before it shows them again.
    pub(super) fn attributes_changed(&self, id: InodeId) {
        if let Some(notifier) = self.notifier.get()
            && let Err(error) = notifier.invalidate_attributes(self.node(id))
        {
            tracing::warn!(%error, "the kernel could not be told that attributes changed");
        }
    }
}
