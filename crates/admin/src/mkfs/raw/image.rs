//! A new file system as bytes, and how they get to a device.

use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceError, DeviceExt, Request};
use vlinder_format::superblock::{Superblock, SuperblockMirror};

/// Bytes at each end of a device that are cleared, so that no other file system is recognised there.
const CLEARED_BYTES: u64 = 2 << 20;

/// A new file system: what to write where. The rest of the device is not looked at, but see
/// [`Image::write_to`].
#[derive(Clone, Debug)]
pub struct Image {
    /// Every copy of every tree block, by place on the device.
    pub blocks: Vec<(Physical, Vec<u8>)>,
    /// Every superblock copy, the primary last.
    pub superblocks: Vec<(Physical, Vec<u8>)>,
    /// The superblock as a value.
    pub superblock: Superblock,
}

impl Image {
    /// Writes the file system to a device: first clears the superblock copies and both ends, so that a cut
    /// leaves no other file system to be found, and writes the new superblocks last.
    ///
    /// # Errors
    /// The device's; the device then has no file system.
    pub fn write_to(&self, device: &dyn Device) -> Result<(), DeviceError> {
        self.write_blocks_to(device)?;
        for (place, bytes) in &self.superblocks {
            device.write_at(*place, bytes.clone())?;
        }
        device.flush()
    }

    /// As [`write_to`](Self::write_to), without the new superblocks.
    ///
    /// # Errors
    /// As there.
    pub fn write_blocks_to(&self, device: &dyn Device) -> Result<(), DeviceError> {
        Self::clear(device)?;
        self.submit_blocks_to(device)?;
        device.flush()
    }

    /// Writes the blocks alone.
    pub(in super::super) fn submit_blocks_to(&self, device: &dyn Device) -> Result<(), DeviceError> {
        let blocks = self.blocks.iter().map(|(place, bytes)| Request::write(*place, bytes.clone())).collect();
        device.submit(blocks).wait_all().map(drop)
    }

    /// Clears the superblock copies and both ends of a device.
    pub(in super::super) fn clear(device: &dyn Device) -> Result<(), DeviceError> {
        let length = device.length();
        let end = length.saturating_sub(CLEARED_BYTES);
        let ends = [(0, CLEARED_BYTES.min(length)), (end, length - end)];
        let zeros = |length: u64| vec![0; usize::try_from(length).unwrap_or(0)];
        let mut clear: Vec<Request> =
            ends.iter().map(|(start, length)| Request::write(Physical(*start), zeros(*length))).collect();
        // All that the device has, beyond the file system too: a copy of an older one says where its blocks
        // were.
        let mirrors = SuperblockMirror::ALL.into_iter().filter(|mirror| mirror.fits(length));
        let superblock_bytes = u64::try_from(Superblock::SIZE).unwrap_or(0);
        clear.extend(mirrors.map(|mirror| Request::write(mirror.offset(), zeros(superblock_bytes))));
        for request in clear {
            device.one(request)?;
        }
        device.flush()
    }
}
