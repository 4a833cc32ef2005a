//! The walk of a directory tree of the host (a kernel mount or a FUSE mount), to be compared with another.
//!
//! One line for each entry below the root, in the order of a depth-first walk by name:
//! `path|mode|uid|gid|links|mtime|size`, where `links` is `d` for a directory, then for everything else the
//! first path of the same inode, the device number (`major:minor`, nodes only), the target (symlinks only),
//! one `name=hash` for each extended attribute in the order of names, and the hash of a regular file's
//! content. Modes are `0o40755`, times nanoseconds since 1970, hashes the first 20 hexadecimal digits of
//! SHA-256. Data ranges, if asked for, come last as `data=start+length,…`. Bytes that would spoil a line are
//! written as `\xNN`.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

mod compare;
mod short_hash;
mod xattr;

pub use compare::{Difference, compare};
pub use short_hash::short_hash;
pub(crate) use short_hash::shorten;

/// How inodes are told apart when the first path of each is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InodeIdentity {
    /// By device and number, as POSIX has it.
    #[default]
    DeviceAndNumber,
    /// By number alone: an inode of a snapshot is then the same as in its source. So the golden walks were
    /// made.
    NumberAlone,
    /// By the low 40 bits of the number, which is what the object id is on our own mounts: the same as
    /// `NumberAlone` on the kernel's.
    ObjectIdOfMount,
}

/// What to look at.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How inodes are told apart.
    pub identity: InodeIdentity,
    /// Find the data ranges of regular files (SEEK_DATA, SEEK_HOLE).
    pub data_ranges: bool,
    /// Leave out attributes whose names begin so (what one side can't have, as `security.selinux`).
    pub ignored_xattrs: Vec<String>,
}

/// One line of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Path below the root, without a leading slash.
    pub path: Vec<u8>,
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Link count; not shown for directories.
    pub links: u64,
    /// Nanoseconds since 1970.
    pub modified_ns: i128,
    /// Size in bytes as stat(2) reports it, of directories too.
    pub size: u64,
    /// First path of the same inode; none for directories.
    pub first_path: Option<Vec<u8>>,
    /// Major and minor number of a device node.
    pub device: Option<(u32, u32)>,
    /// Target of a symlink.
    pub target: Option<Vec<u8>>,
    /// Names and hashes of the extended attributes, in the order of names.
    pub xattrs: Vec<(Vec<u8>, String)>,
    /// Hash of a regular file's content.
    pub content: Option<String>,
    /// Data ranges of a regular file: start and length.
    pub data_ranges: Option<Vec<(u64, u64)>>,
}

/// A walk that could not be finished.
#[derive(Debug, thiserror::Error)]
#[error("walking {root}: {call} of {path:?} failed: {errno}")]
pub struct WalkError {
    /// The root of the walk.
    pub root: String,
    /// The system call.
    pub call: &'static str,
    /// Path below the root.
    pub path: String,
    /// What the system said.
    pub errno: Errno,
}

/// Walks the tree below `root`, which is not an entry itself.
pub fn walk(root: &Path, options: &Options) -> Result<Vec<Entry>, WalkError> {
    let mut walker = Walker { root, options, entries: Vec::new(), first_paths: HashMap::new() };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(root, flags, Mode::empty());
    let directory = directory.map_err(|errno| walker.fail("open", b"", errno))?;
    walker.directory(&directory, b"")?;
    Ok(walker.entries)
}

/// The lines of a walk.
pub fn render(entries: &[Entry]) -> String {
    entries.iter().map(|entry| entry.line() + "\n").collect()
}

/// Keeps UTF-8 as it is, and lines and fields apart.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '|' | '\\' | '\0'..='\x1f' | '\x7f' => {
                    let _ = write!(text, "\\x{:02x}", u32::from(character));
                }
                other => text.push(other),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

impl Entry {
    /// The entry's line, without its end.
    pub fn line(&self) -> String {
        let links = match self.first_path {
            Some(_) => self.links.to_string(),
            None => "d".to_owned(),
        };
        let Entry { mode, uid, gid, modified_ns, size, .. } = self;
        let mut line = format!("{}|{mode:#o}|{uid}|{gid}|{links}|{modified_ns}|{size}", escape(&self.path));
        let mut field = |text: &str| {
            line.push('|');
            line.push_str(text);
        };
        if let Some(path) = &self.first_path {
            field(&escape(path));
        }
        if let Some((major, minor)) = self.device {
            field(&format!("{major}:{minor}"));
        }
        if let Some(target) = &self.target {
            field(&escape(target));
        }
        for (name, hash) in &self.xattrs {
            field(&format!("{}={hash}", escape(name)));
        }
        if let Some(content) = &self.content {
            field(content);
        }
        if let Some(ranges) = &self.data_ranges {
            let ranges: Vec<String> =
                ranges.iter().map(|(start, length)| format!("{start}+{length}")).collect();
            field(&format!("data={}", ranges.join(",")));
        }
        line
    }
}

struct Walker<'a> {
    root: &'a Path,
    options: &'a Options,
    entries: Vec<Entry>,
    first_paths: HashMap<(u64, u64), Vec<u8>>,
}

