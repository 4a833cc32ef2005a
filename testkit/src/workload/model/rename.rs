//! Renaming: every mode, over what is there, and between subvolumes.

use rustix::io::Errno;

use super::node::{FileId, NameTarget, flag};
use super::state::{ModelState, check_name};
use crate::workload::node_kind::NodeKind;
use crate::workload::operation::{Place, RenameMode};

/// The operation that moves a name.
pub(super) struct RenameOperation<'m> {
    state: &'m mut ModelState,
}

impl<'m> RenameOperation<'m> {
    pub(super) fn new(state: &'m mut ModelState) -> Self {
        Self { state }
    }

    pub(super) fn rename(
        &mut self,
        (from, from_name): (Place, &[u8]),
        (to, to_name): (Place, &[u8]),
        mode: RenameMode,
    ) -> Result<(), Errno> {
        if mode != RenameMode::NoReplace && self.is_same_file((from, from_name), (to, to_name)) {
            // Nothing is done, whatever else would forbid it.
            return Ok(());
        }
        let (source, moved) = self.state.entry(from, from_name)?;
        let (target, target_node) = self.state.directory(to, flag::IMMUTABLE)?;
        check_name(to_name)?;
        let replaced = target_node.entries.get(to_name).copied();
        if replaced.is_some() && target_node.has(flag::APPEND) {
            return Err(Errno::PERM);
        }
        self.check_rename((source, moved), (target, replaced), mode)?;
        if self.state.is_trial() {
            return Ok(());
        }
        if mode == RenameMode::Exchange {
            if let Some(other) = replaced {
                self.state.put_name(source, from_name, other);
                self.settle_parent(source, other, from_name);
            }
        } else {
            self.state.take_name(source, from_name);
            self.discard_replaced(target, replaced);
            if let (RenameMode::Whiteout, Some(made)) = (mode, self.state.made()) {
                let node = self.state.new_node(source, NodeKind::Character, 0);
                self.state.tree_mut().insert(made, node);
                self.state.put_name(source, from_name, NameTarget::Inode(made.number));
            }
        }
        self.state.put_name(target, to_name, moved);
        self.settle_parent(target, moved, to_name);
        Ok(())
    }

    /// Whether two names that exist stand for one file.
    fn is_same_file(&self, (from, from_name): (Place, &[u8]), (to, to_name): (Place, &[u8])) -> bool {
        let find = |place, name: &[u8]| {
            let (directory, node) = self.state.existing(place).ok()?;
            Some((directory, *node.entries.get(name)?))
        };
        match (find(from, from_name), find(to, to_name)) {
            (Some((source, NameTarget::Inode(one))), Some((target, NameTarget::Inode(other)))) => {
                source.root == target.root && one == other
            }
            (Some((_, one @ NameTarget::Subvolume(_))), Some((_, other))) => one == other,
            (Some((source, NameTarget::Placeholder)), Some((target, NameTarget::Placeholder))) => {
                source == target && from_name == to_name
            }
            _ => false,
        }
    }

    fn check_rename(
        &self,
        (source, moved): (FileId, NameTarget),
        (target, replaced): (FileId, Option<NameTarget>),
        mode: RenameMode,
    ) -> Result<(), Errno> {
        match (mode, replaced) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EXIST),
            (RenameMode::Exchange, None) => return Err(Errno::NOENT),
            _ => {}
        }
        let moves = [(source, Some(moved), target), (target, replaced, source)];
        for (home, entry, destination) in
            moves.into_iter().take(if mode == RenameMode::Exchange { 2 } else { 1 })
        {
            let Some(entry) = entry else { continue };
            let NameTarget::Inode(number) = entry else {
                // Subvolumes move anywhere, but in exchange only for another subvolume or within one;
                // placeholders stay.
                let other = if home == source { replaced } else { Some(moved) };
                let is_fair = mode != RenameMode::Exchange
                    || home.root == destination.root
                    || matches!(other, Some(NameTarget::Subvolume(_)));
                if !is_fair {
                    return Err(Errno::XDEV);
                }
                let may_move = matches!(entry, NameTarget::Subvolume(_));
                if !may_move || self.state.tree().is_inside_subvolume(destination, entry) {
                    return Err(Errno::PERM);
                }
                self.check_moved_subvolume(entry, home != destination)?;
                continue;
            };
            let file = FileId { root: home.root, number };
            self.state.tree().removable(file)?;
            if home.root != destination.root {
                return Err(Errno::XDEV);
            }
            if self.state.tree().is_ancestor(file, destination) {
                return Err(Errno::INVAL);
            }
        }
        match (mode, replaced) {
            (RenameMode::Exchange, _) | (_, None) => Ok(()),
            (_, Some(NameTarget::Inode(number))) => {
                self.check_replaced(source, moved, FileId { root: target.root, number })
            }
            // An empty directory to everyone but the one that asks for its inode.
            (_, Some(NameTarget::Placeholder)) if self.state.tree().is_directory(source, moved) => Ok(()),
            (_, Some(NameTarget::Placeholder)) => Err(Errno::ISDIR),
            (_, Some(NameTarget::Subvolume(_))) => Err(Errno::NOTEMPTY),
        }
    }

    /// A directory that gets another parent must be writable itself.
    fn check_moved_subvolume(&self, entry: NameTarget, gets_other_parent: bool) -> Result<(), Errno> {
        let NameTarget::Subvolume(root) = entry else { return Ok(()) };
        let directory = FileId::root_directory(root);
        self.state.tree().removable(directory)?;
        if gets_other_parent { self.state.tree().writable(directory) } else { Ok(()) }
    }

    fn check_replaced(&self, source: FileId, moved: NameTarget, victim: FileId) -> Result<(), Errno> {
        self.state.tree().removable(victim)?;
        let replaces_directory = self.state.tree().is_directory(victim, NameTarget::Inode(victim.number));
        match (self.state.tree().is_directory(source, moved), replaces_directory) {
            (true, false) => Err(Errno::NOTDIR),
            (false, true) => Err(Errno::ISDIR),
            (true, true) if moved == NameTarget::Inode(victim.number) && source.root == victim.root => Ok(()),
            (true, true) => self.state.tree().empty_directory(victim),
            (false, false) => Ok(()),
        }
    }

    fn settle_parent(&mut self, directory: FileId, entry: NameTarget, name: &[u8]) {
        match entry {
            NameTarget::Inode(number) => {
                let node = self.state.change(FileId { root: directory.root, number });
                if node.kind == NodeKind::Directory {
                    node.parent = directory.number;
                }
            }
            NameTarget::Subvolume(root) => {
                if let Some(subvolume) = self.state.tree_mut().subvolume_mut(root) {
                    subvolume.place = Some((directory, name.to_vec()));
                }
            }
            NameTarget::Placeholder => {}
        }
    }

    fn discard_replaced(&mut self, target: FileId, replaced: Option<NameTarget>) {
        let Some(NameTarget::Inode(number)) = replaced else { return };
        let file = FileId { root: target.root, number };
        if self.state.node(file).is_some_and(|node| node.kind == NodeKind::Directory) {
            self.state.change(file).links = 0;
            self.state.drop_if_unused(file);
        } else {
            self.state.lose_link(file);
        }
    }
}
