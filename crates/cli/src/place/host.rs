//! Directories of the host. Names are looked up in an open directory, so that what lies above may be moved or replaced
//! meanwhile.

mod held;
mod sink;

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType as HostType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_format::inode::{FileType, Timestamp};
use vlinder_format::superblock::MAGIC;

use super::stream::HostStream;
use super::{
    Attributed, CAPABILITIES, Change, Directory, Location, Names, Owner, Renamed, Sink, Source, Status, Take,
    give_owner,
};
use crate::failure::{Failure, Kind};
use crate::target::meant_in_image;

/// Where [`MAGIC`] stands in an image: 64 bytes into the primary superblock, at 64 KiB.
const PRIMARY_MARK_OFFSET: u64 = 65536 + 64;
/// Bytes read at a time.
const STEP: usize = 1 << 20;

pub use held::HostDirectory;
pub use sink::HostSink;
use sink::{OWN_DESCRIPTORS, Unfinished, temporary_name};

fn failure(errno: Errno, place: impl std::fmt::Display) -> Failure {
    Failure::host(&errno.into(), place)
}

/// As [`failure`], for a path that a user may have written; with how it is written, where it seems to lead into an image.
fn failure_of_path(errno: Errno, path: &Path, place: impl std::fmt::Display) -> Failure {
    let failure = failure(errno, place);
    match meant_in_image(path).filter(|_| matches!(errno, Errno::NOENT | Errno::NOTDIR)) {
        Some(target) => failure.hint(format!("a path in an image is written {target}")),
        None => failure,
    }
}

/// The location that a path names; with `follow`, that of what a symbolic link there leads to.
pub fn locate(path: &Path, follow: bool) -> Result<Location, Failure> {
    // Without a slash at the end, behind which lstat(2) would look.
    let plain = path.components().as_path();
    let is_link = plain.symlink_metadata().is_ok_and(|status| status.file_type().is_symlink());
    let resolved = if follow && is_link {
        std::fs::canonicalize(path).map_err(|error| Failure::host(&error, path.display()))?
    } else {
        path.to_owned()
    };
    let (parent, name) = match (resolved.parent(), resolved.file_name()) {
        (Some(parent), Some(name)) => (parent.to_owned(), name.as_bytes().to_vec()),
        _ => (resolved, b".".to_vec()),
    };
    let opened = if parent.as_os_str().is_empty() { Path::new(".") } else { &parent };
    let descriptor =
        open_directory(CWD, opened).map_err(|errno| failure_of_path(errno, path, path.display()))?;
    Ok(Location { directory: Directory::Host(HostDirectory::first(descriptor, parent)), name })
}

/// A name in a directory that is held, and shown under a path.
///
/// # Errors
/// What the system said.
pub fn locate_in(directory: impl AsFd, shown: &Path, name: &[u8]) -> Result<Location, Failure> {
    let descriptor = open_directory(directory, Path::new("."))
        .map_err(|errno| Failure::host(&errno.into(), shown.display()))?;
    let directory = Directory::Host(HostDirectory::first(descriptor, shown.to_owned()));
    Ok(Location { directory, name: name.to_vec() })
}

fn open_directory(from: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    // A directory that may be searched but not read is enough to reach a name in it.
    rustix::fs::openat(&from, path, flags | OFlags::RDONLY, Mode::empty())
        .or_else(|_| rustix::fs::openat(&from, path, flags | OFlags::PATH, Mode::empty()))
}

fn file_type(host: HostType) -> FileType {
    match host {
        HostType::Directory => FileType::Directory,
        HostType::Symlink => FileType::SymbolicLink,
        HostType::CharacterDevice => FileType::CharacterDevice,
        HostType::BlockDevice => FileType::BlockDevice,
        HostType::Fifo => FileType::Fifo,
        HostType::Socket => FileType::Socket,
        _ => FileType::Regular,
    }
}

/// Owner and group, as the system takes them.
fn host_owner(owner: Owner) -> (Uid, Gid) {
    (Uid::from_raw(owner.user().0), Gid::from_raw(owner.group().0))
}

/// Times of access and modification, as the system takes them.
fn host_times((access, modification): (Timestamp, Timestamp)) -> Timestamps {
    let time = |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: time(access), last_modification: time(modification) }
}

fn timestamp(seconds: i64, nanoseconds: u32) -> Timestamp {
    Timestamp { seconds, nanoseconds }
}

