//! The reference model: every subvolume as a plain map of inodes.

mod acl;
mod apply;
mod attributes;
mod data;
mod names;
mod render;
mod subvolumes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use vlinder_base::sync::Arc;

use rustix::io::Errno;

use super::content::Content;
use super::node_kind::NodeKind;
use super::operation::{OpenSlot, Operation, Place, Token};

/// Inode number of a subvolume's root directory, and id of the top-level subvolume.
pub(crate) const ROOT_DIRECTORY: u64 = 256;
/// Id of the top-level subvolume.
pub(crate) const TOP_LEVEL: u64 = 5;

/// Bits of an inode item's flags that the model knows.
pub(crate) mod flag {
    pub(crate) const NODATASUM: u64 = 1;
    pub(crate) const NODATACOW: u64 = 1 << 1;
    pub(crate) const IMMUTABLE: u64 = 1 << 6;
    pub(crate) const APPEND: u64 = 1 << 7;
}

/// A file as the disk knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The subvolume's number.
    pub root: u64,
    /// The inode number.
    pub number: u64,
}

/// What a name in a directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameTarget {
    /// An inode of the same subvolume.
    Inode(u64),
    /// A subvolume.
    Subvolume(u64),
    /// A subvolume that was nested in the source of a snapshot: an empty directory.
    Placeholder,
}

/// An inode.
#[derive(Clone, Debug)]
pub struct Node {
    /// Type.
    pub kind: NodeKind,
    /// Permissions with set-id and sticky bits.
    pub permissions: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Names; 1 for a directory.
    pub links: u32,
    /// Modification time; none where the model leaves it to the file system, until it is learned.
    pub modified: Option<(i64, u32)>,
    /// Flags of the inode item, as learned: they must not change by themselves.
    pub flags: Option<u64>,
    /// `btrfs.compression`, as learned (an attribute among others for the kernel).
    pub compression: Option<Vec<u8>>,
    /// Extended attributes without that one.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Of a regular file.
    pub content: Content,
    /// Of a symbolic link.
    pub target: Vec<u8>,
    /// Of a device.
    pub device: (u32, u32),
    /// Of a directory.
    pub entries: BTreeMap<Vec<u8>, NameTarget>,
    /// Of a directory: its parent in the same subvolume.
    pub parent: u64,
}

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

/// What came of an operation on the file system under test.
pub type Outcome = Result<Option<FileId>, Errno>;

/// The file system did something else than the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model expects {expected}, the file system gives {found}")]
pub struct Mismatch {
    /// What the model expects.
    pub expected: String,
    /// What was found.
    pub found: String,
}

/// Every subvolume, and which files are open.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) subvolumes: BTreeMap<u64, SubvolumeModel>,
    pub(crate) roots: HashMap<Token, u64>,
    pub(crate) numbers: HashMap<Token, u64>,
    pub(crate) open: BTreeMap<OpenSlot, FileId>,
    pub(crate) default: u64,
    touched: BTreeSet<FileId>,
    now: (i64, u32),
    /// What the operation made, when it is carried out; none while it is only predicted.
    made: Option<FileId>,
    is_trial: bool,
}

impl Model {
    /// A new file system: a top-level directory with these permissions.
    pub fn new(permissions: u32, modified: (i64, u32)) -> Self {
        let mut root = Node::new(NodeKind::Directory, permissions, modified);
        root.parent = ROOT_DIRECTORY;
        let nodes = BTreeMap::from([(ROOT_DIRECTORY, Arc::new(root))]);
        let top = SubvolumeModel { nodes, read_only: false, place: None };
        Self {
            subvolumes: BTreeMap::from([(TOP_LEVEL, top)]),
            roots: HashMap::from([(Token::ROOT, TOP_LEVEL)]),
            numbers: HashMap::from([(Token::ROOT, ROOT_DIRECTORY)]),
            open: BTreeMap::new(),
            default: TOP_LEVEL,
            touched: BTreeSet::new(),
            now: modified,
            made: None,
            is_trial: false,
        }
    }

