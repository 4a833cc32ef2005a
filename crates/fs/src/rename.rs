//! Renaming: within a directory and across, over what is there, exchanging, leaving a whiteout.

use vlinder_base::sync::{Arc, RwLockWriteGuard};
use vlinder_data::{InodeId, begin};
use vlinder_format::directory::{DirectoryEntryType, DirectoryIndex};
use vlinder_format::inode::FileType;
use vlinder_format::root_ref::RootReference;
use vlinder_format::{Generation, RootId};
use vlinder_transaction::{ChangeKind, Handle, Reservation};

use crate::changes::Changes;
use crate::directory::check_new_name;
use crate::directory::index::{find_index, take_index};
use crate::directory::target::NameTarget;
use crate::inode::Inode;
use crate::name_view::Names;
use crate::new_file::{NewFile, Prepared, note_names_changed, prepare, remember};
use crate::room::with_room;
use crate::root_items::{RootChanges, apply_to_root_tree};
use crate::stamp::Stamp;
use crate::unlink::{Fate, LastName, lose_name, meet_fate, plan_loss};
use crate::{Access, Caller, Capabilities, FsError, OpenInode, Refusal, Result};

/// Items that a rename may touch, a whiteout included.
const ITEMS: u32 = 20;
/// More ancestors than a path can have on any file system that was made by paths.
const MAX_ANCESTORS: usize = 1 << 20;

/// How to rename, as renameat2(2) has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// What has the new name loses it.
    #[default]
    Replace,
    /// Refused where the new name is taken.
    NoReplace,
    /// Both change names.
    Exchange,
    /// As `Replace`; a whiteout (device 0:0) takes the old name.
    Whiteout,
}

/// One side of a rename.
pub(crate) struct Side<'a> {
    directory: &'a Arc<Inode>,
    name: &'a [u8],
}

/// A rename as it is asked for.
pub(crate) struct Rename<'a> {
    names: Names<'a>,
    caller: &'a Caller,
    old: Side<'a>,
    new: Side<'a>,
    mode: RenameMode,
    last: LastName,
}

/// A file that one of the two names stands for.
struct NamedFile {
    target: NameTarget,
    inode: Arc<Inode>,
}

/// What both names stand for.
struct Found {
    moved: NamedFile,
    replaced: Option<NamedFile>,
}

impl<'a> Side<'a> {
    pub(crate) fn new(directory: &'a Arc<Inode>, name: &'a [u8]) -> Self {
        Self { directory, name }
    }
}

impl<'a> Rename<'a> {
    pub(crate) fn new(
        names: Names<'a>,
        caller: &'a Caller,
        old: Side<'a>,
        new: Side<'a>,
        mode: RenameMode,
        last: LastName,
    ) -> Self {
        Self { names, caller, old, new, mode, last }
    }

    fn is_exchange(&self) -> bool {
        self.mode == RenameMode::Exchange
    }

    fn crosses_directories(&self) -> bool {
        !Arc::ptr_eq(self.old.directory, self.new.directory)
    }

    fn crosses_subvolumes(&self) -> bool {
        self.old.directory.id().root != self.new.directory.id().root
    }
}

impl Found {
    fn replaced_inode(&self) -> Option<&Arc<Inode>> {
        self.replaced.as_ref().map(|named| &named.inode)
    }

    /// Directories first, then the rest, each in the order of ids: so that two operations never wait for each
    /// other.
    fn lock(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        let mut inodes = vec![&self.moved.inode];
        inodes.extend(self.replaced_inode());
        inodes.sort_by_key(|inode| (!inode.is_directory(), inode.id()));
        inodes.into_iter().map(|inode| inode.operation.write()).collect()
    }
}

