//! Reading and judging the superblock copies of devices.

mod choice;
pub(crate) mod copy;

use vlinder_base::sync::Arc;
use vlinder_codec::checksum::{ChecksumKind, checksum};
use vlinder_device::Device;
use vlinder_format::superblock::{SUPERBLOCK_FLAG_SEEDING, Superblock, SuperblockFault, SuperblockMirror};
use vlinder_format::{DeviceId, Generation, Logical, Uuid};

use crate::error::VolumeError;
use crate::member::{Member, SeedIdentity};
use choice::{Primary, judge};
use copy::{Copy, read_copy, verify};

pub use choice::Verdict;

/// Which copy of the superblock to believe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SuperblockChoice {
    /// The primary; another only where the primary is an unfinished write of ours.
    #[default]
    Automatic,
    /// This one, by the user's word.
    Mirror(SuperblockMirror),
}

/// How strictly a volume is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenRules {
    /// Which superblock copy is believed.
    pub choice: SuperblockChoice,
    /// Devices may be missing: what the others have is read then (`degraded`).
    pub may_miss: bool,
    /// Flags of a superblock that are not known count for nothing (`rescue=ignoresuperflags`).
    pub ignores_flags: bool,
    /// Of members that were written to apart from one another, the one that is believed; the others give what
    /// it has not.
    pub history: Option<DeviceId>,
    /// For getting files out of what is damaged: devices may be shorter than they should be, and an array of
    /// system chunks is read as far as it is right.
    pub salvages: bool,
}

/// A superblock that is believed.
#[derive(Clone, Debug)]
pub struct FoundSuperblock {
    /// Its fields.
    pub superblock: Superblock,
    /// Where it was read.
    pub mirror: SuperblockMirror,
}

/// The devices of one file system among those that were scanned.
pub struct ScannedFileSystem {
    /// Its UUID.
    pub fsid: Uuid,
    /// Each device with its superblock, by device number.
    pub members: Vec<(Arc<dyn Device>, Superblock)>,
}

/// What a scan of several devices found.
#[derive(Default)]
pub struct Scanned {
    /// File systems by UUID.
    pub file_systems: Vec<ScannedFileSystem>,
    /// Devices without a superblock that can be believed.
    pub refused: Vec<(Arc<dyn Device>, VolumeError)>,
}

/// Sorts devices by the file system that they belong to.
pub fn scan(devices: Vec<Arc<dyn Device>>) -> Scanned {
    let mut scanned = Scanned::default();
    for device in devices {
        let found = match find(&*device, SuperblockChoice::Automatic) {
            Ok(found) => found.superblock,
            Err(error) => {
                scanned.refused.push((device, error));
                continue;
            }
        };
        match scanned.file_systems.iter_mut().find(|known| known.fsid == found.fsid) {
            Some(known) => known.members.push((device, found)),
            None => scanned
                .file_systems
                .push(ScannedFileSystem { fsid: found.fsid, members: vec![(device, found)] }),
        }
    }
    scanned.file_systems.sort_by_key(|known| known.fsid);
    for known in &mut scanned.file_systems {
        known.members.sort_by_key(|(_, superblock)| superblock.device_item.device);
    }
    scanned
}

/// The bytes of a superblock at one place, with their checksum.
pub(crate) fn encode(superblock: &Superblock, mirror: SuperblockMirror, kind: ChecksumKind) -> Vec<u8> {
    superblock.encode_with_checksum(mirror, |covered| *checksum(kind, covered).as_field()).to_vec()
}

/// The bytes of a primary superblock, for handing a committed state to another process; [`unpack`] reads
/// them.
///
/// # Errors
/// [`SuperblockFault::ChecksumType`].
pub fn pack(superblock: &Superblock) -> Result<Vec<u8>, SuperblockFault> {
    let found = superblock.checksum_type;
    let kind = ChecksumKind::from_disk(found).ok_or(SuperblockFault::ChecksumType { found })?;
    Ok(encode(superblock, SuperblockMirror::Primary, kind))
}

/// A primary superblock from its bytes, judged as one that was read from a device.
///
/// # Errors
/// The rule that it breaks.
pub fn unpack(bytes: &[u8]) -> Result<Superblock, SuperblockFault> {
    let superblock = Superblock::decode(bytes)?;
    verify(&superblock, bytes, SuperblockMirror::Primary, false)?;
    Ok(superblock)
}

/// The superblock of a device that is to be believed.
///
/// # Errors
/// [`VolumeError::Superblock`] with what is wrong, [`VolumeError::Device`] where the device fails.
pub fn find(device: &dyn Device, choice: SuperblockChoice) -> Result<FoundSuperblock, VolumeError> {
    find_by(device, OpenRules { choice, ..OpenRules::default() })
}

