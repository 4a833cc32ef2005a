//! An inode as the model knows it, and what a name stands for.

use std::collections::BTreeMap;

use crate::workload::content::Content;
use crate::workload::node_kind::NodeKind;

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

impl FileId {
    /// The root directory of a subvolume.
    pub(super) fn root_directory(root: u64) -> Self {
        Self { root, number: ROOT_DIRECTORY }
    }
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
