//! Files without names: their orphan items, and their deletion when nobody has them open any more.
//!
//! Orphan items are pending items (`transaction::pending`), so that one of a file that is deleted in the
//! transaction that took its last name never reaches the tree. [`InodeTable::delete_orphans`] reads the tree
//! alone: it comes before anything else happens in a subvolume, and a snapshot is taken of trees in which
//! nothing is pending.

use vlinder_base::sync::Arc;
use vlinder_data::{DeletionSteps, InodeId, SpaceFailure, begin};
use vlinder_format::inode::{FileType, InodeItem};
use vlinder_format::{Key, ObjectId, orphan};
use vlinder_transaction::{ChangeKind, Charge, Handle, Reservation};

use crate::changes::Changes;
use crate::inode::Inode;
use crate::inode::items::keys_of;
use crate::inode::table::InodeTable;
use crate::room::with_room;
use crate::{FsError, Refusal, Result, Subvolume};

/// So many items beside its data a deleted file may have for its deletion in one step.
const MAX_ITEMS: usize = 64;

impl InodeTable {
    /// Deletes a file without names, unless it is open. The caller holds no lock. Where there is no space for
    /// that, it is tried again later ([`Self::delete_put_off`]).
    pub(crate) fn delete_if_unused(&self, inode: &Arc<Inode>) -> Result<()> {
        let deleted = with_room(self.store().engine(), || self.try_delete_if_unused(inode));
        if deleted.as_ref().is_err_and(FsError::finds_no_space) {
            self.put_off().add(inode);
        }
        deleted
    }

    /// Tries again to delete files without names that found no space.
    pub(crate) fn delete_put_off(&self) {
        self.put_off().try_again(|inode| self.delete_if_unused(inode));
    }

    fn try_delete_if_unused(&self, inode: &Arc<Inode>) -> Result<()> {
        let _operation = inode.operation.write();
        {
            let state = inode.state();
            if !state.orphan || state.deleted || state.opens > 0 {
                return Ok(());
            }
        }
        if self.store().is_read_only() || inode.subvolume().is_deleted() {
            // The next opening for writing finds the orphan item. That the subvolume is read-only does not
            // matter.
            return Ok(());
        }
        if inode.file_type() == FileType::Regular {
            vlinder_data::remove_all(self.store(), inode.node())?;
        }
        let mut steps = DeletionSteps::new(self.store(), MAX_ITEMS);
        loop {
            let (keys, complete) = keys_of(self.store().engine(), inode, steps.most_items())?;
            let found = keys.len();
            let Some(mut handle) = steps.begin(found, charge_of_last_items(found))? else { continue };
            let mut changes = Changes::new(self.store().engine(), inode.subvolume());
            for key in keys {
                changes.remove(key);
            }
            if complete {
                changes.remove_pending(orphan::key(inode.number()));
                changes.remove_pending(InodeItem::key(inode.number()));
            }
            let applied = changes.apply(&mut handle);
            if let Some(mut handle) = steps.end(found, handle, applied)?.filter(|_| complete) {
                self.forget_inode(&mut handle, inode);
                return Ok(());
            }
        }
    }

    /// An inode is gone: from memory, too. With the handle that removed its item.
    pub(crate) fn forget_inode(&self, handle: &mut Handle<'_>, inode: &Inode) {
        inode.subvolume().drops().note();
        {
            let mut state = inode.state();
            state.deleted = true;
            state.orphan = false;
            state.dirty = false;
            // Until now a commit that is being prepared could put the item in once more, for times that had
            // changed.
            handle.remove_if_pending(inode.subvolume().tree(), InodeItem::key(inode.number()));
        }
        self.forget(inode.id());
    }

    /// Finishes the deletion of inodes that a crash left without names. A file that can't be deleted is left
    /// and reported: it must not keep the file system from being opened.
    pub(crate) fn delete_orphans(&self, subvolume: &Subvolume) -> Result<()> {
        let mut from = orphan::key(ObjectId(0));
        let last = orphan::key(ObjectId(u64::MAX));
        while let Some(found) =
            self.store().engine().forest().trees().ceiling(subvolume.tree().root(), &from)?
        {
            let key = found.key();
            let Some(number) = orphan::orphan_of(&key) else { break };
            if let Err(error) = self.delete_orphan(subvolume, number) {
                tracing::warn!(subvolume = %subvolume.id(), inode = %number, %error, "an orphan could not be deleted");
            }
            if key == last {
                break;
            }
            from = Key { offset: key.offset.saturating_add(1), ..key };
        }
        Ok(())
    }

    fn delete_orphan(&self, subvolume: &Subvolume, number: ObjectId) -> Result<()> {
        let inode = match self.inode(InodeId::new(subvolume.id(), number)) {
            Ok(inode) => inode,
            Err(FsError::Refused(Refusal::NotFound)) => return self.remove_orphan_item(subvolume, number),
            Err(error) => return Err(error),
        };
        {
            let mut state = inode.state();
            if state.item.link_count > 0 {
                // Older versions of Linux left an item for a truncation that a crash interrupted.
                drop(state);
                return self.remove_orphan_item(subvolume, number);
            }
            state.orphan = true;
        }
        self.delete_if_unused(&inode)
    }

