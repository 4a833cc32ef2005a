//! What is told of one thing that differs.

use vlinder_format::inode::{DeviceNumber, FileType, GroupId, InodeFlags, UserId};
use vlinder_format::{ObjectId, RootId};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// An inode of the subvolume.
    Inode {
        /// Its number: in the new state, but for what was removed.
        number: ObjectId,
        /// Its type there.
        file_type: FileType,
    },
    /// Another subvolume, which a snapshot shows as an empty directory. What is in it is not compared.
    Subvolume {
        /// Its number.
        id: RootId,
    },
}

/// How a thing differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// The new state alone has it.
    Added,
    /// The old state alone has it.
    Removed,
    /// It has another name, in the same directory or in another one. What is below a directory goes with it
    /// untold.
    Renamed,
    /// Another inode has its name now. Both have no other name.
    Replaced,
    /// It has its name, and something of it is not what it was.
    Changed,
}

/// One thing that is not the same in both states. Paths are from the subvolume's root, without a slash at the
/// beginning; the root itself is `.`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// How it differs.
    pub kind: ChangeKind,
    /// What it is.
    pub subject: Subject,
    /// Its path in the new state, or, where it was removed, in the old one: of several one that it kept.
    pub path: Vec<u8>,
    /// The path in the old state of what was renamed.
    pub old_path: Option<Vec<u8>>,
    /// Further names (hard links) that the new state alone has.
    pub added_names: Vec<Vec<u8>>,
    /// Further names that the old state alone has.
    pub removed_names: Vec<Vec<u8>>,
    /// What is different of it; empty of what was added or removed.
    pub differences: Differences,
    /// Bytes of a regular file in the old and in the new state, as far as it is there; 0 of all others.
    pub size_bytes: OldNew<u64>,
}

/// The same in both states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OldNew<T> {
    /// In the old one.
    pub old: T,
    /// In the new one.
    pub new: T,
}

impl<T: PartialEq> OldNew<T> {
    /// Both, if they differ.
    pub(super) fn if_different(old: T, new: T) -> Option<Self> {
        (old != new).then_some(Self { old, new })
    }
}

/// What is different of a thing that both states have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// The type, of what was replaced.
    pub file_type: Option<OldNew<FileType>>,
    /// Bytes of a regular file.
    pub size_bytes: Option<OldNew<u64>>,
    /// Bytes of the sectors in which bytes differ, up to where the shorter file ends; 0 for none.
    pub changed_bytes: u64,
    /// Permissions.
    pub permissions: Option<OldNew<u32>>,
    /// Owner and group.
    pub owner: Option<OldNew<(UserId, GroupId)>>,
    /// Flags that chattr(1) shows.
    pub flags: Option<OldNew<InodeFlags>>,
    /// Extended attributes, in the order of their names.
    pub attributes: Vec<AttributeChange>,
    /// The target of a symbolic link.
    pub target: Option<OldNew<Vec<u8>>>,
    /// The device of a node.
    pub device: Option<OldNew<DeviceNumber>>,
    /// Whether times differ: of access, modification or change.
    pub times: bool,
}

impl Differences {
    /// Whether something differs beside times.
    #[must_use]
    pub fn beyond_times(&self) -> bool {
        Self { times: false, ..self.clone() } != Self::default()
    }
}

/// An extended attribute that is not the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttributeChange {
    /// Its name.
    pub name: Vec<u8>,
    /// How it differs.
    pub kind: AttributeChangeKind,
}

/// How an extended attribute differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttributeChangeKind {
    /// The new state alone has it.
    Added,
    /// The old state alone has it.
    Removed,
    /// It has another value.
    Changed,
}
