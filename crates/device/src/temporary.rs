//! A device that leaves nothing behind.

use std::path::{Path, PathBuf};

use vlinder_base::sync::{Arc, Mutex, OnceLock};
use vlinder_base::units::Physical;

use crate::kept_writes::KeptWrites;
use crate::{
    Completion, Description, Device, DeviceError, DeviceKind, FileDevice, OpenOptions, Request, Ticket,
};

/// A sparse file without a name, made when it is first needed; its space is free again when the device is
/// dropped, however the process ends. Nothing on it outlives the device, so nothing has to be durable, and
/// what is written may stay in memory ([`keeping`](Self::keeping)).
#[derive(Debug)]
pub struct TemporaryDevice {
    directory: PathBuf,
    name: Arc<str>,
    length_bytes: u64,
    file: OnceLock<Result<FileDevice, DeviceError>>,
    /// What the file does not have yet; reads look here first.
    kept: Mutex<KeptWrites>,
    most_kept_bytes: u64,
}

impl TemporaryDevice {
    /// A device of this length, whose file will lie in a directory of the host. Whether that is possible
    /// shows with the first request: each fails with the error that making the file met.
    pub fn new(directory: &Path, length_bytes: u64) -> Self {
        let name = format!("temporary file in {}", directory.display()).into();
        let (file, kept) = (OnceLock::new(), Mutex::default());
        Self { directory: directory.to_owned(), name, length_bytes, file, kept, most_kept_bytes: 0 }
    }

    /// The same device, which keeps writes of shared bytes in memory until they are `most_kept_bytes`.
    #[must_use]
    pub fn keeping(self, most_kept_bytes: u64) -> Self {
        Self { most_kept_bytes, ..self }
    }

    fn file(&self) -> Result<&FileDevice, &DeviceError> {
        let make =
            || FileDevice::temporary(&self.directory, &self.name, self.length_bytes, &OpenOptions::default());
        self.file.get_or_init(make).as_ref()
    }

    fn submit_to_file(&self, batch: Vec<Request>) -> Ticket {
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

    /// Writes the kept pieces that a request cuts to the file, and keeps them until they are written.
    fn write_out(&self, kept: &mut KeptWrites, cut: Vec<Request>) -> Result<(), DeviceError> {
        if cut.is_empty() {
            return Ok(());
        }
        let places: Vec<Physical> = cut.iter().map(Request::offset).collect();
        self.submit_to_file(cut).wait_all()?;
        kept.drop_pieces(&places);
        Ok(())
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
        if self.most_kept_bytes == 0 {
            return self.submit_to_file(batch);
        }
        let mut kept = self.kept.lock();
        let mut answers = Vec::with_capacity(batch.len());
        let mut rest = Vec::new();
        for request in batch {
            let range = request.offset().0..request.offset().0.saturating_add(request.length_bytes());
            let cut = kept.touching(range.clone(), true);
            if let Err(error) = self.write_out(&mut kept, cut) {
                answers.push(Some(request.complete(Err(error))));
                continue;
            }
            let is_outside = range.end > self.length_bytes;
            match if is_outside { Err(request) } else { kept.answer(request, self.most_kept_bytes) } {
                Ok(completion) => answers.push(Some(completion)),
                Err(request) => {
                    rest.push(request);
                    answers.push(None);
                }
            }
        }
        drop(kept);
        if answers.iter().all(Option::is_none) {
            return self.submit_to_file(rest);
        }
        let mut others = (!rest.is_empty()).then(|| self.submit_to_file(rest).wait()).into_iter().flatten();
        Ticket::ready(answers.into_iter().filter_map(|answer| answer.or_else(|| others.next())).collect())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.file.get().map_or(Ok(()), |file| file.as_ref().map_err(Clone::clone)?.flush())
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        let mut kept = self.kept.lock();
        let cut = kept.touching(offset.0..offset.0.saturating_add(length_bytes), false);
        self.write_out(&mut kept, cut)?;
        drop(kept);
        self.file().map_err(Clone::clone)?.discard(offset, length_bytes)
    }
}
