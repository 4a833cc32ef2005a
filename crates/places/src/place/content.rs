//! Files that are read and written.

use std::fs::File;

use vlinder_base::sync::Arc;
use vlinder_fs::Inode;

use super::attributes::Attributed;
use super::status::FileStatus;
use crate::failure::Failure;

/// Bytes, and their offset in a file.
pub type Run<'a> = (u64, &'a [u8]);

/// Takes runs of data, in the order of the file.
pub type Take<'a> = &'a mut dyn FnMut(&[Run<'_>]) -> Result<(), Failure>;

/// A file that is read, to a sink that may share its extents.
#[derive(Clone, Copy)]
pub enum Content<'a> {
    /// Of the host.
    Host(&'a File),
    /// Of an opened image, which has this number.
    Image(usize, &'a Arc<Inode>),
}

/// What became of the wish to share extents.
#[derive(Debug)]
pub enum Shared {
    /// The file shows the whole content of the other.
    Whole,
    /// That can't be, for this reason, and nothing was done; the bytes can be copied.
    Refused(Failure),
}

/// A file that is read.
pub trait Source {
    /// The file itself.
    fn content(&self) -> Content<'_>;
    /// Refuses a file that is not the one of which this was seen: another may have taken its name, in a
    /// directory that others change. An image is changed by nobody else.
    ///
    /// # Errors
    /// [`Kind::Exists`](crate::failure::Kind::Exists) where it is another file; what the system said.
    fn check_is(&self, _seen: &FileStatus) -> Result<(), Failure> {
        Ok(())
    }
    /// Reads at an offset; fewer bytes than asked for only at the end.
    ///
    /// # Errors
    /// What the system said of the host, or the file system of the image.
    fn read_at(&mut self, offset: u64, target: &mut [u8]) -> Result<usize, Failure>;
    /// Gives the data of a part of the file, at or after an offset, to `take`: runs in order, each with its
    /// offset. Returns where that part ends, none where only a hole follows. `scratch` is memory that may be
    /// used.
    ///
    /// # Errors
    /// What reading met, and what `take` gave.
    fn read_data(
        &mut self,
        offset: u64,
        scratch: &mut Vec<u8>,
        take: Take<'_>,
    ) -> Result<Option<u64>, Failure>;
}

/// A file that is written.
pub trait Sink: Attributed {
    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// What the system said of the host, or the file system of the image.
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Failure>;
    /// Makes the file, of which nothing is written yet, show the content of another by sharing its extents
    /// (reflink).
    ///
    /// # Errors
    /// What the host's system or the image's file system said, where that is not a reason to copy the bytes.
    fn share(&mut self, source: Content<'_>) -> Result<Shared, Failure>;
    /// Sets the length; what was not written is a hole.
    ///
    /// # Errors
    /// What the system said of the host, or the file system of the image.
    fn set_size(&mut self, size_bytes: u64) -> Result<(), Failure>;
    /// Whether owner, permissions and attributes are to be set by name after [`Sink::finish`]: the file is
    /// there already, and must stay as it is where its content never becomes whole.
    fn takes_attributes_last(&self) -> bool {
        false
    }
    /// Gives the file its name, or the file that was there its new content. Without this nothing is left of
    /// it.
    ///
    /// # Errors
    /// What the system said of the host, or the file system of the image.
    fn finish(self: Box<Self>) -> Result<(), Failure>;
}

/// What became of a renaming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renamed {
    /// It is done.
    Done,
    /// Both names lie on different file systems, or in different subvolumes of an image; nothing was done.
    Apart,
}
