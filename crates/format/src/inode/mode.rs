//! What kind of file an inode is, who owns it, and the device that a device node stands for.

use core::fmt;

use crate::record::{widen_u64, wrapped};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, formatter)
            }
        }
    };
}

number!(
    /// The user who owns a file (`uid`).
    UserId(u32)
);
number!(
    /// The group that owns a file (`gid`).
    GroupId(u32)
);

impl UserId {
    /// Whether a file can be given this owner. 2^32-1 is no id: chown(2) takes it as "leave the owner as it
    /// is".
    #[must_use]
    pub const fn is_id(self) -> bool {
        self.0 != u32::MAX
    }
}

impl GroupId {
    /// Whether a file can be given this group. 2^32-1 is no id: chown(2) takes it as "leave the group as it
    /// is".
    #[must_use]
    pub const fn is_id(self) -> bool {
        self.0 != u32::MAX
    }
}

wrapped! {
    UserId => u32;
    GroupId => u32;
    Mode => u32;
    DeviceNumber => u64;
}

/// The type of a file, from the top four bits of its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileType {
    /// `S_IFIFO`
    Fifo,
    /// `S_IFCHR`
    CharacterDevice,
    /// `S_IFDIR`
    Directory,
    /// `S_IFBLK`
    BlockDevice,
    /// `S_IFREG`
    Regular,
    /// `S_IFLNK`
    SymbolicLink,
    /// `S_IFSOCK`
    Socket,
}

impl FileType {
    /// The type's bits in a mode.
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharacterDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::Regular => 0o100_000,
            Self::SymbolicLink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }
}

/// A file's type, set-id bits and permissions, as `st_mode` has them.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mode(pub u32);

impl Mode {
    /// The bits that hold the file type (`S_IFMT`).
    pub const TYPE_MASK: u32 = 0o170_000;
    /// Set-user-id, set-group-id, sticky and the nine permission bits.
    pub const PERMISSION_MASK: u32 = 0o7777;

    /// A mode of a type and permissions; other bits of `permissions` are dropped.
    #[must_use]
    pub const fn new(file_type: FileType, permissions: u32) -> Self {
        Self(file_type.mode_bits() | (permissions & Self::PERMISSION_MASK))
    }

    /// The type, if the bits name one.
    pub const fn file_type(self) -> Option<FileType> {
        match self.0 & Self::TYPE_MASK {
            0o010_000 => Some(FileType::Fifo),
            0o020_000 => Some(FileType::CharacterDevice),
            0o040_000 => Some(FileType::Directory),
            0o060_000 => Some(FileType::BlockDevice),
            0o100_000 => Some(FileType::Regular),
            0o120_000 => Some(FileType::SymbolicLink),
            0o140_000 => Some(FileType::Socket),
            _ => None,
        }
    }

    /// Whether this is a directory.
    pub const fn is_directory(self) -> bool {
        matches!(self.file_type(), Some(FileType::Directory))
    }

    /// Set-id, sticky and permission bits.
    pub const fn permissions(self) -> u32 {
        self.0 & Self::PERMISSION_MASK
    }

    /// The same type with other permissions.
    #[must_use]
    pub const fn with_permissions(self, permissions: u32) -> Self {
        Self((self.0 & !Self::PERMISSION_MASK) | (permissions & Self::PERMISSION_MASK))
    }
}

impl fmt::Debug for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Mode({:o})", self.0)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:o}", self.0)
    }
}

/// The device that a device node stands for, in the kernel's own form: major number above 20 bits of minor
/// number (Linux stores its `dev_t` unchanged; this is not the encoding of `st_rdev` in user space).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber(pub u64);

impl DeviceNumber {
    const MINOR_BITS: u32 = 20;
    const MINOR_MASK: u64 = (1 << Self::MINOR_BITS) - 1;

    /// A device number of its parts; minor numbers have 20 bits, further bits are dropped.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self((widen_u64(major) << Self::MINOR_BITS) | (widen_u64(minor) & Self::MINOR_MASK))
    }

    /// The major number.
    pub const fn major(self) -> u64 {
        self.0 >> Self::MINOR_BITS
    }

    /// The minor number.
    pub const fn minor(self) -> u64 {
        self.0 & Self::MINOR_MASK
    }
}
