//! What can be done to a file system.

/// Stands for a file or subvolume that the operation with this number made, so that a list of operations
/// means the same when some are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u32);

impl Token {
    /// The top-level subvolume, and the root directory of every subvolume.
    pub const ROOT: Self = Self(0);
}

/// A file: in which subvolume, and which. A snapshot holds the files of its source under the same tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The subvolume.
    pub subvolume: Token,
    /// The file.
    pub object: Token,
}

/// Which of a few open files.
pub type OpenSlot = u32;

/// How a name moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// What had the name goes.
    Replace,
    /// Refused where the name exists.
    NoReplace,
    /// Both change places.
    Exchange,
    /// A whiteout (a character device 0:0) stays at the old name.
    Whiteout,
}

/// What fallocate(2) is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Space, and the size grows.
    Extend,
    /// Space beyond the end without a new size.
    KeepSize,
    /// A hole.
    PunchHole,
    /// Zeros, and the size grows.
    ZeroRange,
    /// Zeros, without a new size.
    ZeroRangeKeepSize,
}

/// Whether an extended attribute may or must exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetMode {
    /// May.
    Either,
    /// Must not.
    Create,
    /// Must.
    Replace,
}

use super::content::Pattern;
use super::node_kind::NodeKind;

/// One operation. Names are bytes, offsets and lengths bytes, times seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields say what the variants' documentation leaves open")]
pub enum Operation {
    /// A regular file.
    CreateFile { directory: Place, name: Vec<u8>, permissions: u32, token: Token },
    /// A FIFO, socket or device.
    CreateNode {
        directory: Place,
        name: Vec<u8>,
        kind: NodeKind,
        device: (u32, u32),
        permissions: u32,
        token: Token,
    },
    /// A directory.
    CreateDirectory { directory: Place, name: Vec<u8>, permissions: u32, token: Token },
    /// A symbolic link.
    CreateSymbolicLink { directory: Place, name: Vec<u8>, target: Vec<u8>, token: Token },
    /// A file without a name, held open.
    CreateTemporary { directory: Place, permissions: u32, token: Token, slot: OpenSlot },
    /// One more name; also gives a temporary file its first.
    Link { file: Place, directory: Place, name: Vec<u8> },
    /// A name goes.
    Unlink { directory: Place, name: Vec<u8> },
    /// An empty directory goes.
    RemoveDirectory { directory: Place, name: Vec<u8> },
    /// A name moves.
    Rename { from: Place, from_name: Vec<u8>, to: Place, to_name: Vec<u8>, mode: RenameMode, token: Token },
    /// Holds a file open.
    Open { file: Place, slot: OpenSlot },
    /// Lets go of an open file, which vanishes if it has no name.
    Close { slot: OpenSlot },
    /// Bytes at an offset; direct ones are on the devices afterwards.
    Write { file: Place, offset: u64, length: u64, pattern: Pattern, direct: bool },
    /// Bytes at the end.
    Append { file: Place, length: u64, pattern: Pattern },
    /// Bytes to an open file, which may have no name any more.
    WriteOpen { slot: OpenSlot, offset: u64, length: u64, pattern: Pattern },
    /// A new size.
    Truncate { file: Place, size: u64 },
    /// Space or a hole.
    Allocate { file: Place, mode: AllocateMode, offset: u64, length: u64 },
    /// Bytes of one file to another, shared where that is possible.
    CopyRange { source: Place, source_offset: u64, target: Place, target_offset: u64, length: u64 },
    /// Walks the data and holes of a file.
    Seek { file: Place },
    /// Reads a range.
    Read { file: Place, offset: u64, length: u64 },
    /// Sets an extended attribute.
    SetAttribute { file: Place, name: Vec<u8>, value: Vec<u8>, mode: SetMode },
    /// Removes one.
    RemoveAttribute { file: Place, name: Vec<u8> },
    /// chmod.
    SetPermissions { file: Place, permissions: u32 },
    /// chown.
    SetOwner { file: Place, user: Option<u32>, group: Option<u32> },
    /// utimens; seconds and nanoseconds.
    SetTimes { file: Place, modified: (i64, u32) },
    /// Inode flags: on and off, as bits of the inode item.
    SetFlags { file: Place, set: u64, clear: u64 },
    /// The property that chooses the compression; empty for none.
    SetCompression { file: Place, value: Vec<u8> },
    /// An empty subvolume.
    CreateSubvolume { directory: Place, name: Vec<u8>, token: Token },
    /// A snapshot.
    Snapshot { source: Token, directory: Place, name: Vec<u8>, read_only: bool, token: Token },
    /// A subvolume goes.
    DeleteSubvolume { directory: Place, name: Vec<u8> },
    /// The subvolume that is mounted by default.
    SetDefault { subvolume: Token },
    /// The read-only flag.
    SetReadOnly { subvolume: Token, read_only: bool },
    /// The blocks of deleted subvolumes are freed now.
    Clean,
    /// Everything becomes durable.
    Sync,
    /// fsync of a file or directory, or fdatasync.
    Fsync { file: Place, data_only: bool },
    /// The same of an open file, which may have no name any more.
    FsyncOpen { slot: OpenSlot, data_only: bool },
}

