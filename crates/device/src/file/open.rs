//! Opening and locking.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use vlinder_base::random::{OsRandom, Random};
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::AtomicU64;

use super::host_file::HostFile;
use super::lock::lock;
use super::options::{LockMode, OpenOptions};
use super::transfer;
use crate::lock_holder::lock_holder;
use crate::{DeviceError, DeviceErrorKind, DeviceKind, Operation, kernel_mount};

/// Opens an existing file or block device.
pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<HostFile, DeviceError> {
    if let Some(mount) = kernel_mount(path).filter(|_| !options.allow_mounted) {
        let name = path.to_string_lossy().into();
        return Err(DeviceError::whole(
            DeviceErrorKind::Mounted { mount: Box::new(mount) },
            Operation::Open,
            &name,
        ));
    }
    // O_NONBLOCK: a FIFO would make open(2) wait for a peer; it means nothing to the types that we accept.
    let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK | access(options);
    let is_block_device = rustix::fs::stat(path)
        .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::BlockDevice);
    if is_block_device && options.lock == LockMode::Exclusive {
        flags |= OFlags::EXCL;
    }
    finish(path, flags, options)
}

/// Creates a regular file.
pub(super) fn create(path: &Path, options: &OpenOptions) -> Result<HostFile, DeviceError> {
    finish(path, OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL | access(options), options)
}

/// Makes a regular file without a name.
pub(super) fn temporary(
    directory: &Path,
    name: &Arc<str>,
    options: &OpenOptions,
) -> Result<HostFile, DeviceError> {
    let flags = OFlags::CLOEXEC | access(options);
    let fail = |errno: Errno| DeviceError::whole(errno.into(), Operation::Open, name);
    let private = Mode::RUSR | Mode::WUSR;
    let opened = transfer::retry(|| rustix::fs::open(directory, flags | OFlags::TMPFILE, private));
    let descriptor = match opened {
        // Where the host's file system has no such files, the name is taken away at once. (Kernels that don't
        // know the flag see a directory to be written.)
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let path = directory.join(format!("vlinder-{:016x}", OsRandom.next_u64()));
            let flags = flags | OFlags::CREATE | OFlags::EXCL;
            let descriptor = transfer::retry(|| rustix::fs::open(&path, flags, private)).map_err(fail)?;
            std::fs::remove_file(&path)
                .map_err(|error| fail(error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)))?;
            descriptor
        }
        opened => opened.map_err(fail)?,
    };
    Ok(HostFile {
        lies_in_memory: lies_in_memory(&descriptor),
        descriptor,
        below: None,
        name: Arc::clone(name),
        kind: DeviceKind::RegularFile,
        read_only: options.read_only,
        has_name: false,
        length: AtomicU64::new(0),
    })
}

fn access(options: &OpenOptions) -> OFlags {
    if options.read_only { OFlags::RDONLY } else { OFlags::RDWR }
}

fn finish(path: &Path, flags: OFlags, options: &OpenOptions) -> Result<HostFile, DeviceError> {
    let name: Arc<str> = path.to_string_lossy().into();
    let fail = |kind| DeviceError::whole(kind, Operation::Open, &name);
    let opened = transfer::retry(|| rustix::fs::open(path, flags, Mode::from_raw_mode(0o666)));
    let descriptor = opened.map_err(|errno| match errno {
        Errno::BUSY => fail(DeviceErrorKind::Busy { holder: None }),
        other => fail(other.into()),
    })?;
    let status = rustix::fs::fstat(&descriptor).map_err(|errno| fail(errno.into()))?;
    let (kind, length) = match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => (DeviceKind::RegularFile, status.st_size.unsigned_abs()),
        FileType::BlockDevice => {
            // The end of a block device is where its last byte is; st_size is 0.
            let end = rustix::fs::seek(&descriptor, SeekFrom::End(0)).map_err(|errno| fail(errno.into()))?;
            (DeviceKind::BlockDevice, end)
        }
        _ => return Err(fail(DeviceErrorKind::WrongType)),
    };
    lock(&descriptor, options.lock, !options.read_only).map_err(|errno| match errno {
        Errno::WOULDBLOCK => fail(DeviceErrorKind::Busy { holder: lock_holder(&status).map(Box::new) }),
        other => fail(other.into()),
    })?;
    let below = if kind == DeviceKind::BlockDevice { file_below(&status) } else { None };
    if let Some(below) = &below
        && lock(&below.file, options.lock, below.is_writable) == Err(Errno::WOULDBLOCK)
    {
        return Err(fail(DeviceErrorKind::Busy { holder: lock_holder(&below.status).map(Box::new) }));
    }
    Ok(HostFile {
        lies_in_memory: lies_in_memory(&descriptor),
        descriptor,
        below: below.map(|below| below.file),
        name: name.clone(),
        kind,
        read_only: options.read_only,
        has_name: kind == DeviceKind::RegularFile && status.st_nlink > 0,
        length: AtomicU64::new(length),
    })
}

/// Whether a file is one of tmpfs, or a file system that works the same way.
fn lies_in_memory(descriptor: &OwnedFd) -> bool {
    /// `TMPFS_MAGIC` of linux/magic.h.
    const TMPFS: u64 = 0x0102_1994;
    rustix::fs::fstatfs(descriptor).is_ok_and(|status| status.f_type.cast_unsigned() == TMPFS)
}

/// The file below a loop device.
struct FileBelow {
    file: OwnedFd,
    status: rustix::fs::Stat,
    is_writable: bool,
}

/// The file below a loop device, if it is one and the file can be reached. Only its lock matters.
fn file_below(device: &rustix::fs::Stat) -> Option<FileBelow> {
    let (major, minor) = (rustix::fs::major(device.st_rdev), rustix::fs::minor(device.st_rdev));
    let named = std::fs::read(format!("/sys/dev/block/{major}:{minor}/loop/backing_file")).ok()?;
    let path = named.strip_suffix(b"\n").unwrap_or(&named);
    let flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
    let open = |access| transfer::retry(|| rustix::fs::open(path, flags | access, Mode::empty()));
    let (file, is_writable) = match open(OFlags::RDWR) {
        Ok(file) => (file, true),
        Err(_) => (open(OFlags::RDONLY).ok()?, false),
    };
    let status = rustix::fs::fstat(&file).ok()?;
    Some(FileBelow { file, status, is_writable })
}