impl Rename<'_> {
    pub(crate) fn run(&self) -> Result<Option<OpenInode>> {
        let (old, new) = (&self.old, &self.new);
        if !old.directory.is_directory() || !new.directory.is_directory() {
            return Err(Refusal::NotADirectory.into());
        }
        for name in [old.name, new.name] {
            match check_new_name(name) {
                Err(error)
                    if error.refusal() != Some(Refusal::NameTooLong) && matches!(name, b"." | b"..") =>
                {
                    return Err(Refusal::Busy.into());
                }
                other => other?,
            }
        }
        let _places = self.crosses_subvolumes().then(|| self.names.places().lock_subvolumes());
        let _rename = self.crosses_directories().then(|| self.names.places().lock_rename());
        let loser = {
            let _directories = self.lock_directories(old.directory, new.directory)?;
            with_room(self.names.engine(), || self.run_locked())?
        };
        match loser {
            Some((loser, fate)) => meet_fate(self.names.opener(), loser, fate),
            None => Ok(None),
        }
    }

    /// Locks one or two directories, an ancestor before what lies below it. The rename lock is held for two.
    fn lock_directories<'a>(
        &self,
        one: &'a Arc<Inode>,
        other: &'a Arc<Inode>,
    ) -> Result<Vec<RwLockWriteGuard<'a, ()>>> {
        if Arc::ptr_eq(one, other) {
            return Ok(vec![one.operation.write()]);
        }
        let one_first = if self.is_ancestor(one.id(), other)? {
            true
        } else if self.is_ancestor(other.id(), one)? {
            false
        } else {
            one.id() < other.id()
        };
        let (first, second) = if one_first { (one, other) } else { (other, one) };
        Ok(vec![first.operation.write(), second.operation.write()])
    }

    /// Whether a directory lies above another, or is it. Only a rename across directories changes the answer,
    /// and that holds the rename lock, as does the caller.
    fn is_ancestor(&self, ancestor: InodeId, directory: &Arc<Inode>) -> Result<bool> {
        let mut current = Arc::clone(directory);
        for _ in 0..MAX_ANCESTORS {
            if current.id() == ancestor {
                return Ok(true);
            }
            let parent = self.names.tree().lookup_parent(&current)?;
            if parent == current.id() {
                return Ok(false);
            }
            current = self.names.inodes().inode(parent)?;
        }
        Err(Refusal::SymbolicLinkLoop.into())
    }

    /// With both directories locked. Gives the file that lost a name, with its fate.
    fn run_locked(&self) -> Result<Option<(Arc<Inode>, Fate)>> {
        let (old, new, mode) = (&self.old, &self.new, self.mode);
        self.names.rights().access(self.caller, old.directory, Access::EXECUTE)?;
        self.names.rights().access(self.caller, new.directory, Access::EXECUTE)?;
        let named = |target: NameTarget| {
            Ok::<_, FsError>(NamedFile { inode: self.names.inodes().inode(target.id)?, target })
        };
        let moved = named(self.names.tree().find_target(old.directory, old.name)?.ok_or(Refusal::NotFound)?)?;
        let replaced = match self.names.tree().find_target(new.directory, new.name)? {
            Some(_) if mode == RenameMode::NoReplace => return Err(Refusal::Exists.into()),
            Some(target) => Some(named(target)?),
            None if self.is_exchange() => return Err(Refusal::NotFound.into()),
            None => None,
        };
        let found = Found { moved, replaced };
        if mode == RenameMode::Whiteout && !self.caller.has(Capabilities::MKNOD) {
            return Err(Refusal::NotPermitted.into());
        }
        self.check_loops(&found)?;
        // Two names of one file: nothing is to be done, says POSIX.
        if found.replaced_inode().is_some_and(|inode| Arc::ptr_eq(inode, &found.moved.inode)) {
            return Ok(None);
        }
        self.may_rename(&found)?;
        may_cross(self, &found)?;
        let _files = found.lock();
        if let Some(inode) = found.replaced_inode()
            && !self.is_exchange()
            && inode.is_directory()
            && inode.size() > 0
        {
            return Err(Refusal::NotEmpty.into());
        }
        let mut handle = begin(self.names.store(), Reservation::items(ITEMS).of(ChangeKind::Names))?;
        match &found.replaced {
            Some(other) if self.is_exchange() => {
                self.exchange(&mut handle, &found.moved, other)?;
                Ok(None)
            }
            _ => self.replace(&mut handle, &found),
        }
    }

    fn check_loops(&self, found: &Found) -> Result<()> {
        if !self.crosses_directories() {
            return Ok(());
        }
        let moved = &found.moved.inode;
        if moved.is_directory() && self.is_ancestor(moved.id(), self.new.directory)? {
            return Err(Refusal::InvalidArgument.into());
        }
        if let Some(replaced) = found.replaced_inode()
            && replaced.is_directory()
            && self.is_ancestor(replaced.id(), self.old.directory)?
        {
            let refusal = if self.is_exchange() { Refusal::InvalidArgument } else { Refusal::NotEmpty };
            return Err(refusal.into());
        }
        Ok(())
    }

    fn may_rename(&self, found: &Found) -> Result<()> {
        let (caller, old, new) = (self.caller, self.old.directory, self.new.directory);
        let moved = &found.moved.inode;
        self.names.rights().may_remove_name(caller, old, moved)?;
        match found.replaced_inode() {
            None => self.names.rights().may_add_name(caller, new)?,
            Some(replaced) => {
                self.names.rights().may_remove_name(caller, new, replaced)?;
                if !self.is_exchange() {
                    match (moved.is_directory(), replaced.is_directory()) {
                        (true, false) => return Err(Refusal::NotADirectory.into()),
                        (false, true) => return Err(Refusal::IsADirectory.into()),
                        _ => {}
                    }
                }
            }
        }
        if self.mode == RenameMode::Whiteout {
            self.names.rights().may_add_name(caller, old)?;
        }
        // A directory that moves gets another `..`, which is a change of it.
        if self.crosses_directories() {
            let changed = [Some(moved), found.replaced_inode().filter(|_| self.is_exchange())];
            for inode in changed.into_iter().flatten().filter(|inode| inode.is_directory()) {
                self.names.rights().access(caller, inode, Access::WRITE)?;
            }
        }
        Ok(())
    }

    fn replace(&self, handle: &mut Handle<'_>, found: &Found) -> Result<Option<(Arc<Inode>, Fate)>> {
        let (old, new, moved) = (&self.old, &self.new, &found.moved);
        let generation = handle.generation();
        let mut plan = RenamePlan::new(self.names, old, new);
        plan.take_name(old, &moved.target)?;
        let mut fate = Fate::Lives;
        if let Some(replaced) = &found.replaced {
            fate = plan.lose_name(new, replaced, self.last)?;
        }
        plan.give_name(new, &moved.target, &moved.inode, generation)?;
        let whiteout = match self.mode {
            RenameMode::Whiteout => Some(plan.leave_whiteout(self.caller, old, Stamp::of(handle))?),
            _ => None,
        };
        let leaves_name = whiteout.is_some();
        self.charge_renamed(handle, &moved.inode)?;
        plan.apply(handle)?;
        if let Some(whiteout) = whiteout {
            remember(self.names.inodes(), old.directory, whiteout);
        }
        // Of a placeholder nothing but the name was there.
        if let Some(inode) = found.replaced_inode().filter(|inode| !inode.is_placeholder()) {
            lose_name(self.names.inodes(), handle, inode, fate);
        }
        self.note_renamed(handle, &moved.inode);
        let used = |side: &Side<'_>, is_used: bool| if is_used { side.name.len() } else { 0 };
        note_sides(
            handle,
            (old, used(old, leaves_name), old.name.len()),
            (new, new.name.len(), used(new, found.replaced.is_some())),
        );
        Ok(found.replaced_inode().map(|inode| (Arc::clone(inode), fate)))
    }

    fn exchange(&self, handle: &mut Handle<'_>, moved: &NamedFile, other: &NamedFile) -> Result<()> {
        let (old, new) = (&self.old, &self.new);
        let generation = handle.generation();
        let mut plan = RenamePlan::new(self.names, old, new);
        plan.take_name(old, &moved.target)?;
        plan.take_name(new, &other.target)?;
        plan.give_name(new, &moved.target, &moved.inode, generation)?;
        plan.give_name(old, &other.target, &other.inode, generation)?;
        self.charge_renamed(handle, &moved.inode)?;
        self.charge_renamed(handle, &other.inode)?;
        plan.apply(handle)?;
        self.note_renamed(handle, &moved.inode);
        self.note_renamed(handle, &other.inode);
        note_sides(handle, (old, old.name.len(), old.name.len()), (new, new.name.len(), new.name.len()));
        Ok(())
    }

    /// Before [`note_renamed`](Self::note_renamed) may follow.
    fn charge_renamed(&self, handle: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        if self.names.rights().check_writable(inode.subvolume()).is_err() {
            Ok(())
        } else {
            inode.charge_item(handle)
        }
    }

    fn note_renamed(&self, handle: &mut Handle<'_>, inode: &Inode) {
        // A read-only subvolume keeps its own inode as it is: only its name changes.
        if self.names.rights().check_writable(inode.subvolume()).is_err() {
            return;
        }
        let mut state = inode.state();
        state.note_change(Stamp::of(handle).time);
        inode.put(handle, &mut state);
    }
}

