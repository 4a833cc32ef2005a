//! The walk of a file system through the library, as [`crate::walk`] makes it of a mounted one.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;
use sha2::{Digest, Sha256};
use vlinder_base::sync::Arc;
use vlinder_fs::data::{self, OpenCache, Seek};
use vlinder_fs::{Caller, FileType, Filesystem, FsError, Inode, InodeId, RootId};

use crate::walk::{Entry, short_hash, shorten};

/// What a walk shows as the time of a name whose subvolume is not there: the kernel shows the moment of the
/// look.
const PLACEHOLDER_TIME: i128 = 0;

/// Every path of a kernel mount that stands for a subvolume that is not there gets the time that the
/// library's walk has.
pub fn without_placeholder_times(root: &Path, mut entries: Vec<Entry>) -> Vec<Entry> {
    for entry in entries.iter_mut().filter(|entry| entry.first_path.is_none()) {
        let path = root.join(std::ffi::OsStr::from_bytes(&entry.path));
        if std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.ino() == 2) {
            entry.modified_ns = PLACEHOLDER_TIME;
        }
    }
    entries
}

/// A walk that could not be finished.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {call}: {error}")]
pub struct LibraryWalkError {
    /// Where.
    pub path: String,
    /// What was asked.
    pub call: &'static str,
    /// Why not.
    pub error: String,
}

/// Root without a umask.
fn root_user() -> Caller {
    Caller { umask: 0, ..Caller::superuser() }
}

/// Every entry below the root, inodes told apart by number alone; with the data ranges of files where that is
/// asked for.
///
/// # Errors
/// The first thing that can't be read.
pub fn library_walk(filesystem: &Filesystem, data_ranges: bool) -> Result<Vec<Entry>, LibraryWalkError> {
    let mut walker =
        LibraryWalker { filesystem, data_ranges, entries: Vec::new(), first_paths: HashMap::new() };
    let root = filesystem.root().map_err(|error| failed(b"", "root", error))?;
    walker.directory(&root, b"")?;
    Ok(walker.entries)
}

fn failed(path: &[u8], call: &'static str, error: impl std::fmt::Display) -> LibraryWalkError {
    LibraryWalkError { path: String::from_utf8_lossy(path).into_owned(), call, error: error.to_string() }
}

/// Names and types in a directory but for `.` and `..`, in the order of the listing, read in small parts.
///
/// # Errors
/// What reading met.
pub fn list(filesystem: &Filesystem, directory: &Arc<Inode>) -> Result<Vec<(Vec<u8>, FileType)>, FsError> {
    let open = filesystem.names().open_directory(&root_user(), directory)?;
    let mut names = Vec::new();
    let mut next = 0;
    loop {
        let records = open.read(next, 7)?;
        let Some(last) = records.last() else { return Ok(names) };
        next = last.offset + 1;
        let named = records.into_iter().filter(|record| record.offset > 1);
        names.extend(named.map(|record| (record.name, record.file_type)));
    }
}