fn status_of(found: &rustix::fs::Statx) -> Status {
    use rustix::fs::StatxFlags;
    let has_birth = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    let time = |time: rustix::fs::StatxTimestamp| timestamp(time.tv_sec, time.tv_nsec);
    Status {
        file_type: file_type(HostType::from_raw_mode(found.stx_mode.into())),
        permissions: u32::from(found.stx_mode) & 0o7777,
        user: found.stx_uid,
        group: found.stx_gid,
        links: found.stx_nlink.into(),
        size_bytes: found.stx_size,
        allocated_bytes: found.stx_blocks.saturating_mul(512),
        device: (found.stx_rdev_major, found.stx_rdev_minor),
        volume: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        access_time: time(found.stx_atime),
        modification_time: time(found.stx_mtime),
        change_time: time(found.stx_ctime),
        birth_time: has_birth.then(|| time(found.stx_btime)),
    }
}

impl HostDirectory {
    /// In messages: the path as the user wrote it.
    pub fn place(&self, name: &[u8]) -> String {
        let mut path = self.path();
        if name != b"." {
            path.push(OsStr::from_bytes(name));
        }
        crate::report::escaped(path.as_os_str().as_bytes())
    }

    /// Only the path of a name in the first directory is one that a user wrote.
    fn fail(&self, errno: Errno, name: &[u8]) -> Failure {
        if self.is_first() {
            failure_of_path(errno, &self.path().join(OsStr::from_bytes(name)), self.place(name))
        } else {
            failure(errno, self.place(name))
        }
    }

