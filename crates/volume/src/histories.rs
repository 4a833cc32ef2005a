//! Two histories of one file system: members that were written to apart from one another.
//!
//! Mirrors of which each was mounted without the other go on alone. Afterwards the superblocks and trees of both are valid, and
//! contradict one another; whoever joined them would give blocks of both. This shows it:
//!
//! | evidence | of |
//! |---|---|
//! | two superblocks of one generation say different things | any members |
//! | a superblock names another root than the newest remembers of that generation (its backup roots) | members of which one is older |
//! | two good copies of one tree block, of one generation, differ | members that a copy lies on each |
//!
//! A member that is older and contradicts nothing was away ([`Member::is_stale`](crate::Member)).

use vlinder_format::DeviceId;
use vlinder_format::superblock::Superblock;

use crate::chunk_source::MappedBy;
use crate::error::VolumeError;
use crate::profile::{plan_read, ways};
use crate::read::{ReadRequest, Trust};
use crate::superblock::FoundSuperblock;
use crate::volume::Volume;

/// The first two superblocks of one file system that contradict each other.
pub(crate) fn contradiction(found: &[FoundSuperblock]) -> Option<(&Superblock, &Superblock)> {
    let newest = &found.iter().max_by_key(|found| found.superblock.generation)?.superblock;
    let of_same = found.iter().map(|found| &found.superblock).filter(|other| other.fsid == newest.fsid);
    of_same.into_iter().find(|other| contradict(newest, other)).map(|other| (newest, other))
}

/// Whether a superblock of the same generation says something else, or an older one names a root that the newer does not remember.
/// A log is no part of what they say: a fsync announces it to one member after the other.
fn contradict(newest: &Superblock, other: &Superblock) -> bool {
    if newest.generation == other.generation {
        let state = |superblock: &Superblock| {
            let trees =
                (superblock.root, superblock.root_level, superblock.chunk_root, superblock.chunk_root_level);
            let sizes = (superblock.total_bytes, superblock.bytes_used, superblock.device_count);
            (trees, superblock.chunk_root_generation, sizes)
        };
        return state(newest) != state(other);
    }
    newest
        .backup_roots
        .iter()
        .filter(|backup| backup.tree_root_generation == other.generation)
        .any(|backup| backup.tree_root != other.root)
}

impl Volume {
    /// The first two members whose copies of a tree block differ though `is_good` accepts both. None where one of the histories
    /// was chosen ([`OpenRules::history`](crate::OpenRules)).
    ///
    /// # Errors
    /// The block lies in no chunk.
    pub fn differing_copies(
        &self,
        request: ReadRequest,
        by: MappedBy,
        is_good: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<Option<(DeviceId, DeviceId)>, VolumeError> {
        if self.members.len() < 2 || self.history.is_some() {
            return Ok(None);
        }
        let length = u64::try_from(request.length).unwrap_or(u64::MAX);
        let chunk = self.chunk_by(by, request.logical, length)?;
        let mut first: Option<(DeviceId, Vec<u8>)> = None;
        for way in 0..ways(&chunk) {
            // What is worked out of parities is of no one member.
            let Ok(parts) = plan_read(&chunk, request.logical, length, way) else { continue };
            let Some(device) = parts.first().map(|part| part.device) else { continue };
            let Ok(bytes) = self.read_copy(&chunk, request, way, Trust::Current) else { continue };
            match &first {
                _ if !is_good(&bytes) => {}
                // One device has one history. Two good copies on it are of a transaction that was begun twice.
                Some((other, content)) if *other != device && *content != bytes => {
                    return Ok(Some((*other, device)));
                }
                Some(_) => {}
                None => first = Some((device, bytes)),
            }
        }
        Ok(None)
    }

    /// The error that two members hold different histories.
    #[must_use]
    pub fn two_histories(&self, first: DeviceId, second: DeviceId) -> VolumeError {
        let named = |device| {
            let member = self.member(device);
            (device, member.map(|member| member.device.describe().name.to_string()).unwrap_or_default())
        };
        VolumeError::TwoHistories { first: named(first), second: named(second) }
    }
}

#[cfg(test)]
mod tests {
    use vlinder_base::sync::Arc;
    use vlinder_device::{Device, DeviceExt};
    use vlinder_format::chunk::BlockGroupFlags;
    use vlinder_format::superblock::SuperblockMirror;
    use vlinder_format::{Generation, Logical, Physical, Uuid};

