//! A device whose superblocks stay in memory until the file system that they describe is complete, so that
//! what ends mkfs half-way (a signal, a power cut) leaves nothing that could be taken for a file system: a
//! part of the source would mount and pass every check. mkfs.btrfs writes another magic number until it is
//! done, for the same reason.

use std::collections::BTreeMap;

use vlinder_base::sync::{Arc, Mutex};
use vlinder_device::{Completion, Data, Description, Device, DeviceError, DeviceExt, Request, Ticket};
use vlinder_format::Physical;
use vlinder_format::superblock::{Superblock, SuperblockMirror};

use super::target_device::TargetDevice;

/// See the module. Everything but whole superblocks at their places goes to the device.
pub(super) struct Unannounced {
    device: Arc<TargetDevice>,
    superblocks: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl Unannounced {
    /// The device with these superblocks, as if they had been written to it.
    pub(super) fn new(device: Arc<TargetDevice>, superblocks: &[(Physical, Vec<u8>)]) -> Self {
        let superblocks = superblocks.iter().map(|(place, bytes)| (place.0, bytes.clone())).collect();
        Self { device, superblocks: Mutex::new(superblocks) }
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
                    None => self.device.submit(vec![Request::Read { offset, buffer }]).wait(),
                }
            }
            other => self.device.submit(vec![other]).wait(),
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
        self.device.length()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let touches = |request: &Request| {
            let length = usize::try_from(request.length_bytes()).unwrap_or(usize::MAX);
            is_superblock(request.offset().0, length)
        };
        if !batch.iter().any(touches) {
            return self.device.submit(batch);
        }
        Ticket::ready(batch.into_iter().flat_map(|request| self.answer(request)).collect())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.device.flush()
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        self.device.discard(offset, length_bytes)
    }
}
