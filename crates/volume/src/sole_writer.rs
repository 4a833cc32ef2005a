//! Whether this process alone writes to its devices. A lock keeps other processes of vlinder away from an image, but not the
//! kernel, which mounts one through a loop device without looking at locks. Whoever publishes a commit there and then changes
//! the primary superblock; so its bytes are compared with those that were seen or written last, before the next commit or log
//! is published. What another has published then stays whole in its superblock and is not replaced by ours.

use std::collections::HashMap;

use vlinder_device::DeviceExt;
use vlinder_format::superblock::{SUPERBLOCK_SIZE, Superblock, SuperblockMirror};
use vlinder_format::{DeviceId, Generation};

use crate::error::VolumeError;
use crate::health::HealthEvent;
use crate::member::Member;
use crate::superblock;
use crate::volume::Volume;

/// What lies at the primary superblock of each member, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct KnownPrimaries {
    of_device: HashMap<DeviceId, KnownPrimary>,
}

/// One of them; both are possible after a write that failed.
#[derive(Debug)]
struct KnownPrimary {
    last: Vec<u8>,
    tried: Option<Vec<u8>>,
}

impl KnownPrimaries {
    /// Reads the primaries as they are now. One that can't be read is not known, and is not compared before it was written.
    pub(crate) fn read(members: &[Member]) -> Self {
        let known = |member: &Member| {
            let last = read_primary(member)?;
            Some((member.id, KnownPrimary { last, tried: None }))
        };
        Self { of_device: members.iter().filter_map(known).collect() }
    }

    /// A member was opened by this superblock of its primary. If another writer published after it was read, what lies there since
    /// is not what this process goes on from.
    pub(crate) fn believe(&mut self, device: DeviceId, superblock: &Superblock) {
        let Some(known) = self.of_device.get_mut(&device) else { return };
        if Superblock::decode(&known.last).is_ok_and(|found| found == *superblock) {
            return;
        }
        if let Ok(bytes) = superblock::pack(superblock) {
            known.last = bytes;
        }
    }

    /// A primary is about to be written.
    pub(crate) fn begin_write(&mut self, device: DeviceId, bytes: &[u8]) {
        if let Some(known) = self.of_device.get_mut(&device) {
            known.tried = Some(bytes.to_vec());
        }
    }

    /// A primary was written.
    pub(crate) fn end_write(&mut self, device: DeviceId, bytes: Vec<u8>) {
        self.of_device.insert(device, KnownPrimary { last: bytes, tried: None });
    }

    /// Reads each primary and compares it with what is known. One that can't be read tells nothing; its write will.
    pub(crate) fn check(&self, members: &[Member]) -> Result<(), VolumeError> {
        members.iter().try_for_each(|member| self.check_member(member))
    }

    fn check_member(&self, member: &Member) -> Result<(), VolumeError> {
        let Some(known) = self.of_device.get(&member.id) else { return Ok(()) };
        let Some(found) = read_primary(member) else { return Ok(()) };
        if found == known.last || known.tried.as_ref().is_some_and(|tried| found == *tried) {
            return Ok(());
        }
        Err(VolumeError::WrittenByAnother {
            device: member.device.describe().name.to_string(),
            expected: generation(&known.last),
            found: generation(&found),
        })
    }
}

fn read_primary(member: &Member) -> Option<Vec<u8>> {
    let read = member.device.read_at(SuperblockMirror::Primary.offset(), SUPERBLOCK_SIZE);
    read.inspect_err(|_| member.health.record(HealthEvent::Read)).ok()
}

fn generation(bytes: &[u8]) -> Generation {
    Superblock::decode(bytes).map(|superblock| superblock.generation).unwrap_or_default()
}

impl Volume {
    /// Looks whether another program published a commit on a member since this process did or opened it: to be asked before
    /// blocks are written for a commit. Publishing asks by itself.
    ///
    /// # Errors
    /// [`VolumeError::WrittenByAnother`].
    pub fn check_sole_writer(&self) -> Result<(), VolumeError> {
        if self.keeps_writes_in_memory() { Ok(()) } else { self.primaries.lock().check(&self.members) }
    }
}
