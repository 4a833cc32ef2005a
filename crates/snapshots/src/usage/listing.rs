//! Files and directories by their names, with what each shows and shares: the lines of
//! `btrfs filesystem du`.

use std::collections::HashSet;
use std::ops::ControlFlow;

use vlinder_base::sync::Arc;
use vlinder_forest::OpenTree;
use vlinder_format::inode::{FileType, InodeItem};
use vlinder_format::{ItemType, Key, ObjectId, RootId};

use super::error::{MAX_PATH_BYTES, UsageError};
use super::extent_items;
use super::file_runs::{FileRuns, ShownBytes};
use super::names::{self, DirectoryNames, Entry, UsageTarget};
use super::number_set::NumberSet;
use super::reader::UsageReader;
use super::shared_path::SharedPath;
use super::subvolume_usage::Gathered;

/// What a target shows and shares, in bytes of files: holes and inline data do not count, preallocated space
/// does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of all runs of all files below it.
    pub total_bytes: u64,
    /// Of those that fiemap does not call shared.
    pub exclusive_bytes: u64,
    /// Of those that it does, each byte of an extent once. Of a file as often as the file shows it, as
    /// btrfs-progs has it.
    pub set_shared_bytes: u64,
}

/// A file or directory below a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageLine<'p> {
    /// Its path below the target: names with slashes between them.
    pub path: &'p [u8],
    /// Whether it is a directory or subvolume.
    pub is_directory: bool,
    /// Bytes of all runs of all files below it.
    pub total_bytes: u64,
    /// Bytes of those that fiemap does not call shared.
    pub exclusive_bytes: u64,
}

/// Is told each file, and each directory behind all that is in it, until it breaks off.
pub type EachLine<'e> = &'e mut dyn FnMut(&UsageLine<'_>) -> ControlFlow<()>;

/// A directory on the way down.
struct OpenDirectory<'a> {
    names: DirectoryNames<'a>,
    /// Bytes of the path that leads to it.
    path_bytes: usize,
    shown: ShownBytes,
    /// Whether the walk leaves a subvolume where it leaves this directory.
    is_subvolume: bool,
}

/// A subvolume on the way down.
struct OpenSubvolume<'a> {
    items: SharedPath<'a>,
    /// Directories that were met.
    directories: NumberSet,
}

/// A walk of names.
struct Walk<'a, 'e> {
    path: Vec<u8>,
    directories: Vec<OpenDirectory<'a>>,
    subvolumes: Vec<OpenSubvolume<'a>>,
    /// Files with several names that were met.
    linked: HashSet<(RootId, ObjectId)>,
    /// None where lines are not wanted; subvolumes are then added up by their trees.
    each: Option<EachLine<'e>>,
}

impl<'a> UsageReader<'a> {
    /// What a target shows and shares.
    ///
    /// # Errors
    /// What reading met; counts that can't be right.
    pub fn summary(&mut self, target: &UsageTarget<'_>) -> Result<Usage, UsageError> {
        self.measure(target, None)
    }

    /// What a target shows and shares, and each file and directory below it. Where `each` breaks off, what
    /// was met so far.
    ///
    /// # Errors
    /// As [`summary`](Self::summary).
    pub fn list(&mut self, target: &UsageTarget<'_>, each: EachLine<'_>) -> Result<Usage, UsageError> {
        self.measure(target, Some(each))
    }

    fn measure(&mut self, target: &UsageTarget<'_>, each: Option<EachLine<'_>>) -> Result<Usage, UsageError> {
        self.shared.begin();
        let mut gathered = Gathered::default();
        let tree = self.forest.tree(target.root)?;
        let item = names::inode_item(self.forest, &tree, target.inode)?;
        match item.and_then(|item| item.mode.file_type()) {
            Some(FileType::Directory) => self.add_directory(target, &tree, each, &mut gathered)?,
            Some(FileType::Regular) => {
                let mut items = SharedPath::new(self.forest, &tree);
                let (_, shown) = self.file(&mut items, target.inode, &mut gathered, |_| true)?;
                return Ok(Usage {
                    total_bytes: shown.total,
                    exclusive_bytes: shown.exclusive,
                    set_shared_bytes: shown.total.saturating_sub(shown.exclusive),
                });
            }
            _ => {}
        }
        let set_shared_bytes =
            self.shared.measure(self.forest, gathered.shared.joined(), &gathered.hidden)?;
        Ok(Usage {
            total_bytes: gathered.shown.total.saturating_sub(gathered.hidden_bytes),
            exclusive_bytes: gathered.shown.exclusive,
            set_shared_bytes,
        })
    }