    /// A path to a name in an open directory that leads through this very directory, for the calls that take only paths.
    fn through_proc(descriptor: &OwnedFd, name: &[u8]) -> PathBuf {
        let directory = PathBuf::from(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
        if name == b"." { directory.join(".") } else { directory.join(OsStr::from_bytes(name)) }
    }

    pub fn list(self: &Arc<Self>) -> Result<Names, Failure> {
        let mut entries = Names::default();
        let listing =
            rustix::fs::Dir::read_from(&*self.descriptor()?).map_err(|errno| self.fail(errno, b"."))?;
        for entry in listing {
            let entry = entry.map_err(|errno| self.fail(errno, b"."))?;
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

    pub fn status(self: &Arc<Self>, name: &[u8]) -> Result<Status, Failure> {
        self.find(name)?.map_err(|errno| self.fail(errno, name))
    }

    /// As [`HostDirectory::status`], with none for a name that does not exist.
    pub fn look(self: &Arc<Self>, name: &[u8]) -> Result<Option<Status>, Failure> {
        match self.find(name)? {
            Ok(status) => Ok(Some(status)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.fail(errno, name)),
        }
    }

    /// What `lstat` says, or why it says nothing: no failure is made of a name that is only looked for.
    fn find(self: &Arc<Self>, name: &[u8]) -> Result<Result<Status, Errno>, Failure> {
        use rustix::fs::StatxFlags;
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
        let found = rustix::fs::statx(&*self.descriptor()?, OsStr::from_bytes(name), flags, wanted);
        Ok(found.map(|found| status_of(&found)))
    }

    /// Whether a name stands for a regular file or block device with the mark of a Btrfs superblock.
    pub fn is_image(self: &Arc<Self>, name: &[u8]) -> Result<bool, Failure> {
        let Some(status) = self.look(name)? else { return Ok(false) };
        if !matches!(status.file_type, FileType::Regular | FileType::BlockDevice) {
            return Ok(false);
        }
        let mut mark = [0; size_of::<u64>()];
        let file = match self.open_at(name, OFlags::RDONLY | OFlags::NONBLOCK) {
            // Who may not read it can't have meant a path in it. The right to remove or replace it is the directory's.
            Err(failure) if failure.kind == Kind::Permission => return Ok(false),
            other => File::from(other?),
        };
        match file.read_exact_at(&mut mark, PRIMARY_MARK_OFFSET) {
            Ok(()) => Ok(u64::from_le_bytes(mark) == MAGIC),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(Failure::host(&error, self.place(name))),
        }
    }

    fn open_at(self: &Arc<Self>, name: &[u8], flags: OFlags) -> Result<OwnedFd, Failure> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&*self.descriptor()?, OsStr::from_bytes(name), flags, Mode::empty())
            .map_err(|errno| self.fail(errno, name))
    }

    pub fn enter(self: &Arc<Self>, name: &[u8]) -> Result<Arc<Self>, Failure> {
        let opened = self.open_at(name, OFlags::DIRECTORY | OFlags::RDONLY);
        let descriptor = opened.map_err(|failure| match self.is_image(name) {
            Ok(true) => failure.hint(format!("what is in an image is written {}:/", self.place(name))),
            _ => failure,
        })?;
        Ok(self.below(descriptor, name))
    }

    pub fn read_link(self: &Arc<Self>, name: &[u8]) -> Result<Vec<u8>, Failure> {
        let text = rustix::fs::readlinkat(&*self.descriptor()?, OsStr::from_bytes(name), Vec::new());
        Ok(text.map_err(|errno| self.fail(errno, name))?.into_bytes())
    }

    pub fn open(self: &Arc<Self>, name: &[u8]) -> Result<Box<dyn Source>, Failure> {
        // O_NONBLOCK: a fifo that took the file's place would make open(2) wait for a peer.
        let descriptor = self.open_at(name, OFlags::RDONLY | OFlags::NONBLOCK)?;
        Ok(Box::new(HostSource {
            file: File::from(descriptor),
            directory: Arc::clone(self),
            name: name.to_vec(),
        }))
    }

    pub fn create(self: &Arc<Self>, name: &[u8], permissions: u32) -> Result<Box<dyn Sink>, Failure> {
        Ok(Box::new(self.begin(name, permissions)?))
    }

    /// As [`Directory::overwrite`]: the new file takes over what the old one is beside its content. Only further names of the
    /// old one stay with the old content, for on the host no call exchanges contents at once.
    pub fn overwrite(self: &Arc<Self>, name: &[u8]) -> Result<Box<dyn Sink>, Failure> {
        let old = self.status(name)?;
        let sink = self.begin(name, 0o600)?;
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

    /// Whether this directory is the one of these numbers, or lies below it.
    pub fn lies_in(self: &Arc<Self>, volume: u64, inode: u64) -> Result<bool, Failure> {
        let mut above: Option<OwnedFd> = None;
        let mut last = None;
        loop {
            let status = match &above {
                Some(descriptor) => rustix::fs::fstat(descriptor),
                None => rustix::fs::fstat(&*self.descriptor()?),
            };
            let status = status.map_err(|errno| self.fail(errno, b"."))?;
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
                None => rustix::fs::openat(&*self.descriptor()?, c"..", flags, Mode::empty()),
            };
            above = Some(opened.map_err(|errno| self.fail(errno, b"."))?);
        }
    }

    /// Opens a pipe or a character device for writing.
    pub fn open_stream(self: &Arc<Self>, name: &[u8]) -> Result<HostStream, Failure> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY;
        let descriptor =
            rustix::fs::openat(&*self.descriptor()?, OsStr::from_bytes(name), flags, Mode::empty())
                .map_err(|errno| self.fail(errno, name))?;
        let status = rustix::fs::fstat(&descriptor).map_err(|errno| self.fail(errno, name))?;
        let kind = HostType::from_raw_mode(status.st_mode);
        // Another file may have come since the caller looked; a disk must not be written by mistake.
        if !matches!(kind, HostType::CharacterDevice | HostType::Fifo) {
            return Err(
                Failure::new(Kind::Exists, "no pipe or character device any more").at(self.place(name))
            );
        }
        Ok(HostStream::new(File::from(descriptor), self.place(name)))
    }

    /// As [`Directory::create`], for a file whose name may still change before it is finished.
    pub fn begin(self: &Arc<Self>, name: &[u8], permissions: u32) -> Result<HostSink, Failure> {
        let mode = Mode::from_raw_mode(permissions & 0o777);
        let sink = |descriptor, unfinished| HostSink::new(descriptor, self, unfinished, name);
        // A file without a name goes with the program, however that ends.
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        if Path::new(OWN_DESCRIPTORS).exists()
            && let Ok(descriptor) = rustix::fs::openat(&*self.descriptor()?, c".", flags, mode)
        {
            return Ok(sink(descriptor, Unfinished::Nameless));
        }
        // Some file systems have no such files (vfat, NFS, FUSE servers).
        let temporary = temporary_name();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let descriptor = rustix::fs::openat(&*self.descriptor()?, &*temporary, flags, mode)
            .map_err(|errno| self.fail(errno, name))?;
        Ok(sink(descriptor, Unfinished::Named(temporary)))
    }

    pub fn make_directory(self: &Arc<Self>, name: &[u8], permissions: u32) -> Result<(), Failure> {
        rustix::fs::mkdirat(&*self.descriptor()?, OsStr::from_bytes(name), Mode::from_raw_mode(permissions))
            .map_err(|errno| self.fail(errno, name))
    }

