//! An open file.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use vlinder_fs::{Refusal, data, path};

use crate::error::{Error, Result, outer};
use crate::error_kind::ErrorKind;
use crate::metadata::Metadata;
use crate::unsaved::Unsaved;

/// How to open a file, as `std::fs::OpenOptions`. Begin with [`Image::options`](crate::Image::options).
#[derive(Clone, Debug)]
pub struct FileOptions {
    inner: path::FileOptions,
    append: bool,
    /// Opening may make or empty the file.
    changes: bool,
    unsaved: Unsaved,
}

/// An open file. What is written is in memory at once and durable after [`sync_all`](Self::sync_all). The
/// image stays open as long as a file of it does.
#[derive(Debug)]
pub struct File {
    inner: path::File,
    path: PathBuf,
    append: bool,
    position: u64,
    unsaved: Unsaved,
}

impl FileOptions {
    pub(crate) fn new(inner: path::FileOptions, unsaved: Unsaved) -> Self {
        Self { inner, append: false, changes: false, unsaved }
    }

    /// To read.
    #[must_use]
    pub fn read(mut self, read: bool) -> Self {
        self.inner = self.inner.read(read);
        self
    }

    /// To write.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.inner = self.inner.write(write);
        self
    }

    /// To write at the end, wherever that is at each write.
    #[must_use]
    pub fn append(mut self, append: bool) -> Self {
        self.inner = self.inner.append(append);
        self.append = append;
        self
    }

    /// Drop what is there.
    #[must_use]
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.inner = self.inner.truncate(truncate);
        self.changes |= truncate;
        self
    }

    /// Make the file if it is not there.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.inner = self.inner.create(create);
        self.changes |= create;
        self
    }

    /// Make the file; refuse where something has the name.
    #[must_use]
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.inner = self.inner.create_new(create_new);
        self.changes |= create_new;
        self
    }

    /// The permission bits of a file that is made, before the umask of 0o022; 0o666 without this.
    #[must_use]
    pub fn permissions(mut self, permissions: u32) -> Self {
        self.inner = self.inner.permissions(permissions);
        self
    }

    /// Opens a file, or a directory for reading, whose [`metadata`](File::metadata) and durability it has.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] and others of looking the path up; [`ErrorKind::AlreadyExists`] with
    /// [`create_new`](Self::create_new); [`ErrorKind::IsADirectory`] where a file is to be made or written
    /// and a directory is there; [`ErrorKind::Unsupported`] for pipes, sockets and devices;
    /// [`ErrorKind::ReadOnly`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        if self.changes {
            self.unsaved.note();
        }
        let inner = self.inner.open(path).map_err(|error| Error::of_filesystem(error).at(path))?;
        let (append, unsaved) = (self.append, self.unsaved.clone());
        Ok(File { inner, path: path.to_owned(), append, position: 0, unsaved })
    }
}

impl File {
    fn at<T>(&self, result: vlinder_fs::Result<T>) -> Result<T> {
        outer(result).map_err(|error| error.at(&self.path))
    }

    /// What is known of the file.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        Metadata::of(self.inner.metadata())
    }

    /// Reads from an offset; gives how many bytes, fewer only at the end of the file.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] where it was not opened for reading; [`ErrorKind::Damaged`] where no copy
    /// of the bytes is good; [`ErrorKind::Unsupported`] where this build lacks their compression.
    pub fn read_at(&self, target: &mut [u8], offset: u64) -> Result<usize> {
        self.at(self.inner.read_at(target, offset))
    }

    /// Writes all bytes at an offset; at the end where the file was opened for appending.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] where it was not opened for writing; [`ErrorKind::NoSpace`] and others of
    /// writing.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.unsaved.note();
        self.at(self.inner.write_at(bytes, offset))
    }

    /// Writes parts, each at its offset, so that they are on the device when this returns, as with
    /// `O_DIRECT`. They are durable after [`sync_data`](Self::sync_data).
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn write_direct(&self, parts: &[(u64, &[u8])]) -> Result<()> {
        self.unsaved.note();
        self.at(self.inner.write_direct(parts))
    }

    /// Cuts the file, or extends it by a hole.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn set_len(&self, length: u64) -> Result<()> {
        self.unsaved.note();
        self.at(self.inner.set_len(length))
    }

    /// Where the next data begin from an offset on; none where only a hole follows.
    ///
    /// # Errors
    /// What reading the file's extents met.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        self.seek_from(offset, data::Seek::Data)
    }

    /// Where the next hole begins from an offset on; the end of the file is one. None behind that.
    ///
    /// # Errors
    /// What reading the file's extents met.
    pub fn next_hole(&self, offset: u64) -> Result<Option<u64>> {
        self.seek_from(offset, data::Seek::Hole)
    }

    fn seek_from(&self, offset: u64, what: data::Seek) -> Result<Option<u64>> {
        match self.inner.seek_from(offset, what) {
            Err(error) if error.refusal() == Some(Refusal::NoSuchOffset) => Ok(None),
            found => self.at(found).map(Some),
        }
    }

    /// Makes the file durable, with its name, as fsync(2).
    ///
    /// # Errors
    /// [`ErrorKind::Io`] where the device failed, and what was written before may be lost; others of writing.
    pub fn sync_all(&self) -> Result<()> {
        self.at(self.inner.sync_all())
    }

    /// Makes the file's data durable, as fdatasync(2); here it does what [`sync_all`](Self::sync_all) does.
    ///
    /// # Errors
    /// As there.
    pub fn sync_data(&self) -> Result<()> {
        self.sync_all()
    }
}

impl Read for File {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let count = self.read_at(target, self.position)?;
        self.position = self.position.saturating_add(count as u64);
        Ok(count)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_at(bytes, self.position)?;
        self.position = if self.append {
            self.metadata().len()
        } else {
            self.position.saturating_add(bytes.len() as u64)
        };
        Ok(bytes.len())
    }

    /// Nothing: bytes are with the file system when `write` returns. [`File::sync_all`] makes them durable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (base, by) = match to {
            SeekFrom::Start(position) => (position, 0),
            SeekFrom::Current(by) => (self.position, by),
            SeekFrom::End(by) => (self.metadata().len(), by),
        };
        let before_start = || {
            Error::new(ErrorKind::InvalidInput, "the position would lie before the start of the file")
                .at(&self.path)
        };
        self.position = base.checked_add_signed(by).ok_or_else(before_start)?;
        Ok(self.position)
    }
}
