//! Subvolumes and snapshots.

use std::collections::BTreeMap;
use vlinder_base::sync::Arc;

use rustix::io::Errno;

use super::{FileId, Model, NameTarget, Node, NodeKind, ROOT_DIRECTORY, SubvolumeModel};
use crate::workload::operation::{Place, Token};

impl Model {
    pub(super) fn create_subvolume(&mut self, place: Place, name: &[u8]) -> Result<(), Errno> {
        let directory = self.free_name(place, name)?;
        let (Some(made), false) = (self.made, self.is_trial) else { return Ok(()) };
        let mut root = Node::new(NodeKind::Directory, 0o777, self.now);
        root.parent = ROOT_DIRECTORY;
        if let Some(parent) = self.node(directory) {
            root.cut_by_acl_of(parent);
        }
        let nodes = BTreeMap::from([(ROOT_DIRECTORY, Arc::new(root))]);
        self.add_subvolume(
            made,
            SubvolumeModel { nodes, read_only: false, place: Some((directory, name.to_vec())) },
        );
        self.put_name(directory, name, NameTarget::Subvolume(made.root));
        Ok(())
    }

    fn add_subvolume(&mut self, made: FileId, subvolume: SubvolumeModel) {
        assert_eq!(made.number, ROOT_DIRECTORY, "a subvolume's root directory has another number");
        let replaced = self.subvolumes.insert(made.root, subvolume);
        assert!(replaced.is_none(), "subvolume {} was given a number that is in use", made.root);
        self.touched.insert(made);
    }

    pub(super) fn snapshot(
        &mut self,
        source: Token,
        place: Place,
        name: &[u8],
        read_only: bool,
    ) -> Result<(), Errno> {
        let root = self.root_of(source).ok_or(Errno::NOENT)?;
        let directory = self.free_name(place, name)?;
        let (Some(made), false) = (self.made, self.is_trial) else { return Ok(()) };
        let Some(copied) = self.subvolumes.get(&root) else { return Err(Errno::NOENT) };
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
        self.add_subvolume(
            made,
            SubvolumeModel { nodes, read_only, place: Some((directory, name.to_vec())) },
        );
        self.put_name(directory, name, NameTarget::Subvolume(made.root));
        Ok(())
    }

    pub(super) fn delete_subvolume(&mut self, place: Place, name: &[u8]) -> Result<(), Errno> {
        let (directory, entry) = self.entry(place, name)?;
        let NameTarget::Subvolume(root) = entry else { return Err(Errno::INVAL) };
        let holds_others =
            self.subvolumes.values().any(|other| other.place.as_ref().is_some_and(|(at, _)| at.root == root));
        if holds_others {
            return Err(Errno::NOTEMPTY);
        }
        self.removable(Self::root_directory(root))?;
        if self.default == root {
            return Err(Errno::PERM);
        }
        if self.is_trial {
            return Ok(());
        }
        self.take_name(directory, name);
        self.subvolumes.remove(&root);
        Ok(())
    }

    pub(super) fn set_default(&mut self, subvolume: Token) -> Result<(), Errno> {
        let root = self.root_of(subvolume).ok_or(Errno::NOENT)?;
        if !self.is_trial {
            self.default = root;
        }
        Ok(())
    }

    pub(super) fn set_read_only(&mut self, subvolume: Token, read_only: bool) -> Result<(), Errno> {
        let root = self.root_of(subvolume).ok_or(Errno::NOENT)?;
        if !self.is_trial
            && let Some(subvolume) = self.subvolumes.get_mut(&root)
        {
            subvolume.read_only = read_only;
        }
        Ok(())
    }

    /// The root directory of a subvolume.
    pub fn root_directory(root: u64) -> FileId {
        FileId { root, number: ROOT_DIRECTORY }
    }
}
