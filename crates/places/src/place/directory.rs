//! Directories of the host and of images, as one.

use vlinder_format::directory::LONGEST_NAME;

use super::attributes::{Attributed, Change};
use super::content::{Renamed, Sink, Source};
use super::host::HostDirectory;
use super::image::ImageDirectory;
use super::names::{DirectoryNames, check_entry};
use super::status::FileStatus;
use crate::failure::{Failure, Kind};
use crate::text::escaped;

/// An open directory.
#[derive(Clone)]
pub enum Directory {
    /// Of the host.
    Host(HostDirectory),
    /// Of an image.
    Image(ImageDirectory),
}

/// The host, or an image as long as it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin(usize);

/// A name in a directory, which may not exist yet.
#[derive(Clone)]
pub struct Location {
    /// Where the name is.
    pub directory: Directory,
    /// The name, or `.`.
    pub name: Vec<u8>,
}

macro_rules! dispatch {
    ($self:ident, $directory:ident => $call:expr) => {
        match $self {
            Directory::Host($directory) => $call,
            Directory::Image($directory) => $call,
        }
    };
}

/// As [`check_entry`], for what may be the open directory itself, too, which is called `.`. Directories give
/// out no name that is too long, so one is the user's.
fn check_name(name: &[u8]) -> Result<(), Failure> {
    if name.len() > LONGEST_NAME {
        let text =
            format!("{}: a name has {LONGEST_NAME} bytes at most, this has {}", escaped(name), name.len());
        return Err(Failure::usage(text));
    }
    if name == b"." { Ok(()) } else { check_entry(name) }
}

impl Directory {
    /// What the directory is called in messages, with a name in it.
    pub fn place(&self, name: &[u8]) -> String {
        dispatch!(self, directory => directory.place(name))
    }

    /// The names in it.
    ///
    /// # Errors
    /// What the system or the image's file system said.
    pub fn list(&self) -> Result<DirectoryNames, Failure> {
        match self {
            Self::Host(directory) => Ok(DirectoryNames { entries: directory.list()?, refused: Vec::new() }),
            Self::Image(directory) => directory.list(),
        }
    }