fn note_sides(handle: &mut Handle<'_>, old: (&Side<'_>, usize, usize), new: (&Side<'_>, usize, usize)) {
    for (side, added, removed) in [old, new] {
        let mut state = side.directory.state();
        note_names_changed(&mut state, Stamp::of(handle), added, removed);
        side.directory.put(handle, &mut state);
    }
}

/// Only a subvolume's name may go to another subvolume; what stands for one that is not there stays.
fn may_cross(rename: &Rename<'_>, found: &Found) -> Result<()> {
    let (moved, replaced) = (&found.moved.inode, found.replaced_inode());
    let stays = |inode: &Arc<Inode>| rename.crosses_subvolumes() && !inode.id().is_subvolume_root();
    if stays(moved) || (rename.is_exchange() && replaced.is_some_and(stays)) {
        return Err(Refusal::CrossesSubvolumes.into());
    }
    // Linux lets a placeholder be exchanged, and then stops the file system in the middle of it
    // (`btrfs_rename_exchange`).
    let is_kept = |inode: &Arc<Inode>| rename.is_exchange() && inode.is_placeholder();
    if moved.is_placeholder() || replaced.is_some_and(is_kept) {
        return Err(Refusal::NotEmpty.into());
    }
    if !rename.is_exchange() && replaced.is_some_and(|inode| inode.id().is_subvolume_root()) {
        return Err(Refusal::NotEmpty.into());
    }
    Ok(())
}