    pub fn make_link(self: &Arc<Self>, name: &[u8], text: &[u8]) -> Result<(), Failure> {
        rustix::fs::symlinkat(OsStr::from_bytes(text), &*self.descriptor()?, OsStr::from_bytes(name))
            .map_err(|errno| self.fail(errno, name))
    }

    pub fn make_node(self: &Arc<Self>, name: &[u8], status: &Status) -> Result<(), Failure> {
        let host_type = match status.file_type {
            FileType::CharacterDevice => HostType::CharacterDevice,
            FileType::BlockDevice => HostType::BlockDevice,
            FileType::Socket => HostType::Socket,
            _ => HostType::Fifo,
        };
        let device = rustix::fs::makedev(status.device.0, status.device.1);
        let mode = Mode::from_raw_mode(status.permissions & 0o777);
        rustix::fs::mknodat(&*self.descriptor()?, OsStr::from_bytes(name), host_type, mode, device)
            .map_err(|errno| self.fail(errno, name))
    }

    pub fn unlink(self: &Arc<Self>, name: &[u8]) -> Result<(), Failure> {
        rustix::fs::unlinkat(&*self.descriptor()?, OsStr::from_bytes(name), AtFlags::empty())
            .map_err(|errno| self.fail(errno, name))
    }

    pub fn remove_directory(self: &Arc<Self>, name: &[u8]) -> Result<(), Failure> {
        rustix::fs::unlinkat(&*self.descriptor()?, OsStr::from_bytes(name), AtFlags::REMOVEDIR)
            .map_err(|errno| self.fail(errno, name))
    }

    pub fn rename(
        self: &Arc<Self>,
        name: &[u8],
        to: &Arc<Self>,
        to_name: &[u8],
        replace: bool,
    ) -> Result<Renamed, Failure> {
        let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        let (from_name, to_path) = (OsStr::from_bytes(name), OsStr::from_bytes(to_name));
        let (from_open, to_open) = (self.descriptor()?, to.descriptor()?);
        match rustix::fs::renameat_with(&*from_open, from_name, &*to_open, to_path, flags) {
            Ok(()) => Ok(Renamed::Done),
            Err(Errno::XDEV) => Ok(Renamed::OtherFileSystem),
            Err(errno) => Err(to.fail(errno, to_name)),
        }
    }

    pub fn sync(self: &Arc<Self>) -> Result<(), Failure> {
        match rustix::fs::syncfs(&*self.descriptor()?) {
            // A directory that may be searched but not read has no descriptor for this call.
            Err(Errno::BADF) => {
                rustix::fs::sync();
                Ok(())
            }
            other => other.map_err(|errno| self.fail(errno, b".")),
        }
    }

    pub fn link(self: &Arc<Self>, name: &[u8], to: &Arc<Self>, to_name: &[u8]) -> Result<(), Failure> {
        let (from_name, to_path) = (OsStr::from_bytes(name), OsStr::from_bytes(to_name));
        let (from_open, to_open) = (self.descriptor()?, to.descriptor()?);
        rustix::fs::linkat(&*from_open, from_name, &*to_open, to_path, AtFlags::empty())
            .map_err(|errno| to.fail(errno, to_name))
    }

    pub fn attributes(self: &Arc<Self>, name: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
        // XATTR_LIST_MAX: no list is longer.
        let mut list = vec![0u8; 65536];
        let open = self.descriptor()?;
        let size = match rustix::fs::llistxattr(Self::through_proc(&open, name), &mut list[..]) {
            Ok(size) => size,
            Err(Errno::OPNOTSUPP) => 0,
            Err(errno) => return Err(self.fail(errno, name)),
        };
        let names = list[..size].split(|byte| *byte == 0).filter(|name| !name.is_empty());
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    pub fn attribute(self: &Arc<Self>, name: &[u8], attribute: &[u8]) -> Result<Vec<u8>, Failure> {
        // XATTR_SIZE_MAX.
        let mut value = vec![0u8; 65536];
        let open = self.descriptor()?;
        let path = Self::through_proc(&open, name);
        let size = rustix::fs::lgetxattr(&path, OsStr::from_bytes(attribute), &mut value[..])
            .map_err(|errno| self.fail(errno, name))?;
        value.truncate(size);
        Ok(value)
    }

    pub fn set_attribute(
        self: &Arc<Self>,
        name: &[u8],
        attribute: &[u8],
        value: &[u8],
    ) -> Result<(), Failure> {
        let open = self.descriptor()?;
        let path = Self::through_proc(&open, name);
        rustix::fs::lsetxattr(&path, OsStr::from_bytes(attribute), value, XattrFlags::empty())
            .map_err(|errno| self.fail(errno, name))
    }

    /// As [`Directory::remove_attribute`].
    pub fn remove_attribute(self: &Arc<Self>, name: &[u8], attribute: &[u8]) -> Result<(), Failure> {
        let open = self.descriptor()?;
        let path = Self::through_proc(&open, name);
        let attribute = OsStr::from_bytes(attribute);
        // Asked first: most file systems begin a transaction even to remove what is not there.
        let found = rustix::fs::lgetxattr(&path, attribute, &mut [0u8; 0][..]);
        match found.and_then(|_| rustix::fs::lremovexattr(&path, attribute)) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(self.fail(errno, name)),
        }
    }

