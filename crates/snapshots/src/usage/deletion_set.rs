//! Which subvolumes and inodes go when names are deleted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use vlinder_forest::Forest;
use vlinder_format::inode::FileType;
use vlinder_format::{ObjectId, RootId};

use super::error::UsageError;
use super::names::{self, DirectoryNames, Entry, UsageTarget};
use super::number_set::NumberSet;

/// What goes when some files, directories (with all in them) and subvolumes (with those in them) are deleted.
///
/// A file goes when all of its names do. Each name counts once, however often it is added.
#[derive(Default)]
pub struct DeletionSet {
    /// Deleted whole.
    subvolumes: BTreeSet<RootId>,
    /// Files without other names, and directories: all are gone through once.
    inodes: BTreeMap<RootId, NumberSet>,
    /// Directories that were gone through.
    directories: BTreeMap<RootId, NumberSet>,
    /// Names met in these directories of files that have several.
    linked: HashMap<(RootId, ObjectId), MetNames>,
    /// Names of files that were added by themselves: subvolume, directory, name.
    single: BTreeMap<(RootId, ObjectId, Vec<u8>), ObjectId>,
}

/// Names of a file that were met.
#[derive(Clone, Copy, Debug, Default)]
struct MetNames {
    met: u32,
    all: u32,
}

impl DeletionSet {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file, a directory with all in it, or a subvolume with those in it. Of the top-level subvolume,
    /// which can't be deleted, all that is in it.
    ///
    /// # Errors
    /// What reading met.
    pub fn add(&mut self, forest: &Forest, target: &UsageTarget<'_>) -> Result<(), UsageError> {
        let UsageTarget { root, inode, name } = *target;
        let tree = forest.tree(root)?;
        if inode == ObjectId::FIRST_FREE {
            return self.add_subvolume(forest, root);
        }
        let item = names::inode_item(forest, &tree, inode)?;
        // The place where a subvolume lay in the source of a snapshot has no inode.
        let Some(item) = item else { return Ok(()) };
        match item.mode.file_type() {
            Some(FileType::Directory) => self.add_directory(forest, root, inode),
            Some(FileType::Regular) => {
                match name {
                    Some((directory, name)) => {
                        self.single.insert((root, directory, name.to_vec()), inode);
                    }
                    None => {
                        self.inodes.entry(root).or_default().insert(inode.0);
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn add_subvolume(&mut self, forest: &Forest, root: RootId) -> Result<(), UsageError> {
        if !self.subvolumes.contains(&root) {
            for nested in names::with_nested(forest, root)? {
                self.subvolumes.insert(nested);
            }
        }
        Ok(())
    }

    fn add_directory(&mut self, forest: &Forest, root: RootId, top: ObjectId) -> Result<(), UsageError> {
        let tree = forest.tree(root)?;
        let mut waiting = vec![top];
        while let Some(directory) = waiting.pop() {
            if !self.directories.entry(root).or_default().insert(directory.0) {
                continue;
            }
            let mut names = DirectoryNames::new(forest, &tree, directory);
            while let Some((_, entry)) = names.next()? {
                match entry {
                    Entry::Directory(inode) => waiting.push(inode),
                    Entry::Subvolume(nested) => self.add_subvolume(forest, nested)?,
                    Entry::NoSubvolume => {}
                    Entry::File(inode) => {
                        let item = names::inode_item(forest, &tree, inode)?;
                        let item = item.ok_or(UsageError::NoInode { root, inode })?;
                        if item.link_count > 1 {
                            let met = self.linked.entry((root, inode)).or_default();
                            *met = MetNames { met: met.met.saturating_add(1), all: item.link_count };
                        } else {
                            self.inodes.entry(root).or_default().insert(inode.0);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// The subvolumes that go whole, and the inodes that go from others.
    pub(super) fn settle(mut self, forest: &Forest) -> Result<Going, UsageError> {
        for ((root, directory, _), inode) in &self.single {
            if self.directories.get(root).is_some_and(|seen| seen.contains(directory.0)) {
                continue;
            }
            let item = names::inode_item(forest, &forest.tree(*root)?, *inode)?;
            let all = item.map_or(0, |item| item.link_count);
            let met = self.linked.entry((*root, *inode)).or_default();
            *met = MetNames { met: met.met.saturating_add(1), all };
        }
        for ((root, inode), names) in self.linked {
            if names.met >= names.all {
                self.inodes.entry(root).or_default().insert(inode.0);
            }
        }
        if self.subvolumes.remove(&RootId::FS_TREE) {
            // It stays, and so do files that have no name.
            let mut all = NumberSet::all();
            for orphan in names::orphans(forest, &forest.tree(RootId::FS_TREE)?)? {
                all.remove(orphan);
            }
            self.inodes.insert(RootId::FS_TREE, all);
        }
        self.inodes.retain(|root, _| !self.subvolumes.contains(root));
        Ok(Going { subvolumes: self.subvolumes, inodes: self.inodes })
    }
}

/// What goes.
pub(super) struct Going {
    /// Whole subvolumes.
    pub subvolumes: BTreeSet<RootId>,
    /// Files of others.
    pub inodes: BTreeMap<RootId, NumberSet>,
}
