//! The file system by paths: reading, writing, listing, making, moving and removing.

use std::path::{Path, PathBuf};

use vlinder_fs::{Caller, DeviceNumber};

use crate::attribute_changes::AttributeChanges;
use crate::directory::ReadDir;
use crate::error::{Result, outer};
use crate::file::{File, FileOptions};
use crate::image::Image;
use crate::metadata::{FileType, Metadata};
use crate::xattrs::Xattrs;

#[cfg(doc)]
use crate::ErrorKind;

impl Image {
    /// How to open a file: begin here, as with `std::fs::OpenOptions::new()`.
    #[must_use]
    pub fn options(&self) -> FileOptions {
        FileOptions::new(self.files().options(), self.unsaved().clone())
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
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.options().write(true).create(true).truncate(true).open(path)
    }

    /// All bytes of a file. Its size is the image's word, so memory is taken as the bytes come, and not for
    /// many holes: a [`File`] reads such a file part by part.
    ///
    /// # Errors
    /// As opening and reading it; [`ErrorKind::InvalidInput`] where it has more than 256 MiB of holes, or
    /// memory has no room.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        outer(self.files().read(path))
    }

    /// A file's text.
    ///
    /// # Errors
    /// As [`read`](Self::read); [`ErrorKind::InvalidInput`] where it is not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        outer(self.files().read_to_string(path))
    }

    /// Makes a file of these bytes, in place of what it held.
    ///
    /// # Errors
    /// As making and writing it.
    pub fn write(&self, path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
        outer(self.changing().write(path, contents))
    }

    /// Copies a file's bytes and permissions within the image, sharing extents where it can; gives how many
    /// bytes.
    ///
    /// # Errors
    /// As reading the one and writing the other.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        outer(self.changing().copy(from, to))
    }

    /// What is known of a file; symbolic links are followed.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] and others of looking the path up.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        outer(self.files().metadata(path)).map(Metadata::of)
    }

    /// What is known of a file; a symbolic link at the end of the path is not followed.
    ///
    /// # Errors
    /// As [`metadata`](Self::metadata).
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        outer(self.files().symlink_metadata(path)).map(Metadata::of)
    }

    /// Whether there is something at a path.
    ///
    /// # Errors
    /// What kept the path from being looked up, but for its absence.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        outer(self.files().exists(path))
    }

    /// Lists a directory.
    ///
    /// # Errors
    /// As looking the path up; [`ErrorKind::NotADirectory`].
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        outer(self.files().read_dir(path)).map(|inner| ReadDir::of(inner, self.unsaved().clone()))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`]; [`ErrorKind::NotFound`] where the directory above is missing;
    /// [`ErrorKind::ReadOnly`]; [`ErrorKind::NoSpace`].
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        outer(self.changing().create_dir(path))
    }

    /// Makes a directory and all that are missing above it.
    ///
    /// # Errors
    /// As [`create_dir`](Self::create_dir); [`ErrorKind::NotADirectory`] where something else is in the way.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        outer(self.changing().create_dir_all(path))
    }

    /// Makes a named pipe, a socket, or a device node with its major and minor number.
    ///
    /// # Errors
    /// As [`create_dir`](Self::create_dir); [`ErrorKind::InvalidInput`] for a directory or symbolic link.
    pub fn create_node(
        &self,
        path: impl AsRef<Path>,
        file_type: FileType,
        permissions: u32,
        (major, minor): (u32, u32),
    ) -> Result<()> {
        let path = path.as_ref();
        let files = self.changing();
        let (directory, name) = outer(files.resolve_parent(path))?;
        let (caller, number) = (Caller::superuser(), DeviceNumber::new(major, minor));
        let names = files.filesystem().names();
        let made = names.create_node(&caller, &directory, &name, file_type.inner(), permissions, number);
        outer(made).map(drop).map_err(|error| error.at(path))
    }

    /// Makes a symbolic link at `link` that names `target`.
    ///
    /// # Errors
    /// As [`create_dir`](Self::create_dir).
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        outer(self.changing().symlink(target, link))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As looking the path up; [`ErrorKind::InvalidInput`] for what is no symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        outer(self.files().read_link(path))
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// As [`create_dir`](Self::create_dir); [`ErrorKind::CrossesSubvolumes`]; [`ErrorKind::PermissionDenied`]
    /// for a directory.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        outer(self.changing().hard_link(original, link))
    }

    /// Gives a file or directory another path, in place of what is there.
    ///
    /// # Errors
    /// As looking both paths up; [`ErrorKind::CrossesSubvolumes`]; [`ErrorKind::DirectoryNotEmpty`] where a
    /// directory would be replaced.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        outer(self.changing().rename(from, to))
    }

    /// Removes the name of a file.
    ///
    /// # Errors
    /// As looking the path up; [`ErrorKind::IsADirectory`].
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        outer(self.changing().remove_file(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As looking the path up; [`ErrorKind::DirectoryNotEmpty`]; [`ErrorKind::NotADirectory`].
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        outer(self.changing().remove_dir(path))
    }

    /// Removes a directory with all that is in it, subvolumes included. Symbolic links are removed, not
    /// followed.
    ///
    /// # Errors
    /// The first thing that could not be removed; what came before is gone.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        outer(self.changing().remove_dir_all(path))
    }

    /// Sets set-id, sticky and permission bits, 0o644 say, as `std::fs::set_permissions`.
    ///
    /// # Errors
    /// As [`set_attributes`](Self::set_attributes).
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: u32) -> Result<()> {
        self.set_attributes(path, &AttributeChanges::new().permissions(permissions))
    }

    /// Changes permissions, owners and times. Symbolic links are followed if the changes don't say otherwise.
    ///
    /// # Errors
    /// As looking the path up; [`ErrorKind::PermissionDenied`] where a flag of the file forbids it;
    /// [`ErrorKind::ReadOnly`].
    pub fn set_attributes(&self, path: impl AsRef<Path>, changes: &AttributeChanges) -> Result<()> {
        let (files, path) = (self.changing(), path.as_ref());
        let (changes, of_symlink) = changes.parts();
        let inode = outer(if of_symlink { files.resolve_link(path) } else { files.resolve(path) })?;
        let set = files.filesystem().attributes().set(&Caller::superuser(), &inode, changes);
        outer(set).map(drop).map_err(|error| error.at(path))
    }

    /// The extended attributes of a file. Symbolic links are followed.
    ///
    /// # Errors
    /// As looking the path up.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Xattrs<'_>> {
        Xattrs::find(self.files(), self.unsaved(), path.as_ref())
    }
}
