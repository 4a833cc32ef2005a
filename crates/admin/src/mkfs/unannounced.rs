//! A device whose superblocks stay in memory until the file system that they describe is complete, so that
//! what ends mkfs half-way (a signal, a power cut) leaves nothing that could be taken for a file system: a
//! part of the source would mount and pass every check. mkfs.btrfs writes another magic number until it is
//! done, for the same reason.

use std::collections::BTreeMap;

use vlinder_base::sync::{Arc, Mutex};
use vlinder_device::{
    Completion, Data, Description, Device, DeviceError, DeviceExt, DeviceKind, Request, TemporaryDevice,
    Ticket,
};
use vlinder_format::Physical;
use vlinder_format::superblock::{Superblock, SuperblockMirror};

use super::target_device::TargetDevice;

/// A regular file is made longer by so many bytes at a time; what is too much is cut in the end.
const GROWTH_BYTES: u64 = 64 << 20;

/// See the module. Everything but whole superblocks at their places goes to the device, which grows where it
/// is a regular file, and behind `scratch_start` to the scratch file. What is written is durable only when it
/// is announced: before, a power cut leaves no file system anyway.
pub(super) struct Unannounced {
    device: Arc<TargetDevice>,
    superblocks: Mutex<BTreeMap<u64, Vec<u8>>>,
    scratch: TemporaryDevice,
    scratch_start: u64,
    /// Held by the thread that makes the file longer.
    growing: Mutex<()>,
}

impl Unannounced {
    /// The device without superblocks, and a scratch file behind it.
    pub(super) fn new(device: Arc<TargetDevice>, scratch: TemporaryDevice, scratch_start: u64) -> Self {
        Self { device, superblocks: Mutex::default(), scratch, scratch_start, growing: Mutex::new(()) }
    }

    /// Takes these for the superblocks, as if they had been written.
    pub(super) fn set_superblocks(&self, superblocks: Vec<(Physical, Vec<u8>)>) {
        *self.superblocks.lock() = superblocks.into_iter().map(|(place, bytes)| (place.0, bytes)).collect();
    }

    /// Writes the superblocks, the primary last, behind everything that was written before. Those that a
    /// shorter device has no room for any more are left out.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn announce(&self) -> Result<(), DeviceError> {
        self.device.flush()?;
        let length = self.device.length();
        for mirror in SuperblockMirror::ALL.into_iter().rev().filter(|mirror| mirror.fits(length)) {
            let bytes = self.superblocks.lock().get(&mirror.offset().0).cloned();
            if let Some(bytes) = bytes {
                self.device.write_at(mirror.offset(), bytes)?;
            }
        }
        self.device.flush()
    }

    fn answer(&self, request: Request) -> Vec<Completion> {
        let place = request.offset().0;
        match request {
            Request::Write { data, .. } if is_superblock(place, data.as_slice().len()) => {
                self.superblocks.lock().insert(place, data.as_slice().to_vec());
                vec![Completion { data, result: Ok(()) }]
            }
            Request::Read { offset, buffer } if is_superblock(place, buffer.len()) => {
                match self.superblocks.lock().get(&place).cloned() {
                    Some(bytes) => vec![Completion { data: Data::Owned(bytes), result: Ok(()) }],
                    None => self.submit_to_file(vec![Request::Read { offset, buffer }]).wait(),
                }
            }
            other if place >= self.scratch_start => self.submit_to_scratch(vec![other]).wait(),
            other => self.submit_to_file(vec![other]).wait(),
        }
    }

    fn submit_to_scratch(&self, batch: Vec<Request>) -> Ticket {
        let moved = |offset: Physical| Physical(offset.0 - self.scratch_start);
        let batch = batch.into_iter().map(|request| match request {
            Request::Read { offset, buffer } => Request::Read { offset: moved(offset), buffer },
            Request::Write { offset, data, durability } => {
                Request::Write { offset: moved(offset), data, durability }
            }
        });
        self.scratch.submit(batch.collect())
    }

    fn submit_to_file(&self, batch: Vec<Request>) -> Ticket {
        let ends = batch.iter().map(|request| request.offset().0.saturating_add(request.length_bytes()));
        let missing = ends.max().filter(|end| *end > self.device.length());
        if let Some(Err(error)) = missing.map(|end| self.grow(end)) {
            let failed = batch.into_iter().map(|request| request.complete(Err(error.clone())));
            return Ticket::ready(failed.collect());
        }
        self.device.submit(batch)
    }

    /// Makes a regular file long enough. A block device refuses what lies behind its end.
    fn grow(&self, end: u64) -> Result<(), DeviceError> {
        if self.device.describe().kind != DeviceKind::RegularFile {
            return Ok(());
        }
        let _growing = self.growing.lock();
        if self.device.length() >= end {
            Ok(())
        } else {
            self.device.set_length(end.next_multiple_of(GROWTH_BYTES))
        }
    }
}

fn is_superblock(place: u64, length_bytes: usize) -> bool {
    length_bytes == Superblock::SIZE
        && SuperblockMirror::ALL.into_iter().any(|mirror| mirror.offset().0 == place)
}

impl Device for Unannounced {
    fn describe(&self) -> Description {
        self.device.describe()
    }

    fn length(&self) -> u64 {
        self.scratch_start + self.scratch.length()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let in_scratch = batch.iter().filter(|request| request.offset().0 >= self.scratch_start).count();
        let touches = |request: &Request| {
            let length = usize::try_from(request.length_bytes()).unwrap_or(usize::MAX);
            is_superblock(request.offset().0, length)
        };
        if in_scratch == batch.len() {
            self.submit_to_scratch(batch)
        } else if in_scratch == 0 && !batch.iter().any(touches) {
            self.submit_to_file(batch)
        } else {
            Ticket::ready(batch.into_iter().flat_map(|request| self.answer(request)).collect())
        }
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        if offset.0 >= self.scratch_start {
            return self.scratch.discard(Physical(offset.0 - self.scratch_start), length_bytes);
        }
        self.device.discard(offset, length_bytes)
    }
}
