//! An interface shaped like `std::fs`: paths instead of inodes, [`File`] with `Read`, `Write` and `Seek`.
//!
//! Paths are from the root of the file system, whether they begin with a slash or not. Symbolic links are
//! followed as system calls follow them, absolute ones from that root.
//!
//! ```standalone_crate
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = vlinder_testkit::Scratch::new("doc");
//! # vlinder_testkit::golden::unpack("empty", &directory.join("disk.img"))?;
//! # std::env::set_current_dir(directory.path())?;
//! use vlinder_fs::path::Files;
//!
//! let files = Files::open("disk.img")?;
//! files.create_dir_all("/home/me")?;
//! files.write("/home/me/greeting", "hello")?;
//! assert_eq!(files.read_to_string("/home/me/greeting")?, "hello");
//! files.close()?;
//! # let again = vlinder_fs::Filesystem::open(&["disk.img"], vlinder_fs::OpenOptions::read_only())?;
//! # assert_eq!(Files::new(again, vlinder_fs::Caller::superuser()).read("/home/me/greeting")?, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! A file is read and written as any other of Rust:
//!
//! ```standalone_crate
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = vlinder_testkit::Scratch::new("doc");
//! # vlinder_testkit::golden::unpack("empty", &directory.join("disk.img"))?;
//! # std::env::set_current_dir(directory.path())?;
//! use std::io::{Read, Seek, SeekFrom, Write};
//! use vlinder_fs::path::Files;
//!
//! let files = Files::open("disk.img")?;
//! let mut file = files.options().read(true).write(true).create(true).open("/log")?;
//! file.seek(SeekFrom::End(0))?;
//! writeln!(file, "one more line")?;
//! file.sync_all()?;
//!
//! for entry in files.read_dir("/")? {
//!     let entry = entry?;
//!     println!("{} {} bytes", entry.file_name().display(), entry.metadata()?.len());
//! }
//! files.snapshot("/", "/yesterday", true)?;
//! assert_eq!(files.read_to_string("/yesterday/log")?, "one more line\n");
//! # Ok(())
//! # }
//! ```

mod directory;
mod file;
mod resolve;
mod tree;

pub use directory::{DirEntry, ReadDir};
pub use file::{File, FileOptions};

use std::path::Path;
use std::time::{Duration, SystemTime};

use vlinder_format::inode::{FileType, Timestamp};

use crate::{Attributes, Caller, Filesystem, FsError, InodeId, OpenOptions, Result, SetAttributes};

/// A file system by paths, on behalf of one caller. Clones share it.
#[derive(Clone, Debug)]
pub struct Files {
    filesystem: Filesystem,
    caller: Caller,
}

/// What is known of a file, as `std::fs::Metadata`; dereferences to all its [`Attributes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(Attributes);

impl std::ops::Deref for Metadata {
    type Target = Attributes;

    fn deref(&self) -> &Attributes {
        &self.0
    }
}

impl Metadata {
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

    /// Whether it is a directory (a subvolume is one).
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.0.file_type == FileType::Directory
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.0.file_type == FileType::Regular
    }

    /// Whether it is a symbolic link (only [`Files::symlink_metadata`] shows one).
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.0.file_type == FileType::SymbolicLink
    }

    /// Whether it is the root directory of a subvolume.
    #[must_use]
    pub fn is_subvolume(&self) -> bool {
        self.0.id.is_subvolume_root()
    }

    /// When the data last changed.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        system_time(self.0.modification_time)
    }

    /// When the file was last read.
    #[must_use]
    pub fn accessed(&self) -> SystemTime {
        system_time(self.0.access_time)
    }

    /// When the file was made.
    #[must_use]
    pub fn created(&self) -> SystemTime {
        system_time(self.0.birth_time)
    }
}

/// A time that the system's type can't hold is shown as the nearest that it can.
fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    let whole = whole.unwrap_or(SystemTime::UNIX_EPOCH);
    whole.checked_add(Duration::from_nanos(time.nanoseconds.into())).unwrap_or(whole)
}

impl From<FsError> for std::io::Error {
    fn from(error: FsError) -> Self {
        let kind = Self::from_raw_os_error(error.errno().raw_os_error()).kind();
        Self::new(kind, error)
    }
}

