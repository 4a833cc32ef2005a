//! The file or device that gets the new file system.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceErrorKind, DeviceExt, DeviceKind, FileDevice, OpenOptions};
use vlinder_format::superblock::SuperblockMirror;

use super::error::MkfsError;
use super::options::MkfsOptions;
use super::progress::Progress;
use super::raw::{MkfsParameters, ParameterError, smallest_device, too_small};
use super::source::Source;
use super::unannounced::Unannounced;
use super::{shrink, signature, size};

/// How often an image whose size was estimated is made again, each time twice as long.
const GROWTHS: u32 = 6;

/// An opened target. Dropped before [`finish`](Self::finish), it holds no file system, and a file made for it
/// is removed.
pub(super) struct Target {
    path: PathBuf,
    device: Arc<FileDevice>,
    size_bytes: u64,
    /// It did not exist before.
    created: bool,
    /// How often the size may still be raised; 0 where it was given.
    growths: u32,
    /// The size that the source needs by an estimate is part of it.
    estimated: bool,
    /// Something was written.
    touched: bool,
    finished: bool,
}

impl Target {
    /// Opens or creates the target, once nothing speaks against it.
    pub(super) fn open(
        options: &MkfsOptions,
        source: Option<&Source>,
        path: &Path,
        parameters: &MkfsParameters,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, MkfsError> {
        let shown = || path.display().to_string();
        match std::fs::metadata(path) {
            Ok(_) => Self::open_existing(options, source, path, parameters, progress),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let unsized_source = source.filter(|_| options.size_bytes.is_none());
                let estimate = estimate(unsized_source, parameters, progress)?;
                let given = options.size_bytes.map(|size| whole_sectors(size, parameters));
                let Some(size_bytes) = given.or(estimate) else {
                    return Err(MkfsError::NoTarget { target: shown() });
                };
                check_size(size_bytes, parameters)?;
                let device = FileDevice::create(path, size_bytes, &OpenOptions::writer())?;
                let growths = if given.is_none() { GROWTHS } else { 0 };
                Ok(Self {
                    path: path.to_owned(),
                    device: Arc::new(device),
                    size_bytes,
                    created: true,
                    growths,
                    estimated: growths > 0,
                    touched: false,
                    finished: false,
                })
            }
            Err(source) => Err(MkfsError::Target { target: shown(), source }),
        }
    }

    fn open_existing(
        options: &MkfsOptions,
        source: Option<&Source>,
        path: &Path,
        parameters: &MkfsParameters,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, MkfsError> {
        let device = FileDevice::open(path, &OpenOptions::writer())?;
        let found = if options.force { None } else { signature::find_signature(&device)? };
        if let Some(signature) = found {
            let target = path.display().to_string();
            return Err(MkfsError::InUse { target, name: signature.name, offset: signature.offset });
        }
        let is_file = device.describe().kind == DeviceKind::RegularFile;
        let length = device.length();
        let found = whole_sectors(length, parameters);
        let mut estimated = false;
        let (size_bytes, growths) = match options.size_bytes {
            Some(size) => (whole_sectors(size, parameters), 0),
            None if is_file && options.root_directory.is_some() => {
                // Whether a source fits is known when it was copied; to count it before would be to read its
                // attributes twice.
                estimated = found < smallest_device(parameters)?;
                let estimate = if estimated { estimate(source, parameters, progress)? } else { None };
                (estimate.map_or(found, |estimate| found.max(estimate)), GROWTHS)
            }
            None => (found, 0),
        };
        if !is_file && size_bytes > length {
            let target = path.display().to_string();
            return Err(MkfsError::TargetTooShort { target, found: length, wanted: size_bytes });
        }
        check_size(size_bytes, parameters)?;
        Ok(Self {
            path: path.to_owned(),
            device: Arc::new(device),
            size_bytes,
            created: false,
            growths,
            estimated,
            touched: false,
            finished: false,
        })
    }

    pub(super) fn device(&self) -> &Arc<FileDevice> {
        &self.device
    }

    /// Bytes that the file system gets.
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_file(&self) -> bool {
        self.device.describe().kind == DeviceKind::RegularFile
    }

    /// Raises the size that proved too small, if it was not given: to what the source needs by an estimate,
    /// or twofold where that is no more.
    pub(super) fn grow(
        &mut self,
        source: Option<&Source>,
        parameters: &MkfsParameters,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<bool, MkfsError> {
        if self.growths == 0 {
            return Ok(false);
        }
        self.growths -= 1;
        let estimate = if self.estimated { None } else { estimate(source, parameters, progress)? };
        self.estimated = true;
        let doubled = self.size_bytes.saturating_mul(2);
        self.size_bytes = estimate.filter(|estimate| *estimate > self.size_bytes).unwrap_or(doubled);
        Ok(true)
    }

    /// Lets go of the old content, and makes a file long enough.
    pub(super) fn clear(&mut self, discard: bool) -> Result<(), MkfsError> {
        self.touched = true;
        let length = self.device.length();
        if self.is_file() {
            if discard {
                self.device.set_length(0)?;
            }
            let length = length.max(self.size_bytes);
            if self.device.length() != length {
                self.device.set_length(length)?;
            }
        } else if discard {
            match self.device.discard(Physical(0), self.size_bytes) {
                Err(error) if error.kind != DeviceErrorKind::Unsupported => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// The file system on `device`, which is this target's, is complete; `shrinks` cuts it behind its last
    /// chunk. Only now can anybody find it. Gives its size.
    pub(super) fn finish(&mut self, device: Arc<Unannounced>, shrinks: bool) -> Result<u64, MkfsError> {
        if shrinks {
            let whole: Arc<dyn Device> = Arc::clone(&device) as _;
            self.size_bytes = shrink::shrink(&whole)?;
            drop(whole);
            if self.is_file() {
                self.device.set_length(self.size_bytes)?;
            }
        }
        device.announce()?;
        self.finished = true;
        Ok(self.size_bytes)
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

/// The size that the source needs, where there is one.
fn estimate(
    source: Option<&Source>,
    parameters: &MkfsParameters,
    progress: &mut dyn FnMut(Progress),
) -> Result<Option<u64>, MkfsError> {
    let Some(source) = source else { return Ok(None) };
    let totals = source.totals(u64::from(parameters.sector_size))?;
    let data_bytes = totals.data_bytes + totals.small_bytes;
    progress(Progress::Counted { entries: totals.entries, data_bytes });
    Ok(Some(size::size_for(parameters, &totals)?))
}

fn whole_sectors(size: u64, parameters: &MkfsParameters) -> u64 {
    size - size % u64::from(parameters.sector_size)
}

fn check_size(found: u64, parameters: &MkfsParameters) -> Result<(), ParameterError> {
    let needed = smallest_device(parameters)?;
    if found < needed { Err(too_small(parameters, found, needed)) } else { Ok(()) }
}
