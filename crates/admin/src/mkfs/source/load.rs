//! One entry of a directory of the host: its attributes, extended attributes and, of a small file, its bytes.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use vlinder_base::clock::Timestamp;

use super::directory::{SourceDirectory, join};
use super::entry::{Attribute, Content, Entry, FileState, Kind};
use super::error::{SourceError, shown};
use super::rules::EntryRules;

/// The largest file that comes with its bytes.
const LOADED_FILE_BYTES: u64 = 256 << 10;
/// Bytes of files that a part brings with it; what is beyond is read when it is written.
const LOADED_PART_BYTES: u64 = 1 << 20;
/// How often a file is looked at that is written meanwhile.
const LOOKS: usize = 4;
/// The largest value and the longest list of names that Linux knows.
const LARGEST_ATTRIBUTE: usize = 65536;

/// Loads entries by name.
pub(super) fn load(
    directory: &SourceDirectory,
    names: Vec<Vec<u8>>,
    sector_bytes: usize,
    rules: &EntryRules,
) -> Result<Vec<Entry>, SourceError> {
    let mut budget = LOADED_PART_BYTES;
    let load = |name: Vec<u8>| {
        let mut entry = Loader { directory, name: &name, sector_bytes, rules }.load(&mut budget)?;
        rules.apply(&directory.path, &mut entry)?;
        Ok(entry)
    };
    names.into_iter().map(load).collect()
}

struct Loader<'a> {
    directory: &'a SourceDirectory,
    name: &'a [u8],
    sector_bytes: usize,
    rules: &'a EntryRules,
}

impl Loader<'_> {
    fn fail(&self, call: &'static str, errno: Errno) -> SourceError {
        SourceError::call(&join(&self.directory.path, self.name), call, errno)
    }

    /// A file that is written meanwhile is looked at again, a few times.
    fn load(&self, budget: &mut u64) -> Result<Entry, SourceError> {
        for _ in 1..LOOKS {
            match self.load_once(budget) {
                Err(SourceError::Changed { .. }) => {}
                loaded => return loaded,
            }
        }
        self.load_once(budget)
    }

    fn load_once(&self, budget: &mut u64) -> Result<Entry, SourceError> {
        let status = rustix::fs::statat(self.directory.file(), self.name, AtFlags::SYMLINK_NOFOLLOW);
        let status = status.map_err(|errno| self.fail("stat", errno))?;
        let file_type = FileType::from_raw_mode(status.st_mode);
        let device = (rustix::fs::major(status.st_rdev), rustix::fs::minor(status.st_rdev));
        let mut file = None;
        let kind = match file_type {
            FileType::Directory => Kind::Directory,
            FileType::RegularFile => {
                let (content, opened) = self.content(&status, budget)?;
                file = opened;
                Kind::Regular(content)
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(self.directory.file(), self.name, Vec::new());
                Kind::SymbolicLink(target.map_err(|errno| self.fail("readlink", errno))?.into_bytes())
            }
            FileType::CharacterDevice => Kind::CharacterDevice(device.0, device.1),
            FileType::BlockDevice => Kind::BlockDevice(device.0, device.1),
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::Unknown => {
                let path = shown(&join(&self.directory.path, self.name));
                return Err(SourceError::Unsupported { path, what: "a file of no known type" });
            }
        };
        let attributes = match kind {
            // They are read when it is open ([`opened_entry`]).
            Kind::Directory => Vec::new(),
            _ => self.attributes(file.as_ref())?,
        };
        Ok(entry(self.name.to_vec(), kind, &status, attributes))
    }

    /// Small files are read at once, as long as the part's budget lasts.
    fn content(&self, status: &Stat, budget: &mut u64) -> Result<(Content, Option<OwnedFd>), SourceError> {
        let size = status.st_size.unsigned_abs();
        if size == 0 {
            return Ok((Content::Loaded(Vec::new()), None));
        }
        if size > LOADED_FILE_BYTES || size > *budget || status.st_nlink > 1 || may_have_holes(status) {
            // Its attributes, capabilities among them, are those of the file whose owner was seen.
            return Ok((Content::Unread, Some(self.open(status)?)));
        }
        let file = open_unseen(self.directory, self.name)?;
        let bytes = read_range(&file, 0, usize::try_from(size).unwrap_or(usize::MAX), self.sector_bytes);
        let bytes = bytes.map_err(|errno| self.fail("read", errno))?;
        // One look, after the bytes were read, tells whether they are of the file that was seen, and its own.
        self.is_still(&file, status)?;
        *budget -= size;
        Ok((Content::Loaded(bytes), Some(file)))
    }

    fn open(&self, status: &Stat) -> Result<OwnedFd, SourceError> {
        open_file(self.directory, self.name, FileState::of(status))
    }

    fn is_still(&self, file: &OwnedFd, status: &Stat) -> Result<(), SourceError> {
        is_still(file, &join(&self.directory.path, self.name), FileState::of(status))
    }

    fn attributes(&self, file: Option<&OwnedFd>) -> Result<Vec<Attribute>, SourceError> {
        match file {
            Some(file) => attributes(
                self.rules,
                |list| rustix::fs::flistxattr(file, list),
                |name, value| rustix::fs::fgetxattr(file, name, value),
            ),
            None => {
                let path = self.path_in_proc();
                attributes(
                    self.rules,
                    |list| rustix::fs::llistxattr(&path, list),
                    |name, value| rustix::fs::lgetxattr(&path, name, value),
                )
            }
        }
        .map_err(|(call, errno)| self.fail(call, errno))
    }

    /// There is no lgetxattrat(2) before Linux 6.13; the directory's entry in /proc serves as a short path to
    /// it.
    fn path_in_proc(&self) -> PathBuf {
        let directory = format!("/proc/self/fd/{}", self.directory.file().as_raw_fd());
        Path::new(&directory).join(OsStr::from_bytes(self.name))
    }
}

