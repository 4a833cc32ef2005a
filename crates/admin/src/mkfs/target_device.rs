//! The bytes that get the new file system: a file, whose length may change, a block device, or a part of
//! either, which nothing is written beside.

use std::path::Path;

use vlinder_base::units::Physical;
use vlinder_device::{
    Description, Device, DeviceError, DeviceErrorKind, DeviceExt, DeviceKind, DeviceWindow, Durability,
    FileDevice, HostIdentity, OpenOptions, Operation, Request, Ticket,
};
use vlinder_partitions::{OpenError, OpenedImage};

/// Shorter runs of zeros are written as they are: they may be a part of a structure.
const MIN_HOLE_BYTES: u64 = 1 << 20;

/// A file, a block device, or a part of one.
#[derive(Debug)]
pub(super) enum TargetDevice {
    Whole(FileDevice),
    Part(DeviceWindow<FileDevice>),
}

impl TargetDevice {
    /// Opens what a name means; where it names no part, all of it, whatever lies there.
    pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Self, OpenError> {
        Ok(match vlinder_partitions::open_whole(path, options)? {
            OpenedImage::Whole(file) => Self::Whole(file),
            OpenedImage::Part(part) => Self::Part(part),
        })
    }

    /// Makes a file.
    pub(super) fn create(path: &Path, size_bytes: u64, options: &OpenOptions) -> Result<Self, DeviceError> {
        FileDevice::create(path, size_bytes, options).map(Self::Whole)
    }

    /// Changes the length of a file; a part has the one that it has.
    pub(super) fn set_length(&self, length_bytes: u64) -> Result<(), DeviceError> {
        match self {
            Self::Whole(file) => file.set_length(length_bytes),
            Self::Part(part) => {
                let kind = DeviceErrorKind::Unsupported;
                Err(part.error(kind, Operation::Resize, Physical(0), length_bytes))
            }
        }
    }

    /// Takes the name of a file away that was made.
    pub(super) fn remove(&self, path: &Path) -> std::io::Result<()> {
        match self {
            Self::Whole(file) => file.remove(path),
            Self::Part(_) => Ok(()),
        }
    }

    /// What tells the file or block device from all others.
    pub(super) fn host_identity(&self) -> Result<HostIdentity, DeviceError> {
        match self {
            Self::Whole(file) => file.host_identity(),
            Self::Part(part) => part.host_identity(),
        }
    }

    /// Makes a hole of many zeros in a file of the host, which reads the same and takes no room. False where
    /// they have to be written.
    fn made_a_hole(&self, request: &Request) -> bool {
        let is_file = match self {
            Self::Whole(file) => file.describe().kind == DeviceKind::RegularFile,
            Self::Part(part) => part.host_kind() == DeviceKind::RegularFile,
        };
        let Request::Write { offset, data, durability: Durability::Cached } = request else { return false };
        // By pieces without an exit, of which the processor compares many bytes at once.
        let piece_is_zeros = |piece: &[u8]| piece.iter().fold(0, |seen, byte| seen | byte) == 0;
        let is_zeros = || data.as_slice().chunks(4096).all(piece_is_zeros);
        let length = request.length_bytes();
        is_file && length >= MIN_HOLE_BYTES && is_zeros() && self.discard(*offset, length).is_ok()
    }

    fn device(&self) -> &dyn Device {
        match self {
            Self::Whole(file) => file,
            Self::Part(part) => part,
        }
    }
}

impl Device for TargetDevice {
    fn describe(&self) -> Description {
        self.device().describe()
    }
    fn length(&self) -> u64 {
        self.device().length()
    }
    fn submit(&self, batch: Vec<Request>) -> Ticket {
        match <[Request; 1]>::try_from(batch) {
            Ok([request]) if self.made_a_hole(&request) => Ticket::ready(vec![request.complete(Ok(()))]),
            Ok([request]) => self.device().submit(vec![request]),
            Err(batch) => self.device().submit(batch),
        }
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.device().flush()
    }
    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        self.device().discard(offset, length_bytes)
    }
}
