//! Changing names, and opening directories, by the view of names.

use vlinder_base::sync::Arc;

use crate::directory::OpenDirectory;
use crate::inode::Inode;
use crate::name_view::Names;
use crate::open::OpenInode;
use crate::rename::{Rename, RenameMode, Side};
use crate::unlink::{self, LastName};
use crate::{Caller, Result, directory, link};

impl Names<'_> {
    /// Opens a directory for listing.
    ///
    /// # Errors
    /// [`Refusal::NotADirectory`](crate::Refusal::NotADirectory),
    /// [`Refusal::AccessDenied`](crate::Refusal::AccessDenied); what reading met.
    pub fn open_directory(&self, caller: &Caller, directory: &Arc<Inode>) -> Result<OpenDirectory> {
        directory::open_directory(*self, caller, directory)
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// [`Refusal::Exists`](crate::Refusal::Exists);
    /// [`Refusal::CrossesSubvolumes`](crate::Refusal::CrossesSubvolumes);
    /// [`Refusal::TooManyLinks`](crate::Refusal::TooManyLinks);
    /// [`Refusal::NotPermitted`](crate::Refusal::NotPermitted) for a directory; and those of permissions.
    pub fn link(
        &self,
        caller: &Caller,
        inode: &Arc<Inode>,
        directory: &Arc<Inode>,
        name: &[u8],
    ) -> Result<()> {
        link::link(*self, caller, inode, directory, name)
    }

    /// The target of a symbolic link: as many bytes as the link's size says, up to the first NUL.
    ///
    /// # Errors
    /// [`Refusal::InvalidArgument`](crate::Refusal::InvalidArgument) for any other file; what reading met,
    /// fewer bytes among it.
    pub fn read_link(&self, inode: &Inode) -> Result<Vec<u8>> {
        link::read_link(self.engine(), inode)
    }

    /// Removes a name of anything but a directory; the file goes with its last name, or when it is closed.
    ///
    /// # Errors
    /// [`Refusal::NotFound`](crate::Refusal::NotFound),
    /// [`Refusal::IsADirectory`](crate::Refusal::IsADirectory), and those of permissions.
    pub fn unlink(&self, caller: &Caller, directory: &Arc<Inode>, name: &[u8]) -> Result<()> {
        unlink::unlink(*self, caller, directory, name, LastName::Delete).map(drop)
    }

    /// As [`unlink`](Self::unlink), for a caller whose own users may go on using a file without names: what
    /// lost its last name is given open, with an orphan item on disk, and lives until that is closed.
    ///
    /// # Errors
    /// As there.
    pub fn unlink_and_hold(
        &self,
        caller: &Caller,
        directory: &Arc<Inode>,
        name: &[u8],
    ) -> Result<Option<OpenInode>> {
        unlink::unlink(*self, caller, directory, name, LastName::Hold)
    }

    /// Removes an empty directory. An empty subvolume goes with its name, as on Linux.
    ///
    /// # Errors
    /// [`Refusal::NotFound`](crate::Refusal::NotFound),
    /// [`Refusal::NotADirectory`](crate::Refusal::NotADirectory),
    /// [`Refusal::NotEmpty`](crate::Refusal::NotEmpty), and those of permissions.
    pub fn remove_directory(&self, caller: &Caller, directory: &Arc<Inode>, name: &[u8]) -> Result<()> {
        unlink::remove_directory(*self, caller, directory, name, LastName::Delete).map(drop)
    }

    /// As [`remove_directory`](Self::remove_directory); the directory is given open, as
    /// [`unlink_and_hold`](Self::unlink_and_hold) gives a file. That of a subvolume has nothing on disk any
    /// more.
    ///
    /// # Errors
    /// As there.
    pub fn remove_directory_and_hold(
        &self,
        caller: &Caller,
        directory: &Arc<Inode>,
        name: &[u8],
    ) -> Result<Option<OpenInode>> {
        unlink::remove_directory(*self, caller, directory, name, LastName::Hold)
    }

    /// Gives a file another name, or another place.
    ///
    /// # Errors
    /// [`Refusal::NotFound`](crate::Refusal::NotFound); [`Refusal::Exists`](crate::Refusal::Exists);
    /// [`Refusal::NotEmpty`](crate::Refusal::NotEmpty),
    /// [`Refusal::IsADirectory`](crate::Refusal::IsADirectory) and
    /// [`Refusal::NotADirectory`](crate::Refusal::NotADirectory) for what has the new name;
    /// [`Refusal::InvalidArgument`](crate::Refusal::InvalidArgument) for a directory below itself;
    /// [`Refusal::CrossesSubvolumes`](crate::Refusal::CrossesSubvolumes); and those of permissions.
    pub fn rename(
        &self,
        caller: &Caller,
        from_directory: &Arc<Inode>,
        from: &[u8],
        to_directory: &Arc<Inode>,
        to: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        let (old, new) = (Side::new(from_directory, from), Side::new(to_directory, to));
        Rename::new(*self, caller, old, new, mode, LastName::Delete).run().map(drop)
    }

    /// As [`rename`](Self::rename); what lost its last name is given open, as
    /// [`unlink_and_hold`](Self::unlink_and_hold) gives it.
    ///
    /// # Errors
    /// As there.
    pub fn rename_and_hold(
        &self,
        caller: &Caller,
        from_directory: &Arc<Inode>,
        from: &[u8],
        to_directory: &Arc<Inode>,
        to: &[u8],
        mode: RenameMode,
    ) -> Result<Option<OpenInode>> {
        let (old, new) = (Side::new(from_directory, from), Side::new(to_directory, to));
        Rename::new(*self, caller, old, new, mode, LastName::Hold).run()
    }
}
