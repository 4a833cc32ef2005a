//! Taking names away: links, directories, and what happens to a file that loses its last name.

use vlinder_base::sync::Arc;
use vlinder_format::inode::{FileType, InodeItem};
use vlinder_format::orphan;

use crate::changes::Changes;
use crate::create::note_names_changed;
use crate::data::begin;
use crate::directory::check_new_name;
use crate::directory::index::find_index;
use crate::directory::target::NameTarget;
use crate::inode::Inode;
use crate::inode::items::keys_of;
use crate::room::with_room;
use crate::stamp::Stamp;
use crate::{Access, Caller, Filesystem, OpenInode, Refusal, Result};
use vlinder_transaction::ChangeKind;
use vlinder_transaction::Reservation;

/// Items that removing a name may touch.
const ITEMS: u32 = 8;
/// A file without data and with so few other items is deleted with its last name, in one step.
const FEW_ITEMS: usize = 4;

/// What the remover of a file's last name wants of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastName {
    /// That it goes, unless it is open.
    Delete,
    /// To have it open.
    Hold,
}

/// What becomes of a file that loses a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has others.
    Lives,
    /// It waits as an orphan: it is open, or has more than fits one step.
    Orphan,
    /// It waits as an orphan, opened for the remover of its last name.
    Held,
    /// It is gone with this transaction.
    Gone,
}

impl Filesystem {
    /// Removes a name of anything but a directory; the file goes with its last name, or when it is closed.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], [`Refusal::IsADirectory`], and those of permissions.
    pub fn unlink(&self, caller: &Caller, directory: &Arc<Inode>, name: &[u8]) -> Result<()> {
        self.unlink_by(caller, directory, name, LastName::Delete).map(drop)
    }

    /// As [`unlink`](Self::unlink), for a caller whose own users may go on using a file without names: what
    /// lost its last name is given open, with an orphan item on disk, and lives until that is closed.
    ///
    /// # Errors
    /// As there.
    pub fn unlink_and_hold(
        &self,
        caller: &Caller,
        directory: &Arc<Inode>,
        name: &[u8],
    ) -> Result<Option<OpenInode>> {
        self.unlink_by(caller, directory, name, LastName::Hold)
    }

    fn unlink_by(
        &self,
        caller: &Caller,
        directory: &Arc<Inode>,
        name: &[u8],
        last: LastName,
    ) -> Result<Option<OpenInode>> {
        let guard = directory.operation.write();
        let (target, victim) = self.find_victim(caller, directory, name)?;
        if victim.is_directory() {
            return Err(Refusal::IsADirectory.into());
        }
        self.rights().may_remove_name(caller, directory, &victim)?;
        let fate =
            with_room(self.engine(), || self.remove_file_name(directory, name, &target, &victim, last))?;
        drop(guard);
        self.meet_fate(victim, fate)
    }

    /// Removes an empty directory. An empty subvolume goes with its name, as on Linux.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], [`Refusal::NotADirectory`], [`Refusal::NotEmpty`], and those of permissions.
    pub fn remove_directory(&self, caller: &Caller, directory: &Arc<Inode>, name: &[u8]) -> Result<()> {
        self.remove_directory_by(caller, directory, name, LastName::Delete).map(drop)
    }

    /// As [`remove_directory`](Self::remove_directory); the directory is given open, as
    /// [`unlink_and_hold`](Self::unlink_and_hold) gives a file. That of a subvolume has nothing on disk any
    /// more.
    ///
    /// # Errors
    /// As there.
    pub fn remove_directory_and_hold(
        &self,
        caller: &Caller,
        directory: &Arc<Inode>,
        name: &[u8],
    ) -> Result<Option<OpenInode>> {
        self.remove_directory_by(caller, directory, name, LastName::Hold)
    }

    fn remove_directory_by(
        &self,
        caller: &Caller,
        directory: &Arc<Inode>,
        name: &[u8],
        last: LastName,
    ) -> Result<Option<OpenInode>> {
        let guard = directory.operation.write();
        let (target, victim) = self.find_victim(caller, directory, name)?;
        if !victim.is_directory() {
            return Err(Refusal::NotADirectory.into());
        }
        self.rights().may_remove_name(caller, directory, &victim)?;
        if victim.is_placeholder() {
            return self.remove_placeholder(directory, name).map(|()| None);
        }
        if target.subvolume().is_some() {
            // It takes the locks anew, that of subvolumes' places first.
            drop(guard);
            self.remove_empty_subvolume(caller, directory, name)?;
            if last == LastName::Delete || !victim.subvolume().is_deleted() {
                return Ok(None);
            }
            victim.state().opens += 1;
            return Ok(Some(self.opener().adopt(victim)));
        }
        let fate =
            with_room(self.engine(), || self.remove_file_name(directory, name, &target, &victim, last))?;
        drop(guard);
        self.meet_fate(victim, fate)
    }

