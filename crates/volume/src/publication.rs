//! What is published: the superblock of each member, and whether this process alone writes it.

use vlinder_base::sync::Mutex;
use vlinder_codec::checksum::ChecksumKind;
use vlinder_device::Request;
use vlinder_format::device::DeviceItem;
use vlinder_format::superblock::{Superblock, SuperblockFault, SuperblockMirror};
use vlinder_format::{DeviceId, Level, Logical};

use crate::error::{VolumeError, lacks_room_on_host};
use crate::health::HealthEvent;
use crate::known_primaries::KnownPrimaries;
use crate::member::Member;
use crate::members::Members;
use crate::superblock::encode;

/// What is needed to write superblocks: the checksum kind, and each member's own.
type OwnSuperblocks<'a> = (ChecksumKind, Vec<(&'a Member, Superblock)>);

/// What is published on the members of a volume.
#[derive(Debug, Default)]
pub(crate) struct Publication {
    /// The superblock of each member as it was last published, by device number; none before the first of a
    /// new file system.
    committed: Mutex<Vec<Superblock>>,
    primaries: Mutex<KnownPrimaries>,
}

impl Publication {
    /// What members were opened by, by device number, and what lies at their primaries.
    pub(crate) fn new(committed: Vec<Superblock>, primaries: KnownPrimaries) -> Self {
        Self { committed: Mutex::new(committed), primaries: Mutex::new(primaries) }
    }

    /// The superblock of each member as it was last published, by device number: the committed state.
    pub(crate) fn committed(&self) -> Vec<Superblock> {
        self.committed.lock().clone()
    }

    /// Looks whether another program published a commit on a member since this process did or opened it.
    ///
    /// # Errors
    /// [`VolumeError::WrittenByAnother`].
    pub(crate) fn check_sole_writer(&self, members: &Members) -> Result<(), VolumeError> {
        self.primaries.lock().check(members)
    }

    /// Publishes a commit: see [`Volume::write_superblocks`](crate::Volume::write_superblocks).
    pub(crate) fn publish(
        &self,
        members: &Members,
        superblock: &Superblock,
        device_items: &[DeviceItem],
    ) -> Result<(), VolumeError> {
        let (kind, own) = prepare(members, superblock, device_items)?;
        let mut committed = self.committed.lock();
        self.check_sole_writer(members)?;
        for (member, superblock) in &own {
            let copies = [SuperblockMirror::Second, SuperblockMirror::Third];
            let requests: Vec<Request> = copies
                .into_iter()
                .filter(|mirror| mirror.fits(member.total_bytes))
                .map(|mirror| Request::write(mirror.offset(), encode(superblock, mirror, kind)))
                .collect();
            for completion in member.device.submit(requests).wait() {
                if completion.result.is_err_and(|error| !lacks_room_on_host(&error)) {
                    member.health.record(HealthEvent::Write);
                }
            }
        }
        // A torn primary is told from a damaged one by the fields that change with every commit (see
        // superblock::choice). Other fields that share its sectors get a copy that is known to be durable.
        if committed.first().is_none_or(|last| !same_rare_fields(last, superblock)) {
            members.flush()?;
        }
        self.write_primaries(&own, kind)?;
        *committed = own.into_iter().map(|(_, superblock)| superblock).collect();
        Ok(())
    }

    /// Publishes an fsync log: see [`Volume::publish_log`](crate::Volume::publish_log).
    pub(crate) fn publish_log(
        &self,
        members: &Members,
        root: Logical,
        level: Level,
    ) -> Result<(), VolumeError> {
        let committed = self.committed.lock();
        let log = |committed: &Superblock| Superblock {
            log_root: root,
            log_root_level: level,
            ..committed.clone()
        };
        let items: Vec<DeviceItem> = committed.iter().map(|superblock| superblock.device_item).collect();
        let Some(superblock) = committed.first().map(log) else {
            return Err(VolumeError::NoDeviceItem { device: DeviceId(0) });
        };
        let (kind, own) = prepare(members, &superblock, &items)?;
        self.check_sole_writer(members)?;
        self.write_primaries(&own, kind)
    }

    fn write_primaries(&self, own: &[(&Member, Superblock)], kind: ChecksumKind) -> Result<(), VolumeError> {
        let mut result = Ok(());
        let mut known = self.primaries.lock();
        for (member, superblock) in own {
            let bytes = encode(superblock, SuperblockMirror::Primary, kind);
            if let Err(error) = known.write(member, bytes) {
                if !lacks_room_on_host(&error) {
                    member.health.record(HealthEvent::Write);
                }
                result = result.and(Err(error.into()));
            }
        }
        result
    }
}

/// Completes a superblock for each member, and judges it.
fn prepare<'a>(
    members: &'a Members,
    superblock: &Superblock,
    device_items: &[DeviceItem],
) -> Result<OwnSuperblocks<'a>, VolumeError> {
    let found = superblock.checksum_type;
    let kind = ChecksumKind::from_disk(found)
        .ok_or(VolumeError::RefusedSuperblock(SuperblockFault::ChecksumType { found }))?;
    let mut own = Vec::with_capacity(members.as_slice().len());
    for member in members {
        let item = device_items.iter().find(|item| item.device == member.id);
        let device_item = *item.ok_or(VolumeError::NoDeviceItem { device: member.id })?;
        let superblock = Superblock { device_item, ..superblock.clone() };
        let primary = Superblock { location: SuperblockMirror::Primary.offset(), ..superblock.clone() };
        primary.check_for_write().map_err(VolumeError::RefusedSuperblock)?;
        own.push((&**member, superblock));
    }
    Ok((kind, own))
}

/// The fields that most commits leave as they are, and that lie in other sectors than the first.
fn same_rare_fields(left: &Superblock, right: &Superblock) -> bool {
    left.system_chunk_array == right.system_chunk_array
        && left.label == right.label
        && left.metadata_uuid == right.metadata_uuid
        && left.cache_generation == right.cache_generation
        && left.reserved == right.reserved
        && left.padding == right.padding
}
