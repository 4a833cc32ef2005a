//! What can be done in a directory of an image.

use vlinder_base::sync::Arc;
use vlinder_format::inode::{DeviceNumber, FileType};
use vlinder_fs::{FsError, Inode, InodeId, Refusal, RenameMode, Replacement};

use super::attributes;
use super::entered::EnteredDirectory;
use super::failure::from_fs;
use super::open::{OpenImage, status_of};
use super::sink::{ImageSink, Made};
use super::source::ImageSource;
use crate::failure::{Failure, Kind};
use crate::place::attributes::Change;
use crate::place::content::{Renamed, Sink, Source};
use crate::place::names::{DirectoryNames, check_entry};
use crate::place::shared_path::{SharedPath, split};
use crate::place::status::FileStatus;

/// Names that are read from a directory at a time.
const BATCH: usize = 4096;

/// An open directory of an image.
#[derive(Clone)]
pub struct ImageDirectory {
    entered: EnteredDirectory,
}

impl ImageDirectory {
    /// The root that is shown.
    ///
    /// # Errors
    /// What the file system said.
    pub(crate) fn root(image: &Arc<OpenImage>) -> Result<Self, Failure> {
        EnteredDirectory::root(image).map(|entered| Self { entered })
    }

    /// A directory in this one, which has this name.
    pub(crate) fn at(&self, id: InodeId, name: &[u8]) -> Self {
        Self { entered: self.entered.at(id, name) }
    }

    /// In messages: `IMAGE:/path`.
    pub(crate) fn place(&self, name: &[u8]) -> String {
        self.entered.place(name)
    }

    /// The path of a name in it, from the root that is shown.
    pub(crate) fn path_to(&self, name: &[u8]) -> Vec<u8> {
        [&self.entered.path.to_bytes(), &b"/"[..], name].concat()
    }

    /// The image.
    pub fn image(&self) -> &Arc<OpenImage> {
        &self.entered.image
    }

    /// The directory's inode.
    ///
    /// # Errors
    /// What the file system said.
    pub fn inode(&self) -> Result<Arc<Inode>, Failure> {
        self.entered.inode()
    }

    /// The file of a name, or this directory for `.`.
    ///
    /// # Errors
    /// [`Kind::NotFound`] where the name is not there; what the file system said.
    pub fn lookup(&self, name: &[u8]) -> Result<Arc<Inode>, Failure> {
        self.entered.lookup(name)
    }

    /// Removes the name of anything but a directory.
    pub(crate) fn unlink(&self, name: &[u8]) -> Result<(), Failure> {
        self.entered.unlink(name)
    }