/// As [`find`], by the rules of an opening.
pub(crate) fn find_by(device: &dyn Device, rules: OpenRules) -> Result<FoundSuperblock, VolumeError> {
    let (choice, ignores_flags) = (rules.choice, rules.ignores_flags);
    let name = device.describe().name.to_string();
    let refuse = |fault, usable_copy| VolumeError::Superblock { device: name.clone(), fault, usable_copy };
    if let SuperblockChoice::Mirror(mirror) = choice {
        return match read_copy(device, mirror, ignores_flags) {
            Copy::Valid(superblock) => Ok(FoundSuperblock { superblock: *superblock, mirror }),
            Copy::Broken(_, fault) => Err(refuse(fault, None)),
            Copy::Unreadable(error) => Err(error.into()),
            Copy::Absent => Err(refuse(SuperblockFault::Magic { found: 0 }, None)),
        };
    }
    let primary = read_copy(device, SuperblockMirror::Primary, ignores_flags);
    if let Copy::Valid(superblock) = primary {
        // What the copies say no longer matters, and a mount should not wait for seeks to 64 MiB and 256 GiB.
        return Ok(FoundSuperblock { superblock: *superblock, mirror: SuperblockMirror::Primary });
    }
    let copy = best_copy(device, ignores_flags);
    let usable = copy.as_ref().map(|copy| (copy.mirror, copy.superblock.generation));
    let verdict = judge(&Primary::of(&primary), copy.as_ref().map(|copy| &copy.superblock));
    match (verdict, copy, primary) {
        (Verdict::Copy, Some(copy), _) => Ok(copy),
        (_, _, Copy::Unreadable(error)) if usable.is_none() => Err(error.into()),
        (_, _, Copy::Unreadable(_) | Copy::Absent | Copy::Valid(_)) => {
            Err(refuse(SuperblockFault::Magic { found: 0 }, usable))
        }
        (_, _, Copy::Broken(_, fault)) => Err(refuse(fault, usable)),
    }
}

/// The newest valid copy besides the primary.
fn best_copy(device: &dyn Device, ignores_flags: bool) -> Option<FoundSuperblock> {
    let mut best: Option<FoundSuperblock> = None;
    for mirror in [SuperblockMirror::Second, SuperblockMirror::Third] {
        if let Copy::Valid(superblock) = read_copy(device, mirror, ignores_flags)
            && best.as_ref().is_none_or(|best| best.superblock.generation < superblock.generation)
        {
            best = Some(FoundSuperblock { superblock: *superblock, mirror });
        }
    }
    best
}

/// A device as a member of the file system of `newest`.
pub(crate) fn member(
    device: Arc<dyn Device>,
    own: &Superblock,
    newest: &Superblock,
    may_be_short: bool,
) -> Result<Member, VolumeError> {
    let name = || device.describe().name.to_string();
    let is_seed = is_seed(own, newest);
    if own.fsid != newest.fsid && !is_seed {
        return Err(VolumeError::ForeignDevice { device: name(), found: own.fsid, expected: newest.fsid });
    }
    let item = own.device_item;
    let found = device.length();
    if found < item.total_bytes && !may_be_short {
        return Err(VolumeError::DeviceTooShort { device: name(), found, expected: item.total_bytes });
    }
    let mut member = Member::new(item.device, item.uuid, item.total_bytes, device);
    // One that is a single commit or a log behind, too: after a power cut between two superblocks the newer
    // member has all that the older one has.
    member.is_stale = !is_seed && age(own) < age(newest);
    member.seed = is_seed.then_some(SeedIdentity { fsid: own.fsid, tree_block_uuid: own.tree_block_uuid() });
    Ok(member)
}

/// What makes a superblock newer: its transaction, then a log of what was fsynced since.
pub(crate) fn age(superblock: &Superblock) -> (Generation, bool) {
    (superblock.generation, superblock.log_root != Logical(0))
}

/// Whether a device is a seed on which the file system of `newest` may have been built: it keeps its own
/// identity and is never written again. Whether it is the right one, the device items of the chunk tree say.
fn is_seed(own: &Superblock, newest: &Superblock) -> bool {
    own.fsid != newest.fsid && own.flags & SUPERBLOCK_FLAG_SEEDING != 0
}

/// The copies of a device that are valid, for tools that list them.
pub fn valid_copies(device: &dyn Device) -> Vec<(SuperblockMirror, Generation)> {
    let copies = SuperblockMirror::ALL.into_iter().map(|mirror| (mirror, read_copy(device, mirror, false)));
    copies
        .filter_map(|(mirror, copy)| match copy {
            Copy::Valid(superblock) => Some((mirror, superblock.generation)),
            _ => None,
        })
        .collect()
}
