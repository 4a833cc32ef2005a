//! From the superblocks of devices to members: which superblock is believed, and whether the devices belong
//! together.

use std::cmp::{Ordering, Reverse};

use vlinder_base::sync::Arc;
use vlinder_device::Device;
use vlinder_format::superblock::{Superblock, SuperblockMirror};
use vlinder_format::{DeviceId, Logical};

use crate::error::VolumeError;
use crate::histories::SuperblockEvidence;
use crate::known_primaries::KnownPrimaries;
use crate::member::Member;
use crate::members::Members;
use crate::superblock::{self, FoundSuperblock, OpenRules};

/// Devices that were found to belong together.
pub(crate) struct Assembly {
    pub(crate) members: Members,
    /// The superblock that is believed, and which copy it was read from.
    pub(crate) superblock: Superblock,
    pub(crate) mirror: SuperblockMirror,
    /// The superblock of each member as it was last published, by device number.
    pub(crate) published: Vec<Superblock>,
    pub(crate) evidence: SuperblockEvidence,
    /// Whether members are missing.
    pub(crate) is_degraded: bool,
}

impl Assembly {
    /// The file system on these devices, of which each has the superblock that was found on it.
    ///
    /// # Errors
    /// Those of [`Volume::open`](crate::Volume::open) that name devices.
    pub(crate) fn of(
        devices: Vec<Arc<dyn Device>>,
        found: &[FoundSuperblock],
        rules: OpenRules,
    ) -> Result<Self, VolumeError> {
        let newest = believed(found, rules.history)?;
        let (superblock, mirror) = (newest.superblock.clone(), newest.mirror);
        let mut members = Vec::with_capacity(devices.len());
        let mut published = Vec::with_capacity(devices.len());
        let mut evidence = SuperblockEvidence { chosen: rules.history, ..SuperblockEvidence::default() };
        for (device, found) in devices.into_iter().zip(found) {
            let mut member = superblock::member(device, &found.superblock, &superblock, rules.salvages)?;
            if member.is_stale {
                evidence.pasts.push(found.superblock.clone());
            } else if member.seed.is_none() && found.superblock.log_root != Logical(0) {
                evidence.logs.push(found.superblock.clone());
            }
            member.is_stale |= rules.history.is_some_and(|history| history != member.id);
            published.push(match member.seed {
                Some(_) => found.superblock.clone(),
                None => Superblock { device_item: found.superblock.device_item, ..superblock.clone() },
            });
            members.push(member);
        }
        published.sort_by_key(|superblock| superblock.device_item.device);
        evidence.pasts.sort_by_key(|past| (past.generation, past.device_item.device));
        evidence.logs.sort_by_key(|log| log.device_item.device);
        members.sort_by_key(|member: &Member| member.id);
        let is_degraded = check_members(&members, &superblock, rules.may_miss)?;
        let members = Members::new(members);
        Ok(Self { members, superblock, mirror, published, evidence, is_degraded })
    }

    /// What lies at the primaries of the members, which were opened by these superblocks.
    pub(crate) fn known_primaries(&self, found: &[FoundSuperblock]) -> KnownPrimaries {
        let mut primaries = KnownPrimaries::read(&self.members);
        for found in found.iter().filter(|found| found.mirror == SuperblockMirror::Primary) {
            primaries.believe(found.superblock.device_item.device, &found.superblock);
        }
        primaries
    }
}

/// The superblock that is believed: the newest, or that of the chosen history. Of equal ones it is that of
/// the first device, in whichever order they were given.
fn believed(found: &[FoundSuperblock], history: Option<DeviceId>) -> Result<&FoundSuperblock, VolumeError> {
    let age = |found: &&FoundSuperblock| {
        let superblock = &found.superblock;
        (superblock::age(superblock), Reverse(superblock.device_item.device))
    };
    let newest = found.iter().max_by_key(age).ok_or(VolumeError::NoDevice)?;
    let Some(device) = history else { return Ok(newest) };
    let is_chosen = |found: &&FoundSuperblock| found.superblock.device_item.device == device;
    found.iter().find(is_chosen).ok_or(VolumeError::NoSuchHistory { device })
}

/// Checks that these are the members of a file system; gives whether some are missing, if that `may` be.
fn check_members(members: &[Member], superblock: &Superblock, may_miss: bool) -> Result<bool, VolumeError> {
    for (left, right) in members.iter().zip(members.iter().skip(1)) {
        if left.id == right.id {
            return Err(VolumeError::DuplicateDevice { device: left.id });
        }
    }
    let found = u64::try_from(members.len()).unwrap_or(u64::MAX);
    let expected = superblock.device_count;
    match found.cmp(&expected) {
        Ordering::Equal => Ok(false),
        Ordering::Less if may_miss => Ok(true),
        Ordering::Greater if is_whole_without_stale(members, expected) => {
            let stale = members.iter().filter(|member| member.is_stale);
            let removed =
                stale.map(|member| (member.id, member.device.describe().name.to_string())).collect();
            Err(VolumeError::RemovedDevices { expected, removed })
        }
        _ => Err(VolumeError::DeviceCount { found, expected }),
    }
}

/// Whether the members of the newest state are as many as it has devices.
fn is_whole_without_stale(members: &[Member], expected: u64) -> bool {
    let current = members.iter().filter(|member| !member.is_stale).count();
    u64::try_from(current) == Ok(expected)
}
