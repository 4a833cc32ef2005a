//! What the model knows, and the operation that is being carried out or predicted: what it may look up and
//! change, and which refusals all operations share.

use rustix::io::Errno;

use super::node::{FileId, NameTarget, Node, ROOT_DIRECTORY, TOP_LEVEL, flag};
use super::open_files::OpenFiles;
use super::tokens::Tokens;
use super::tree::NodeTree;
use crate::workload::node_kind::NodeKind;
use crate::workload::operation::{OpenSlot, Place, Token};

/// The inodes, what tokens stand for, what is open, and the operation under way.
#[derive(Clone, Debug)]
pub(super) struct ModelState {
    tree: NodeTree,
    tokens: Tokens,
    open: OpenFiles,
    default: u64,
    now: (i64, u32),
    /// What the operation made, when it is carried out.
    made: Option<FileId>,
    /// The operation is only predicted: nothing changes.
    is_trial: bool,
}

impl ModelState {
    pub(super) fn new(root: Node, now: (i64, u32)) -> Self {
        Self {
            tree: NodeTree::new(root),
            tokens: Tokens::new(),
            open: OpenFiles::default(),
            default: TOP_LEVEL,
            now,
            made: None,
            is_trial: false,
        }
    }

    /// From here on operations are only predicted, or carried out.
    pub(super) fn set_trial(&mut self, is_trial: bool) {
        self.is_trial = is_trial;
    }

    /// The next operation is carried out at this time, and made this file.
    pub(super) fn begin(&mut self, now: (i64, u32), made: Option<FileId>) {
        (self.now, self.made) = (now, made);
    }

    /// Whether the operation is only predicted.
    pub(super) fn is_trial(&self) -> bool {
        self.is_trial
    }

    /// What the operation made; none while it is only predicted.
    pub(super) fn made(&self) -> Option<FileId> {
        self.made.filter(|_| !self.is_trial)
    }

    /// The time of the operation.
    pub(super) fn now(&self) -> (i64, u32) {
        self.now
    }

    pub(super) fn tree(&self) -> &NodeTree {
        &self.tree
    }

    pub(super) fn tree_mut(&mut self) -> &mut NodeTree {
        &mut self.tree
    }

    pub(super) fn tokens_mut(&mut self) -> &mut Tokens {
        &mut self.tokens
    }

    pub(super) fn open_files(&self) -> &OpenFiles {
        &self.open
    }

    pub(super) fn open_files_mut(&mut self) -> &mut OpenFiles {
        &mut self.open
    }

    /// The subvolume that is mounted by default.
    pub(super) fn default_subvolume(&self) -> u64 {
        self.default
    }

    pub(super) fn set_default_subvolume(&mut self, root: u64) {
        self.default = root;
    }

    /// The number of a subvolume.
    pub(super) fn root_of(&self, subvolume: Token) -> Option<u64> {
        self.tokens.root(subvolume).filter(|root| self.tree.subvolumes().contains_key(root))
    }

    /// A file by its tokens, if it exists (it may have no name any more).
    pub(super) fn file(&self, place: Place) -> Option<FileId> {
        let file = FileId { root: self.root_of(place.subvolume)?, number: self.tokens.number(place.object)? };
        self.node(file).map(|_| file)
    }

    pub(super) fn node(&self, file: FileId) -> Option<&Node> {
        self.tree.node(file)
    }

    /// A node that is about to change.
    pub(super) fn change(&mut self, file: FileId) -> &mut Node {
        self.tree.change(file)
    }

    /// A file that is there.
    pub(super) fn existing(&self, place: Place) -> Result<(FileId, &Node), Errno> {
        let file = self.file(place).ok_or(Errno::NOENT)?;
        let node = self.node(file).ok_or(Errno::NOENT)?;
        Ok((file, node))
    }

    /// A file that may be changed: not in a read-only subvolume, without these flags.
    pub(super) fn changeable(&self, place: Place, forbidden: u64) -> Result<(FileId, &Node), Errno> {
        let (file, node) = self.existing(place)?;
        self.tree.writable(file)?;
        if node.has(forbidden) {
            return Err(Errno::PERM);
        }
        Ok((file, node))
    }

