//! What the tests of this crate share: images, and the walk of a file system that is not mounted.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod log_maker;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use vlinder_base::sync::Arc;
use vlinder_fs::data::ReadCache;
use vlinder_fs::{Caller, FileType, Filesystem, Inode, InodeId, OpenOptions};
use vlinder_testkit::Scratch;
use vlinder_testkit::walk::{Entry, render, short_hash};

/// An image made by mkfs.btrfs.
pub fn image(scratch: &Scratch, megabytes: u64, arguments: &[&str]) -> PathBuf {
    let path = scratch.join("image");
    std::fs::File::create(&path).unwrap().set_len(megabytes << 20).unwrap();
    let status = Command::new("mkfs.btrfs").arg("-q").args(arguments).arg(&path).status().unwrap();
    assert!(status.success());
    path
}

pub fn open(image: &Path) -> Filesystem {
    Filesystem::open(&[image], OpenOptions::default()).unwrap()
}

pub fn root_user() -> Caller {
    Caller { umask: 0, ..Caller::superuser() }
}

/// The walk of a file system as [`vlinder_testkit::walk`] makes it of a mounted one, by inode number alone.
pub fn walk(filesystem: &Filesystem) -> String {
    let mut walker = Walker { filesystem, entries: Vec::new(), first_paths: HashMap::new() };
    walker.directory(&filesystem.root().unwrap(), b"");
    render(&walker.entries)
}

/// What a walk shows as the time of a name whose subvolume is not there: the kernel shows the moment of the look.
pub const PLACEHOLDER_TIME: i128 = 0;

/// Every path of a kernel mount that stands for a subvolume that is not there gets that time, too.
pub fn without_placeholder_times(root: &Path, mut entries: Vec<Entry>) -> Vec<Entry> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    for entry in entries.iter_mut().filter(|entry| entry.first_path.is_none()) {
        let path = root.join(std::ffi::OsStr::from_bytes(&entry.path));
        if std::fs::symlink_metadata(path).unwrap().ino() == 2 {
            entry.modified_ns = PLACEHOLDER_TIME;
        }
    }
    entries
}

struct Walker<'a> {
    filesystem: &'a Filesystem,
    entries: Vec<Entry>,
    first_paths: HashMap<InodeId, Vec<u8>>,
}

impl Walker<'_> {
    fn directory(&mut self, directory: &Arc<Inode>, path: &[u8]) {
        let mut names: Vec<Vec<u8>> =
            list(self.filesystem, directory).into_iter().map(|(name, _)| name).collect();
        names.sort();
        for name in names {
            let path = if path.is_empty() { name.clone() } else { [path, b"/", &name].concat() };
            let inode = self.filesystem.lookup(&root_user(), directory, &name).unwrap();
            self.entry(&inode, &path);
            if inode.is_directory() {
                self.directory(&inode, &path);
            }
        }
    }

    fn entry(&mut self, inode: &Arc<Inode>, path: &[u8]) {
        let attributes = self.filesystem.attributes(inode);
        let is_node = matches!(attributes.file_type, FileType::CharacterDevice | FileType::BlockDevice);
        let device = attributes.device_number;
        let target = (attributes.file_type == FileType::SymbolicLink)
            .then(|| self.filesystem.read_link(inode).unwrap());
        let content =
            (attributes.file_type == FileType::Regular).then(|| short_hash(&read(self.filesystem, inode)));
        let mut xattrs: Vec<(Vec<u8>, String)> = self
            .filesystem
            .extended_attributes(inode)
            .unwrap()
            .into_iter()
            .map(|name| {
                let value = self.filesystem.extended_attribute(&root_user(), inode, &name).unwrap();
                (name, short_hash(&value))
            })
            .collect();
        xattrs.sort();
        let identity = InodeId { root: vlinder_fs::RootId(0), ..attributes.id };
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
            xattrs,
            content,
            data_ranges: None,
        });
    }
}

/// Names and types in a directory but for `.` and `..`, in the order of the listing, read in small parts.
pub fn list(filesystem: &Filesystem, directory: &Arc<Inode>) -> Vec<(Vec<u8>, FileType)> {
    let open = filesystem.open_directory(&root_user(), directory).unwrap();
    let mut names = Vec::new();
    let mut next = 0;
    loop {
        let records = open.read(next, 7).unwrap();
        let Some(last) = records.last() else { return names };
        next = last.offset + 1;
        names.extend(
            records
                .into_iter()
                .filter(|record| record.offset > 1)
                .map(|record| (record.name, record.file_type)),
        );
    }
}

pub fn read(filesystem: &Filesystem, inode: &Arc<Inode>) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(inode.size()).unwrap()];
    let _operation = inode.operation.read();
    let count = vlinder_fs::data::read(filesystem, inode, &ReadCache::new(), 0, &mut bytes).unwrap();
    assert_eq!(count, bytes.len());
    bytes
}