/// Says which path an error is about.
fn at<T>(path: impl AsRef<Path>, result: Result<T>) -> Result<T> {
    result.map_err(|source| FsError::Path {
        path: path.as_ref().to_string_lossy().into_owned(),
        source: Box::new(source),
    })
}

impl Files {
    /// Opens an image or block device for reading and writing, as the superuser.
    ///
    /// # Errors
    /// As [`Filesystem::open`].
    pub fn open(image: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(image, OpenOptions::default())
    }

    /// Opens an image or block device with options.
    ///
    /// # Errors
    /// As [`Filesystem::open`].
    pub fn open_with(image: impl AsRef<Path>, options: OpenOptions) -> Result<Self> {
        let filesystem = at(image.as_ref(), Filesystem::open(&[image.as_ref()], options))?;
        Ok(Self::new(filesystem, Caller::superuser()))
    }

    /// A file system that is open already, on behalf of a caller.
    #[must_use]
    pub fn new(filesystem: Filesystem, caller: Caller) -> Self {
        Self { filesystem, caller }
    }

    /// The file system.
    #[must_use]
    pub fn filesystem(&self) -> &Filesystem {
        &self.filesystem
    }

    /// Makes everything durable that was done so far.
    ///
    /// # Errors
    /// As [`Filesystem::sync`].
    pub fn sync(&self) -> Result<()> {
        self.filesystem.sync().map(drop)
    }

    /// Makes everything durable and lets go of the file system.
    ///
    /// # Errors
    /// As [`Filesystem::sync`].
    pub fn close(self) -> Result<()> {
        self.filesystem.close()
    }

    /// What is known of a file; symbolic links are followed.
    ///
    /// # Errors
    /// As looking the path up.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let inode = self.resolve(path.as_ref())?;
        Ok(Metadata(self.filesystem.attributes(&inode)))
    }

    /// What is known of a file; a symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// As looking the path up.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let inode = self.resolve_link(path.as_ref())?;
        Ok(Metadata(self.filesystem.attributes(&inode)))
    }

    /// Whether there is something at a path.
    ///
    /// # Errors
    /// What kept the path from being looked up, but for its absence.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.resolve(path.as_ref()) {
            Ok(_) => Ok(true),
            Err(error) if error.refusal() == Some(crate::Refusal::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Changes permission bits, owner, size or times.
    ///
    /// # Errors
    /// As [`Filesystem::set_attributes`].
    pub fn set_attributes(&self, path: impl AsRef<Path>, changes: &SetAttributes) -> Result<Metadata> {
        let inode = self.resolve(path.as_ref())?;
        at(path, self.filesystem.set_attributes(&self.caller, &inode, changes)).map(Metadata)
    }

    /// Changes permission bits, as `std::fs::set_permissions`.
    ///
    /// # Errors
    /// As [`Filesystem::set_attributes`].
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: u32) -> Result<()> {
        let changes = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
        self.set_attributes(path, &changes).map(drop)
    }

    /// Makes an empty subvolume.
    ///
    /// # Errors
    /// As [`Filesystem::create_subvolume`].
    pub fn create_subvolume(&self, path: impl AsRef<Path>) -> Result<InodeId> {
        let (directory, name) = self.resolve_parent(path.as_ref())?;
        at(path, self.filesystem.create_subvolume(&self.caller, &directory, &name))
    }

    /// Makes a snapshot of the subvolume that a path lies in.
    ///
    /// # Errors
    /// As [`Filesystem::snapshot`].
    pub fn snapshot(
        &self,
        source: impl AsRef<Path>,
        target: impl AsRef<Path>,
        read_only: bool,
    ) -> Result<InodeId> {
        let source = self.resolve(source.as_ref())?.id().root;
        let (directory, name) = self.resolve_parent(target.as_ref())?;
        at(target, self.filesystem.snapshot(&self.caller, source, &directory, &name, read_only))
    }

    /// Deletes a subvolume with all that is in it.
    ///
    /// # Errors
    /// As [`Filesystem::delete_subvolume`].
    pub fn delete_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        let (directory, name) = self.resolve_parent(path.as_ref())?;
        at(path, self.filesystem.delete_subvolume(&self.caller, &directory, &name))
    }
}
