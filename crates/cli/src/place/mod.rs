//! Files wherever they lie: in a directory of the host, or in one of an image. The file verbs see only this.
//!
//! Names are single names, looked up in an open directory and never through a symbolic link, so that nothing an image
//! says can lead a verb out of the place that the user named. `.` is the directory itself.

pub mod host;
pub mod image;
mod names;
mod shared_path;
pub mod stream;

use vlinder_base::sync::Arc;
use vlinder_format::directory::is_file_name;
use vlinder_format::inode::{FileType, GroupId, Timestamp, UserId};

use crate::failure::{Failure, Kind};
use host::HostDirectory;
use image::ImageDirectory;
pub use names::Names;

/// What `stat` knows of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its type.
    pub file_type: FileType,
    /// The twelve permission bits.
    pub permissions: u32,
    /// The owner.
    pub user: u32,
    /// The owning group.
    pub group: u32,
    /// Names.
    pub links: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Bytes that it takes.
    pub allocated_bytes: u64,
    /// The device of a device node: major, minor.
    pub device: (u32, u32),
    /// Which file system or subvolume it lies in.
    pub volume: u64,
    /// Its number there.
    pub inode: u64,
    /// Last access.
    pub access_time: Timestamp,
    /// Last change of the content.
    pub modification_time: Timestamp,
    /// Last change of the inode.
    pub change_time: Timestamp,
    /// Creation, where it is known.
    pub birth_time: Option<Timestamp>,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: Vec<u8>,
    /// What it stands for.
    pub file_type: FileType,
}

/// An owner and a group that a file can be given. Neither is 2^32-1, which an image may hold: chown(2) takes that number as
/// "leave it as it is", and would report success while the file stays the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    user: UserId,
    group: GroupId,
}

impl Owner {
    /// The owner of these numbers; none where a number is no id.
    pub fn new(user: u32, group: u32) -> Option<Self> {
        let (user, group) = (UserId(user), GroupId(group));
        (user.is_id() && group.is_id()).then_some(Self { user, group })
    }

    /// The user.
    pub const fn user(self) -> UserId {
        self.user
    }

    /// The group.
    pub const fn group(self) -> GroupId {
        self.group
    }
}

/// The names in a directory.
#[derive(Debug, Default)]
pub struct DirectoryNames {
    /// All but `.` and `..`, in the directory's order.
    pub entries: Names,
    /// Says of each name that no file can have that it is left out.
    pub refused: Vec<Failure>,
}

/// Attributes to set. None leaves one as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Owner and group.
    pub owner: Option<Owner>,
    /// The twelve permission bits; not for symbolic links.
    pub permissions: Option<u32>,
    /// Last access, last change of the content.
    pub times: Option<(Timestamp, Timestamp)>,
}

/// What attributes are given to: a name in a directory, or a file that is being written.
pub trait Attributed {
    /// Sets owner, permissions and times, in this order.
    fn change(&self, change: &Change) -> Result<(), Failure>;
    /// Sets an extended attribute.
    fn set_attribute(&self, attribute: &[u8], value: &[u8]) -> Result<(), Failure>;
    /// Removes an extended attribute, if it is there.
    fn remove_attribute(&self, attribute: &[u8]) -> Result<(), Failure>;
}

/// The permission bits without set-user-id and set-group-id.
pub const WITHOUT_SET_ID_BITS: u32 = 0o1777;
/// The extended attribute that holds what a program may do without being root's.
pub const CAPABILITIES: &[u8] = b"security.capability";

/// The list that says who else may use a file, and the one that what is made in a directory gets.
pub const ACCESS_LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Gives a copy the owner of its original, and says which permissions it may have then. Where the owner is refused, because
/// only root may give it or because it is no id, these are the permissions without set-id bits: under the wrong owner, the
/// bits would give rights away. It comes before attributes and permissions, since a change of owner takes capabilities and
/// set-id bits away.
pub fn give_owner(to: &dyn Attributed, original: &Status) -> Result<u32, Failure> {
    let without_set_id_bits = original.permissions & WITHOUT_SET_ID_BITS;
    let Some(owner) = Owner::new(original.user, original.group) else { return Ok(without_set_id_bits) };
    match to.change(&Change { owner: Some(owner), ..Change::default() }) {
        Ok(()) => Ok(original.permissions),
        // EINVAL: the user namespace maps nothing to that id, so nobody in it may give it (chown_common, fs/open.c).
        Err(failure) if matches!(failure.kind, Kind::Permission | Kind::Invalid) => Ok(without_set_id_bits),
        Err(failure) => Err(failure),
    }
}

