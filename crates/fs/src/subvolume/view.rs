//! The view of a file system by subvolumes.

use vlinder_base::sync::Arc;
use vlinder_data::InodeId;
use vlinder_format::{Generation, RootId, Uuid};

use super::being_received::BeingReceived;
use super::create::SnapshotKind;
use super::list::SubvolumeInformation;
use super::{change, create, default, delete, list, received_change};
use crate::inode::Inode;
use crate::maintenance::Maintenance;
use crate::name_view::Names;
use crate::{Caller, Result};

/// The subvolumes of a file system.
#[derive(Clone, Copy)]
pub struct Subvolumes<'a> {
    names: Names<'a>,
    maintenance: &'a Maintenance,
    /// Users may delete subvolumes of theirs (`user_subvol_rm_allowed`).
    deleted_by_users: bool,
}

impl<'a> Subvolumes<'a> {
    pub(crate) fn new(names: Names<'a>, maintenance: &'a Maintenance, deleted_by_users: bool) -> Self {
        Self { names, maintenance, deleted_by_users }
    }
}

impl Subvolumes<'_> {
    /// All subvolumes by number, the top level first, those that the running transaction made and deleted
    /// ones whose blocks are not all freed too.
    ///
    /// # Errors
    /// What reading met.
    pub fn all(&self) -> Result<Vec<SubvolumeInformation>> {
        list::subvolumes(self.names)
    }

    /// One subvolume.
    ///
    /// # Errors
    /// [`Refusal::NotFound`](crate::Refusal::NotFound); what reading met.
    pub fn information(&self, root: RootId) -> Result<SubvolumeInformation> {
        list::subvolume_information(self.names, root)
    }

    /// The subvolumes that lie in a subvolume, at any depth of its directories.
    ///
    /// # Errors
    /// What reading met.
    pub fn nested(&self, root: RootId) -> Result<Vec<RootId>> {
        list::nested_subvolumes(self.names.engine(), root)
    }

    /// Whether a subvolume lies somewhere in another one, as far as the references can be read.
    ///
    /// # Errors
    /// What reading met.
    pub fn lies_in(&self, subvolume: RootId, parent: RootId) -> Result<bool> {
        self.names.tree().lies_in(subvolume, parent)
    }

    /// The subvolume at a path from the top level.
    ///
    /// # Errors
    /// [`Refusal::NotFound`](crate::Refusal::NotFound);
    /// [`Refusal::InvalidArgument`](crate::Refusal::InvalidArgument) where the path leads to something else.
    pub fn at(&self, path: &[u8]) -> Result<RootId> {
        default::subvolume_at(self.names, path)
    }

    /// The subvolume that is shown where no other is asked for.
    ///
    /// # Errors
    /// What reading met.
    pub fn default(&self) -> Result<RootId> {
        default::default_subvolume(self.names.engine())
    }

    /// Chooses the default subvolume, from the next opening on.
    ///
    /// # Errors
    /// [`Refusal::NotPermitted`](crate::Refusal::NotPermitted) without a capability;
    /// [`Refusal::NotFound`](crate::Refusal::NotFound) where there is no such subvolume.
    pub fn set_default(&self, caller: &Caller, root: RootId) -> Result<()> {
        default::set_default_subvolume(self.names.inodes(), caller, root)
    }

    /// Makes an empty subvolume with a name in a directory.
    ///
    /// # Errors
    /// As [`create_directory`](crate::Names::create_directory).
    pub fn create(&self, caller: &Caller, directory: &Arc<Inode>, name: &[u8]) -> Result<InodeId> {
        create::create_subvolume(self.names, caller, directory, name)
    }

    /// Makes a snapshot of a subvolume with a name in a directory: everything that was written before, and
    /// nothing that comes after. Commits.
    ///
    /// # Errors
    /// As [`create_directory`](crate::Names::create_directory);
    /// [`Refusal::NotPermitted`](crate::Refusal::NotPermitted) for a subvolume of another's.
    pub fn snapshot(
        &self,
        caller: &Caller,
        source: RootId,
        directory: &Arc<Inode>,
        name: &[u8],
        read_only: bool,
    ) -> Result<InodeId> {
        let kind = SnapshotKind { read_only, is_sibling: false };
        create::snapshot(self.names, self.maintenance, caller, source, directory, name, kind)
    }

    /// As [`snapshot`](Self::snapshot), of a subvolume that the snapshot stands in for: its parent UUID is
    /// that of the source's parent.
    ///
    /// # Errors
    /// As [`snapshot`](Self::snapshot).
    pub fn snapshot_as_sibling(
        &self,
        caller: &Caller,
        source: RootId,
        directory: &Arc<Inode>,
        name: &[u8],
        read_only: bool,
    ) -> Result<InodeId> {
        let kind = SnapshotKind { read_only, is_sibling: true };
        create::snapshot(self.names, self.maintenance, caller, source, directory, name, kind)
    }

    /// Hides what a subvolume holds from all users of a mount, as long as the result lives.
    ///
    /// # Errors
    /// [`Refusal::NotFound`](crate::Refusal::NotFound); what reading met.
    pub fn begin_receiving(&self, root: RootId) -> Result<BeingReceived> {
        Ok(BeingReceived::new(self.names.inodes().subvolume(root)?))
    }

    /// Makes a subvolume read-only, or writable. One that was received becomes writable only by force, and
    /// then is received no more: an incremental stream would be applied to what it does not fit.
    ///
    /// # Errors
    /// [`Refusal::NotPermitted`](crate::Refusal::NotPermitted) for others than the owner, and without force;
    /// [`Refusal::NotFound`](crate::Refusal::NotFound).
    pub fn set_read_only(&self, caller: &Caller, root: RootId, read_only: bool, force: bool) -> Result<()> {
        change::set_subvolume_read_only(self.names, caller, root, read_only, force)
    }

    /// Makes a subvolume a received one: read-only, with the UUID that the sender's has, and with the
    /// transaction in which that was changed last. In the same transaction its root loses the attribute
    /// `mark`, if it has it, and keeps its times.
    ///
    /// # Errors
    /// As [`set_read_only`](Self::set_read_only).
    pub fn set_received(
        &self,
        caller: &Caller,
        root: RootId,
        (uuid, transid): (Uuid, Generation),
        mark: &[u8],
    ) -> Result<()> {
        change::set_received(self.names, caller, root, (uuid, transid), mark)
    }

    /// Whether an inode of a received subvolume was changed after it was received; false for one that was not
    /// received. The subvolume is read-only.
    ///
    /// # Errors
    /// [`Refusal::NotFound`](crate::Refusal::NotFound); what reading met.
    pub fn was_changed_since_received(&self, root: RootId) -> Result<bool> {
        received_change::was_changed_since_received(self.names.engine(), root)
    }

    /// Deletes the subvolume that has a name in a directory, with all that is in it.
    ///
    /// # Errors
    /// [`Refusal::InvalidArgument`](crate::Refusal::InvalidArgument) where the name stands for something
    /// else; [`Refusal::NotPermitted`](crate::Refusal::NotPermitted) for the default subvolume and for
    /// callers who may not; [`Refusal::Busy`](crate::Refusal::Busy) for the one that is shown;
    /// [`Refusal::NotEmpty`](crate::Refusal::NotEmpty) where another subvolume lies in it.
    pub fn delete(&self, caller: &Caller, directory: &Arc<Inode>, name: &[u8]) -> Result<()> {
        delete::delete_subvolume(self.names, self.deleted_by_users, caller, directory, name)
    }
}