/// A file's content.
///
/// # Errors
/// What reading met.
pub fn read(filesystem: &Filesystem, inode: &Arc<Inode>) -> Result<Vec<u8>, FsError> {
    let mut bytes = vec![0; usize::try_from(inode.size()).unwrap_or(usize::MAX)];
    let _operation = inode.operation.read();
    let count = data::read(filesystem, inode, &OpenCache::new(), 0, &mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Bytes that are read at once.
const PIECE: usize = 4 << 20;

/// The hash of a file's content, which may be larger than memory.
fn hash(filesystem: &Filesystem, inode: &Arc<Inode>) -> Result<String, FsError> {
    let (mut digest, mut at) = (Sha256::new(), 0);
    let mut piece = vec![0; PIECE.min(usize::try_from(inode.size()).unwrap_or(PIECE))];
    let cache = OpenCache::new();
    let _operation = inode.operation.read();
    while at < inode.size() {
        let count = data::read(filesystem, inode, &cache, at, &mut piece)?;
        assert!(count > 0, "{} ends at {at} before its size {}", inode.id(), inode.size());
        digest.update(&piece[..count]);
        at += count as u64;
    }
    Ok(shorten(&digest.finalize()))
}

struct LibraryWalker<'a> {
    filesystem: &'a Filesystem,
    data_ranges: bool,
    entries: Vec<Entry>,
    first_paths: HashMap<InodeId, Vec<u8>>,
}

impl LibraryWalker<'_> {
    fn directory(&mut self, directory: &Arc<Inode>, path: &[u8]) -> Result<(), LibraryWalkError> {
        let listed = list(self.filesystem, directory).map_err(|error| failed(path, "list", error))?;
        let mut names: Vec<Vec<u8>> = listed.into_iter().map(|(name, _)| name).collect();
        names.sort();
        for name in names {
            let path = if path.is_empty() { name.clone() } else { [path, b"/", &name].concat() };
            let inode = self.filesystem.names().lookup(&root_user(), directory, &name);
            let inode = inode.map_err(|error| failed(&path, "lookup", error))?;
            self.entry(&inode, &path)?;
            if inode.is_directory() {
                self.directory(&inode, &path)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, inode: &Arc<Inode>, path: &[u8]) -> Result<(), LibraryWalkError> {
        let attributes = self.filesystem.attributes().of(inode);
        let is_node = matches!(attributes.file_type, FileType::CharacterDevice | FileType::BlockDevice);
        let device = attributes.device_number;
        let target = match attributes.file_type {
            FileType::SymbolicLink => {
                let target = self.filesystem.names().read_link(inode);
                Some(target.map_err(|error| failed(path, "readlink", error))?)
            }
            _ => None,
        };
        let (mut content, mut data_ranges) = (None, None);
        if attributes.file_type == FileType::Regular {
            content = Some(hash(self.filesystem, inode).map_err(|error| failed(path, "read", error))?);
            if self.data_ranges {
                data_ranges = Some(self.data_ranges(inode).map_err(|error| failed(path, "seek", error))?);
            }
        }
        // The same inode of a snapshot counts as the same.
        let identity = InodeId { root: RootId(0), ..attributes.id };
        let first_paths = &mut self.first_paths;
        let first_path = (!inode.is_directory())
            .then(|| first_paths.entry(identity).or_insert_with(|| path.to_vec()).clone());
        let modified = attributes.modification_time;
        self.entries.push(Entry {
            path: path.to_vec(),
            mode: attributes.mode.0,
            uid: attributes.user.0,
            gid: attributes.group.0,
            links: attributes.link_count.into(),
            modified_ns: if inode.is_placeholder() {
                PLACEHOLDER_TIME
            } else {
                i128::from(modified.seconds) * 1_000_000_000 + i128::from(modified.nanoseconds)
            },
            size: attributes.size_bytes,
            first_path,
            device: is_node.then(|| (device.major() as u32, device.minor() as u32)),
            target,
            xattrs: self.attributes(inode).map_err(|error| failed(path, "getxattr", error))?,
            content,
            data_ranges,
        });
        Ok(())
    }

    fn attributes(&self, inode: &Arc<Inode>) -> Result<Vec<(Vec<u8>, String)>, FsError> {
        let names = self.filesystem.attributes().extended_attributes(inode)?;
        let hashed = names.into_iter().map(|name| {
            let value = self.filesystem.attributes().extended_attribute(&root_user(), inode, &name)?;
            Ok((name, short_hash(&value)))
        });
        let mut attributes = hashed.collect::<Result<Vec<_>, FsError>>()?;
        attributes.sort();
        Ok(attributes)
    }

    /// Start and length of each.
    fn data_ranges(&self, inode: &Arc<Inode>) -> Result<Vec<(u64, u64)>, FsError> {
        let _operation = inode.operation.read();
        let cache = OpenCache::new();
        let seek = |what, from| data::seek(self.filesystem, inode, &cache, from, what);
        let (mut at, mut ranges) = (0, Vec::new());
        loop {
            let start = match seek(Seek::Data, at) {
                Err(error) if error.errno() == Errno::NXIO => return Ok(ranges),
                other => other?,
            };
            at = seek(Seek::Hole, start)?;
            assert!(at > start, "data from {start} to {at}");
            ranges.push((start, at - start));
        }
    }
}
