//! The file or device that gets the new file system.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceErrorKind, DeviceExt, DeviceKind, OpenOptions, TemporaryDevice};
use vlinder_format::superblock::SuperblockMirror;
use vlinder_partitions::ImageName;

use super::compact::{self, ImageSize};
use super::error::MkfsError;
use super::options::MkfsOptions;
use super::raw::{MkfsParameters, ParameterError, smallest_device, too_small};
use super::signature;
use super::source::shown;
use super::target_device::TargetDevice;
use super::unannounced::Unannounced;

/// An image without a given size gets this part of its least size as room beside it.
const ROOM_PART: u64 = 4;
/// But so much room at least: else not one more file could be made in an image of next to nothing.
const LEAST_ROOM: u64 = 2 << 20;
/// And it is so long at least, so that snapshots can be made of what is in it.
const LEAST_BYTES: u64 = 8 << 20;
/// Such an image is a multiple of this.
const SIZE_STEP: u64 = 1 << 20;

/// So much of what is written twice stays in memory, most of it beside what the cache has anyway: the
/// metadata of some 100,000 files.
const SCRATCH_MEMORY_BYTES: u64 = 128 << 20;

/// An opened target. Dropped before [`finish`](Self::finish), it holds no file system, and a file made for it
/// is removed.
pub(super) struct Target {
    path: PathBuf,
    device: Arc<TargetDevice>,
    /// Bytes that the file system is to have; none where that follows from its content.
    wanted_bytes: Option<u64>,
    /// A regular file is not made shorter than this unless it is shrunk.
    kept_bytes: u64,
    /// It did not exist before.
    created: bool,
    /// Something was written.
    touched: bool,
    finished: bool,
}