    use super::*;
    use crate::member::Member;
    use crate::tests::{CHUNK, Faulty, GEOMETRY, LENGTH, chunk};
    use crate::volume::Access;

    fn found(generation: u64, root: u64) -> FoundSuperblock {
        let mut superblock = Superblock::decode(&[0; 4096]).unwrap();
        (superblock.generation, superblock.root) = (Generation(generation), Logical(root));
        superblock.backup_roots[0].tree_root_generation = Generation(generation);
        superblock.backup_roots[0].tree_root = Logical(root);
        FoundSuperblock { superblock, mirror: SuperblockMirror::Primary }
    }

    /// Two copies that differ, both of them good.
    #[test]
    fn copies_that_differ_are_two_histories_only_on_two_devices() {
        let devices = [1, 2].map(|number| (DeviceId(number), Faulty::new(LENGTH)));
        let members = devices.iter().map(|(id, device)| {
            Member::new(*id, Uuid([4; 16]), LENGTH, Arc::clone(device) as Arc<dyn Device>)
        });
        let volume = Volume::new(members.collect(), GEOMETRY, Access::ReadOnly);
        let places = [32 << 20, 48 << 20];
        for (number, (flag, expected)) in
            [(BlockGroupFlags::DUP, None), (BlockGroupFlags::RAID1, Some((DeviceId(1), DeviceId(2))))]
                .into_iter()
                .enumerate()
        {
            let logical = Logical(CHUNK.0 + (number as u64) * (64 << 20));
            let mut chunk = chunk(BlockGroupFlags::METADATA.with(flag), &places);
            if expected.is_some() {
                chunk.stripes[1].device = DeviceId(2);
            }
            let copies: Vec<(DeviceId, Physical)> =
                chunk.stripes.iter().map(|stripe| (stripe.device, stripe.physical)).collect();
            volume.add_chunk(logical, chunk).unwrap();
            for (content, (on, physical)) in (1..).zip(copies) {
                let (_, device) = devices.iter().find(|(id, _)| *id == on).unwrap();
                device.write_at(physical, vec![content; 4096]).unwrap();
            }
            let request = ReadRequest { logical, length: 4096 };
            let found = volume.differing_copies(request, MappedBy::AnyChunk, &mut |_| true);
            assert_eq!(found, Ok(expected), "{flag:?}");
        }
    }

    fn remembers(mut found: FoundSuperblock, generation: u64, root: u64) -> FoundSuperblock {
        found.superblock.backup_roots[1].tree_root_generation = Generation(generation);
        found.superblock.backup_roots[1].tree_root = Logical(root);
        found
    }

    #[test]
    fn members_that_went_on_alone_contradict_each_other_and_one_that_was_away_does_not() {
        let is_contradiction = |found: &[FoundSuperblock]| contradiction(found).is_some();
        assert!(!is_contradiction(&[found(7, 1), found(7, 1)]));
        assert!(is_contradiction(&[found(7, 1), found(7, 2)]), "of one generation");
        assert!(!is_contradiction(&[found(6, 1), remembers(found(7, 2), 6, 1)]), "it was away");
        assert!(is_contradiction(&[found(6, 1), remembers(found(7, 2), 6, 3)]), "another root of 6");
        assert!(is_contradiction(&[remembers(found(7, 2), 6, 3), found(6, 1)]), "in either order");
        assert!(!is_contradiction(&[found(1, 1), found(7, 2)]), "nobody remembers 1");
        let mut logged = found(7, 1);
        logged.superblock.log_root = Logical(9);
        assert!(!is_contradiction(&[found(7, 1), logged]), "a log was announced to one of them");
        let mut stranger = found(7, 2);
        stranger.superblock.fsid.0[0] ^= 1;
        assert!(!is_contradiction(&[found(7, 1), stranger]), "a seed");
    }
}