/// The source directory itself.
pub(super) fn root_entry(directory: &SourceDirectory, rules: &EntryRules) -> Result<Entry, SourceError> {
    Ok(rules.apply_to_root(shown_when_open(directory, b"", rules)?))
}

/// A directory that was opened in the one at `above`, as it shows itself now.
///
/// # Errors
/// What the system says; [`SourceError::Table`].
pub(super) fn opened_entry(
    directory: &SourceDirectory,
    above: &[u8],
    name: &[u8],
    rules: &EntryRules,
) -> Result<Entry, SourceError> {
    let mut entry = shown_when_open(directory, name, rules)?;
    rules.apply(above, &mut entry)?;
    Ok(entry)
}

fn shown_when_open(
    directory: &SourceDirectory,
    name: &[u8],
    rules: &EntryRules,
) -> Result<Entry, SourceError> {
    let fail = |(call, errno)| SourceError::call(&directory.path, call, errno);
    let file = directory.file();
    let status = rustix::fs::fstat(file).map_err(|errno| fail(("stat", errno)))?;
    let attributes = attributes(
        rules,
        |list| rustix::fs::flistxattr(file, list),
        |name, value| rustix::fs::fgetxattr(file, name, value),
    )
    .map_err(fail)?;
    Ok(entry(name.to_vec(), Kind::Directory, &status, attributes))
}

fn entry(name: Vec<u8>, kind: Kind, status: &Stat, attributes: Vec<Attribute>) -> Entry {
    let time =
        |seconds, nanoseconds| Timestamp { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) };
    Entry {
        name,
        kind,
        seen: FileState::of(status),
        links: status.st_nlink,
        permissions: status.st_mode & 0o7777,
        user: status.st_uid,
        group: status.st_gid,
        size_bytes: status.st_size.unsigned_abs(),
        may_have_holes: may_have_holes(status),
        access_time: time(status.st_atime, status.st_atime_nsec),
        modification_time: time(status.st_mtime, status.st_mtime_nsec),
        is_in_table: false,
        attributes,
    }
}

pub(super) fn may_have_holes(status: &Stat) -> bool {
    status.st_blocks.unsigned_abs().saturating_mul(512) < status.st_size.unsigned_abs()
}

/// Opens a regular file of a directory that was looked at before: what was seen of one file, its owner and
/// its mode above all, is never given to the bytes of another.
///
/// # Errors
/// What the system says; it was written since, or another file has taken its name.
pub(super) fn open_file(
    directory: &SourceDirectory,
    name: &[u8],
    seen: FileState,
) -> Result<OwnedFd, SourceError> {
    let file = open_unseen(directory, name)?;
    is_still(&file, &join(&directory.path, name), seen)?;
    Ok(file)
}

