//! Making changes of one file's items in a transaction.

use std::collections::HashSet;

use vlinder_format::file_extent::FileExtent;
use vlinder_format::inode::InodeItem;
use vlinder_format::{FileOffset, Key, Logical};
use vlinder_transaction::{ChangeKind, Charge, Handle, Reservation};
use vlinder_tree::{Change, Edit};

use super::references;
use super::rewrite::Rewrite;
use crate::inode::{Inode, InodeState};
use crate::room::Tries;
use crate::{Filesystem, FsError, Refusal, Result};

/// How many items one transaction of a long operation changes.
pub(crate) const ITEMS_IN_STEP: usize = 1024;

/// A deletion of many items, a transaction at a time. Where there is no room for what a step may take at
/// worst, the next ones are smaller; the smallest is tried again.
pub(crate) struct Steps<'a> {
    filesystem: &'a Filesystem,
    most_items: usize,
    tries: Tries<'a>,
}

impl<'a> Steps<'a> {
    pub(crate) fn new(filesystem: &'a Filesystem, most_items: usize) -> Self {
        Self { filesystem, most_items, tries: Tries::new(filesystem) }
    }

    /// Of a file's extents.
    pub(crate) fn of_extents(filesystem: &'a Filesystem) -> Self {
        Self::new(filesystem, ITEMS_IN_STEP)
    }

    /// How many items the next step has at most.
    pub(crate) const fn most_items(&self) -> usize {
        self.most_items
    }

    /// Joins a transaction for a step that removes `found` items, with these changes and one of the inode at
    /// worst; none where there was no room for that, and the caller has to look anew what to remove.
    pub(crate) fn begin(&mut self, found: usize, changes: Charge) -> Result<Option<Handle<'a>>> {
        let reservation = Reservation::deletion(1).and(changes).of(ChangeKind::Truncation);
        match self.filesystem.begin_with(reservation) {
            Ok(handle) => Ok(Some(handle)),
            Err(error) => self.look_anew(found, error).map(|()| None),
        }
    }

    /// Ends a step that removed `found` items, and gives its handle back; none where there was no room for
    /// it, nothing was changed, and the caller has to look anew what to remove.
    pub(crate) fn end(
        &mut self,
        found: usize,
        handle: Handle<'a>,
        removed: Result<()>,
    ) -> Result<Option<Handle<'a>>> {
        match removed {
            Ok(()) => {
                self.tries = Tries::new(self.filesystem);
                Ok(Some(handle))
            }
            Err(error) => {
                drop(handle);
                self.look_anew(found, error).map(|()| None)
            }
        }
    }

    fn look_anew(&mut self, found: usize, error: FsError) -> Result<()> {
        if error.refusal() == Some(Refusal::NoSpace) && found > 1 {
            self.most_items = found / 2;
            return Ok(());
        }
        if self.tries.again(&error)? { Ok(()) } else { Err(error) }
    }
}

/// Bytes of the item of an extent, with its header.
const EXTENT_ITEM_BYTES: u64 = 53 + 25;

/// What putting `new` extents into a file may change where it has `present` ones: each new one takes the
/// place of present ones, and may cut one in two.
pub(crate) fn file_changes(present: usize, new: usize) -> Charge {
    file_changes_over(present, present, new)
}

/// As [`file_changes`], where only `overwritten` of the present extents lose bytes.
pub(crate) fn file_changes_over(present: usize, overwritten: usize, new: usize) -> Charge {
    let (present, overwritten, new) = (present as u64, overwritten as u64, new as u64);
    let items = present + 3 * new;
    Charge {
        items,
        item_bytes: items * EXTENT_ITEM_BYTES,
        added_references: 2 * new,
        dropped_references: overwritten,
        extents: overwritten + new,
        checksums: overwritten + new,
        ..Charge::default()
    }
}

/// Changes the items, references and allocated bytes of a file as `rewrite` says, and its state as `update`
/// does. `new` are extents that nobody refers to yet. All or nothing.
pub(crate) fn apply(
    handle: &mut Handle<'_>,
    inode: &Inode,
    rewrite: Rewrite,
    new: &HashSet<Logical>,
    update: impl FnOnce(&mut InodeState),
) -> Result<()> {
    let changes = rewrite.finish();
    let edits: Vec<Edit<'_>> = changes
        .items
        .iter()
        .map(|(offset, data)| {
            let key: Key = FileExtent::key(inode.number(), FileOffset(*offset));
            Edit::new(key, data.as_deref().map_or(Change::Remove, Change::Put))
        })
        .collect();
    let tree = inode.subvolume().tree();
    handle.charge_pending(tree, &[InodeItem::key(inode.number())])?;
    handle.edit(tree, &edits)?;
    references::change(handle, inode, &changes, |address| new.contains(&address));
    let mut state = inode.state.lock();
    state.item.allocated_bytes = state.item.allocated_bytes.saturating_add_signed(changes.allocated_bytes);
    update(&mut state);
    inode.put(handle, &mut state);
    Ok(())
}