/// Bytes, and their offset in a file.
pub type Run<'a> = (u64, &'a [u8]);

/// Takes runs of data, in the order of the file.
pub type Take<'a> = &'a mut dyn FnMut(&[Run<'_>]) -> Result<(), Failure>;

/// A file that is read.
pub trait Source {
    /// Refuses a file that is not the one of which this was seen: another may have taken its name, in a directory that others
    /// change. An image is changed by nobody else.
    fn check_is(&self, _seen: &Status) -> Result<(), Failure> {
        Ok(())
    }
    /// Reads at an offset; fewer bytes than asked for only at the end.
    fn read_at(&mut self, offset: u64, target: &mut [u8]) -> Result<usize, Failure>;
    /// Gives the data of a part of the file, at or after an offset, to `take`: runs in order, each with its offset.
    /// Returns where that part ends, none where only a hole follows. `scratch` is memory that may be used.
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
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Failure>;
    /// Sets the length; what was not written is a hole.
    fn set_size(&mut self, size_bytes: u64) -> Result<(), Failure>;
    /// Whether owner, permissions and attributes are to be set by name after [`Sink::finish`]: the file is there already, and
    /// must stay as it is where its content never becomes whole.
    fn takes_attributes_last(&self) -> bool {
        false
    }
    /// Gives the file its name, or the file that was there its new content. Without this nothing is left of it.
    fn finish(self: Box<Self>) -> Result<(), Failure>;
}

/// An open directory.
#[derive(Clone)]
pub enum Directory {
    /// Of the host.
    Host(Arc<HostDirectory>),
    /// Of an image.
    Image(ImageDirectory),
}

/// What became of a renaming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renamed {
    /// It is done.
    Done,
    /// Both names lie on different file systems; nothing was done.
    OtherFileSystem,
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

/// Refuses a name that no file can have. What reads names from disk asks before it uses them.
pub fn check_entry(name: &[u8]) -> Result<(), Failure> {
    if is_file_name(name) {
        return Ok(());
    }
    let text = format!("{:?} is no name of a file; it is left out", crate::report::escaped(name));
    Err(Failure::new(Kind::Corruption, text).hint("see what else is wrong there with vlinder check"))
}

/// As [`check_entry`], for what may be the open directory itself, too, which is called `.`.
fn check_name(name: &[u8]) -> Result<(), Failure> {
    if name == b"." { Ok(()) } else { check_entry(name) }
}

impl Directory {
    /// What the directory is called in messages, with a name in it.
    pub fn place(&self, name: &[u8]) -> String {
        dispatch!(self, directory => directory.place(name))
    }

    /// The names in it.
    pub fn list(&self) -> Result<DirectoryNames, Failure> {
        match self {
            Self::Host(directory) => Ok(DirectoryNames { entries: directory.list()?, refused: Vec::new() }),
            Self::Image(directory) => directory.list(),
        }
    }

    /// What `lstat` says.
    pub fn status(&self, name: &[u8]) -> Result<Status, Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.status(name))
    }

    /// As [`Directory::status`], with none for a name that does not exist.
    pub fn look(&self, name: &[u8]) -> Result<Option<Status>, Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.look(name))
    }

    /// Opens a directory below this one; a symbolic link is none.
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
    pub fn read_link(&self, name: &[u8]) -> Result<Vec<u8>, Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.read_link(name))
    }

    /// Opens a regular file to read it.
    pub fn open(&self, name: &[u8]) -> Result<Box<dyn Source>, Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.open(name))
    }

    /// Begins a regular file, which takes this name, and the place of the file that has it, when it is finished.
    pub fn create(&self, name: &[u8], permissions: u32) -> Result<Box<dyn Sink>, Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.create(name, permissions))
    }

    /// Begins new content for a regular file that exists, as a program does that opens it and cuts it (`O_TRUNC`): owner,
    /// permissions, attributes, flags and further names stay. The old content stays until the new one is whole.
    pub fn overwrite(&self, name: &[u8]) -> Result<Box<dyn Sink>, Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.overwrite(name))
    }

    /// Whether this directory is the one with these numbers of volume and inode on the same file system, or lies below it.
    pub fn lies_in(&self, status: &Status) -> Result<bool, Failure> {
        dispatch!(self, directory => directory.lies_in(status.volume, status.inode))
    }

    /// Makes a directory.
    pub fn make_directory(&self, name: &[u8], permissions: u32) -> Result<(), Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.make_directory(name, permissions))
    }

    /// Makes a symbolic link.
    pub fn make_link(&self, name: &[u8], text: &[u8]) -> Result<(), Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.make_link(name, text))
    }

    /// Makes a fifo, socket or device node.
    pub fn make_node(&self, name: &[u8], status: &Status) -> Result<(), Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.make_node(name, status))
    }

    /// Removes the name of anything but a directory.
    pub fn unlink(&self, name: &[u8]) -> Result<(), Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.unlink(name))
    }

    /// Removes an empty directory.
    pub fn remove_directory(&self, name: &[u8]) -> Result<(), Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.remove_directory(name))
    }

    /// Gives a file another name, if that is on the same file system.
    pub fn rename(&self, name: &[u8], to: &Location, replace: bool) -> Result<Renamed, Failure> {
        check_name(name)?;
        check_name(&to.name)?;
        match (self, &to.directory) {
            (Self::Host(from), Self::Host(directory)) => from.rename(name, directory, &to.name, replace),
            (Self::Image(from), Self::Image(directory)) if from.is_same_image(directory) => {
                from.rename(name, directory, &to.name, replace).map(|()| Renamed::Done)
            }
            _ => Ok(Renamed::OtherFileSystem),
        }
    }

    /// Makes what was made in this directory, and all else on its file system, durable.
    pub fn sync(&self) -> Result<(), Failure> {
        dispatch!(self, directory => directory.sync())
    }

    /// Gives a file one more name on the same file system.
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
    pub fn attributes(&self, name: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.attributes(name))
    }

    /// The value of an extended attribute.
    pub fn attribute(&self, name: &[u8], attribute: &[u8]) -> Result<Vec<u8>, Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.attribute(name, attribute))
    }

    /// Sets an extended attribute.
    pub fn set_attribute(&self, name: &[u8], attribute: &[u8], value: &[u8]) -> Result<(), Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.set_attribute(name, attribute, value))
    }

    /// Removes an extended attribute, if it is there.
    pub fn remove_attribute(&self, name: &[u8], attribute: &[u8]) -> Result<(), Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.remove_attribute(name, attribute))
    }

    /// Sets owner, permissions and times, in this order.
    pub fn change(&self, name: &[u8], change: &Change) -> Result<(), Failure> {
        check_name(name)?;
        dispatch!(self, directory => directory.change(name, change))
    }

    /// Tells hosts and opened images apart: of two files with the same one, equal numbers of volume and inode mean the same
    /// file.
    pub fn origin(&self) -> Origin {
        match self {
            Self::Host(_) => Origin(0),
            Self::Image(directory) => Origin(directory.address()),
        }
    }

    /// Whether device nodes are made by whoever may write here, without asking: in an image they are only names.
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
    pub fn status(&self) -> Result<Status, Failure> {
        self.directory.status(&self.name)
    }

    /// As [`Location::status`], with none where nothing is.
    pub fn look(&self) -> Result<Option<Status>, Failure> {
        self.directory.look(&self.name)
    }

    /// The name in this directory, if it is one, that a copy of `source` gets; else the location itself.
    pub fn below(&self, name: &[u8]) -> Result<Self, Failure> {
        Ok(Self { directory: self.directory.enter(&self.name)?, name: name.to_vec() })
    }
}
