//! Names: create, link, unlink, and files that stay open without one.

use rustix::io::Errno;

use super::node::{FileId, NameTarget, Node, flag};
use super::state::ModelState;
use super::subvolumes::SubvolumeOperations;
use crate::workload::node_kind::NodeKind;
use crate::workload::operation::{OpenSlot, Place};

/// As many names as a file can have.
const MAX_LINKS: u32 = 65_535;

/// Operations that make and remove names, and open and close files.
pub(super) struct NameOperations<'m> {
    state: &'m mut ModelState,
}

impl<'m> NameOperations<'m> {
    pub(super) fn new(state: &'m mut ModelState) -> Self {
        Self { state }
    }

    /// A file or directory with nothing in it.
    pub(super) fn create(
        &mut self,
        place: Place,
        name: &[u8],
        kind: NodeKind,
        permissions: u32,
    ) -> Result<(), Errno> {
        self.create_with(place, name, (kind, permissions), |_| ())
    }

    /// A FIFO, socket or device; the number counts for a device alone.
    pub(super) fn create_special(
        &mut self,
        place: Place,
        name: &[u8],
        (kind, device): (NodeKind, (u32, u32)),
        permissions: u32,
    ) -> Result<(), Errno> {
        self.create_with(place, name, (kind, permissions), |node| {
            if matches!(kind, NodeKind::Character | NodeKind::Block) {
                node.device = device;
            }
        })
    }

    pub(super) fn create_symbolic_link(
        &mut self,
        place: Place,
        name: &[u8],
        target: &[u8],
    ) -> Result<(), Errno> {
        self.create_with(place, name, (NodeKind::SymbolicLink, 0o777), |node| node.target = target.to_vec())
    }

    fn create_with(
        &mut self,
        place: Place,
        name: &[u8],
        (kind, permissions): (NodeKind, u32),
        complete: impl FnOnce(&mut Node),
    ) -> Result<(), Errno> {
        let directory = self.state.free_name(place, name)?;
        let Some(made) = self.state.made() else { return Ok(()) };
        let mut node = self.state.new_node(directory, kind, permissions);
        complete(&mut node);
        self.state.tree_mut().insert(made, node);
        self.state.put_name(directory, name, NameTarget::Inode(made.number));
        Ok(())
    }

    pub(super) fn create_temporary(
        &mut self,
        place: Place,
        permissions: u32,
        slot: OpenSlot,
    ) -> Result<(), Errno> {
        let (directory, _) = self.state.directory(place, flag::IMMUTABLE)?;
        self.state.open_files().check_free(slot)?;
        let Some(made) = self.state.made() else { return Ok(()) };
        let mut node = self.state.new_node(directory, NodeKind::File, permissions);
        node.links = 0;
        self.state.tree_mut().insert(made, node);
        self.state.open_files_mut().insert(slot, made);
        Ok(())
    }

    pub(super) fn link(&mut self, file: Place, directory: Place, name: &[u8]) -> Result<(), Errno> {
        let target = self.state.free_name(directory, name)?;
        let (file, node) = self.state.changeable(file, flag::IMMUTABLE | flag::APPEND)?;
        if file.root != target.root {
            return Err(Errno::XDEV);
        }
        if node.kind == NodeKind::Directory {
            return Err(Errno::PERM);
        }
        // A file that lost its names gets none again, unless it never had one.
        if node.links == 0 && !self.is_temporary(file) {
            return Err(Errno::NOENT);
        }
        if node.links >= MAX_LINKS {
            return Err(Errno::MLINK);
        }
        if self.state.is_trial() {
            return Ok(());
        }
        self.state.change(file).links += 1;
        self.state.put_name(target, name, NameTarget::Inode(file.number));
        Ok(())
    }

    /// Whether an open file without names was made so.
    fn is_temporary(&self, file: FileId) -> bool {
        self.state.open_files().holds(file)
            && self.state.node(file).is_some_and(|node| node.links == 0 && node.parent == 0)
    }

    pub(super) fn unlink(&mut self, directory: Place, name: &[u8]) -> Result<(), Errno> {
        let (parent, entry) = self.state.entry(directory, name)?;
        let NameTarget::Inode(number) = entry else { return Err(Errno::ISDIR) };
        let file = FileId { root: parent.root, number };
        self.state.tree().removable(file)?;
        if self.state.node(file).is_some_and(|node| node.kind == NodeKind::Directory) {
            return Err(Errno::ISDIR);
        }
        if self.state.is_trial() {
            return Ok(());
        }
        self.state.take_name(parent, name);
        self.state.lose_link(file);
        Ok(())
    }

    pub(super) fn remove_directory(&mut self, directory: Place, name: &[u8]) -> Result<(), Errno> {
        let (parent, entry) = self.state.entry(directory, name)?;
        match entry {
            NameTarget::Subvolume(root) => {
                self.state.tree().empty_directory(FileId::root_directory(root))?;
                SubvolumeOperations::new(self.state).delete(directory, name)
            }
            NameTarget::Placeholder => {
                if !self.state.is_trial() {
                    self.state.take_name(parent, name);
                }
                Ok(())
            }
            NameTarget::Inode(number) => {
                let file = FileId { root: parent.root, number };
                self.state.tree().empty_directory(file)?;
                self.state.tree().removable(file)?;
                if !self.state.is_trial() {
                    self.state.take_name(parent, name);
                    self.state.change(file).links = 0;
                    self.state.drop_if_unused(file);
                }
                Ok(())
            }
        }
    }

    pub(super) fn open_file(&mut self, place: Place, slot: OpenSlot) -> Result<(), Errno> {
        let (file, _) = self.state.regular(place)?;
        self.state.open_files().check_free(slot)?;
        if !self.state.is_trial() {
            self.state.open_files_mut().insert(slot, file);
        }
        Ok(())
    }

    pub(super) fn close(&mut self, slot: OpenSlot) -> Result<(), Errno> {
        self.state.open_files().check_open(slot)?;
        if !self.state.is_trial() {
            self.state.release(slot);
        }
        Ok(())
    }
}
