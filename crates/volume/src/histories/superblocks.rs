//! What two superblocks of one file system say that can't both be true.

use std::cmp::Reverse;

use vlinder_format::superblock::Superblock;
use vlinder_format::{DeviceId, Generation};

use crate::superblock::FoundSuperblock;

/// What the superblocks of members tell of their histories.
#[derive(Debug, Default)]
pub(crate) struct SuperblockEvidence {
    /// The member whose history was chosen.
    pub(crate) chosen: Option<DeviceId>,
    /// What the superblocks of stale members say, oldest first.
    pub(crate) pasts: Vec<Superblock>,
    /// Of the other members, those that have a fsync log, with the superblock that names it.
    pub(crate) logs: Vec<Superblock>,
}

/// The first two superblocks of one file system that contradict each other, the newer one first.
pub(crate) fn contradiction(found: &[FoundSuperblock]) -> Option<(&Superblock, &Superblock)> {
    let newest = &found.iter().max_by_key(|found| found.superblock.generation)?.superblock;
    let mut of_same: Vec<&Superblock> =
        found.iter().map(|found| &found.superblock).filter(|other| other.fsid == newest.fsid).collect();
    of_same.sort_by_key(|superblock| Reverse(superblock.generation));
    let pairs = of_same.iter().enumerate().flat_map(|(number, newer)| {
        of_same.iter().skip(number.saturating_add(1)).map(move |older| (*newer, *older))
    });
    pairs.into_iter().find(|(newer, older)| contradict(newer, older))
}

/// Whether a superblock of the same generation says something else, or an older one remembers other roots
/// than the newer. A log is no part of what they say: a fsync announces it to one member after the other.
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
    let remembered = |superblock: &Superblock, generation: Generation| {
        let written = superblock.backup_roots.into_iter().filter(|backup| backup.tree_root_generation.0 > 0);
        written.filter(move |backup| backup.tree_root_generation == generation).collect::<Vec<_>>()
    };
    let of_last = remembered(newest, other.generation);
    of_last.iter().any(|backup| backup.tree_root != other.root)
        || other.backup_roots.iter().any(|own| {
            let theirs = remembered(newest, own.tree_root_generation);
            theirs.iter().any(|backup| backup != own)
        })
}
