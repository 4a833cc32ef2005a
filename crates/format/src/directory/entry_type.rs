//! What a name in a directory stands for.

use core::fmt;

use crate::inode::FileType;
use crate::record::wrapped;

/// What an entry's name stands for. Unknown values are kept.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryEntryType(pub u8);

wrapped! { DirectoryEntryType => u8; }

impl DirectoryEntryType {
    /// Not known; never on disk.
    pub const UNKNOWN: Self = Self(0);
    /// A regular file.
    pub const REGULAR: Self = Self(1);
    /// A directory, or a subvolume.
    pub const DIRECTORY: Self = Self(2);
    /// A character device.
    pub const CHARACTER_DEVICE: Self = Self(3);
    /// A block device.
    pub const BLOCK_DEVICE: Self = Self(4);
    /// A fifo.
    pub const FIFO: Self = Self(5);
    /// A socket.
    pub const SOCKET: Self = Self(6);
    /// A symbolic link.
    pub const SYMBOLIC_LINK: Self = Self(7);
    /// An extended attribute.
    pub const EXTENDED_ATTRIBUTE: Self = Self(8);

    /// The type of file, if it is one.
    pub const fn file_type(self) -> Option<FileType> {
        match self {
            Self::REGULAR => Some(FileType::Regular),
            Self::DIRECTORY => Some(FileType::Directory),
            Self::CHARACTER_DEVICE => Some(FileType::CharacterDevice),
            Self::BLOCK_DEVICE => Some(FileType::BlockDevice),
            Self::FIFO => Some(FileType::Fifo),
            Self::SOCKET => Some(FileType::Socket),
            Self::SYMBOLIC_LINK => Some(FileType::SymbolicLink),
            _ => None,
        }
    }
}

impl From<FileType> for DirectoryEntryType {
    fn from(file_type: FileType) -> Self {
        match file_type {
            FileType::Regular => Self::REGULAR,
            FileType::Directory => Self::DIRECTORY,
            FileType::CharacterDevice => Self::CHARACTER_DEVICE,
            FileType::BlockDevice => Self::BLOCK_DEVICE,
            FileType::Fifo => Self::FIFO,
            FileType::Socket => Self::SOCKET,
            FileType::SymbolicLink => Self::SYMBOLIC_LINK,
        }
    }
}

impl fmt::Debug for DirectoryEntryType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Display for DirectoryEntryType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match *self {
            Self::UNKNOWN => "UNKNOWN",
            Self::REGULAR => "FILE",
            Self::DIRECTORY => "DIR",
            Self::CHARACTER_DEVICE => "CHRDEV",
            Self::BLOCK_DEVICE => "BLKDEV",
            Self::FIFO => "FIFO",
            Self::SOCKET => "SOCK",
            Self::SYMBOLIC_LINK => "SYMLINK",
            Self::EXTENDED_ATTRIBUTE => "XATTR",
            _ => return write!(formatter, "DIR_ITEM.{}", self.0),
        })
    }
}
