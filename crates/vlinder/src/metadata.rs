//! What is known of a file.

use std::time::SystemTime;

use vlinder_fs::{Attributes, path};

use crate::time::system_time;

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory, which the root of a subvolume is, too.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A block device.
    BlockDevice,
    /// A character device.
    CharacterDevice,
}

impl FileType {
    pub(crate) fn of(inner: vlinder_fs::FileType) -> Self {
        match inner {
            vlinder_fs::FileType::Regular => Self::File,
            vlinder_fs::FileType::Directory => Self::Directory,
            vlinder_fs::FileType::SymbolicLink => Self::Symlink,
            vlinder_fs::FileType::Fifo => Self::Fifo,
            vlinder_fs::FileType::Socket => Self::Socket,
            vlinder_fs::FileType::BlockDevice => Self::BlockDevice,
            vlinder_fs::FileType::CharacterDevice => Self::CharacterDevice,
        }
    }

    pub(crate) fn inner(self) -> vlinder_fs::FileType {
        match self {
            Self::File => vlinder_fs::FileType::Regular,
            Self::Directory => vlinder_fs::FileType::Directory,
            Self::Symlink => vlinder_fs::FileType::SymbolicLink,
            Self::Fifo => vlinder_fs::FileType::Fifo,
            Self::Socket => vlinder_fs::FileType::Socket,
            Self::BlockDevice => vlinder_fs::FileType::BlockDevice,
            Self::CharacterDevice => vlinder_fs::FileType::CharacterDevice,
        }
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(self) -> bool {
        self == Self::Directory
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(self) -> bool {
        self == Self::File
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub fn is_symlink(self) -> bool {
        self == Self::Symlink
    }
}

/// What is known of a file, as `std::fs::Metadata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(Attributes);

impl Metadata {
    pub(crate) fn of(inner: path::Metadata) -> Self {
        Self(*inner)
    }

    /// The type.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        FileType::of(self.0.file_type)
    }

    /// Whether it is a directory (a subvolume is one).
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether it is a symbolic link; only [`Image::symlink_metadata`](crate::Image::symlink_metadata) shows
    /// one.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Whether it is the root directory of a subvolume.
    #[must_use]
    pub fn is_subvolume(&self) -> bool {
        self.0.id.is_subvolume_root()
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.size_bytes
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the data occupy, before they are compressed.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.0.allocated_bytes
    }

    /// Set-id, sticky and permission bits: 0o755, say.
    #[must_use]
    pub fn permissions(&self) -> u32 {
        self.0.mode.permissions()
    }

    /// The number of the owner.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.0.user.0
    }

    /// The number of the owning group.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.0.group.0
    }

    /// How many names it has; 1 of a directory.
    #[must_use]
    pub fn link_count(&self) -> u32 {
        self.0.link_count
    }

    /// The number of its inode, which is its own only within its subvolume.
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.0.id.number.0
    }

    /// The number of the subvolume that it lies in.
    #[must_use]
    pub fn subvolume_id(&self) -> u64 {
        self.0.id.root.0
    }

    /// Of a device node, its major and minor number.
    #[must_use]
    pub fn device(&self) -> (u64, u64) {
        (self.0.device_number.major(), self.0.device_number.minor())
    }

    /// When the data last changed.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        system_time(self.0.modification_time)
    }

    /// When it was last read, as far as that is kept.
    #[must_use]
    pub fn accessed(&self) -> SystemTime {
        system_time(self.0.access_time)
    }

    /// When anything of it last changed (`st_ctime`).
    #[must_use]
    pub fn changed(&self) -> SystemTime {
        system_time(self.0.change_time)
    }

    /// When it was made.
    #[must_use]
    pub fn created(&self) -> SystemTime {
        system_time(self.0.birth_time)
    }
}
