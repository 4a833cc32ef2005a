//! What is asked of one of the two states.

use std::collections::HashMap;

use vlinder_base::sync::Arc;
use vlinder_forest::{Forest, StoredName, SubvolumeTree};
use vlinder_format::inode::{FileType, InodeItem};
use vlinder_format::{Generation, ItemType, ObjectId, RootId};
use vlinder_tree::Root;

use super::DiffError;
use super::change::OldNew;
use crate::NamesError;
use crate::names::{DirectoryPaths, is_named};

/// Inodes whose identity is remembered; all of them are forgotten when there are more.
const MAX_REMEMBERED: usize = 1 << 14;

/// An inode, told from any other one that has or had its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileIdentity {
    pub number: ObjectId,
    /// The transaction that made the inode. Of the root directory it says nothing.
    pub generation: Generation,
    pub file_type: FileType,
}

/// A name, and the directory that it is in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct NamePlace {
    pub directory: FileIdentity,
    pub name: Vec<u8>,
}

/// An inode that has names in a state.
#[derive(Clone, Copy)]
pub(super) struct FoundInode {
    pub identity: FileIdentity,
    pub item: InodeItem,
}

/// One of the two subvolumes.
pub(super) struct State<'a> {
    pub tree: SubvolumeTree<'a>,
    paths: DirectoryPaths,
    /// Directories are asked for again and again, by each name in them.
    directories: HashMap<ObjectId, Option<FileIdentity>>,
}

/// Both subvolumes.
pub(super) struct States<'a> {
    pub old: State<'a>,
    pub new: State<'a>,
}

impl States<'_> {
    pub fn ids(&self) -> OldNew<RootId> {
        OldNew { old: self.old.id(), new: self.new.id() }
    }
}

impl<'a> State<'a> {
    pub fn new(forest: &'a Forest, root: &Arc<Root>) -> Self {
        Self {
            tree: SubvolumeTree::new(forest.trees(), Arc::clone(root)),
            paths: DirectoryPaths::new(),
            directories: HashMap::new(),
        }
    }

    pub fn id(&self) -> RootId {
        self.tree.root().id()
    }

    /// An inode; none if the state has none of this number that has names.
    pub fn find(&self, number: ObjectId) -> Result<Option<FoundInode>, DiffError> {
        let Some(item) = self.tree.inode(number)?.filter(is_named) else { return Ok(None) };
        let unknown = DiffError::UnknownType { subvolume: self.id(), inode: number };
        let file_type = item.mode.file_type().ok_or(unknown)?;
        let is_root = number == ObjectId::FIRST_FREE;
        let generation = if is_root { Generation(0) } else { item.generation };
        Ok(Some(FoundInode { identity: FileIdentity { number, generation, file_type }, item }))
    }

    /// Which directory has a number in this state; none if none has.
    pub fn directory(&mut self, number: ObjectId) -> Result<Option<FileIdentity>, DiffError> {
        if let Some(known) = self.directories.get(&number) {
            return Ok(*known);
        }
        let found = self.find(number)?.map(|found| found.identity);
        let found = found.filter(|identity| identity.file_type == FileType::Directory);
        if self.directories.len() >= MAX_REMEMBERED {
            self.directories.clear();
        }
        self.directories.insert(number, found);
        Ok(found)
    }

    /// All names of an inode, sorted; none of the root directory.
    pub fn names(&mut self, inode: ObjectId) -> Result<Vec<NamePlace>, DiffError> {
        if inode == ObjectId::FIRST_FREE {
            return Ok(Vec::new());
        }
        let stored = self.tree.names(inode)?;
        if stored.is_empty() {
            return Err(NamesError::NoName { subvolume: self.id(), inode }.into());
        }
        let mut names = Vec::with_capacity(stored.len());
        for StoredName { parent, name } in stored {
            names.push(NamePlace { directory: self.directory_of(inode, parent)?, name });
        }
        names.sort();
        Ok(names)
    }

    fn directory_of(&mut self, inode: ObjectId, directory: ObjectId) -> Result<FileIdentity, DiffError> {
        let found = self.directory(directory)?;
        let subvolume = self.id();
        Ok(found.ok_or(NamesError::NoDirectory { subvolume, inode, directory })?)
    }

    /// The inode that has a name in a directory; none where nothing has it, or a subvolume.
    pub fn entry(&self, directory: ObjectId, name: &[u8]) -> Result<Option<FoundInode>, DiffError> {
        match self.tree.entry(directory, name)? {
            Some(location) if location.item_type == ItemType::INODE_ITEM => self.find(location.objectid),
            _ => Ok(None),
        }
    }

    /// The path of a name.
    pub fn path(&mut self, inode: ObjectId, place: &NamePlace) -> Result<Vec<u8>, DiffError> {
        Ok(self.paths.join(&self.tree, (inode, place.directory.number), &place.name)?)
    }

    /// The paths of names.
    pub fn paths(&mut self, inode: ObjectId, places: &[NamePlace]) -> Result<Vec<Vec<u8>>, DiffError> {
        places.iter().map(|place| self.path(inode, place)).collect()
    }
}
