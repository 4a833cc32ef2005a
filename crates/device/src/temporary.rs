//! A device that leaves nothing behind.

use std::path::{Path, PathBuf};

use vlinder_base::sync::{Arc, OnceLock};
use vlinder_base::units::Physical;

use crate::{
    Completion, Description, Device, DeviceError, DeviceKind, FileDevice, OpenOptions, Request, Ticket,
};

/// A sparse file without a name, made when something is first written or read; its space is free again when
/// the device is dropped, however the process ends.
#[derive(Debug)]
pub struct TemporaryDevice {
    directory: PathBuf,
    name: Arc<str>,
    length_bytes: u64,
    file: OnceLock<Result<FileDevice, DeviceError>>,
}

impl TemporaryDevice {
    /// A device of this length in a directory of the host.
    pub fn new(directory: &Path, length_bytes: u64) -> Self {
        let name = format!("temporary file in {}", directory.display()).into();
        Self { directory: directory.to_owned(), name, length_bytes, file: OnceLock::new() }
    }

    fn file(&self) -> Result<&FileDevice, &DeviceError> {
        let make =
            || FileDevice::temporary(&self.directory, &self.name, self.length_bytes, &OpenOptions::default());
        self.file.get_or_init(make).as_ref()
    }
}

impl Device for TemporaryDevice {
    fn describe(&self) -> Description {
        Description { name: Arc::clone(&self.name), read_only: false, kind: DeviceKind::RegularFile }
    }

    fn length(&self) -> u64 {
        self.length_bytes
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        match self.file() {
            Ok(file) => file.submit(batch),
            Err(error) => Ticket::ready(
                batch
                    .into_iter()
                    .map(|request| request.complete(Err(error.clone())))
                    .collect::<Vec<Completion>>(),
            ),
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.file.get().map_or(Ok(()), |file| file.as_ref().map_err(Clone::clone)?.flush())
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        self.file().map_err(Clone::clone)?.discard(offset, length_bytes)
    }
}
