//! One copy of a superblock: reading and judging it.

use vlinder_codec::checksum::{Checksum, ChecksumKind, checksum};
use vlinder_device::{Device, DeviceError, DeviceExt};
use vlinder_format::superblock::{SUPERBLOCK_SIZE, Superblock, SuperblockFault, SuperblockMirror};

/// One copy as it was read.
#[derive(Clone, Debug)]
pub(crate) enum Copy {
    /// The device is too short to have it.
    Absent,
    /// The device failed.
    Unreadable(DeviceError),
    /// Checksum and rules hold.
    Valid(Box<Superblock>),
    /// Something is wrong; the fields as they are, unverified.
    Broken(Box<Superblock>, SuperblockFault),
}

/// Reads one copy and checks its checksum and rules.
pub(crate) fn read_copy(device: &dyn Device, mirror: SuperblockMirror, ignores_flags: bool) -> Copy {
    if !mirror.fits(device.length()) {
        return Copy::Absent;
    }
    let bytes = match device.read_at(mirror.offset(), SUPERBLOCK_SIZE) {
        Ok(bytes) => bytes,
        Err(error) => return Copy::Unreadable(error),
    };
    match Superblock::decode(&bytes) {
        Ok(superblock) => match verify(&superblock, &bytes, mirror, ignores_flags) {
            Ok(()) => Copy::Valid(Box::new(superblock)),
            Err(fault) => Copy::Broken(Box::new(superblock), fault),
        },
        // A device that gives fewer bytes than were asked for has none.
        Err(_) => Copy::Absent,
    }
}

/// Checks a superblock and the checksum of its bytes.
pub(super) fn verify(
    superblock: &Superblock,
    bytes: &[u8],
    mirror: SuperblockMirror,
    ignores_flags: bool,
) -> Result<(), SuperblockFault> {
    if superblock.magic != vlinder_format::superblock::MAGIC {
        return Err(SuperblockFault::Magic { found: superblock.magic });
    }
    let found = superblock.checksum_type;
    let kind = ChecksumKind::from_disk(found).ok_or(SuperblockFault::ChecksumType { found })?;
    let covered = bytes.get(32..).ok_or(SuperblockFault::Size { found: bytes.len() })?;
    if !checksum(kind, covered).matches(&Checksum::from_field(superblock.checksum), kind) {
        return Err(SuperblockFault::Checksum);
    }
    if ignores_flags { superblock.check_for_rescue(mirror) } else { superblock.check_for_read(mirror) }
}