    /// The number of a subvolume.
    pub fn root_of(&self, subvolume: Token) -> Option<u64> {
        self.roots.get(&subvolume).copied().filter(|root| self.subvolumes.contains_key(root))
    }

    /// A file by its tokens, if it exists (it may have no name any more).
    pub fn file(&self, place: Place) -> Option<FileId> {
        let root = self.root_of(place.subvolume)?;
        let number = *self.numbers.get(&place.object)?;
        self.subvolumes.get(&root)?.nodes.contains_key(&number).then_some(FileId { root, number })
    }

    /// What is open in a slot.
    pub fn open_file_of(&self, slot: OpenSlot) -> Option<FileId> {
        self.open.get(&slot).copied()
    }

    /// An inode.
    pub fn node(&self, file: FileId) -> Option<&Node> {
        self.subvolumes.get(&file.root)?.nodes.get(&file.number).map(|node| &**node)
    }

    /// Every subvolume by number.
    pub fn subvolumes(&self) -> &BTreeMap<u64, SubvolumeModel> {
        &self.subvolumes
    }

    /// The subvolume that is mounted by default.
    pub fn default_subvolume(&self) -> u64 {
        self.default
    }

    /// How many inodes there are in all.
    pub fn inode_count(&self) -> usize {
        self.subvolumes.values().map(|subvolume| subvolume.nodes.len()).sum()
    }

    /// Bytes that writing all files anew would take, as if nothing were shared.
    pub fn stored_bytes(&self) -> u64 {
        let nodes = self.subvolumes.values().flat_map(|subvolume| subvolume.nodes.values());
        nodes.map(|node| node.content.stored_bytes()).sum()
    }

    /// What the operation should come to.
    ///
    /// # Errors
    /// The refusal that Linux gives.
    pub fn predict(&mut self, operation: &Operation) -> Result<(), Errno> {
        self.is_trial = true;
        let result = self.perform(operation);
        self.is_trial = false;
        result
    }

    /// Takes in what came of an operation at a time; gives the files that it touched, to be looked at.
    ///
    /// # Errors
    /// A success where the model expects a refusal or the other way round. A full file system may refuse
    /// anything.
    pub fn take_in(
        &mut self,
        operation: &Operation,
        now: (i64, u32),
        outcome: &Outcome,
    ) -> Result<Vec<FileId>, Mismatch> {
        let predicted = self.predict(operation);
        let mismatch = || Mismatch { expected: format!("{predicted:?}"), found: format!("{outcome:?}") };
        // Which flags and properties go together is the file system's to say; what it says must last.
        let is_open = matches!(operation, Operation::SetFlags { .. } | Operation::SetCompression { .. });
        match (predicted, outcome) {
            (_, Err(Errno::NOSPC)) | (Err(_), Err(_)) => Ok(Vec::new()),
            (Ok(()), Err(_)) if is_open => Ok(Vec::new()),
            (Ok(()), Ok(made)) => {
                (self.now, self.made) = (now, *made);
                self.touched.clear();
                let performed = self.perform(operation);
                assert_eq!(performed, Ok(()), "the model's own prediction failed for {operation:?}");
                self.note_token(operation);
                let touched = std::mem::take(&mut self.touched);
                Ok(touched.into_iter().filter(|file| self.node(*file).is_some()).collect())
            }
            _ => Err(mismatch()),
        }
    }

    fn note_token(&mut self, operation: &Operation) {
        let (Some(token), Some(made)) = (operation.made(), self.made) else { return };
        self.numbers.insert(token, made.number);
        if matches!(operation, Operation::CreateSubvolume { .. } | Operation::Snapshot { .. }) {
            self.roots.insert(token, made.root);
        }
    }

    /// Forgets who had what open: the file system was closed. Files without names go.
    pub fn close_all(&mut self) {
        let slots: Vec<OpenSlot> = self.open.keys().copied().collect();
        for slot in slots {
            self.release(slot);
        }
    }

