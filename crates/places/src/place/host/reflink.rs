//! Sharing the extents of files of the host.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use rustix::fs::IFlags;
use rustix::io::Errno;
use vlinder_control::MountEntry;
use vlinder_device::ask_for_checksums;

use super::holes::next_data;

/// What statfs(2) tells of FUSE (`FUSE_SUPER_MAGIC`).
const FUSE: rustix::fs::FsWord = 0x6573_5546;

/// A hole of this length takes some 500 calls to copy.
const LONG_HOLE_BYTES: u64 = 1 << 40;

/// Makes an empty file show the content of another by sharing its extents; gives the length.
///
/// # Errors
/// Where the file system can't, with the file empty; what it met.
pub(super) fn share(source: &File, target: &File) -> Result<u64, Errno> {
    let length = rustix::fs::fstat(source)?.st_size.unsigned_abs();
    match rustix::fs::ioctl_ficlone(target, source) {
        Ok(()) => Ok(length),
        // FUSE hands no FICLONE on. Vlinder's server shares what copy_file_range(2) asks it to copy.
        Err(errno) if is_on_vlinder(source, target) => {
            if has_checksums(source) != has_checksums(target) {
                return Err(Errno::INVAL);
            }
            match copy(source, target, length) {
                Ok(()) => Ok(length),
                Err(_) => {
                    rustix::fs::ftruncate(target, 0)?;
                    Err(errno)
                }
            }
        }
        Err(errno) => Err(errno),
    }
}

/// Whether both lie on one mount of vlinder's.
fn is_on_vlinder(source: &File, target: &File) -> bool {
    let device = |file: &File| {
        let found = rustix::fs::fstatfs(file).ok()?;
        (found.f_type == FUSE).then_some(file.metadata().ok()?.dev())
    };
    let (Some(one), Some(other)) = (device(source), device(target)) else { return false };
    let numbers = (rustix::fs::major(one), rustix::fs::minor(one));
    one == other
        && MountEntry::all()
            .is_ok_and(|all| all.iter().any(|entry| entry.device == numbers && entry.is_ours()))
}

/// A file without checksums shares with its like alone. An older server tells no more than chattr(1) shows.
fn has_checksums(file: &File) -> bool {
    ask_for_checksums(file).unwrap_or_else(|_| {
        rustix::fs::ioctl_getflags(file).is_ok_and(|flags| !flags.contains(IFlags::NOCOW))
    })
}

/// Copies a file into an empty one. One call copies 2 GiB at most, holes included, and a file of 8 EiB would
/// take milliards of them: so long holes are stepped over. Space that was preallocated in these stays behind.
fn copy(source: &File, target: &File, length: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < length {
        let next = next_data(source, done)?.map_or(length, |(start, _)| start).min(length);
        if next - done >= LONG_HOLE_BYTES {
            done = next;
            if done == length {
                rustix::fs::ftruncate(target, length)?;
            }
            continue;
        }
        let left = usize::try_from(length - done).unwrap_or(usize::MAX);
        let (mut from, mut to) = (done, done);
        match rustix::fs::copy_file_range(source, Some(&mut from), target, Some(&mut to), left)? {
            // The source was cut meanwhile.
            0 => return Err(Errno::AGAIN),
            count => done += u64::try_from(count).unwrap_or(0),
        }
    }
    Ok(())
}
