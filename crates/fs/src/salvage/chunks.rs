//! Chunks where the chunk tree can't be read whole: what is left of it, the chunk trees of the backup roots,
//! and then every other leaf that still lies in the system chunks. Each is believed only where those before
//! say nothing.

use std::cmp::Reverse;

use vlinder_base::sync::Arc;
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_format::superblock::{BackupRoot, Superblock};
use vlinder_format::{Generation, Logical};
use vlinder_tree::bootstrap::{Leniency, add_readable_chunks};
use vlinder_tree::{FoundChunks, TreeMetrics, find_chunks};
use vlinder_volume::{MappedChunk, Opened, Volume, VolumeError};

use crate::Result;

/// What was found beside the chunk tree; looked for once for all states of one superblock.
#[derive(Default)]
pub(super) struct LostChunks {
    found: Option<FoundChunks>,
    note: Option<String>,
}

impl LostChunks {
    /// Gives a volume, just opened, what its chunk tree has lost. `other` is the same volume, opened once
    /// more.
    ///
    /// # Errors
    /// Where no chunk is known in which a root tree could lie.
    pub(super) fn complete(
        &mut self,
        opened: &Opened,
        other: Opened,
        leniency: Leniency,
        metrics: &TreeMetrics,
    ) -> Result<()> {
        let (superblock, volume) = (&opened.superblock, Arc::new(other.volume));
        let is_system = |mapped: &Arc<MappedChunk>| mapped.chunk.flags.has(BlockGroupFlags::SYSTEM);
        if !volume.chunks().snapshot().iter().any(is_system) {
            return Err(VolumeError::NoSystemChunk.into());
        }
        let Err(lost) = add_readable_chunks(&volume, superblock, leniency, metrics.clone()) else {
            return Ok(());
        };
        for backup in by_age(superblock) {
            let then = crate::backup_roots::as_of(superblock, backup, true);
            // What of it can't be read either is no news.
            let _ = add_readable_chunks(&volume, &then, leniency, metrics.clone());
        }
        let known = volume.chunks().len();
        let found = self.found.get_or_insert_with(|| find_chunks(&volume, superblock));
        add_newest_first(&volume, found);
        for mapped in volume.chunks().snapshot() {
            // The superblock's own are there already.
            let _ = opened.volume.add_chunk(mapped.logical, mapped.chunk.clone());
        }
        let FoundChunks { leaves, searched_bytes, left_bytes, .. } = *found;
        if volume.chunks().snapshot().iter().all(is_system) {
            return Err(VolumeError::NoChunkTree { leaves, searched_bytes }.into());
        }
        let added = volume.chunks().len().saturating_sub(known);
        let left = if left_bytes == 0 {
            String::new()
        } else {
            format!("; {left_bytes} bytes of them could not be read, or are too many")
        };
        self.note.get_or_insert(format!(
            "the chunk tree can't be read whole ({lost}): {leaves} of its leaves, old ones too, were found in {searched_bytes} \
             bytes of system chunks, and {added} more chunks in them{left}"
        ));
        Ok(())
    }

    /// What there is to tell.
    pub(super) fn into_note(self) -> Option<String> {
        self.note
    }
}

fn add_newest_first(volume: &Volume, found: &FoundChunks) {
    let mut chunks: Vec<(Generation, Logical)> =
        found.chunks.iter().map(|(logical, (generation, _))| (*generation, *logical)).collect();
    chunks.sort_by_key(|(generation, logical)| (Reverse(*generation), *logical));
    for (_, logical) in chunks {
        if let Some((_, chunk)) = found.chunks.get(&logical) {
            // One that overlaps a newer one, or lies on no device, has gone.
            let _ = volume.add_chunk(logical, chunk.clone());
        }
    }
}

/// The backup roots that were filled, the newest first.
pub(super) fn by_age(superblock: &Superblock) -> Vec<&BackupRoot> {
    let mut backups: Vec<&BackupRoot> =
        superblock.backup_roots.iter().filter(|backup| backup.tree_root != Logical(0)).collect();
    backups.sort_by_key(|backup| Reverse(backup.tree_root_generation));
    backups
}
