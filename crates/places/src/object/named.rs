//! A name in an opened image.

use vlinder_base::sync::Arc;
use vlinder_format::RootId;
use vlinder_fs::Inode;

use crate::failure::{Failure, Kind};
use crate::place::image::{ImageDirectory, OpenImage};

/// A name in an opened image, and the file that has it.
pub struct Named {
    /// The directory.
    pub directory: ImageDirectory,
    /// The name; `.` for the directory itself.
    pub name: Vec<u8>,
}

impl Named {
    /// The image.
    pub fn image(&self) -> &Arc<OpenImage> {
        self.directory.image()
    }

    /// The file.
    ///
    /// # Errors
    /// [`Kind::NotFound`] where the name is not there; what the file system said.
    pub fn inode(&self) -> Result<Arc<Inode>, Failure> {
        self.directory.lookup(&self.name)
    }

    /// In messages.
    pub fn place(&self) -> String {
        self.directory.place(&self.name)
    }

    /// The subvolume whose root directory this is.
    ///
    /// # Errors
    /// [`Kind::Invalid`] where it is something else; as [`Named::inode`].
    pub fn subvolume(&self) -> Result<RootId, Failure> {
        let id = self.inode()?.id();
        if id.is_subvolume_root() {
            return Ok(id.root);
        }
        Err(Failure::new(Kind::Invalid, "not a subvolume")
            .at(self.place())
            .hint("list them with subvolume list"))
    }
}