/// Opens a file of which nobody has asked yet whether it is the one that was seen.
fn open_unseen(directory: &SourceDirectory, name: &[u8]) -> Result<OwnedFd, SourceError> {
    open_quietly(directory.file(), name, OFlags::NOFOLLOW | OFlags::NONBLOCK)
        .map_err(|errno| SourceError::call(&join(&directory.path, name), "open", errno))
}

/// A file is the one that was seen, and nobody has written it since: neither bytes of two states, nor bytes
/// of one with the attributes of another, are stored.
///
/// # Errors
/// [`SourceError::Changed`], and what the system says.
pub(super) fn is_still(file: &OwnedFd, path: &[u8], seen: FileState) -> Result<(), SourceError> {
    let status = rustix::fs::fstat(file).map_err(|errno| SourceError::call(path, "stat", errno))?;
    if FileState::of(&status) == seen { Ok(()) } else { Err(SourceError::changed(path)) }
}

/// Opens for reading, without changing the access time where that is allowed.
pub(super) fn open_quietly(directory: &OwnedFd, name: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | flags;
    let open = |flags| rustix::fs::openat(directory, name, flags, Mode::empty());
    match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        other => other,
    }
}

/// Reads up to `length` bytes; fewer only at the file's end. The vector has capacity for the rest of its last
/// sector, so that the writer need not copy it.
pub(super) fn read_range(
    file: &OwnedFd,
    offset: u64,
    length: usize,
    sector_bytes: usize,
) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::with_capacity(length.next_multiple_of(sector_bytes));
    while bytes.len() < length {
        let at = offset + u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        match rustix::io::pread(file, spare_capacity(&mut bytes), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    // There was room for more, which a file that grows meanwhile has.
    bytes.truncate(length);
    Ok(bytes)
}

/// The ranges of a file that hold data, up to its size.
///
/// # Errors
/// What the system says; a file system without SEEK_DATA has one range.
pub(in super::super) fn data_ranges(file: &OwnedFd, size: u64) -> Result<Vec<core::ops::Range<u64>>, Errno> {
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL) => return Ok(core::iter::once(0..size).collect()),
            Err(errno) => return Err(errno),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size);
        if start >= size || end <= start {
            break;
        }
        ranges.push(start..end);
        at = end;
    }
    Ok(ranges)
}

type Failed = (&'static str, Errno);

/// All attributes that the caller can list and that the rules keep, in the order of their names.
fn attributes(
    rules: &EntryRules,
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&OsStr, &mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<Attribute>, Failed> {
    // Most files have few names or none.
    let mut listed = vec![0; 256];
    let mut length = list(&mut listed);
    if length == Err(Errno::RANGE) {
        listed.resize(LARGEST_ATTRIBUTE, 0);
        length = list(&mut listed);
    }
    let length = match length {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Ok(length) => length,
        Err(errno) => return Err(("listxattr", errno)),
    };
    let mut found = Vec::new();
    for name in listed[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if rules.private_attributes.has(name) {
            continue;
        }
        let mut value = vec![0; LARGEST_ATTRIBUTE];
        match get(OsStr::from_bytes(name), &mut value) {
            Ok(length) => value.truncate(length),
            // Listed, but gone meanwhile or not for reading: some namespaces of special file systems are so.
            Err(Errno::NODATA | Errno::OPNOTSUPP) => continue,
            Err(errno) => return Err(("getxattr", errno)),
        }
        value.shrink_to_fit();
        found.push((name.to_vec(), value));
    }
    found.sort_unstable();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use vlinder_testkit::Scratch;

    use super::*;

    #[test]
    fn a_file_that_took_another_s_name_is_not_read_for_it() {
        let scratch = Scratch::new("swapped-source");
        for name in ["seen", "other"] {
            std::fs::write(scratch.join(name), name).unwrap();
        }
        let status = rustix::fs::stat(scratch.join("seen")).unwrap();
        let file = OwnedFd::from(std::fs::File::open(scratch.path()).unwrap());
        let directory = SourceDirectory::of_host(file, Vec::new());
        let open = || open_file(&directory, b"seen", FileState::of(&status));
        assert!(open().is_ok());
        std::fs::rename(scratch.join("other"), scratch.join("seen")).unwrap();
        assert_eq!(open().unwrap_err(), SourceError::changed(b"seen"));
    }
}
