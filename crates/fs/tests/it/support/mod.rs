//! What the tests of this crate share: images, and the walk of a file system that is not mounted.

pub mod fsync_script;
pub mod log_maker;
pub mod sectors;

use std::path::{Path, PathBuf};
use std::process::Command;

use vlinder_base::sync::Arc;
use vlinder_fs::{Caller, FileType, Filesystem, Inode, OpenOptions};
use vlinder_testkit::Scratch;
use vlinder_testkit::subject::{self, library_walk};
use vlinder_testkit::walk::render;

pub use vlinder_testkit::subject::without_placeholder_times;

/// An image made by mkfs.btrfs.
pub fn image(scratch: &Scratch, megabytes: u64, arguments: &[&str]) -> PathBuf {
    let path = scratch.join("image");
    std::fs::File::create(&path).unwrap().set_len(megabytes << 20).unwrap();
    let made = Command::new("mkfs.btrfs").arg("-q").args(arguments).arg(&path).output().unwrap();
    assert!(made.status.success(), "{made:?}");
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
    render(&library_walk(filesystem, false).unwrap())
}

/// Names and types in a directory but for `.` and `..`, in the order of the listing, read in small parts.
pub fn list(filesystem: &Filesystem, directory: &Arc<Inode>) -> Vec<(Vec<u8>, FileType)> {
    subject::list(filesystem, directory).unwrap()
}

pub fn read(filesystem: &Filesystem, inode: &Arc<Inode>) -> Vec<u8> {
    let bytes = subject::read(filesystem, inode).unwrap();
    assert_eq!(bytes.len() as u64, inode.size());
    bytes
}

/// Our own check of an image finds nothing.
pub fn check(image: &vlinder_device::MemoryDevice) -> Result<(), String> {
    let device: Arc<dyn vlinder_device::Device> = Arc::new(image.snapshot());
    let options = vlinder_check::Options { data_checksums: true, ..Default::default() };
    let report = vlinder_check::check(vec![device], &options).map_err(|error| error.to_string())?;
    if report.is_clean() { Ok(()) } else { Err(format!("vlinder check: {:?}", report.findings)) }
}