impl Operation {
    /// The kind, for the histogram.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::CreateFile { .. } => "create",
            Self::CreateNode { .. } => "mknod",
            Self::CreateDirectory { .. } => "mkdir",
            Self::CreateSymbolicLink { .. } => "symlink",
            Self::CreateTemporary { .. } => "tmpfile",
            Self::Link { .. } => "link",
            Self::Unlink { .. } => "unlink",
            Self::RemoveDirectory { .. } => "rmdir",
            Self::Rename { mode: RenameMode::Replace, .. } => "rename",
            Self::Rename { mode: RenameMode::NoReplace, .. } => "rename-noreplace",
            Self::Rename { mode: RenameMode::Exchange, .. } => "rename-exchange",
            Self::Rename { mode: RenameMode::Whiteout, .. } => "rename-whiteout",
            Self::Open { .. } => "open",
            Self::Close { .. } => "close",
            Self::Write { direct: false, .. } => "write",
            Self::Write { direct: true, .. } => "write-direct",
            Self::Append { .. } => "append",
            Self::WriteOpen { .. } => "write-open",
            Self::Truncate { .. } => "truncate",
            Self::Allocate { mode: AllocateMode::Extend, .. } => "fallocate",
            Self::Allocate { mode: AllocateMode::KeepSize, .. } => "fallocate-keep-size",
            Self::Allocate { mode: AllocateMode::PunchHole, .. } => "punch-hole",
            Self::Allocate { mode: AllocateMode::ZeroRange, .. } => "zero-range",
            Self::Allocate { mode: AllocateMode::ZeroRangeKeepSize, .. } => "zero-range-keep-size",
            Self::CopyRange { source_offset, target_offset, .. }
                if source_offset % 4096 == 0 && target_offset % 4096 == 0 =>
            {
                "copy-range-aligned"
            }
            Self::CopyRange { .. } => "copy-range-unaligned",
            Self::Seek { .. } => "seek",
            Self::Read { .. } => "read",
            Self::SetAttribute { name, .. } if name.starts_with(b"system.") => "set-acl",
            Self::SetAttribute { .. } => "setxattr",
            Self::RemoveAttribute { .. } => "removexattr",
            Self::SetPermissions { .. } => "chmod",
            Self::SetOwner { .. } => "chown",
            Self::SetTimes { .. } => "utimens",
            Self::SetFlags { .. } => "set-flags",
            Self::SetCompression { .. } => "set-compression",
            Self::CreateSubvolume { .. } => "subvolume-create",
            Self::Snapshot { read_only: false, .. } => "snapshot",
            Self::Snapshot { read_only: true, .. } => "snapshot-read-only",
            Self::DeleteSubvolume { .. } => "subvolume-delete",
            Self::SetDefault { .. } => "set-default",
            Self::SetReadOnly { .. } => "set-read-only",
            Self::Clean => "clean",
            Self::Sync => "sync",
            Self::Fsync { data_only: false, .. } => "fsync",
            Self::Fsync { data_only: true, .. } => "fdatasync",
            Self::FsyncOpen { .. } => "fsync-open",
        }
    }

    /// The token of what it makes, if it makes something.
    pub fn made(&self) -> Option<Token> {
        match self {
            Self::CreateFile { token, .. }
            | Self::CreateNode { token, .. }
            | Self::CreateDirectory { token, .. }
            | Self::CreateSymbolicLink { token, .. }
            | Self::CreateTemporary { token, .. }
            | Self::CreateSubvolume { token, .. }
            | Self::Snapshot { token, .. }
            | Self::Rename { mode: RenameMode::Whiteout, token, .. } => Some(*token),
            _ => None,
        }
    }
}

/// Whether an operation must succeed even on a full file system.
pub fn is_deletion(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Unlink { .. }
            | Operation::RemoveDirectory { .. }
            | Operation::DeleteSubvolume { .. }
            | Operation::Close { .. }
            | Operation::Clean
    )
}