    fn add_directory(
        &mut self,
        target: &UsageTarget<'_>,
        tree: &Arc<OpenTree>,
        each: Option<EachLine<'_>>,
        gathered: &mut Gathered,
    ) -> Result<(), UsageError> {
        if each.is_none() && target.inode == ObjectId::FIRST_FREE {
            return self.add_with_nested(target.root, gathered);
        }
        let mut walk = Walk {
            path: Vec::new(),
            directories: Vec::new(),
            subvolumes: Vec::new(),
            linked: HashSet::new(),
            each,
        };
        walk.enter_subvolume(self, tree);
        walk.enter(self, target.inode, false)?;
        while !walk.directories.is_empty() {
            if self.step(&mut walk, gathered)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    fn add_with_nested(&mut self, root: RootId, gathered: &mut Gathered) -> Result<(), UsageError> {
        for subvolume in names::with_nested(self.forest, root)? {
            self.add_subvolume(subvolume, gathered)?;
        }
        Ok(())
    }

    /// Takes the next name, or leaves a directory.
    fn step(
        &mut self,
        walk: &mut Walk<'a, '_>,
        gathered: &mut Gathered,
    ) -> Result<ControlFlow<()>, UsageError> {
        let Some(directory) = walk.directories.last_mut() else { return Ok(ControlFlow::Break(())) };
        walk.path.truncate(directory.path_bytes);
        let Some((name, entry)) = directory.names.next()? else { return Ok(walk.leave(gathered)) };
        if walk.each.is_some() {
            if !walk.path.is_empty() {
                walk.path.push(b'/');
            }
            walk.path.extend_from_slice(&name);
            if walk.path.len() >= MAX_PATH_BYTES {
                return Err(walk.path_too_long());
            }
        }
        match entry {
            Entry::File(inode) => return self.add_file(walk, inode, gathered),
            Entry::Directory(inode) => walk.enter(self, inode, false)?,
            Entry::NoSubvolume => return Ok(walk.tell(true, ShownBytes::default())),
            Entry::Subvolume(root) if walk.each.is_none() => self.add_with_nested(root, gathered)?,
            Entry::Subvolume(root) => {
                let tree = self.forest.tree(root)?;
                walk.enter_subvolume(self, &tree);
                walk.enter(self, ObjectId::FIRST_FREE, true)?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn add_file(
        &mut self,
        walk: &mut Walk<'a, '_>,
        inode: ObjectId,
        gathered: &mut Gathered,
    ) -> Result<ControlFlow<()>, UsageError> {
        let Walk { subvolumes, directories, linked, .. } = walk;
        let Some(OpenSubvolume { items, .. }) = subvolumes.last_mut() else {
            return Ok(ControlFlow::Break(()));
        };
        let root = items.tree().id();
        // A file with several names counts where the first of them is met.
        let is_new = |item: &InodeItem| item.link_count <= 1 || linked.insert((root, inode));
        let (found, shown) = self.file(items, inode, gathered, is_new)?;
        match found {
            FoundFile::Missing => return Err(UsageError::NoInode { root, inode }),
            FoundFile::Passed => return Ok(ControlFlow::Continue(())),
            FoundFile::Measured => {}
        }
        if let Some(directory) = directories.last_mut() {
            directory.shown.add(shown);
        }
        Ok(walk.tell(false, shown))
    }

    /// The runs of a file, if it is one that is wanted.
    fn file(
        &mut self,
        items: &mut SharedPath<'_>,
        inode: ObjectId,
        gathered: &mut Gathered,
        is_wanted: impl FnOnce(&InodeItem) -> bool,
    ) -> Result<(FoundFile, ShownBytes), UsageError> {
        items.seek(&mut self.counts, &Key::new(inode, ItemType::INODE_ITEM, 0))?;
        let Some((leaf, slot, _)) = items.item() else { return Ok(FoundFile::missing()) };
        let key = leaf.key(slot);
        if key.objectid != inode || key.item_type != ItemType::INODE_ITEM {
            return Ok(FoundFile::missing());
        }
        let item = InodeItem::decode(leaf.data(slot))
            .map_err(|fault| extent_items::damage(fault, leaf, slot, key))?;
        if !is_wanted(&item) {
            return Ok((FoundFile::Passed, ShownBytes::default()));
        }
        items.seek(&mut self.counts, &Key::new(inode, ItemType::EXTENT_DATA, 0))?;
        let mut runs = FileRuns::default();
        let mut share = |range| gathered.shared.push(range);
        while let Some((leaf, slot, is_shared)) = items.item() {
            if leaf.key(slot).objectid != inode {
                break;
            }
            if let Some(run) = extent_items::run_at(leaf, slot)? {
                runs.add(&mut self.counts, (run, is_shared), &mut share)?;
            }
            items.advance(&mut self.counts)?;
        }
        (self.watch)(1);
        Ok((FoundFile::Measured, runs.finish(&mut share)))
    }
}

/// What became of a file that was to be measured.
enum FoundFile {
    Missing,
    /// It is not wanted.
    Passed,
    Measured,
}

impl FoundFile {
    fn missing() -> (Self, ShownBytes) {
        (Self::Missing, ShownBytes::default())
    }
}

impl<'a> Walk<'a, '_> {
    fn enter_subvolume(&mut self, reader: &UsageReader<'a>, tree: &Arc<OpenTree>) {
        let items = SharedPath::new(reader.forest, tree);
        self.subvolumes.push(OpenSubvolume { items, directories: NumberSet::default() });
    }

    /// Enters a directory of the innermost subvolume.
    fn enter(
        &mut self,
        reader: &UsageReader<'a>,
        inode: ObjectId,
        is_subvolume: bool,
    ) -> Result<(), UsageError> {
        let is_circle = |tree: &Arc<OpenTree>, outer: &[OpenSubvolume<'_>]| {
            outer.iter().any(|outer| outer.items.tree().id() == tree.id())
        };
        let Some((subvolume, outer)) = self.subvolumes.split_last_mut() else { return Ok(()) };
        let tree = Arc::clone(subvolume.items.tree());
        if is_subvolume && is_circle(&tree, outer) || !subvolume.directories.insert(inode.0) {
            return Err(UsageError::Circle { root: tree.id(), inode });
        }
        if let Some(directory) = self.directories.last_mut() {
            directory.names.pause();
        }
        self.directories.push(OpenDirectory {
            names: DirectoryNames::new(reader.forest, &tree, inode),
            path_bytes: self.path.len(),
            shown: ShownBytes::default(),
            is_subvolume,
        });
        Ok(())
    }

    /// Leaves the innermost directory: what it shows is its parent's, too.
    fn leave(&mut self, gathered: &mut Gathered) -> ControlFlow<()> {
        let Some(left) = self.directories.pop() else { return ControlFlow::Break(()) };
        if left.is_subvolume {
            self.subvolumes.pop();
        }
        match self.directories.last_mut() {
            Some(parent) => {
                parent.shown.add(left.shown);
                self.tell(true, left.shown)
            }
            None => {
                gathered.shown.add(left.shown);
                ControlFlow::Break(())
            }
        }
    }

    fn path_too_long(&self) -> UsageError {
        let root = self.subvolumes.last().map_or(RootId::FS_TREE, |subvolume| subvolume.items.tree().id());
        let inode = self.directories.last().map_or(ObjectId::FIRST_FREE, |directory| directory.names.inode());
        UsageError::PathTooLong { root, inode }
    }

    fn tell(&mut self, is_directory: bool, shown: ShownBytes) -> ControlFlow<()> {
        let line = UsageLine {
            path: &self.path,
            is_directory,
            total_bytes: shown.total,
            exclusive_bytes: shown.exclusive,
        };
        self.each.as_mut().map_or(ControlFlow::Continue(()), |each| each(&line))
    }
}