impl Target {
    /// Opens or creates the target, once nothing speaks against it.
    pub(super) fn open(
        options: &MkfsOptions,
        path: &Path,
        parameters: &MkfsParameters,
    ) -> Result<Self, MkfsError> {
        let shown = || path.display().to_string();
        let name = ImageName::of(path);
        match std::fs::metadata(name.file()) {
            Ok(_) => Self::open_existing(options, path, parameters),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let wanted_bytes = options.size_bytes.map(|size| whole_sectors(size, parameters));
                match (&options.root_directory, wanted_bytes) {
                    (Some(_), _) => {}
                    (None, Some(size)) => check_size(size, parameters)?,
                    (None, None) => return Err(MkfsError::NoTarget { target: shown() }),
                }
                let device =
                    TargetDevice::create(name.file(), wanted_bytes.unwrap_or(0), &OpenOptions::writer())?;
                Ok(Self {
                    path: name.file().to_owned(),
                    device: Arc::new(device),
                    wanted_bytes,
                    kept_bytes: 0,
                    created: true,
                    touched: false,
                    finished: false,
                })
            }
            Err(source) => Err(MkfsError::Target { target: shown(), source }),
        }
    }

    fn open_existing(
        options: &MkfsOptions,
        path: &Path,
        parameters: &MkfsParameters,
    ) -> Result<Self, MkfsError> {
        let device = TargetDevice::open(path, &OpenOptions::writer())?;
        let found = if options.force { None } else { signature::find_signature(&device)? };
        if let Some(signature) = found {
            let target = path.display().to_string();
            return Err(MkfsError::InUse { target, name: signature.name, offset: signature.offset });
        }
        let is_file = device.describe().kind == DeviceKind::RegularFile;
        let length = device.length();
        let size_bytes = whole_sectors(options.size_bytes.unwrap_or(length), parameters);
        if !is_file && size_bytes > length {
            let target = path.display().to_string();
            return Err(MkfsError::TargetTooShort { target, found: length, wanted: size_bytes });
        }
        if options.root_directory.is_none() {
            check_size(size_bytes, parameters)?;
        }
        Ok(Self {
            path: ImageName::of(path).file().to_owned(),
            device: Arc::new(device),
            wanted_bytes: Some(size_bytes),
            kept_bytes: length,
            created: false,
            touched: false,
            finished: false,
        })
    }

    pub(super) fn device(&self) -> &Arc<TargetDevice> {
        &self.device
    }

    /// Bytes that an empty file system gets.
    pub(super) fn size_bytes(&self) -> u64 {
        self.wanted_bytes.unwrap_or(0)
    }

    fn is_file(&self) -> bool {
        self.device.describe().kind == DeviceKind::RegularFile
    }

    /// How long the file system becomes whose content needs `least` bytes. A regular file grows where a size
    /// is too small, as mkfs.btrfs has it.
    pub(super) fn size_for(&self, least: u64, shrinks: bool) -> Result<ImageSize, MkfsError> {
        let with_room = least.saturating_add((least / ROOM_PART).max(LEAST_ROOM)).next_multiple_of(SIZE_STEP);
        let with_room = with_room.max(LEAST_BYTES);
        match self.wanted_bytes {
            Some(wanted) if wanted < least && !self.is_file() => {
                Err(MkfsError::Full { path: shown(b""), size: wanted })
            }
            _ if shrinks => Ok(ImageSize { total_bytes: least, is_given: false }),
            Some(wanted) if wanted >= least => Ok(ImageSize { total_bytes: wanted, is_given: true }),
            _ => Ok(ImageSize { total_bytes: with_room, is_given: false }),
        }
    }

    /// Where the data of a file system that is filled have to end; the scratch file stands behind.
    pub(super) fn data_end(&self) -> u64 {
        compact::data_end((!self.is_file()).then(|| self.size_bytes()))
    }

    /// A file for what is written twice and is more than fits into memory. It lies beside a regular file, or
    /// beside a disk that is one, so that the same disk has to have room; else where temporary files go.
    pub(super) fn scratch(&self) -> TemporaryDevice {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let beside = parent.unwrap_or(".".as_ref());
        let may_write = rustix::fs::access(beside, rustix::fs::Access::WRITE_OK).is_ok();
        let is_in_file = self.path.metadata().is_ok_and(|found| found.is_file());
        let directory = if is_in_file && may_write { beside.to_owned() } else { std::env::temp_dir() };
        TemporaryDevice::new(&directory, compact::SCRATCH_BYTES).keeping(SCRATCH_MEMORY_BYTES)
    }

    /// Lets go of the old content, and makes a file long enough.
    pub(super) fn clear(&mut self, discard: bool) -> Result<(), MkfsError> {
        self.touched = true;
        let length = self.device.length();
        if self.is_file() {
            if discard {
                self.device.set_length(0)?;
            }
            let length = length.max(self.size_bytes());
            if self.device.length() != length {
                self.device.set_length(length)?;
            }
        } else if discard {
            match self.device.discard(Physical(0), self.size_bytes()) {
                Err(error) if error.kind != DeviceErrorKind::Unsupported => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// The file system of `size_bytes` on `device`, which is this target's, is complete; `shrinks` cuts a
    /// file behind it. Only now can anybody find it.
    pub(super) fn finish(
        &mut self,
        device: &Unannounced,
        size_bytes: u64,
        shrinks: bool,
    ) -> Result<(), MkfsError> {
        if self.is_file() {
            // It was made longer in steps.
            let kept = if shrinks { 0 } else { self.kept_bytes };
            let length = size_bytes.max(kept);
            if self.device.length() != length {
                self.device.set_length(length)?;
            }
        }
        device.announce()?;
        self.finished = true;
        Ok(())
    }

    /// An empty file system is complete.
    pub(super) fn finish_empty(&mut self) {
        self.finished = true;
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // The error that brought us here is the one to tell; these can only leave more behind.
        if self.created {
            let _ = self.device.remove(&self.path);
        } else if self.touched {
            for mirror in SuperblockMirror::ALL {
                if mirror.fits(self.device.length()) {
                    let _ = self.device.write_at(mirror.offset(), vec![0; 4096]);
                }
            }
            let _ = self.device.flush();
        }
    }
}

fn whole_sectors(size: u64, parameters: &MkfsParameters) -> u64 {
    size - size % u64::from(parameters.sector_size)
}

fn check_size(found: u64, parameters: &MkfsParameters) -> Result<(), ParameterError> {
    let needed = smallest_device(parameters)?;
    if found < needed { Err(too_small(parameters, found, needed)) } else { Ok(()) }
}
