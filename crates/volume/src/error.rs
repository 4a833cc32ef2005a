//! What can go wrong below the trees.

use vlinder_device::{DeviceError, DeviceErrorKind, Operation};
use vlinder_format::chunk::{ChunkFault, Profile};
use vlinder_format::superblock::{SuperblockFault, SuperblockMirror};
use vlinder_format::{Damage, DeviceId, Generation, Logical, Physical, Uuid};

/// Why one copy of some bytes can't be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CopyFault {
    /// The device failed to read it.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// What was read is not what belongs there.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The device has what was there before it was away.
    #[error("device {device} is stale: it was away when the others were written to")]
    StaleDevice {
        /// Its number.
        device: DeviceId,
    },
    /// The device of a copy was not given.
    #[error("device {device} is missing")]
    MissingDevice {
        /// Its number.
        device: DeviceId,
    },
}

/// One copy that can't be used, and where it lies.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("copy {mirror} (device {device}, byte {physical}): {fault}")]
pub struct CopyFailure {
    /// Which copy, from 0.
    pub mirror: u8,
    /// Its device.
    pub device: DeviceId,
    /// Its first byte on the device.
    pub physical: Physical,
    /// Why.
    pub fault: CopyFault,
}

/// Why a chunk could not be looked for in the chunk tree.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChunkTreeFault {
    /// A block can't be read, or the chunk breaks a rule.
    #[error(transparent)]
    Volume(Box<VolumeError>),
    /// A block contradicts its parent, or an item its rules.
    #[error(transparent)]
    Damage(Box<Damage>),
}

/// An error of a volume: of its devices, of bytes on them, or of something not supported yet.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// A device failed where no other copy could help.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// One copy can't be used, where no other was to be tried.
    #[error(transparent)]
    Copy(Box<CopyFailure>),
    /// No copy of the bytes is good.
    #[error("no good copy of {length} bytes at {logical}: {}", list(.failures))]
    NoGoodCopy {
        /// First byte.
        logical: Logical,
        /// Number of bytes.
        length: usize,
        /// Each copy that was tried, in order.
        failures: Vec<CopyFailure>,
    },
    /// An address that no chunk covers, or a range that leaves its chunk.
    #[error("no chunk covers the {length} bytes at {logical}; the file system is damaged: run a check")]
    Unmapped {
        /// First byte.
        logical: Logical,
        /// Number of bytes.
        length: u64,
    },
    /// Looking for a chunk met this; it is no fault of the bytes that were asked for.
    #[error(transparent)]
    ChunkTree(ChunkTreeFault),
    /// A chunk that breaks its own rules.
    #[error("the chunk at {logical} is broken: {source}")]
    Chunk {
        /// Its start.
        logical: Logical,
        /// Which rule.
        source: ChunkFault,
    },
    /// A chunk that overlaps another.
    #[error("the chunk at {logical} overlaps the one at {other}; the file system is damaged: run a check")]
    ChunkOverlap {
        /// Start of the one given.
        logical: Logical,
        /// Start of the one that is there.
        other: Logical,
    },
    /// A chunk lies on a device that is not a member, or past a device's end.
    #[error(
        "the chunk at {logical} needs byte {physical} and {length} more of device {device}, which has no such bytes"
    )]
    ChunkPlace {
        /// The chunk's start.
        logical: Logical,
        /// The stripe's device.
        device: DeviceId,
        /// The stripe's start.
        physical: Physical,
        /// The stripe's length.
        length: u64,
    },
    /// More chunks than any sound file system has.
    #[error("more than {most} chunks; the file system is damaged: run a check")]
    TooManyChunks {
        /// The bound.
        most: usize,
    },
    /// A profile that an operation does not support yet.
    #[error("profile {profile} is not supported for {operation} yet")]
    UnsupportedProfile {
        /// Which.
        profile: Profile,
        /// What was to be done.
        operation: &'static str,
    },
    /// The superblock of a device can't be believed.
    #[error("{device}: {fault}{}", advice(.usable_copy))]
    Superblock {
        /// The device's name.
        device: String,
        /// What is wrong with the primary copy.
        fault: SuperblockFault,
        /// A valid copy that was not chosen because it may be older than what the primary said.
        usable_copy: Option<(SuperblockMirror, Generation)>,
    },
    /// A device is shorter than its superblock says.
    #[error(
        "{device}: the device has {found} bytes, its superblock says {expected}; is the image truncated?"
    )]
    DeviceTooShort {
        /// The device's name.
        device: String,
        /// Its length.
        found: u64,
        /// What the device item says.
        expected: u64,
    },
    /// Devices of different file systems were given together.
    #[error(
        "{device}: belongs to file system {found}, not to {expected}; give the devices of one file system"
    )]
    ForeignDevice {
        /// The device's name.
        device: String,
        /// Its file system.
        found: Uuid,
        /// That of the first device.
        expected: Uuid,
    },
    /// The superblock's array has no chunk for the chunk tree to lie in, or what it has breaks a rule.
    #[error(
        "no system chunk of the superblock's array can be used, so nothing tells where the chunk tree lies; another copy of \
         the superblock may"
    )]
    NoSystemChunk,
    /// Nothing is left of the chunk tree that tells where another tree lies.
    #[error(
        "nothing is left of the chunk tree that tells where the other trees lie: neither what the superblock and its backup roots \
         name, nor {leaves} leaves of it in {searched_bytes} bytes of system chunks"
    )]
    NoChunkTree {
        /// Leaves of the chunk tree that were found, copies and old ones counted.
        leaves: u64,
        /// Bytes that were looked through.
        searched_bytes: u64,
    },
    /// Members were written to apart from one another, and none is older than the other.
    #[error(
        "device {} ({}) and device {} ({}) were each written to without the other and hold two histories of this file system, of \
         which vlinder joins none; read one with -o history={} or -o history={} (restore: --options history=…), copy out what you \
         need, and make that device's file system whole with new ones",
        .first.0, .first.1, .second.0, .second.1, .first.0, .second.0
    )]
    TwoHistories {
        /// One, and its name.
        first: (DeviceId, String),
        /// Another, and its name.
        second: (DeviceId, String),
    },
    /// The device whose history was chosen is not among those given.
    #[error(
        "no device {device} was given, whose history is to be read; vlinder inspect-internal dump-super tells a device's number (dev_item.devid)"
    )]
    NoSuchHistory {
        /// The number.
        device: DeviceId,
    },
    /// Two devices with the same number.
    #[error("two devices with number {device}; give each device once, and no copy of it")]
    DuplicateDevice {
        /// The number.
        device: DeviceId,
    },
    /// More devices than the file system has, whose own are all among them.
    #[error(
        "the file system has {expected} devices, which are all there; {} older, and no longer among them: leave out what was removed from \
         it",
        removed_devices(.removed)
    )]
    RemovedDevices {
        /// What the superblock says.
        expected: u64,
        /// The others, with their names.
        removed: Vec<(DeviceId, String)>,
    },
    /// Some devices are missing, or there are too many.
    #[error("the file system has {expected} devices, {found} were given; {}", count_advice(*.found, *.expected))]
    DeviceCount {
        /// Given.
        found: u64,
        /// What the superblock says.
        expected: u64,
    },
    /// No device was given.
    #[error("no device was given")]
    NoDevice,
    /// Some copies could not be written: what is on disk is unsure.
    #[error("writing failed: {}", list(.failures))]
    WriteFailed {
        /// Each copy that was not written.
        failures: Vec<CopyFailure>,
    },
    /// A superblock without the device item of a member.
    #[error("no device item for device {device} to write its superblock with")]
    NoDeviceItem {
        /// The member.
        device: DeviceId,
    },
    /// A write to a volume that is open for reading only, or was made so after an error.
    #[error("the volume is read-only")]
    ReadOnly,
    /// More changes than may be kept in memory.
    #[error(
        "the changes take more than the {most_bytes} bytes of memory that they may; a larger cache= allows more"
    )]
    TooMuchKept {
        /// The bound.
        most_bytes: u64,
    },
    /// The primary superblock is not the one that this process wrote or saw last.
    #[error(
        "{device}: another program wrote to this file system while it was open here (its superblock says generation {found}, it \
         should say {expected}): nothing more is written; unmount it everywhere, then run a check"
    )]
    WrittenByAnother {
        /// The device's name.
        device: String,
        /// The generation that was written or seen last; 0 where there was no superblock.
        expected: Generation,
        /// The generation that is there.
        found: Generation,
    },
    /// A superblock that must not be written.
    #[error("refusing to write a superblock: {0}")]
    RefusedSuperblock(#[source] SuperblockFault),
    /// A request of no bytes, or more than memory holds.
    #[error("an impossible request of {length} bytes at {logical}")]
    Request {
        /// First byte.
        logical: Logical,
        /// Number of bytes.
        length: u64,
    },
}

