//! A file system by paths: opening it, looking paths up, attributes, whole files and subvolumes.

use std::path::Path;

use vlinder_base::sync::Arc;

use super::directory::ReadDir;
use super::error::at;
use super::file::{File, FileOptions};
use super::metadata::Metadata;
use super::resolve::Resolver;
use crate::{Caller, Filesystem, Inode, InodeId, OpenOptions, Refusal, Result, SetAttributes};

/// A file system by paths, on behalf of one caller. Clones share it.
#[derive(Clone, Debug)]
pub struct Files {
    resolver: Resolver,
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
        Self { resolver: Resolver::new(filesystem, caller) }
    }

    pub(super) fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// The file system.
    #[must_use]
    pub fn filesystem(&self) -> &Filesystem {
        self.resolver.filesystem()
    }

    pub(super) fn caller(&self) -> &Caller {
        self.resolver.caller()
    }

    /// Makes everything durable that was done so far.
    ///
    /// # Errors
    /// As [`Filesystem::sync`].
    pub fn sync(&self) -> Result<()> {
        self.filesystem().sync().map(drop)
    }

    /// Makes everything durable and lets go of the file system.
    ///
    /// # Errors
    /// As [`Filesystem::sync`].
    pub fn close(self) -> Result<()> {
        self.resolver.into_filesystem().close()
    }

    /// The file at a path, behind any symbolic link.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] and others of looking up names; [`Refusal::SymbolicLinkLoop`].
    pub fn resolve(&self, path: &Path) -> Result<Arc<Inode>> {
        self.resolver.resolve(path)
    }

    /// The file at a path; a symbolic link at its end is not followed.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn resolve_link(&self, path: &Path) -> Result<Arc<Inode>> {
        self.resolver.resolve_link(path)
    }

    /// The directory that a path's last name is in, and that name.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve), for the directory; [`Refusal::InvalidArgument`] for a path without a
    /// last name: its last part is `.` or `..`.
    pub fn resolve_parent(&self, path: &Path) -> Result<(Arc<Inode>, Vec<u8>)> {
        self.resolver.resolve_parent(path)
    }

    /// What is known of a file; symbolic links are followed.
    ///
    /// # Errors
    /// As looking the path up.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let inode = self.resolve(path.as_ref())?;
        Ok(Metadata(self.filesystem().attributes().of(&inode)))
    }

    /// What is known of a file; a symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// As looking the path up.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        let inode = self.resolve_link(path.as_ref())?;
        Ok(Metadata(self.filesystem().attributes().of(&inode)))
    }

    /// Whether there is something at a path.
    ///
    /// # Errors
    /// What kept the path from being looked up, but for its absence.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.resolve(path.as_ref()) {
            Ok(_) => Ok(true),
            Err(error) if error.refusal() == Some(Refusal::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Changes permission bits, owner, size or times.
    ///
    /// # Errors
    /// As [`InodeAttributes::set`](crate::InodeAttributes::set).
    pub fn set_attributes(&self, path: impl AsRef<Path>, changes: &SetAttributes) -> Result<Metadata> {
        let inode = self.resolve(path.as_ref())?;
        at(path, self.filesystem().attributes().set(self.caller(), &inode, changes)).map(Metadata)
    }

    /// Changes permission bits, as `std::fs::set_permissions`.
    ///
    /// # Errors
    /// As [`InodeAttributes::set`](crate::InodeAttributes::set).
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: u32) -> Result<()> {
        let changes = SetAttributes { permissions: Some(permissions), ..SetAttributes::default() };
        self.set_attributes(path, &changes).map(drop)
    }

    /// Lists a directory.
    ///
    /// # Errors
    /// As looking the path up; [`Refusal::NotADirectory`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        ReadDir::open(&self.resolver, path.as_ref())
    }

    /// How to open a file: begin here, as with `std::fs::OpenOptions::new()`.
    #[must_use]
    pub fn options(&self) -> FileOptions {
        FileOptions::new(self.resolver.clone())
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.options().read(true).open(path)
    }

    /// Makes a file, or empties the one that is there, for writing.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        self.options().write(true).create(true).truncate(true).open(path)
    }

    /// All bytes of a file. Its size is the image's word, so memory is taken as the bytes come, and not for
    /// many holes: [`File`] reads such a file part by part.
    ///
    /// # Errors
    /// As opening and reading it; [`Refusal::FileTooLarge`] where it has more than 256 MiB of holes, or
    /// memory has no room.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open_file(path.as_ref())?;
        at(path, file.read_all())
    }

    /// A file's text.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Refusal::InvalidArgument`] where it is not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        let bytes = self.read(path.as_ref())?;
        at(path, String::from_utf8(bytes).map_err(|_| Refusal::InvalidArgument.into()))
    }

    /// Makes a file of these bytes, in place of what it held.
    ///
    /// # Errors
    /// As making and writing it.
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        let file = self.create(path.as_ref())?;
        at(path, file.write_at(contents.as_ref(), 0))
    }

    /// Makes an empty subvolume.
    ///
    /// # Errors
    /// As [`Subvolumes::create`](crate::Subvolumes::create).
    pub fn create_subvolume(&self, path: impl AsRef<Path>) -> Result<InodeId> {
        let (directory, name) = self.resolve_parent(path.as_ref())?;
        at(path, self.filesystem().subvolumes().create(self.caller(), &directory, &name))
    }

    /// Makes a snapshot of the subvolume that a path lies in.
    ///
    /// # Errors
    /// As [`Subvolumes::snapshot`](crate::Subvolumes::snapshot).
    pub fn snapshot(
        &self,
        source: impl AsRef<Path>,
        target: impl AsRef<Path>,
        read_only: bool,
    ) -> Result<InodeId> {
        let source = self.resolve(source.as_ref())?.id().root;
        let (directory, name) = self.resolve_parent(target.as_ref())?;
        at(
            target,
            self.filesystem().subvolumes().snapshot(self.caller(), source, &directory, &name, read_only),
        )
    }

    /// Deletes a subvolume with all that is in it.
    ///
    /// # Errors
    /// As [`Subvolumes::delete`](crate::Subvolumes::delete).
    pub fn delete_subvolume(&self, path: impl AsRef<Path>) -> Result<()> {
        let (directory, name) = self.resolve_parent(path.as_ref())?;
        at(path, self.filesystem().subvolumes().delete(self.caller(), &directory, &name))
    }
}