    fn remove_orphan_item(&self, subvolume: &Subvolume, number: ObjectId) -> Result<()> {
        let mut handle = begin(self.store(), Reservation::deletion(1).of(ChangeKind::Names))?;
        let mut changes = Changes::new(self.store().engine(), subvolume);
        changes.remove_pending(orphan::key(number));
        changes.apply(&mut handle)
    }
}

/// What removing the last items of an inode changes beside the one that its step is promised already: these
/// keys, the orphan item, and the inode item once more, where it was put in meanwhile
/// ([`InodeTable::forget_inode`]).
fn charge_of_last_items(keys: usize) -> Charge {
    Charge::leaves(keys as u64 + 2)
}

#[cfg(test)]
mod tests {
    use vlinder_testkit::{Scratch, golden};

    use super::*;
    use crate::put_off::PutOff;
    use crate::{Caller, Filesystem, OpenOptions};

    /// A file system of one directory, and three files in it.
    fn filesystem_of_three(scratch: &Scratch) -> (Filesystem, [Arc<Inode>; 3]) {
        let image = scratch.join("image");
        golden::unpack("empty", &image).unwrap();
        let filesystem = Filesystem::open(&[image], OpenOptions::default()).unwrap();
        let root = filesystem.root().unwrap();
        let files = [b"a", b"b", b"c"]
            .map(|name| filesystem.names().create_file(&Caller::superuser(), &root, name, 0o644).unwrap());
        (filesystem, files)
    }

    #[test]
    fn the_first_file_without_space_ends_the_round() {
        let scratch = Scratch::new("put-off");
        let (_filesystem, files) = filesystem_of_three(&scratch);
        let put_off = PutOff::default();
        files.iter().for_each(|file| put_off.add(file));
        let mut tried = Vec::new();
        put_off.try_again(|inode| {
            tried.push(inode.id());
            if inode.id() == files[0].id() {
                return Ok(());
            }
            put_off.add(inode);
            Err(FsError::Refused(Refusal::NoSpace))
        });
        assert_eq!(tried, [files[0].id(), files[1].id()]);
        let left = put_off.ids();
        assert_eq!(left, [files[1].id(), files[2].id()]);
    }

    #[test]
    fn a_full_host_puts_a_deletion_off_as_a_full_image_does() {
        assert!(FsError::Refused(Refusal::NoSpace).finds_no_space());
        assert!(FsError::Refused(Refusal::HostFull).finds_no_space());
        assert!(!FsError::Refused(Refusal::NotFound).finds_no_space());
    }

    /// The deletion's handle removes it twice: debug builds assert that it was promised enough for that.
    #[test]
    fn a_deletion_has_room_for_an_item_that_is_put_in_meanwhile() {
        let scratch = Scratch::new("orphan-promise");
        let image = scratch.join("image");
        golden::unpack("empty", &image).unwrap();
        let filesystem = Filesystem::open(&[image], OpenOptions::default()).unwrap();
        let root = filesystem.root().unwrap();
        let inode =
            filesystem.names().create_directory(&Caller::superuser(), &root, b"directory", 0o755).unwrap();
        let mut handle =
            DeletionSteps::new(filesystem.store(), 1).begin(0, charge_of_last_items(0)).unwrap().unwrap();
        let mut changes = Changes::new(filesystem.engine(), inode.subvolume());
        changes.remove_pending(orphan::key(inode.number()));
        changes.remove_pending(InodeItem::key(inode.number()));
        changes.apply(&mut handle).unwrap();
        inode.put(&mut filesystem.begin(1).unwrap(), &mut inode.state());
        filesystem.inodes().forget_inode(&mut handle, &inode);
    }

    #[test]
    fn an_item_put_in_after_its_removal_goes_with_the_inode() {
        let scratch = Scratch::new("orphan");
        let image = scratch.join("image");
        golden::unpack("empty", &image).unwrap();
        let filesystem = Filesystem::open(&[image], OpenOptions::default()).unwrap();
        let root = filesystem.root().unwrap();
        let inode =
            filesystem.names().create_directory(&Caller::superuser(), &root, b"directory", 0o755).unwrap();
        let mut handle = begin(filesystem.store(), Reservation::deletion(4).of(ChangeKind::Names)).unwrap();
        let mut changes = Changes::new(filesystem.engine(), inode.subvolume());
        changes.remove_pending(InodeItem::key(inode.number()));
        changes.apply(&mut handle).unwrap();
        // As a commit that is being prepared does with an inode that was read meanwhile.
        inode.put(&mut handle, &mut inode.state());
        filesystem.inodes().forget_inode(&mut handle, &inode);
        drop(handle);
        let found = filesystem.inodes().inode(inode.id());
        assert_eq!(found.unwrap_err().refusal(), Some(Refusal::NotFound));
    }
}
