//! What can be done in a directory of the host.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType as HostType, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_format::inode::FileType;

use super::convert::{file_type, host_owner, host_times, status_of};
use super::held::HeldDirectory;
use super::image_mark::has_filesystem;
use super::sink::{HostSink, OWN_DESCRIPTORS, Unfinished, temporary_name};
use super::source::HostSource;
use crate::failure::{Failure, Kind};
use crate::place::attributes::{Attributed, CAPABILITIES, Change, give_owner};
use crate::place::content::{Renamed, Sink, Source};
use crate::place::names::Names;
use crate::place::status::FileStatus;

/// An open directory of the host.
#[derive(Clone, Debug)]
pub struct HostDirectory {
    pub(super) held: Arc<HeldDirectory>,
}

/// A path to a name in an open directory that leads through this very directory, for the calls that take only
/// paths.
fn through_proc(descriptor: &OwnedFd, name: &[u8]) -> PathBuf {
    let directory = PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
    if name == b"." { directory.join(".") } else { directory.join(OsStr::from_bytes(name)) }
}

impl HostDirectory {
    /// Begins a walk at a directory that is open; `path` is shown in messages.
    pub(in crate::place) fn start_of_walk(descriptor: OwnedFd, path: PathBuf) -> Self {
        Self { held: HeldDirectory::start_of_walk(descriptor, path) }
    }

    /// In messages: the path as the user wrote it.
    pub(crate) fn place(&self, name: &[u8]) -> String {
        self.held.place(name)
    }

    /// The names in it.
    pub(crate) fn list(&self) -> Result<Names, Failure> {
        let mut entries = Names::default();
        let listing = rustix::fs::Dir::read_from(&*self.held.descriptor()?)
            .map_err(|errno| self.held.fail(errno, b"."))?;
        for entry in listing {
            let entry = entry.map_err(|errno| self.held.fail(errno, b"."))?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let file_type = match entry.file_type() {
                HostType::Unknown => self.status(name)?.file_type,
                known => file_type(known),
            };
            entries.push(name, file_type);
        }
        entries.shrink();
        Ok(entries)
    }

    /// What `lstat` says.
    pub(crate) fn status(&self, name: &[u8]) -> Result<FileStatus, Failure> {
        self.find(name)?.map_err(|errno| self.held.fail(errno, name))
    }

    /// As [`HostDirectory::status`], with none for a name that does not exist.
    pub(crate) fn look(&self, name: &[u8]) -> Result<Option<FileStatus>, Failure> {
        match self.find(name)? {
            Ok(status) => Ok(Some(status)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.held.fail(errno, name)),
        }
    }

    /// What `lstat` says, or why it says nothing: no failure is made of a name that is only looked for.
    fn find(&self, name: &[u8]) -> Result<Result<FileStatus, Errno>, Failure> {
        use rustix::fs::StatxFlags;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let found = rustix::fs::statx(&*self.held.descriptor()?, OsStr::from_bytes(name), flags, wanted);
        Ok(found.map(|found| status_of(&found)))
    }

    /// Whether a name stands for a regular file or block device with the mark of a Btrfs superblock, or for a
    /// disk of which one partition has it.
    ///
    /// # Errors
    /// What the system said.
    pub fn is_image(&self, name: &[u8]) -> Result<bool, Failure> {
        let Some(status) = self.look(name)? else { return Ok(false) };
        if !matches!(status.file_type, FileType::Regular | FileType::BlockDevice) {
            return Ok(false);
        }
        let file = match self.open_at(name, OFlags::RDONLY | OFlags::NONBLOCK) {
            // A user who may not read it can't have meant a path in it. The right to remove or replace it is
            // the directory's.
            Err(failure) if failure.kind == Kind::Permission => return Ok(false),
            other => File::from(other?),
        };
        // By its descriptor: the name may have gone to another file.
        let opened = Path::new(OWN_DESCRIPTORS).join(file.as_raw_fd().to_string());
        let is_whole = has_filesystem(&file).map_err(|error| Failure::host(&error, self.held.place(name)))?;
        Ok(is_whole || vlinder_partitions::part_bytes(&opened).is_some())
    }