    /// What `lstat` says.
    ///
    /// # Errors
    /// Where no file can have that name; what the system or the image's file system said.
    pub fn status(&self, name: &[u8]) -> Result<FileStatus, Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.status(name))
    }

    /// As [`Directory::status`], with none for a name that does not exist.
    ///
    /// # Errors
    /// As [`Directory::status`].
    pub fn look(&self, name: &[u8]) -> Result<Option<FileStatus>, Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.look(name))
    }

    /// Opens a directory below this one; a symbolic link is none.
    ///
    /// # Errors
    /// Where no file can have that name; what the system or the image's file system said.
    pub fn enter(&self, name: &[u8]) -> Result<Self, Failure> {
        check_name(name)?;
        if name == b"." {
            return Ok(self.clone());
        }
        match self {
            Self::Host(directory) => Ok(Self::Host(directory.enter(name)?)),
            Self::Image(directory) => Ok(Self::Image(directory.enter(name)?)),
        }
    }

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// Where no file can have that name; what the system or the image's file system said.
    pub fn read_link(&self, name: &[u8]) -> Result<Vec<u8>, Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.read_link(name))
    }

    /// Opens a regular file to read it, whichever has the name now. [`Location::open_seen`] opens the one
    /// that was judged before.
    ///
    /// # Errors
    /// Where no file can have that name; what the system or the image's file system said.
    pub fn open(&self, name: &[u8]) -> Result<Box<dyn Source>, Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.open(name))
    }

    /// Begins a regular file, which takes this name, and the place of the file that has it, when it is
    /// finished.
    ///
    /// # Errors
    /// Where no file can have that name; what the system or the image's file system said.
    pub fn create(&self, name: &[u8], permissions: u32) -> Result<Box<dyn Sink>, Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.create(name, permissions))
    }

    /// Begins new content for a regular file that exists, as a program does that opens it and cuts it
    /// (`O_TRUNC`): owner, permissions, attributes, flags and further names stay. The old content stays until
    /// the new one is whole.
    ///
    /// # Errors
    /// Where no file can have that name; what the system or the image's file system said.
    pub fn overwrite(&self, name: &[u8]) -> Result<Box<dyn Sink>, Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.overwrite(name))
    }

    /// Whether this directory is the one with these numbers of volume and inode on the same file system, or
    /// lies below it.
    ///
    /// # Errors
    /// What the system or the image's file system said.
    pub fn lies_in(&self, status: &FileStatus) -> Result<bool, Failure> {
        dispatch!(self, directory => directory.lies_in(status.volume, status.inode))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Where no file can have that name; what the system or the image's file system said.
    pub fn make_directory(&self, name: &[u8], permissions: u32) -> Result<(), Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.make_directory(name, permissions))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// Where no file can have that name; what the system or the image's file system said.
    pub fn make_link(&self, name: &[u8], text: &[u8]) -> Result<(), Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.make_link(name, text))
    }

    /// Makes a fifo, socket or device node.
    ///
    /// # Errors
    /// Where no file can have that name; what the system or the image's file system said.
    pub fn make_node(&self, name: &[u8], status: &FileStatus) -> Result<(), Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.make_node(name, status))
    }

    /// Removes the name of anything but a directory.
    ///
    /// # Errors
    /// Where no file can have that name; what the system or the image's file system said.
    pub fn unlink(&self, name: &[u8]) -> Result<(), Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.unlink(name))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Where no file can have that name; what the system or the image's file system said.
    pub fn remove_directory(&self, name: &[u8]) -> Result<(), Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.remove_directory(name))
    }

    /// Gives a file another name, if that is on the same file system.
    ///
    /// # Errors
    /// Where no file can have that name; what the system or the image's file system said.
    pub fn rename(&self, name: &[u8], to: &Location, replace: bool) -> Result<Renamed, Failure> {
        check_name(name)?;
        check_name(&to.name)?;
        match (self, &to.directory) {
            (Self::Host(from), Self::Host(directory)) => from.rename(name, directory, &to.name, replace),
            (Self::Image(from), Self::Image(directory)) if from.is_same_image(directory) => {
                from.rename(name, directory, &to.name, replace)
            }
            _ => Ok(Renamed::Apart),
        }
    }

    /// Makes what was made in this directory, and all else on its file system, durable.
    ///
    /// # Errors
    /// What the system or the image's file system said.
    pub fn sync(&self) -> Result<(), Failure> {
        dispatch!(self, directory => directory.sync())
    }

    /// Gives a file one more name on the same file system.
    ///
    /// # Errors
    /// Where no file can have that name; what the system or the image's file system said; [`Kind::Invalid`]
    /// where both lie on different file systems.
    pub fn link(&self, name: &[u8], to: &Location) -> Result<(), Failure> {
        check_name(name)?;
        check_name(&to.name)?;
        match (self, &to.directory) {
            (Self::Host(from), Self::Host(directory)) => from.link(name, directory, &to.name),
            (Self::Image(from), Self::Image(directory)) if from.is_same_image(directory) => {
                from.link(name, directory, &to.name)
            }
            _ => Err(self.crosses(name)),
        }
    }

    fn crosses(&self, name: &[u8]) -> Failure {
        let failure = Failure::new(Kind::Invalid, "source and destination lie on different file systems");
        failure.at(self.place(name)).hint("copy it with vlinder cp -a, then remove the source")
    }

    /// The names of a file's extended attributes.
    ///
    /// # Errors
    /// Where no file can have that name; what the system or the image's file system said.
    pub fn attributes(&self, name: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.attributes(name))
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// Where no file can have that name; what the system or the image's file system said.
    pub fn attribute(&self, name: &[u8], attribute: &[u8]) -> Result<Vec<u8>, Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.attribute(name, attribute))
    }

    /// Sets an extended attribute.
    pub(crate) fn set_attribute(&self, name: &[u8], attribute: &[u8], value: &[u8]) -> Result<(), Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.set_attribute(name, attribute, value))
    }

    /// Removes an extended attribute, if it is there.
    pub(crate) fn remove_attribute(&self, name: &[u8], attribute: &[u8]) -> Result<(), Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.remove_attribute(name, attribute))
    }

    /// Sets owner, permissions and times, in this order.
    ///
    /// # Errors
    /// Where no file can have that name; what the system or the image's file system said.
    pub fn change(&self, name: &[u8], change: &Change) -> Result<(), Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.change(name, change))
    }

    /// Tells hosts and opened images apart: of two files with the same one, equal numbers of volume and inode
    /// mean the same file.
    pub fn origin(&self) -> Origin {
        match self {
            Self::Host(_) => Origin(0),
            Self::Image(directory) => Origin(directory.address()),
        }
    }

    /// Whether device nodes are made without asking by every user who may write here: in an image they are
    /// only names.
    pub fn is_image(&self) -> bool {
        matches!(self, Self::Image(_))
    }
}

impl Attributed for Location {
    fn change(&self, change: &Change) -> Result<(), Failure> {
        self.directory.change(&self.name, change)
    }

    fn set_attribute(&self, attribute: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.directory.set_attribute(&self.name, attribute, value)
    }

    fn remove_attribute(&self, attribute: &[u8]) -> Result<(), Failure> {
        self.directory.remove_attribute(&self.name, attribute)
    }
}

impl Location {
    /// What it is called in messages.
    pub fn place(&self) -> String {
        self.directory.place(&self.name)
    }

    /// What `lstat` says.
    ///
    /// # Errors
    /// As [`Directory::status`].
    pub fn status(&self) -> Result<FileStatus, Failure> {
        self.directory.status(&self.name)
    }

    /// As [`Location::status`], with none where nothing is.
    ///
    /// # Errors
    /// As [`Directory::look`].
    pub fn look(&self) -> Result<Option<FileStatus>, Failure> {
        self.directory.look(&self.name)
    }

    /// Opens the regular file to read it that was seen before, and no other.
    ///
    /// # Errors
    /// As [`Directory::open`]; [`Kind::Exists`] where another file has taken
    /// its name since.
    pub fn open_seen(&self, seen: &FileStatus) -> Result<Box<dyn Source>, Failure> {
        let source = self.directory.open(&self.name)?;
        source.check_is(seen)?;
        Ok(source)
    }

    /// The name in this directory, if it is one, that a copy of `source` gets; else the location itself.
    ///
    /// # Errors
    /// As [`Directory::enter`].
    pub fn below(&self, name: &[u8]) -> Result<Self, Failure> {
        Ok(Self { directory: self.directory.enter(&self.name)?, name: name.to_vec() })
    }
}