    /// After a name went, with no lock held: what its file's fate asks for.
    pub(crate) fn meet_fate(&self, victim: Arc<Inode>, fate: Fate) -> Result<Option<OpenInode>> {
        match fate {
            Fate::Lives | Fate::Gone => Ok(None),
            Fate::Orphan => self.inodes().delete_if_unused(&victim).map(|()| None),
            Fate::Held => Ok(Some(self.opener().adopt(victim))),
        }
    }

    pub(crate) fn find_victim(
        &self,
        caller: &Caller,
        directory: &Inode,
        name: &[u8],
    ) -> Result<(NameTarget, Arc<Inode>)> {
        if !directory.is_directory() {
            return Err(Refusal::NotADirectory.into());
        }
        check_new_name(name)?;
        self.rights().access(caller, directory, Access::EXECUTE)?;
        let target = self.tree().find_target(directory, name)?.ok_or(Refusal::NotFound)?;
        Ok((target, self.inodes().inode(target.id)?))
    }

    fn remove_file_name(
        &self,
        directory: &Inode,
        name: &[u8],
        target: &NameTarget,
        victim: &Arc<Inode>,
        last: LastName,
    ) -> Result<Fate> {
        let _operation = victim.operation.write();
        // Under the lock: a name may have been made there since the victim was found.
        if victim.is_directory() && victim.size() > 0 {
            return Err(Refusal::NotEmpty.into());
        }
        let mut handle = begin(self.store(), Reservation::removal(ITEMS).of(ChangeKind::Names))?;
        let mut changes = Changes::new(self.engine(), directory.subvolume());
        let index = changes.remove_reference(target.id.number, directory.number(), name)?;
        changes.remove_entry(directory.number(), name, index)?;
        let fate = self.plan_loss(&mut changes, victim, last)?;
        changes.apply(&mut handle)?;
        self.lose_name(&mut handle, victim, fate);
        let mut state = directory.state();
        note_names_changed(&mut state, Stamp::of(&handle), 0, name.len());
        directory.put(&mut handle, &mut state);
        Ok(fate)
    }

    /// Adds to the changes what the loss of a name means for the file; the caller holds its operation lock.
    pub(crate) fn plan_loss(
        &self,
        changes: &mut Changes<'_>,
        victim: &Inode,
        last: LastName,
    ) -> Result<Fate> {
        let (links, opens) = {
            let state = victim.state();
            (state.item.link_count, state.opens)
        };
        let number = victim.number();
        if links > 1 {
            changes.touch_inode(number);
            return Ok(Fate::Lives);
        }
        if last == LastName::Hold {
            changes.touch_inode(number);
            changes.insert_pending(orphan::key(number), Vec::new());
            return Ok(Fate::Held);
        }
        let (keys, complete) = keys_of(self.engine(), victim, FEW_ITEMS)?;
        let has_data = victim.file_type() == FileType::Regular
            && (victim.size() > 0
                || !victim.data().may_be_forgotten()
                || keys.iter().any(|key| key.item_type == vlinder_format::ItemType::EXTENT_DATA));
        if opens > 0 || !complete || has_data {
            changes.touch_inode(number);
            changes.insert_pending(orphan::key(number), Vec::new());
            return Ok(Fate::Orphan);
        }
        for key in keys {
            changes.remove(key);
        }
        changes.remove_pending(InodeItem::key(number));
        Ok(Fate::Gone)
    }

    /// The file in memory after the loss of a name.
    pub(crate) fn lose_name(&self, handle: &mut vlinder_transaction::Handle<'_>, victim: &Inode, fate: Fate) {
        if fate == Fate::Gone {
            victim.state().item.link_count = 0;
            self.inodes().forget_inode(handle, victim);
            return;
        }
        let mut state = victim.state();
        state.item.link_count = state.item.link_count.saturating_sub(1);
        state.note_change(Stamp::of(handle).time);
        state.orphan |= matches!(fate, Fate::Orphan | Fate::Held);
        state.opens += u32::from(fate == Fate::Held);
        victim.put(handle, &mut state);
    }

    /// Removes a name whose subvolume is not there.
    pub(crate) fn remove_placeholder(&self, directory: &Inode, name: &[u8]) -> Result<()> {
        let index = find_index(self.engine(), directory, name)?;
        let mut handle = begin(self.store(), Reservation::removal(ITEMS).of(ChangeKind::Names))?;
        let mut changes = Changes::new(self.engine(), directory.subvolume());
        changes.remove_entry(directory.number(), name, index)?;
        changes.apply(&mut handle)?;
        let mut state = directory.state();
        note_names_changed(&mut state, Stamp::of(&handle), 0, name.len());
        directory.put(&mut handle, &mut state);
        Ok(())
    }
}
