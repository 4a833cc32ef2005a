//! Every inode of every subvolume, and where subvolumes have their names.

use std::collections::{BTreeMap, BTreeSet};

use rustix::io::Errno;
use vlinder_base::sync::Arc;

use super::node::{FileId, NameTarget, Node, ROOT_DIRECTORY, TOP_LEVEL, flag};
use crate::workload::node_kind::NodeKind;

/// A subvolume.
#[derive(Clone, Debug)]
pub struct SubvolumeModel {
    /// Inodes by number.
    pub nodes: BTreeMap<u64, Arc<Node>>,
    /// Takes no changes.
    pub read_only: bool,
    /// Directory and name; none for the top level.
    pub place: Option<(FileId, Vec<u8>)>,
}

/// All subvolumes, and which inodes were changed.
#[derive(Clone, Debug)]
pub(super) struct NodeTree {
    subvolumes: BTreeMap<u64, SubvolumeModel>,
    touched: BTreeSet<FileId>,
}

impl NodeTree {
    /// The top-level subvolume with this root directory.
    pub(super) fn new(mut root: Node) -> Self {
        root.parent = ROOT_DIRECTORY;
        let nodes = BTreeMap::from([(ROOT_DIRECTORY, Arc::new(root))]);
        let top = SubvolumeModel { nodes, read_only: false, place: None };
        Self { subvolumes: BTreeMap::from([(TOP_LEVEL, top)]), touched: BTreeSet::new() }
    }

    /// Every subvolume by number.
    pub(super) fn subvolumes(&self) -> &BTreeMap<u64, SubvolumeModel> {
        &self.subvolumes
    }

    pub(super) fn subvolume_mut(&mut self, root: u64) -> Option<&mut SubvolumeModel> {
        self.subvolumes.get_mut(&root)
    }

    /// A subvolume that was made, with its root directory.
    pub(super) fn add_subvolume(&mut self, made: FileId, subvolume: SubvolumeModel) {
        assert_eq!(made.number, ROOT_DIRECTORY, "a subvolume's root directory has another number");
        let replaced = self.subvolumes.insert(made.root, subvolume);
        assert!(replaced.is_none(), "subvolume {} was given a number that is in use", made.root);
        self.touched.insert(made);
    }

    pub(super) fn remove_subvolume(&mut self, root: u64) {
        self.subvolumes.remove(&root);
    }

    pub(super) fn node(&self, file: FileId) -> Option<&Node> {
        self.subvolumes.get(&file.root)?.nodes.get(&file.number).map(|node| &**node)
    }

    /// A node, to note what is learned of it.
    pub(super) fn node_mut(&mut self, file: FileId) -> Option<&mut Node> {
        self.subvolumes.get_mut(&file.root)?.nodes.get_mut(&file.number).map(Arc::make_mut)
    }

    /// A node that is about to change.
    pub(super) fn change(&mut self, file: FileId) -> &mut Node {
        self.touched.insert(file);
        match self.node_mut(file) {
            Some(node) => node,
            None => unreachable!("{file:?} was looked up before"),
        }
    }

    pub(super) fn insert(&mut self, file: FileId, node: Node) {
        let subvolume = self.subvolumes.get_mut(&file.root);
        let replaced = subvolume.and_then(|subvolume| subvolume.nodes.insert(file.number, Arc::new(node)));
        assert!(replaced.is_none(), "{file:?} was given a number that is in use");
        self.touched.insert(file);
    }

    pub(super) fn remove(&mut self, file: FileId) {
        if let Some(subvolume) = self.subvolumes.get_mut(&file.root) {
            subvolume.nodes.remove(&file.number);
        }
    }

    /// The nodes that were changed since this was asked last and are still there.
    pub(super) fn take_touched(&mut self) -> Vec<FileId> {
        let touched = std::mem::take(&mut self.touched);
        touched.into_iter().filter(|file| self.node(*file).is_some()).collect()
    }

    /// Refuses changes of a subvolume that is read-only.
    pub(super) fn writable(&self, file: FileId) -> Result<(), Errno> {
        match self.subvolumes.get(&file.root) {
            Some(subvolume) if subvolume.read_only => Err(Errno::ROFS),
            Some(_) => Ok(()),
            None => Err(Errno::NOENT),
        }
    }

    /// Refuses to remove a name of what its flags keep.
    pub(super) fn removable(&self, file: FileId) -> Result<(), Errno> {
        match self.node(file) {
            Some(node) if node.has(flag::IMMUTABLE | flag::APPEND) => Err(Errno::PERM),
            Some(_) => Ok(()),
            None => Err(Errno::NOENT),
        }
    }

    /// Refuses what is no empty directory.
    pub(super) fn empty_directory(&self, file: FileId) -> Result<(), Errno> {
        match self.node(file) {
            Some(node) if node.kind != NodeKind::Directory => Err(Errno::NOTDIR),
            Some(node) if !node.entries.is_empty() => Err(Errno::NOTEMPTY),
            Some(_) => Ok(()),
            None => Err(Errno::NOENT),
        }
    }

    /// Whether a name in the directory `home` stands for a directory, of whatever kind.
    pub(super) fn is_directory(&self, home: FileId, entry: NameTarget) -> bool {
        match entry {
            NameTarget::Inode(number) => self
                .node(FileId { root: home.root, number })
                .is_some_and(|node: &Node| node.kind == NodeKind::Directory),
            NameTarget::Subvolume(_) | NameTarget::Placeholder => true,
        }
    }

    /// Whether `file` is `below` or a directory above it.
    pub(super) fn is_ancestor(&self, file: FileId, below: FileId) -> bool {
        let mut at = below;
        // Parents lead to the root directory of the subvolume, which is its own parent.
        for _ in 0..=self.subvolumes.get(&file.root).map_or(0, |subvolume| subvolume.nodes.len()) {
            if at == file {
                return true;
            }
            match self.node(at) {
                Some(node) if at.number != ROOT_DIRECTORY => at.number = node.parent,
                _ => return false,
            }
        }
        false
    }

    /// Whether a directory lies in this subvolume or one nested in it.
    pub(super) fn is_inside_subvolume(&self, directory: FileId, entry: NameTarget) -> bool {
        let NameTarget::Subvolume(wanted) = entry else { return false };
        let mut root = directory.root;
        for _ in 0..=self.subvolumes.len() {
            if root == wanted {
                return true;
            }
            match self.subvolumes.get(&root).and_then(|subvolume| subvolume.place.as_ref()) {
                Some((place, _)) => root = place.root,
                None => return false,
            }
        }
        false
    }
}