    pub fn change(self: &Arc<Self>, name: &[u8], change: &Change) -> Result<(), Failure> {
        let path = OsStr::from_bytes(name);
        if let Some(owner) = change.owner {
            let (user, group) = host_owner(owner);
            rustix::fs::chownat(
                &*self.descriptor()?,
                path,
                Some(user),
                Some(group),
                AtFlags::SYMLINK_NOFOLLOW,
            )
            .map_err(|errno| self.fail(errno, name))?;
        }
        if let Some(permissions) = change.permissions {
            // chmod(2) follows links: through a descriptor of the file itself it can't.
            let file = self.open_at(name, OFlags::PATH)?;
            let found = rustix::fs::fstat(&file).map_err(|errno| self.fail(errno, name))?;
            if HostType::from_raw_mode(found.st_mode) != HostType::Symlink {
                let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
                rustix::fs::chmod(path, Mode::from_raw_mode(permissions))
                    .map_err(|errno| self.fail(errno, name))?;
            }
        }
        if let Some(times) = change.times {
            let times = host_times(times);
            rustix::fs::utimensat(&*self.descriptor()?, path, &times, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|errno| self.fail(errno, name))?;
        }
        Ok(())
    }
}

struct HostSource {
    file: File,
    directory: Arc<HostDirectory>,
    name: Vec<u8>,
}

impl Source for HostSource {
    fn check_is(&self, seen: &Status) -> Result<(), Failure> {
        let place = || self.directory.place(&self.name);
        let found = rustix::fs::fstat(&self.file).map_err(|errno| failure(errno, place()))?;
        if (found.st_dev, found.st_ino) == (seen.volume, seen.inode) {
            return Ok(());
        }
        let text = "another file has taken its place while it was copied";
        Err(Failure::new(Kind::Exists, text).at(place()).hint("copy it when nobody changes its directory"))
    }

    fn read_at(&mut self, offset: u64, target: &mut [u8]) -> Result<usize, Failure> {
        let mut done = 0;
        while done < target.len() {
            let at = offset.saturating_add(u64::try_from(done).unwrap_or(u64::MAX));
            match self.file.read_at(&mut target[done..], at) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failure::host(&error, self.directory.place(&self.name))),
            }
        }
        Ok(done)
    }

    fn read_data(
        &mut self,
        offset: u64,
        scratch: &mut Vec<u8>,
        take: Take<'_>,
    ) -> Result<Option<u64>, Failure> {
        let Some((start, end)) = self.next_data(offset)? else { return Ok(None) };
        scratch.resize(STEP, 0);
        let step = usize::try_from(end - start).unwrap_or(STEP).min(STEP);
        let read = self.read_at(start, &mut scratch[..step])?;
        take(&[(start, &scratch[..read])])?;
        // A file that shrinks while it is read ends before its run of data does.
        Ok(Some(if read == 0 { end } else { start + u64::try_from(read).unwrap_or(0) }))
    }
}

impl HostSource {
    /// The next run of data at or after an offset: start and end; none where only a hole follows.
    fn next_data(&mut self, offset: u64) -> Result<Option<(u64, u64)>, Failure> {
        use rustix::fs::SeekFrom;
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            // A file system that knows no holes: all is data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => offset,
            Err(errno) => return Err(failure(errno, self.directory.place(&self.name))),
        };
        let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start))
            .or_else(|_| rustix::fs::fstat(&self.file).map(|status| status.st_size.unsigned_abs()));
        let end = end.map_err(|errno| failure(errno, self.directory.place(&self.name)))?;
        Ok((end > start).then_some((start, end)))
    }
}
