//! What lies at the primary superblock of each member: whether this process alone writes to its devices.
//!
//! A lock keeps other processes of vlinder away from an image, but not the kernel, which mounts one through a
//! loop device without looking at locks. A kernel that publishes a commit there changes the primary
//! superblock; so its bytes are compared with those that were seen or written last, before the next commit or
//! log is published. What another has published then stays whole in its superblock and is not replaced by
//! ours.

use std::collections::HashMap;

use vlinder_device::{Data, DeviceError, DeviceExt, Request};
use vlinder_format::superblock::{SUPERBLOCK_SIZE, Superblock, SuperblockMirror};
use vlinder_format::{DeviceId, Generation};

use crate::error::VolumeError;
use crate::health::HealthEvent;
use crate::member::Member;
use crate::members::Members;
use crate::superblock;

/// What lies at the primary superblock of each member, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct KnownPrimaries {
    of_device: HashMap<DeviceId, KnownPrimary>,
}

/// One of them; both are possible after a write that failed.
#[derive(Debug, Default)]
struct KnownPrimary {
    last: Vec<u8>,
    tried: Vec<u8>,
    /// A write of `tried` has begun and is not known to have succeeded.
    is_unsure: bool,
    /// What it is read into: each fsync asks, and none needs memory of its own for it.
    found: Vec<u8>,
}

impl KnownPrimaries {
    /// Reads the primaries as they are now. One that can't be read is not known, and is not compared before
    /// it was written.
    pub(crate) fn read(members: &Members) -> Self {
        let known = |member: &Member| {
            let last = read_primary(member, Vec::new())?;
            Some((member.id, KnownPrimary { last, ..KnownPrimary::default() }))
        };
        Self { of_device: members.iter().filter_map(|member| known(member)).collect() }
    }

    /// A member was opened by this superblock of its primary. If another writer published after it was read,
    /// what lies there since is not what this process goes on from.
    pub(crate) fn believe(&mut self, device: DeviceId, superblock: &Superblock) {
        let Some(known) = self.of_device.get_mut(&device) else { return };
        if Superblock::decode(&known.last).is_ok_and(|found| found == *superblock) {
            return;
        }
        if let Ok(bytes) = superblock::pack(superblock) {
            known.last = bytes;
        }
    }

    /// Writes a primary durably, and keeps what is there then.
    pub(crate) fn write(&mut self, member: &Member, bytes: Vec<u8>) -> Result<(), DeviceError> {
        let offset = SuperblockMirror::Primary.offset();
        let Some(known) = self.of_device.get_mut(&member.id) else {
            member.device.write_durable_at(offset, bytes.as_slice())?;
            self.of_device.insert(member.id, KnownPrimary { last: bytes, ..KnownPrimary::default() });
            return Ok(());
        };
        // Before the write: a device that fails, or that never answers, may have stored it all the same.
        known.tried.clear();
        known.tried.extend_from_slice(&bytes);
        known.is_unsure = true;
        member.device.write_durable_at(offset, bytes)?;
        std::mem::swap(&mut known.last, &mut known.tried);
        known.is_unsure = false;
        Ok(())
    }

    /// Reads each primary and compares it with what is known. One that can't be read tells nothing; its write
    /// will.
    pub(crate) fn check(&mut self, members: &Members) -> Result<(), VolumeError> {
        members.iter().try_for_each(|member| self.check_member(member))
    }

    fn check_member(&mut self, member: &Member) -> Result<(), VolumeError> {
        let Some(known) = self.of_device.get_mut(&member.id) else { return Ok(()) };
        let Some(found) = read_primary(member, std::mem::take(&mut known.found)) else { return Ok(()) };
        known.found = found;
        let found = &known.found;
        if *found == known.last || (known.is_unsure && *found == known.tried) {
            return Ok(());
        }
        Err(VolumeError::WrittenByAnother {
            device: member.device.describe().name.to_string(),
            expected: generation(&known.last),
            found: generation(found),
        })
    }
}

fn read_primary(member: &Member, into: Vec<u8>) -> Option<Vec<u8>> {
    let request = Request::read_into(SuperblockMirror::Primary.offset(), SUPERBLOCK_SIZE, into);
    let read = member.device.one(request).map(Data::into_vec);
    read.inspect_err(|_| member.health.record(HealthEvent::Read)).ok()
}

fn generation(bytes: &[u8]) -> Generation {
    Superblock::decode(bytes).map(|superblock| superblock.generation).unwrap_or_default()
}