    /// A regular file.
    pub(super) fn regular(&self, place: Place) -> Result<(FileId, &Node), Errno> {
        let (file, node) = self.existing(place)?;
        match node.kind {
            NodeKind::File => Ok((file, node)),
            NodeKind::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// A regular file whose data may be changed.
    pub(super) fn writable_file(&self, place: Place, forbidden: u64) -> Result<(FileId, &Node), Errno> {
        self.regular(place)?;
        self.changeable(place, flag::IMMUTABLE | forbidden)
    }

    /// A directory that may get a name.
    pub(super) fn directory(&self, place: Place, forbidden: u64) -> Result<(FileId, &Node), Errno> {
        let (file, node) = self.existing(place)?;
        if node.kind != NodeKind::Directory {
            return Err(Errno::NOTDIR);
        }
        // One that was removed while open takes no names.
        if file.number != ROOT_DIRECTORY && node.links == 0 {
            return Err(Errno::NOENT);
        }
        self.tree.writable(file)?;
        if node.has(forbidden) { Err(Errno::PERM) } else { Ok((file, node)) }
    }

    /// The directory that may get this name.
    pub(super) fn free_name(&self, directory: Place, name: &[u8]) -> Result<FileId, Errno> {
        let (file, node) = self.directory(directory, flag::IMMUTABLE)?;
        check_name(name)?;
        if node.entries.contains_key(name) { Err(Errno::EXIST) } else { Ok(file) }
    }

    /// A name that may be removed: its directory, and what it stands for.
    pub(super) fn entry(&self, directory: Place, name: &[u8]) -> Result<(FileId, NameTarget), Errno> {
        let (file, node) = self.directory(directory, flag::IMMUTABLE | flag::APPEND)?;
        check_name(name)?;
        node.entries.get(name).map(|entry| (file, *entry)).ok_or(Errno::NOENT)
    }

    /// A new inode with what it inherits from its directory.
    pub(super) fn new_node(&self, directory: FileId, kind: NodeKind, permissions: u32) -> Node {
        // mkdir(2) takes no set-id bits.
        let allowed = if kind == NodeKind::Directory { 0o1777 } else { 0o7777 };
        let mut node = Node::new(kind, permissions & allowed, self.now);
        if let Some(parent) = self.node(directory) {
            if parent.permissions & 0o2000 != 0 {
                node.group = parent.group;
                if kind == NodeKind::Directory {
                    node.permissions |= 0o2000;
                }
            }
            node.inherit_acl(parent);
        }
        node.parent = if kind == NodeKind::Directory { directory.number } else { 0 };
        node
    }

    /// Puts a name into a directory.
    pub(super) fn put_name(&mut self, directory: FileId, name: &[u8], target: NameTarget) {
        let now = self.now;
        let node = self.change(directory);
        node.entries.insert(name.to_vec(), target);
        node.modified = Some(now);
    }

    /// Takes a name out of a directory.
    pub(super) fn take_name(&mut self, directory: FileId, name: &[u8]) {
        let now = self.now;
        let node = self.change(directory);
        node.entries.remove(name);
        node.modified = Some(now);
    }

    /// One name fewer; with the last one the inode goes, unless it is open.
    pub(super) fn lose_link(&mut self, file: FileId) {
        let node = self.change(file);
        node.links -= 1;
        // What once had a name is no temporary file any more.
        node.parent = u64::MAX;
        if node.links == 0 {
            self.drop_if_unused(file);
        }
    }

    /// Drops an inode that has no name and is not open.
    pub(super) fn drop_if_unused(&mut self, file: FileId) {
        if self.open.holds(file) || self.node(file).is_none_or(|node| node.links > 0) {
            return;
        }
        self.tree.remove(file);
    }

    /// Nothing is open in the slot any more.
    pub(super) fn release(&mut self, slot: OpenSlot) {
        if let Some(file) = self.open.remove(slot) {
            self.drop_if_unused(file);
        }
    }
}

/// Refuses what is no name.
pub(super) fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name {
        b"" => Err(Errno::NOENT),
        b"." | b".." => Err(Errno::INVAL),
        long if long.len() > 255 => Err(Errno::NAMETOOLONG),
        _ => Ok(()),
    }
}
