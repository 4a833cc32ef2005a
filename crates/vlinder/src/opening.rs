//! Opening and making images.

use std::path::Path;

use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem};

use crate::error::{Result, outer};
use crate::image::Image;
use crate::mkfs::MkfsOptions;
use crate::open_options::OpenOptions;

#[cfg(doc)]
use crate::ErrorKind;

impl Image {
    /// Opens an image or a block device for reading and writing.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        OpenOptions::new().open(path)
    }

    /// Makes an empty file system of so many bytes and opens it: on a new file, on one that holds nothing, or
    /// on a block device. [`MkfsOptions`] has all choices.
    ///
    /// # Errors
    /// As [`MkfsOptions::make`] and [`OpenOptions::open`].
    pub fn create(path: impl AsRef<Path>, size_bytes: u64) -> Result<Self> {
        MkfsOptions::new().size_bytes(size_bytes).make(path.as_ref())?;
        Self::open(path)
    }
}

impl OpenOptions {
    /// Opens an image or a block device. `disk.raw@2` is partition 2 of one, where no file has that name; of
    /// a disk image that has partitions the one with a Btrfs is opened, if there is one such.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`]; [`ErrorKind::NotBtrfs`]; [`ErrorKind::Busy`] where another process or a mount
    /// has it; [`ErrorKind::Damaged`]; [`ErrorKind::Unsupported`] for features that this version does not
    /// know, or a compression that this build lacks; [`ErrorKind::InvalidInput`] for options that do not go
    /// together, or devices that do not.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Image> {
        let path = path.as_ref();
        let opened = outer(Filesystem::open(&self.devices(path), self.inner()));
        let filesystem = opened.map_err(|error| error.at(path))?;
        Ok(Image::of(Files::new(filesystem, Caller::superuser()), path))
    }
}
