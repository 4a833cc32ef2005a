//! Subvolumes and snapshots.

use std::collections::BTreeMap;

use rustix::io::Errno;
use vlinder_base::sync::Arc;

use super::node::{FileId, NameTarget, Node, ROOT_DIRECTORY};
use super::state::ModelState;
use super::tree::SubvolumeModel;
use crate::workload::node_kind::NodeKind;
use crate::workload::operation::{Place, Token};

/// Operations on whole subvolumes.
pub(super) struct SubvolumeOperations<'m> {
    state: &'m mut ModelState,
}

impl<'m> SubvolumeOperations<'m> {
    pub(super) fn new(state: &'m mut ModelState) -> Self {
        Self { state }
    }

    pub(super) fn create(&mut self, place: Place, name: &[u8]) -> Result<(), Errno> {
        let directory = self.state.free_name(place, name)?;
        let Some(made) = self.state.made() else { return Ok(()) };
        let mut root = Node::new(NodeKind::Directory, 0o777, self.state.now());
        root.parent = ROOT_DIRECTORY;
        if let Some(parent) = self.state.node(directory) {
            root.cut_by_acl_of(parent);
        }
        let nodes = BTreeMap::from([(ROOT_DIRECTORY, Arc::new(root))]);
        self.state.tree_mut().add_subvolume(
            made,
            SubvolumeModel { nodes, read_only: false, place: Some((directory, name.to_vec())) },
        );
        self.state.put_name(directory, name, NameTarget::Subvolume(made.root));
        Ok(())
    }

    pub(super) fn snapshot(
        &mut self,
        source: Token,
        place: Place,
        name: &[u8],
        read_only: bool,
    ) -> Result<(), Errno> {
        let root = self.state.root_of(source).ok_or(Errno::NOENT)?;
        let directory = self.state.free_name(place, name)?;
        let Some(made) = self.state.made() else { return Ok(()) };
        let Some(copied) = self.state.tree().subvolumes().get(&root) else { return Err(Errno::NOENT) };
        let mut nodes = copied.nodes.clone();
        // Without names and not open here: they vanish.
        nodes.retain(|number, node| node.links > 0 || *number == ROOT_DIRECTORY);
        for node in nodes.values_mut() {
            if node.entries.values().any(|entry| matches!(entry, NameTarget::Subvolume(_))) {
                for entry in Arc::make_mut(node).entries.values_mut() {
                    if matches!(entry, NameTarget::Subvolume(_)) {
                        *entry = NameTarget::Placeholder;
                    }
                }
            }
        }
        self.state.tree_mut().add_subvolume(
            made,
            SubvolumeModel { nodes, read_only, place: Some((directory, name.to_vec())) },
        );
        self.state.put_name(directory, name, NameTarget::Subvolume(made.root));
        Ok(())
    }

    pub(super) fn delete(&mut self, place: Place, name: &[u8]) -> Result<(), Errno> {
        let (directory, entry) = self.state.entry(place, name)?;
        let NameTarget::Subvolume(root) = entry else { return Err(Errno::INVAL) };
        let holds_others = self
            .state
            .tree()
            .subvolumes()
            .values()
            .any(|other| other.place.as_ref().is_some_and(|(at, _)| at.root == root));
        if holds_others {
            return Err(Errno::NOTEMPTY);
        }
        self.state.tree().removable(FileId::root_directory(root))?;
        if self.state.default_subvolume() == root {
            return Err(Errno::PERM);
        }
        if self.state.is_trial() {
            return Ok(());
        }
        self.state.take_name(directory, name);
        self.state.tree_mut().remove_subvolume(root);
        Ok(())
    }

    pub(super) fn set_default(&mut self, subvolume: Token) -> Result<(), Errno> {
        let root = self.state.root_of(subvolume).ok_or(Errno::NOENT)?;
        if !self.state.is_trial() {
            self.state.set_default_subvolume(root);
        }
        Ok(())
    }

    pub(super) fn set_read_only(&mut self, subvolume: Token, read_only: bool) -> Result<(), Errno> {
        let root = self.state.root_of(subvolume).ok_or(Errno::NOENT)?;
        if !self.state.is_trial()
            && let Some(subvolume) = self.state.tree_mut().subvolume_mut(root)
        {
            subvolume.read_only = read_only;
        }
        Ok(())
    }
}
