//! A device over a regular file or a block device of the host.
//!
//! A single request runs in the caller's thread, batches on the backend, where requests that follow one
//! another on the device are one call (`run`) and small reads that the host answers from memory are the
//! caller's as well (decision 13). Every transfer is positioned, so nothing here has a file cursor to share.

mod backend;
mod host_file;
mod lock;
mod open;
mod options;
mod run;
mod threads;
mod transfer;
#[cfg(feature = "io-uring")]
mod uring;

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::Ordering;
use vlinder_base::units::Physical;

use crate::{
    Description, Device, DeviceError, DeviceErrorKind, DeviceExt, DeviceKind, HostIdentity, Operation,
    Request, Ticket,
};
use backend::Engine;
use host_file::HostFile;

pub use options::{Backend, LockMode, OpenOptions};

/// A regular file or a block device. The file is locked as [`OpenOptions::lock`] says until the device is
/// dropped.
#[derive(Debug)]
pub struct FileDevice {
    host: Arc<HostFile>,
    backend: Engine,
}

impl FileDevice {
    /// Opens an existing regular file or block device.
    ///
    /// # Errors
    /// [`DeviceErrorKind::Busy`] and [`DeviceErrorKind::Mounted`] where somebody else has it, or what the
    /// system said.
    pub fn open(path: impl AsRef<std::path::Path>, options: &OpenOptions) -> Result<Self, DeviceError> {
        open::open(path.as_ref(), options).and_then(|host| Self::start(host, options))
    }

    /// Creates a regular file of `length_bytes` (sparse) and opens it. The path must not exist yet.
    ///
    /// # Errors
    /// What the system said.
    pub fn create(
        path: impl AsRef<std::path::Path>,
        length_bytes: u64,
        options: &OpenOptions,
    ) -> Result<Self, DeviceError> {
        let path = path.as_ref();
        let device = open::create(path, options).and_then(|host| Self::start(host, options))?;
        let sized = device.set_length(length_bytes);
        if sized.is_err() {
            // The file is empty and ours; its size is the error worth reporting, whatever becomes of the
            // removal.
            let _ = device.remove(path);
        }
        sized.map(|()| device)
    }

    /// Makes a regular file of `length_bytes` (sparse) that has no name in its directory, and is gone with
    /// the device.
    pub(crate) fn temporary(
        directory: &std::path::Path,
        name: &Arc<str>,
        length_bytes: u64,
        options: &OpenOptions,
    ) -> Result<Self, DeviceError> {
        let device = open::temporary(directory, name, options).and_then(|host| Self::start(host, options))?;
        device.set_length(length_bytes).map(|()| device)
    }

    fn start(host: HostFile, options: &OpenOptions) -> Result<Self, DeviceError> {
        let host = Arc::new(host);
        let backend = Engine::new(&host, options)?;
        Ok(FileDevice { host, backend })
    }

    /// Changes the length of a regular file; new bytes are holes.
    ///
    /// # Errors
    /// [`DeviceErrorKind::Unsupported`] on block devices, [`DeviceErrorKind::ReadOnly`], or what the system
    /// said.
    pub fn set_length(&self, length_bytes: u64) -> Result<(), DeviceError> {
        let fail = |kind| self.error(kind, Operation::Resize, Physical(0), length_bytes);
        if self.host.read_only {
            return Err(fail(DeviceErrorKind::ReadOnly));
        }
        if self.host.kind != DeviceKind::RegularFile {
            return Err(fail(DeviceErrorKind::Unsupported));
        }
        transfer::retry(|| rustix::fs::ftruncate(&self.host.descriptor, length_bytes))
            .map_err(|errno| fail(errno.into()))?;
        self.host.length.store(length_bytes, Ordering::Release);
        Ok(())
    }

    /// Takes away the opened file's name, if the path still leads to that file: others may write in the
    /// directories on the way.
    ///
    /// # Errors
    /// What the system said. That another file is there is no error.
    pub fn remove(&self, path: &std::path::Path) -> std::io::Result<()> {
        let Some(name) = path.file_name() else { return Ok(()) };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(parent.unwrap_or(".".as_ref()), flags, Mode::empty())?;
        let found = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let ours = rustix::fs::fstat(&self.host.descriptor)?;
        if HostIdentity::of(&found) == HostIdentity::of(&ours) {
            rustix::fs::unlinkat(&directory, name, AtFlags::empty())?;
        }
        Ok(())
    }

    /// Device and inode number of the opened file, to compare it with others.
    ///
    /// # Errors
    /// What the system said.
    pub fn host_identity(&self) -> Result<HostIdentity, DeviceError> {
        let status = rustix::fs::fstat(&self.host.descriptor)
            .map_err(|errno| DeviceError::whole(errno.into(), Operation::Open, &self.host.name))?;
        Ok(HostIdentity::of(&status))
    }
}

impl Device for FileDevice {
    fn describe(&self) -> Description {
        let HostFile { name, read_only, kind, .. } = &*self.host;
        Description { name: name.clone(), read_only: *read_only, kind: *kind }
    }

    fn length(&self) -> u64 {
        self.host.length.load(Ordering::Acquire)
    }

    fn submit(&self, mut batch: Vec<Request>) -> Ticket {
        if batch.len() > 1 {
            return self.backend.submit(&self.host, batch);
        }
        Ticket::ready(batch.pop().map(|request| self.host.run(request)).into_iter().collect())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        if self.host.read_only {
            return Ok(());
        }
        // fdatasync writes the length too when it changed, and flushes the disk's cache below the host's file
        // system.
        transfer::retry(|| rustix::fs::fdatasync(&self.host.descriptor))
            .map_err(|errno| DeviceError::whole(errno.into(), Operation::Flush, &self.host.name))?;
        self.host.check_whole()
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        self.host.check(Operation::Discard, offset, length_bytes)?;
        if length_bytes == 0 {
            return Ok(());
        }
        let discarded = match self.host.kind {
            DeviceKind::BlockDevice => {
                transfer::discard_block_device(&self.host.descriptor, offset.0, length_bytes)
            }
            _ => transfer::retry(|| {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&self.host.descriptor, flags, offset.0, length_bytes)
            }),
        };
        discarded.map_err(|errno| {
            let kind = match errno {
                // Old hosts answer an unknown fallocate mode or ioctl like this.
                Errno::NOSYS | Errno::NOTTY => DeviceErrorKind::Unsupported,
                other => other.into(),
            };
            self.host.fail(kind, Operation::Discard, offset, length_bytes)
        })
    }
}