impl VolumeError {
    /// What a device said, if only its host had no space for what was written: the devices have all that they
    /// took, and the same write can be tried again. Not where a flush says so: what it was to bring to the
    /// host may be lost.
    #[must_use]
    pub fn full_host(&self) -> Option<&DeviceError> {
        match self {
            Self::Device(error) => Some(error).filter(|error| lacks_room_on_host(error)),
            Self::WriteFailed { failures } => {
                let full: Option<Vec<&DeviceError>> = failures.iter().map(CopyFailure::full_host).collect();
                full?.first().copied()
            }
            _ => None,
        }
    }
}

impl CopyFailure {
    fn full_host(&self) -> Option<&DeviceError> {
        match &self.fault {
            CopyFault::Device(error) if lacks_room_on_host(error) => Some(error),
            _ => None,
        }
    }
}

/// Whether a write failed only because the host has no space for it. That is no fault of the device.
pub(crate) fn lacks_room_on_host(error: &DeviceError) -> bool {
    error.kind == DeviceErrorKind::HostFull && error.operation == Operation::Write
}

/// A device that fails fails every write of a commit; the first few tell what there is to tell.
const MAX_LISTED: usize = 4;

fn list(failures: &[CopyFailure]) -> String {
    let listed = failures.iter().take(MAX_LISTED).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    match failures.len().saturating_sub(MAX_LISTED) {
        0 => listed,
        more => format!("{listed}; and {more} more of the kind"),
    }
}

fn count_advice(found: u64, expected: u64) -> &'static str {
    if found < expected {
        "give all of them, or read what those that are left have with -o degraded"
    } else {
        "give all of them and no other"
    }
}

fn removed_devices(removed: &[(DeviceId, String)]) -> String {
    let names: Vec<String> = removed.iter().map(|(id, name)| format!("device {id} ({name})")).collect();
    format!("{} {}", names.join(", "), if removed.len() == 1 { "is" } else { "are" })
}

fn advice(usable_copy: &Option<(SuperblockMirror, Generation)>) -> String {
    match usable_copy {
        Some((mirror, generation)) => format!(
            "; the copy at byte {} is valid (generation {generation}) but may be older: name it explicitly to use it",
            mirror.offset()
        ),
        None => String::new(),
    }
}