/// All changes of a rename: in one subvolume, or (a subvolume that moves) in two and the root tree.
struct RenamePlan<'a> {
    names: Names<'a>,
    old_root: RootId,
    old: Changes<'a>,
    new: Option<Changes<'a>>,
    roots: RootChanges,
}

impl<'a> RenamePlan<'a> {
    fn new(names: Names<'a>, old: &Side<'_>, new: &Side<'_>) -> Self {
        let (from, to) = (old.directory.subvolume(), new.directory.subvolume());
        Self {
            names,
            old_root: from.id(),
            old: Changes::new(names.engine(), from),
            new: (from.id() != to.id()).then(|| Changes::new(names.engine(), to)),
            roots: RootChanges::new(),
        }
    }

    fn changes(&mut self, side: &Side<'_>) -> &mut Changes<'a> {
        match &mut self.new {
            Some(new) if side.directory.id().root != self.old_root => new,
            _ => &mut self.old,
        }
    }

    /// Takes a name away from what a rename replaces.
    fn lose_name(&mut self, side: &Side<'_>, replaced: &NamedFile, last: LastName) -> Result<Fate> {
        if replaced.inode.is_placeholder() {
            let index = find_index(self.names.engine(), side.directory, side.name)?;
            self.changes(side).remove_entry(side.directory.number(), side.name, index)?;
            return Ok(Fate::Gone);
        }
        self.take_name(side, &replaced.target)?;
        plan_loss(self.changes(side), &replaced.inode, last)
    }

    /// Takes away a name, with its reference.
    fn take_name(&mut self, side: &Side<'_>, target: &NameTarget) -> Result<()> {
        let directory = side.directory.id();
        let index = match target.subvolume() {
            Some(subvolume) => {
                let place =
                    self.names.tree().whole_place_of_subvolume(subvolume)?.ok_or(Refusal::NotFound)?;
                if place.directory != directory || place.name != side.name {
                    return Err(Refusal::NotEmpty.into());
                }
                self.roots.insert(RootReference::forward_key(directory.root, subvolume), None);
                self.roots.insert(RootReference::backward_key(subvolume, directory.root), None);
                place.index
            }
            None => self.changes(side).remove_reference(target.id.number, directory.number, side.name)?,
        };
        self.changes(side).remove_entry(directory.number, side.name, index)
    }

    /// Gives a name to what another name stood for.
    fn give_name(
        &mut self,
        side: &Side<'_>,
        target: &NameTarget,
        inode: &Inode,
        generation: Generation,
    ) -> Result<()> {
        let directory = side.directory.id();
        let index: DirectoryIndex = take_index(self.names.engine(), side.directory)?;
        let (location, entry_type) = match target.subvolume() {
            Some(subvolume) => {
                let reference =
                    RootReference { directory: directory.number, index, name: side.name }.encode();
                self.roots
                    .insert(RootReference::forward_key(directory.root, subvolume), Some(reference.clone()));
                self.roots.insert(RootReference::backward_key(subvolume, directory.root), Some(reference));
                (inode.subvolume().tree().item_key(), DirectoryEntryType::DIRECTORY)
            }
            None => {
                let number = target.id.number;
                self.changes(side).add_reference(number, directory.number, side.name, index)?;
                (target.location, DirectoryEntryType::from(inode.file_type()))
            }
        };
        self.changes(side).add_entry(directory.number, side.name, index, location, entry_type, generation)
    }

    fn leave_whiteout(&mut self, caller: &Caller, old: &Side<'_>, stamp: Stamp) -> Result<Prepared> {
        let new = NewFile::of(FileType::CharacterDevice, 0);
        let prepared = prepare(self.names, caller, old.directory, new, stamp)?;
        self.changes(old).add_new(old.directory, old.name, &prepared, b"", stamp.generation)?;
        Ok(prepared)
    }

    fn apply(self, handle: &mut Handle<'_>) -> Result<()> {
        let (mut is_begun, engine) = (false, self.names.engine());
        if !self.roots.is_empty() {
            apply_to_root_tree(handle, &self.roots)?;
            is_begun = true;
        }
        for changes in self.new.into_iter().chain([self.old]) {
            if let Err(error) = changes.apply(handle) {
                if is_begun {
                    // One of several trees is changed already: what is in memory must not be committed.
                    engine.become_read_only(&error);
                }
                return Err(error);
            }
            is_begun = true;
        }
        Ok(())
    }
}