    /// Whether both lie in one opened image.
    pub fn is_same_image(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.entered.image, &other.entered.image)
    }

    /// A number that no other opened image has.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.entered.image).addr()
    }

    /// The names in it; those that no file can have are left out.
    pub(crate) fn list(&self) -> Result<DirectoryNames, Failure> {
        let inode = self.inode()?;
        let open = self
            .entered
            .filesystem()
            .names()
            .open_directory(&self.entered.image.caller, &inode)
            .map_err(self.entered.fail(b"."))?;
        let mut names = DirectoryNames::default();
        // Those at the end of the directory are met twice.
        let mut refused_to = None;
        // 0 and 1 are `.` and `..`.
        let mut next = 2;
        loop {
            let records = open.read_and_tell(next, BATCH, &mut |record| {
                if Some(record.offset) > refused_to
                    && let Err(failure) = check_entry(&record.name)
                {
                    refused_to = Some(record.offset);
                    names.refused.push(failure.at(self.place(b".")));
                }
            });
            let records = records.map_err(self.entered.fail(b"."))?;
            let Some(last) = records.last() else {
                names.entries.shrink();
                return Ok(names);
            };
            next = last.offset.saturating_add(1);
            records.iter().for_each(|record| names.entries.push(&record.name, record.file_type));
        }
    }

    /// What `lstat` says.
    pub(crate) fn status(&self, name: &[u8]) -> Result<FileStatus, Failure> {
        let inode = self.lookup(name)?;
        Ok(status_of(self.entered.filesystem(), &inode))
    }

    /// As [`ImageDirectory::status`], with none for a name that does not exist.
    pub(crate) fn look(&self, name: &[u8]) -> Result<Option<FileStatus>, Failure> {
        let inode = self.inode()?;
        // `.` is answered by the file system, too; a directory that was entered needs no right for that.
        let found = match name {
            b"." => Ok(inode),
            name => self.entered.filesystem().names().lookup(&self.entered.image.caller, &inode, name),
        };
        match found {
            Ok(inode) => Ok(Some(status_of(self.entered.filesystem(), &inode))),
            Err(error) if error.refusal() == Some(Refusal::NotFound) => Ok(None),
            Err(error) => {
                let failure = self.entered.fail(name)(error);
                if failure.kind == Kind::NotFound { Ok(None) } else { Err(failure) }
            }
        }
    }

    /// Opens a directory below this one; a symbolic link is none.
    ///
    /// # Errors
    /// [`Kind::Invalid`] where it is no directory; as [`ImageDirectory::lookup`].
    pub fn enter(&self, name: &[u8]) -> Result<Self, Failure> {
        let inode = self.lookup(name)?;
        if !inode.is_directory() {
            return Err(Failure::new(Kind::Invalid, "not a directory").at(self.place(name)));
        }
        Ok(self.at(inode.id(), name))
    }

    /// The text of a symbolic link.
    pub(crate) fn read_link(&self, name: &[u8]) -> Result<Vec<u8>, Failure> {
        let inode = self.lookup(name)?;
        self.entered.filesystem().names().read_link(&inode).map_err(self.entered.fail(name))
    }

    /// Opens a regular file to read it.
    pub(crate) fn open(&self, name: &[u8]) -> Result<Box<dyn Source>, Failure> {
        let inode = self.lookup(name)?;
        if inode.file_type() != FileType::Regular {
            return Err(Failure::new(Kind::Invalid, "no regular file").at(self.place(name)));
        }
        Ok(Box::new(ImageSource::new(&self.entered, name, inode)))
    }

    /// Begins a regular file, which takes this name when it is finished.
    pub(crate) fn create(&self, name: &[u8], permissions: u32) -> Result<Box<dyn Sink>, Failure> {
        let (filesystem, caller, inode) =
            (self.entered.filesystem(), &self.entered.image.caller, self.inode()?);
        let made = match filesystem.names().create_file(caller, &inode, name, permissions) {
            Ok(inode) => Made::Named(inode),
            // A file without a name until it is whole: what it replaces stays until then.
            Err(error) if error.refusal() == Some(Refusal::Exists) => Made::Temporary(
                filesystem
                    .names()
                    .create_temporary(caller, &inode, permissions)
                    .map_err(self.entered.fail(name))?,
            ),
            Err(error) => return Err(self.entered.fail(name)(error)),
        };
        Ok(Box::new(ImageSink::new(&self.entered, name, made)))
    }

    /// As [`Directory::overwrite`](crate::place::Directory::overwrite).
    pub(crate) fn overwrite(&self, name: &[u8]) -> Result<Box<dyn Sink>, Failure> {
        let target = self.lookup(name)?;
        let begun = Replacement::begin(self.entered.filesystem(), &self.entered.image.caller, &target);
        let replacement = begun.map_err(|error| self.refused_overwriting(name, error))?;
        Ok(Box::new(ImageSink::new(&self.entered, name, Made::Content(replacement))))
    }

    fn refused_overwriting(&self, name: &[u8], error: FsError) -> Failure {
        let is_not_permitted = error.refusal() == Some(Refusal::NotPermitted);
        let failure = self.entered.fail(name)(error);
        if is_not_permitted {
            failure.hint("the file is immutable, can only grow, or is sealed by fs-verity: mount the image and take the flag away with chattr -i or -a, or copy to another name")
        } else {
            failure
        }
    }

    /// Whether this directory is the one of these numbers, or lies below it.
    pub(crate) fn lies_in(&self, volume: u64, inode: u64) -> Result<bool, Failure> {
        let is_it = |id: InodeId| (id.root.0, id.number.0) == (volume, inode);
        let root = self.entered.filesystem().root().map_err(self.entered.fail(b"."))?.id();
        let image = Arc::clone(&self.entered.image);
        let mut above = Self { entered: EnteredDirectory { image, id: root, path: SharedPath::default() } };
        for name in split(&self.entered.path.to_bytes()) {
            if is_it(above.entered.id) {
                return Ok(true);
            }
            above = above.enter(&name)?;
        }
        Ok(is_it(above.entered.id))
    }

    /// Refuses `.` as a name for what is to be made: the directory itself is there.
    ///
    /// # Errors
    /// [`Kind::Exists`] for `.`.
    pub fn refuse_itself(&self, name: &[u8]) -> Result<(), Failure> {
        if name != b"." {
            return Ok(());
        }
        let failure = Failure::new(Kind::Exists, "a directory that is there already").at(self.place(name));
        Err(failure.hint("give what is to be made a name: IMAGE:/NAME"))
    }

    /// Makes a directory.
    pub(crate) fn make_directory(&self, name: &[u8], permissions: u32) -> Result<(), Failure> {
        self.refuse_itself(name)?;
        let made = self.entered.filesystem().names().create_directory(
            &self.entered.image.caller,
            &self.inode()?,
            name,
            permissions,
        );
        made.map(drop).map_err(self.entered.fail(name))
    }

    /// Makes a symbolic link.
    pub(crate) fn make_link(&self, name: &[u8], text: &[u8]) -> Result<(), Failure> {
        self.refuse_itself(name)?;
        let made = self.entered.filesystem().names().create_symbolic_link(
            &self.entered.image.caller,
            &self.inode()?,
            name,
            text,
        );
        made.map(drop).map_err(self.entered.fail(name))
    }

    /// Makes a fifo, socket or device node.
    pub(crate) fn make_node(&self, name: &[u8], status: &FileStatus) -> Result<(), Failure> {
        self.refuse_itself(name)?;
        let device = DeviceNumber::new(status.device.0, status.device.1);
        let (caller, permissions) = (&self.entered.image.caller, status.permissions & 0o777);
        let made = self.entered.filesystem().names().create_node(
            caller,
            &self.inode()?,
            name,
            status.file_type,
            permissions,
            device,
        );
        made.map(drop).map_err(self.entered.fail(name))
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self, name: &[u8]) -> Result<(), Failure> {
        self.entered
            .filesystem()
            .names()
            .remove_directory(&self.entered.image.caller, &self.inode()?, name)
            .map_err(self.entered.fail(name))
    }

    /// Gives a file another name, if that is in the same subvolume, or it is a subvolume itself.
    pub(crate) fn rename(
        &self,
        name: &[u8],
        to: &Self,
        to_name: &[u8],
        replace: bool,
    ) -> Result<Renamed, Failure> {
        let mode = if replace { RenameMode::Replace } else { RenameMode::NoReplace };
        let caller = &self.entered.image.caller;
        let (inode, to_inode) = (self.inode()?, to.inode()?);
        match self.entered.filesystem().names().rename(caller, &inode, name, &to_inode, to_name, mode) {
            Ok(()) => Ok(Renamed::Done),
            Err(error) => match error.refusal() {
                Some(Refusal::CrossesSubvolumes) => Ok(Renamed::Apart),
                Some(Refusal::NotFound) => Err(from_fs(error, self.place(name))),
                _ => Err(from_fs(error, to.place(to_name))),
            },
        }
    }

    /// Makes what was made in it, and all else on its file system, durable.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        self.entered.filesystem().sync().map(drop).map_err(|error| from_fs(error, &self.entered.image.label))
    }

    /// Gives a file one more name.
    pub(crate) fn link(&self, name: &[u8], to: &Self, to_name: &[u8]) -> Result<(), Failure> {
        let inode = self.lookup(name)?;
        let linked =
            self.entered.filesystem().names().link(&self.entered.image.caller, &inode, &to.inode()?, to_name);
        linked.map_err(|error| from_fs(error, to.place(to_name)))
    }

    /// The names of a file's extended attributes.
    pub(crate) fn attributes(&self, name: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        let inode = self.lookup(name)?;
        self.entered.filesystem().attributes().extended_attributes(&inode).map_err(self.entered.fail(name))
    }

    /// The value of an extended attribute.
    pub(crate) fn attribute(&self, name: &[u8], attribute: &[u8]) -> Result<Vec<u8>, Failure> {
        let inode = self.lookup(name)?;
        self.entered
            .filesystem()
            .attributes()
            .extended_attribute(&self.entered.image.caller, &inode, attribute)
            .map_err(self.entered.fail(name))
    }

    /// Sets an extended attribute.
    pub(crate) fn set_attribute(&self, name: &[u8], attribute: &[u8], value: &[u8]) -> Result<(), Failure> {
        attributes::set_attribute(&self.entered, &self.lookup(name)?, name, attribute, value)
    }

    /// As [`Directory::remove_attribute`](crate::place::Directory::remove_attribute).
    pub(crate) fn remove_attribute(&self, name: &[u8], attribute: &[u8]) -> Result<(), Failure> {
        attributes::remove_attribute(&self.entered, &self.lookup(name)?, name, attribute)
    }

    /// Sets owner, permissions and times, in this order.
    pub(crate) fn change(&self, name: &[u8], change: &Change) -> Result<(), Failure> {
        attributes::change(&self.entered, &self.lookup(name)?, name, change)
    }
}