    fn open_at(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd, Failure> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&*self.held.descriptor()?, OsStr::from_bytes(name), flags, Mode::empty())
            .map_err(|errno| self.held.fail(errno, name))
    }

    /// Opens a directory below this one; a symbolic link is none.
    pub(crate) fn enter(&self, name: &[u8]) -> Result<Self, Failure> {
        let opened = self.open_at(name, OFlags::DIRECTORY | OFlags::RDONLY);
        let descriptor = opened.map_err(|failure| match self.is_image(name) {
            Ok(true) => failure.hint(format!("what is in an image is written {}:/", self.held.place(name))),
            _ => failure,
        })?;
        Ok(Self { held: self.held.below(descriptor, name) })
    }

    /// The text of a symbolic link.
    pub(crate) fn read_link(&self, name: &[u8]) -> Result<Vec<u8>, Failure> {
        let text = rustix::fs::readlinkat(&*self.held.descriptor()?, OsStr::from_bytes(name), Vec::new());
        Ok(text.map_err(|errno| self.held.fail(errno, name))?.into_bytes())
    }

    /// Opens a regular file to read it.
    pub(crate) fn open(&self, name: &[u8]) -> Result<Box<dyn Source>, Failure> {
        // O_NONBLOCK: a fifo that took the file's place would make open(2) wait for a peer.
        let descriptor = self.open_at(name, OFlags::RDONLY | OFlags::NONBLOCK)?;
        Ok(Box::new(HostSource {
            file: File::from(descriptor),
            directory: Arc::clone(&self.held),
            name: name.to_vec(),
        }))
    }

    /// Begins a regular file, which takes this name when it is finished.
    pub(crate) fn create(&self, name: &[u8], permissions: u32) -> Result<Box<dyn Sink>, Failure> {
        Ok(Box::new(self.begin(name, permissions)?))
    }

    /// As [`Directory::overwrite`](crate::place::Directory::overwrite). A file of one name gives it to a new
    /// one that takes over what the old one is beside its content. A file of several names has to stay, and
    /// is written over when the new content is whole: on the host no call exchanges contents at once.
    pub(crate) fn overwrite(&self, name: &[u8]) -> Result<Box<dyn Sink>, Failure> {
        let old = self.status(name)?;
        let mut sink = self.begin(name, 0o600)?;
        if old.links > 1 {
            let target = self.open_content(name, &old)?;
            sink.take_flags(&target);
            sink.be_content_of(File::from(target));
            return Ok(Box::new(sink));
        }
        // Before any data: with some, a file can't be taken from copy-on-write any more.
        if let Ok(file) = self.open_at(name, OFlags::RDONLY | OFlags::NONBLOCK) {
            sink.take_flags(&file);
        }
        let permissions = give_owner(&sink, &old)?;
        for attribute in self.attributes(name)?.iter().filter(|attribute| *attribute != CAPABILITIES) {
            let value = self.attribute(name, attribute)?;
            match sink.set_attribute(attribute, &value) {
                // What only root may give, or what belongs to this one file alone.
                Err(failure) if matches!(failure.kind, Kind::Permission | Kind::Unsupported) => {}
                other => other?,
            }
        }
        sink.change(&Change { permissions: Some(permissions), ..Change::default() })?;
        Ok(Box::new(sink))
    }

    /// Opens the regular file that was seen, to write over what it holds.
    fn open_content(&self, name: &[u8], seen: &FileStatus) -> Result<OwnedFd, Failure> {
        let hint = "it has further names; to replace it under this name alone, remove it first";
        let opened = self.open_at(name, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY);
        let descriptor = opened.map_err(|failure| failure.hint(hint))?;
        // Another file may have come since it was looked at, which nobody meant to change.
        let status = rustix::fs::fstat(&descriptor).map_err(|errno| self.held.fail(errno, name))?;
        if (status.st_dev, status.st_ino) == (seen.volume, seen.inode) {
            return Ok(descriptor);
        }
        let failure = Failure::new(Kind::Exists, "another file has taken its place meanwhile");
        Err(failure.at(self.held.place(name)).hint("try again when nobody else changes the directory"))
    }

    /// Whether this directory is the one of these numbers, or lies below it.
    pub(crate) fn lies_in(&self, volume: u64, inode: u64) -> Result<bool, Failure> {
        let mut above: Option<OwnedFd> = None;
        let mut last = None;
        loop {
            let status = match &above {
                Some(descriptor) => rustix::fs::fstat(descriptor),
                None => rustix::fs::fstat(&*self.held.descriptor()?),
            };
            let status = status.map_err(|errno| self.held.fail(errno, b"."))?;
            let found = (status.st_dev, status.st_ino);
            if found == (volume, inode) {
                return Ok(true);
            }
            // Above the root is the root.
            if last == Some(found) {
                return Ok(false);
            }
            last = Some(found);
            let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
            let opened = match &above {
                Some(descriptor) => rustix::fs::openat(descriptor, c"..", flags, Mode::empty()),
                None => rustix::fs::openat(&*self.held.descriptor()?, c"..", flags, Mode::empty()),
            };
            above = Some(opened.map_err(|errno| self.held.fail(errno, b"."))?);
        }
    }

    /// As [`Directory::create`](crate::place::Directory::create), for a file whose name may still change
    /// before it is finished.
    ///
    /// # Errors
    /// What the system said.
    pub fn begin(&self, name: &[u8], permissions: u32) -> Result<HostSink, Failure> {
        let mode = Mode::from_raw_mode(permissions & 0o777);
        let sink = |descriptor, unfinished| HostSink::new(descriptor, &self.held, unfinished, name);
        // A file without a name goes with the program, however that ends.
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        if Path::new(OWN_DESCRIPTORS).exists()
            && let Ok(descriptor) = rustix::fs::openat(&*self.held.descriptor()?, c".", flags, mode)
        {
            return Ok(sink(descriptor, Unfinished::Nameless));
        }
        // Some file systems have no such files (vfat, NFS, FUSE servers).
        let temporary = temporary_name();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let descriptor = rustix::fs::openat(&*self.held.descriptor()?, &*temporary, flags, mode)
            .map_err(|errno| self.held.fail(errno, name))?;
        Ok(sink(descriptor, Unfinished::Named(temporary)))
    }

    /// Makes a directory.
    pub(crate) fn make_directory(&self, name: &[u8], permissions: u32) -> Result<(), Failure> {
        rustix::fs::mkdirat(
            &*self.held.descriptor()?,
            OsStr::from_bytes(name),
            Mode::from_raw_mode(permissions),
        )
        .map_err(|errno| self.held.fail(errno, name))
    }

    /// Makes a symbolic link.
    pub(crate) fn make_link(&self, name: &[u8], text: &[u8]) -> Result<(), Failure> {
        rustix::fs::symlinkat(OsStr::from_bytes(text), &*self.held.descriptor()?, OsStr::from_bytes(name))
            .map_err(|errno| self.held.fail(errno, name))
    }

    /// Makes a fifo, socket or device node.
    pub(crate) fn make_node(&self, name: &[u8], status: &FileStatus) -> Result<(), Failure> {
        let host_type = match status.file_type {
            FileType::CharacterDevice => HostType::CharacterDevice,
            FileType::BlockDevice => HostType::BlockDevice,
            FileType::Socket => HostType::Socket,
            _ => HostType::Fifo,
        };
        let device = rustix::fs::makedev(status.device.0, status.device.1);
        let mode = Mode::from_raw_mode(status.permissions & 0o777);
        rustix::fs::mknodat(&*self.held.descriptor()?, OsStr::from_bytes(name), host_type, mode, device)
            .map_err(|errno| self.held.fail(errno, name))
    }

    /// Removes the name of anything but a directory.
    pub(crate) fn unlink(&self, name: &[u8]) -> Result<(), Failure> {
        rustix::fs::unlinkat(&*self.held.descriptor()?, OsStr::from_bytes(name), AtFlags::empty())
            .map_err(|errno| self.held.fail(errno, name))
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self, name: &[u8]) -> Result<(), Failure> {
        rustix::fs::unlinkat(&*self.held.descriptor()?, OsStr::from_bytes(name), AtFlags::REMOVEDIR)
            .map_err(|errno| self.held.fail(errno, name))
    }

    /// Gives a file another name, if that is on the same file system.
    pub(crate) fn rename(
        &self,
        name: &[u8],
        to: &Self,
        to_name: &[u8],
        replace: bool,
    ) -> Result<Renamed, Failure> {
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let (from_name, to_path) = (OsStr::from_bytes(name), OsStr::from_bytes(to_name));
        let (from_open, to_open) = (self.held.descriptor()?, to.held.descriptor()?);
        match rustix::fs::renameat_with(&*from_open, from_name, &*to_open, to_path, flags) {
            Ok(()) => Ok(Renamed::Done),
            Err(Errno::XDEV) => Ok(Renamed::Apart),
            Err(errno) => Err(to.held.fail(errno, to_name)),
        }
    }

    /// Makes what was made in it, and all else on its file system, durable.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        match rustix::fs::syncfs(&*self.held.descriptor()?) {
            // A directory that may be searched but not read has no descriptor for this call.
            Err(Errno::BADF) => {
                rustix::fs::sync();
                Ok(())
            }
            other => other.map_err(|errno| self.held.fail(errno, b".")),
        }
    }

    /// Gives a file one more name.
    pub(crate) fn link(&self, name: &[u8], to: &Self, to_name: &[u8]) -> Result<(), Failure> {
        let (from_name, to_path) = (OsStr::from_bytes(name), OsStr::from_bytes(to_name));
        let (from_open, to_open) = (self.held.descriptor()?, to.held.descriptor()?);
        rustix::fs::linkat(&*from_open, from_name, &*to_open, to_path, AtFlags::empty())
            .map_err(|errno| to.held.fail(errno, to_name))
    }

    /// The names of a file's extended attributes.
    pub(crate) fn attributes(&self, name: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        // XATTR_LIST_MAX: no list is longer.
        let mut list = vec![0u8; 65536];
        let open = self.held.descriptor()?;
        let size = match rustix::fs::llistxattr(through_proc(&open, name), &mut list[..]) {
            Ok(size) => size,
            Err(Errno::OPNOTSUPP) => 0,
            Err(errno) => return Err(self.held.fail(errno, name)),
        };
        let names = list[..size].split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    /// The value of an extended attribute.
    pub(crate) fn attribute(&self, name: &[u8], attribute: &[u8]) -> Result<Vec<u8>, Failure> {
        // XATTR_SIZE_MAX.
        let mut value = vec![0u8; 65536];
        let open = self.held.descriptor()?;
        let path = through_proc(&open, name);
        let size = rustix::fs::lgetxattr(&path, OsStr::from_bytes(attribute), &mut value[..])
            .map_err(|errno| self.held.fail(errno, name))?;
        value.truncate(size);
        Ok(value)
    }

    /// Sets an extended attribute.
    pub(crate) fn set_attribute(&self, name: &[u8], attribute: &[u8], value: &[u8]) -> Result<(), Failure> {
        let open = self.held.descriptor()?;
        let path = through_proc(&open, name);
        rustix::fs::lsetxattr(&path, OsStr::from_bytes(attribute), value, XattrFlags::empty())
            .map_err(|errno| self.held.fail(errno, name))
    }

    /// As [`Directory::remove_attribute`](crate::place::Directory::remove_attribute).
    pub(crate) fn remove_attribute(&self, name: &[u8], attribute: &[u8]) -> Result<(), Failure> {
        let open = self.held.descriptor()?;
        let path = through_proc(&open, name);
        let attribute = OsStr::from_bytes(attribute);
        // Asked first: most file systems begin a transaction even to remove what is not there.
        let found = rustix::fs::lgetxattr(&path, attribute, &mut [0u8; 0][..]);
        match found.and_then(|_| rustix::fs::lremovexattr(&path, attribute)) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(self.held.fail(errno, name)),
        }
    }

    /// Sets owner, permissions and times, in this order.
    pub(crate) fn change(&self, name: &[u8], change: &Change) -> Result<(), Failure> {
        let path = OsStr::from_bytes(name);
        if let Some(owner) = change.owner {
            let (user, group) = host_owner(owner);
            rustix::fs::chownat(
                &*self.held.descriptor()?,
                path,
                Some(user),
                Some(group),
                AtFlags::SYMLINK_NOFOLLOW,
            )
            .map_err(|errno| self.held.fail(errno, name))?;
        }
        if let Some(permissions) = change.permissions {
            // chmod(2) follows links: through a descriptor of the file itself it can't.
            let file = self.open_at(name, OFlags::PATH)?;
            let found = rustix::fs::fstat(&file).map_err(|errno| self.held.fail(errno, name))?;
            if HostType::from_raw_mode(found.st_mode) != HostType::Symlink {
                let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
                rustix::fs::chmod(path, Mode::from_raw_mode(permissions))
                    .map_err(|errno| self.held.fail(errno, name))?;
            }
        }
        if let Some(times) = change.times {
            let times = host_times(times);
            rustix::fs::utimensat(&*self.held.descriptor()?, path, &times, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|errno| self.held.fail(errno, name))?;
        }
        Ok(())
    }
}
