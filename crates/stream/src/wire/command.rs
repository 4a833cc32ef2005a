//! Commands with their attributes in types.

use vlinder_format::inode::Timestamp;
use vlinder_format::{Generation, Uuid};

use super::CommandKind;

/// A command. Paths are bytes below the root of the subvolume that is sent, without a slash at either end;
/// the empty path is that root. Nothing here promises that a path is harmless: the receiver judges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// See [`CommandKind::Subvolume`].
    Subvolume {
        /// Its name.
        path: &'a [u8],
        /// The subvolume's UUID, or the one it was received with.
        uuid: Uuid,
        /// The transaction of its last change.
        transid: Generation,
    },
    /// See [`CommandKind::Snapshot`].
    Snapshot(Snapshot<'a>),
    /// See [`CommandKind::MakeFile`].
    MakeFile {
        /// The file.
        path: &'a [u8],
        /// Its inode number at the sender, if that is told.
        inode: Option<u64>,
    },
    /// See [`CommandKind::MakeDirectory`].
    MakeDirectory {
        /// The directory.
        path: &'a [u8],
        /// Its inode number at the sender, if that is told.
        inode: Option<u64>,
    },
    /// See [`CommandKind::MakeNode`].
    MakeNode(Node<'a>),
    /// See [`CommandKind::MakeFifo`].
    MakeFifo(Node<'a>),
    /// See [`CommandKind::MakeSocket`].
    MakeSocket(Node<'a>),
    /// See [`CommandKind::Symlink`].
    Symlink {
        /// The link.
        path: &'a [u8],
        /// Its inode number at the sender, if that is told.
        inode: Option<u64>,
        /// What it leads to.
        target: &'a [u8],
    },
    /// See [`CommandKind::Rename`].
    Rename {
        /// The name that goes.
        path: &'a [u8],
        /// The name that comes.
        to: &'a [u8],
    },
    /// See [`CommandKind::Link`].
    Link {
        /// The new name.
        path: &'a [u8],
        /// The name that is there.
        existing: &'a [u8],
    },
    /// See [`CommandKind::Unlink`].
    Unlink {
        /// The name.
        path: &'a [u8],
    },
    /// See [`CommandKind::RemoveDirectory`].
    RemoveDirectory {
        /// The directory.
        path: &'a [u8],
    },
    /// See [`CommandKind::SetXattr`].
    SetXattr {
        /// The file.
        path: &'a [u8],
        /// Name of the attribute, with its namespace.
        name: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// See [`CommandKind::RemoveXattr`].
    RemoveXattr {
        /// The file.
        path: &'a [u8],
        /// Name of the attribute.
        name: &'a [u8],
    },
    /// See [`CommandKind::Write`].
    Write {
        /// The file.
        path: &'a [u8],
        /// Where.
        offset: u64,
        /// What.
        data: &'a [u8],
    },
    /// See [`CommandKind::Clone`].
    Clone {
        /// The file that gets the range.
        path: &'a [u8],
        /// Where in it.
        offset: u64,
        /// How many bytes.
        length: u64,
        /// The subvolume of the source: the one that is sent, or another that the receiver has.
        source_uuid: Uuid,
        /// Its transaction.
        source_transid: Generation,
        /// The file there.
        source_path: &'a [u8],
        /// Where in that file.
        source_offset: u64,
    },
    /// See [`CommandKind::Truncate`].
    Truncate {
        /// The file.
        path: &'a [u8],
        /// Its size.
        size: u64,
    },
    /// See [`CommandKind::SetMode`].
    SetMode {
        /// The file.
        path: &'a [u8],
        /// Permissions, with set-id bits.
        mode: u64,
    },
    /// See [`CommandKind::SetOwner`].
    SetOwner {
        /// The file.
        path: &'a [u8],
        /// Owner.
        uid: u64,
        /// Group.
        gid: u64,
    },
    /// See [`CommandKind::SetTimes`].
    SetTimes {
        /// The file.
        path: &'a [u8],
        /// The times.
        times: Times,
    },
    /// See [`CommandKind::End`].
    End,
    /// See [`CommandKind::UpdateExtent`].
    UpdateExtent {
        /// The file.
        path: &'a [u8],
        /// Where.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// See [`CommandKind::Fallocate`].
    Fallocate {
        /// The file.
        path: &'a [u8],
        /// As fallocate(2) takes it.
        mode: u32,
        /// Where.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
    /// See [`CommandKind::SetFileAttributes`].
    SetFileAttributes {
        /// The file.
        path: &'a [u8],
        /// As the inode item has them.
        flags: u64,
    },
    /// See [`CommandKind::EncodedWrite`].
    EncodedWrite(EncodedWrite<'a>),
    /// See [`CommandKind::EnableVerity`].
    EnableVerity {
        /// The file.
        path: &'a [u8],
        /// Hash algorithm, as fs-verity numbers them.
        algorithm: u8,
        /// Block size in bytes.
        block_size: u32,
        /// Salt.
        salt: &'a [u8],
        /// Signature; empty if there is none.
        signature: &'a [u8],
    },
}

/// A new subvolume as a snapshot of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot<'a> {
    /// Its name.
    pub path: &'a [u8],
    /// The UUID of what is sent, or the one it was received with.
    pub uuid: Uuid,
    /// The transaction of its last change.
    pub transid: Generation,
    /// UUID of the parent.
    pub parent_uuid: Uuid,
    /// Transaction of the parent's last change.
    pub parent_transid: Generation,
}

/// A device, pipe or socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node<'a> {
    /// Its name.
    pub path: &'a [u8],
    /// Its inode number at the sender, if that is told.
    pub inode: Option<u64>,
    /// Type and permissions.
    pub mode: u64,
    /// Device number, as Linux's `new_encode_dev` packs it.
    pub device: u64,
}

/// The times of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Of the last access.
    pub access: Timestamp,
    /// Of the last change of content.
    pub modification: Timestamp,
    /// Of the last change.
    pub change: Timestamp,
    /// Of birth, which streams have since version 2.
    pub birth: Option<Timestamp>,
}

/// A compressed extent as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodedWrite<'a> {
    /// The file.
    pub path: &'a [u8],
    /// Where in the file.
    pub offset: u64,
    /// Bytes of the file that it becomes.
    pub file_length: u64,
    /// Bytes that it has when it is decompressed.
    pub unencoded_length: u64,
    /// Where in the decompressed bytes those of the file begin.
    pub unencoded_offset: u64,
    /// `BTRFS_ENCODED_IO_COMPRESSION_…`.
    pub compression: u32,
    /// `BTRFS_ENCODED_IO_ENCRYPTION_…`; nothing but 0 is known.
    pub encryption: u32,
    /// The compressed bytes.
    pub data: &'a [u8],
}

impl<'a> Command<'a> {
    /// What it does.
    #[must_use]
    pub fn kind(&self) -> CommandKind {
        match self {
            Self::Subvolume { .. } => CommandKind::Subvolume,
            Self::Snapshot(_) => CommandKind::Snapshot,
            Self::MakeFile { .. } => CommandKind::MakeFile,
            Self::MakeDirectory { .. } => CommandKind::MakeDirectory,
            Self::MakeNode(_) => CommandKind::MakeNode,
            Self::MakeFifo(_) => CommandKind::MakeFifo,
            Self::MakeSocket(_) => CommandKind::MakeSocket,
            Self::Symlink { .. } => CommandKind::Symlink,
            Self::Rename { .. } => CommandKind::Rename,
            Self::Link { .. } => CommandKind::Link,
            Self::Unlink { .. } => CommandKind::Unlink,
            Self::RemoveDirectory { .. } => CommandKind::RemoveDirectory,
            Self::SetXattr { .. } => CommandKind::SetXattr,
            Self::RemoveXattr { .. } => CommandKind::RemoveXattr,
            Self::Write { .. } => CommandKind::Write,
            Self::Clone { .. } => CommandKind::Clone,
            Self::Truncate { .. } => CommandKind::Truncate,
            Self::SetMode { .. } => CommandKind::SetMode,
            Self::SetOwner { .. } => CommandKind::SetOwner,
            Self::SetTimes { .. } => CommandKind::SetTimes,
            Self::End => CommandKind::End,
            Self::UpdateExtent { .. } => CommandKind::UpdateExtent,
            Self::Fallocate { .. } => CommandKind::Fallocate,
            Self::SetFileAttributes { .. } => CommandKind::SetFileAttributes,
            Self::EncodedWrite(_) => CommandKind::EncodedWrite,
            Self::EnableVerity { .. } => CommandKind::EnableVerity,
        }
    }

    /// The file or subvolume that it is about; none for the end of a stream.
    #[must_use]
    pub fn path(&self) -> Option<&'a [u8]> {
        match *self {
            Self::End => None,
            Self::Snapshot(Snapshot { path, .. })
            | Self::MakeNode(Node { path, .. })
            | Self::MakeFifo(Node { path, .. })
            | Self::MakeSocket(Node { path, .. })
            | Self::EncodedWrite(EncodedWrite { path, .. })
            | Self::Subvolume { path, .. }
            | Self::MakeFile { path, .. }
            | Self::MakeDirectory { path, .. }
            | Self::Symlink { path, .. }
            | Self::Rename { path, .. }
            | Self::Link { path, .. }
            | Self::Unlink { path }
            | Self::RemoveDirectory { path }
            | Self::SetXattr { path, .. }
            | Self::RemoveXattr { path, .. }
            | Self::Write { path, .. }
            | Self::Clone { path, .. }
            | Self::Truncate { path, .. }
            | Self::SetMode { path, .. }
            | Self::SetOwner { path, .. }
            | Self::SetTimes { path, .. }
            | Self::UpdateExtent { path, .. }
            | Self::Fallocate { path, .. }
            | Self::SetFileAttributes { path, .. }
            | Self::EnableVerity { path, .. } => Some(path),
        }
    }
}