impl Walker<'_> {
    fn fail(&self, call: &'static str, path: &[u8], errno: Errno) -> WalkError {
        WalkError { root: self.root.display().to_string(), call, path: escape(path), errno }
    }

    /// Walks an open directory; paths are relative to it so that a deep tree has no longest path.
    fn directory(&mut self, directory: &OwnedFd, path: &[u8]) -> Result<(), WalkError> {
        let mut names = BTreeMap::new();
        let listed = Dir::read_from(directory).map_err(|errno| self.fail("getdents", path, errno))?;
        for entry in listed {
            let entry = entry.map_err(|errno| self.fail("getdents", path, errno))?;
            let name = entry.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                let earlier = names.insert(name.clone(), ());
                if earlier.is_some() {
                    // A name listed twice is a fault of the file system; show it as a wrong tree, not as a
                    // panic.
                    return Err(self.fail("getdents (name listed twice)", &join(path, &name), Errno::EXIST));
                }
            }
        }
        for name in names.keys() {
            self.entry(directory, &join(path, name), name)?;
        }
        Ok(())
    }

    fn entry(&mut self, directory: &OwnedFd, path: &[u8], name: &[u8]) -> Result<(), WalkError> {
        let status = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|errno| self.fail("stat", path, errno))?;
        let file_type = FileType::from_raw_mode(status.st_mode);
        let is_directory = file_type == FileType::Directory;
        let is_node = matches!(file_type, FileType::CharacterDevice | FileType::BlockDevice);
        let target = match file_type {
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(directory, name, Vec::new());
                Some(target.map_err(|errno| self.fail("readlink", path, errno))?.into_bytes())
            }
            _ => None,
        };
        let (content, data_ranges) = match file_type {
            FileType::RegularFile => self.content(directory, path, name)?,
            _ => (None, None),
        };
        let xattrs = xattr::hashes(directory, name, &self.options.ignored_xattrs)
            .map_err(|(call, errno)| self.fail(call, path, errno))?;
        let entry = Entry {
            path: path.to_vec(),
            mode: status.st_mode,
            uid: status.st_uid,
            gid: status.st_gid,
            links: status.st_nlink,
            modified_ns: i128::from(status.st_mtime) * 1_000_000_000 + i128::from(status.st_mtime_nsec),
            size: status.st_size.unsigned_abs(),
            first_path: (!is_directory).then(|| self.first_path(&status, path)),
            device: is_node.then(|| (rustix::fs::major(status.st_rdev), rustix::fs::minor(status.st_rdev))),
            target,
            xattrs,
            content,
            data_ranges,
        };
        self.entries.push(entry);
        if is_directory {
            let opened = self.open(directory, name, OFlags::DIRECTORY);
            let opened = opened.map_err(|errno| self.fail("open", path, errno))?;
            self.directory(&opened, path)?;
        }
        Ok(())
    }

    fn first_path(&mut self, status: &Stat, path: &[u8]) -> Vec<u8> {
        let key = match self.options.identity {
            InodeIdentity::DeviceAndNumber => (status.st_dev, status.st_ino),
            InodeIdentity::NumberAlone => (0, status.st_ino),
            InodeIdentity::ObjectIdOfMount => (0, status.st_ino & ((1 << 40) - 1)),
        };
        self.first_paths.entry(key).or_insert_with(|| path.to_vec()).clone()
    }

    /// Opens without changing access times where that is allowed, so that a walk leaves no trace.
    fn open(&self, directory: &OwnedFd, name: &[u8], more: OFlags) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | more;
        let quiet = rustix::fs::openat(directory, name, flags | OFlags::NOATIME, Mode::empty());
        match quiet {
            Err(Errno::PERM) => rustix::fs::openat(directory, name, flags, Mode::empty()),
            other => other,
        }
    }

    #[allow(clippy::type_complexity, reason = "two optional fields of an entry, used once")]
    fn content(
        &self,
        directory: &OwnedFd,
        path: &[u8],
        name: &[u8],
    ) -> Result<(Option<String>, Option<Vec<(u64, u64)>>), WalkError> {
        let file = self.open(directory, name, OFlags::empty());
        let file = file.map_err(|errno| self.fail("open", path, errno))?;
        let mut digest = Sha256::new();
        let mut buffer = vec![0; 1 << 17];
        loop {
            match rustix::io::read(&file, &mut buffer) {
                Ok(0) => break,
                Ok(count) => digest.update(&buffer[..count]),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.fail("read", path, errno)),
            }
        }
        let ranges = match self.options.data_ranges {
            true => Some(data_ranges(&file).map_err(|errno| self.fail("lseek", path, errno))?),
            false => None,
        };
        Ok((Some(shorten(&digest.finalize())), ranges))
    }
}

/// The file's data ranges by SEEK_DATA and SEEK_HOLE: start and length.
pub fn data_ranges(file: &OwnedFd) -> Result<Vec<(u64, u64)>, Errno> {
    let mut ranges = Vec::new();
    let mut position = 0;
    loop {
        let start = match rustix::fs::seek(file, SeekFrom::Data(position)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(ranges),
            Err(errno) => return Err(errno),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
        if end <= start {
            // A hole inside data would make this loop endless.
            return Err(Errno::INVAL);
        }
        ranges.push((start, end - start));
        position = end;
    }
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

#[cfg(test)]
mod tests;