    /// What is read of a file is remembered where the model does not know better.
    ///
    /// # Errors
    /// It contradicts what the model knows.
    pub fn learn(&mut self, file: FileId, seen: &Seen) -> Result<(), Mismatch> {
        let Some(node) = self.node_mut(file) else { return Ok(()) };
        node.modified.get_or_insert(seen.modified);
        node.flags.get_or_insert(seen.flags);
        let expected = node.seen();
        if expected == *seen {
            return Ok(());
        }
        Err(Mismatch { expected: format!("{file:?} {expected:?}"), found: format!("{seen:?}") })
    }

    /// As [`learn`](Self::learn), for `btrfs.compression`.
    ///
    /// # Errors
    /// It contradicts what the model knows.
    pub fn learn_compression(&mut self, file: FileId, found: Option<Vec<u8>>) -> Result<(), Mismatch> {
        let Some(node) = self.node_mut(file) else { return Ok(()) };
        let found = found.unwrap_or_default();
        let expected = node.compression.get_or_insert_with(|| found.clone());
        if *expected == found {
            return Ok(());
        }
        let text = |value: &[u8]| format!("{file:?} compression {:?}", String::from_utf8_lossy(value));
        Err(Mismatch { expected: text(expected), found: text(&found) })
    }

    /// What must be seen of an inode, as far as all of it is known.
    pub fn seen(&self, file: FileId) -> Option<Seen> {
        let node = self.node(file)?;
        (node.modified.is_some() && node.flags.is_some()).then(|| node.seen())
    }

    pub(crate) fn node_mut(&mut self, file: FileId) -> Option<&mut Node> {
        self.subvolumes.get_mut(&file.root)?.nodes.get_mut(&file.number).map(Arc::make_mut)
    }

    /// A node that is about to change.
    pub(crate) fn change(&mut self, file: FileId) -> &mut Node {
        self.touched.insert(file);
        match self.node_mut(file) {
            Some(node) => node,
            None => unreachable!("{file:?} was looked up before"),
        }
    }
}

/// What can be seen of an inode without reading its content or names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Names.
    pub links: u32,
    /// Bytes.
    pub size: u64,
    /// Modification time.
    pub modified: (i64, u32),
    /// Flags of the inode item.
    pub flags: u64,
    /// Of a device.
    pub device: (u32, u32),
}

impl Node {
    pub(crate) fn new(kind: NodeKind, permissions: u32, modified: (i64, u32)) -> Self {
        Self {
            kind,
            permissions,
            user: 0,
            group: 0,
            links: 1,
            modified: Some(modified),
            flags: None,
            compression: None,
            attributes: BTreeMap::new(),
            content: Content::default(),
            target: Vec::new(),
            device: (0, 0),
            entries: BTreeMap::new(),
            parent: 0,
        }
    }

    /// Bytes, as stat shows them.
    pub fn size(&self) -> u64 {
        match self.kind {
            NodeKind::File => self.content.size(),
            NodeKind::SymbolicLink => self.target.len() as u64,
            NodeKind::Directory => self.entries.keys().map(|name| 2 * name.len() as u64).sum(),
            _ => 0,
        }
    }

    /// Whether its data are overwritten where they lie, as `chattr +C` and `nodatacow` ask for.
    pub fn is_written_in_place(&self) -> bool {
        self.has(flag::NODATACOW)
    }

    pub(crate) fn has(&self, flag: u64) -> bool {
        self.flags.unwrap_or(0) & flag != 0
    }

    pub(crate) fn seen(&self) -> Seen {
        Seen {
            mode: self.kind.mode_bits() | self.permissions,
            user: self.user,
            group: self.group,
            links: self.links,
            size: self.size(),
            modified: self.modified.unwrap_or_default(),
            flags: self.flags.unwrap_or_default(),
            device: self.device,
        }
    }
}
