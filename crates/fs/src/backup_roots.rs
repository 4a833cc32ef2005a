//! `rescue=usebackuproot`: where the trees of the last commit can't be read, those of one of the commits
//! before.
//!
//! A superblock remembers the roots of the last four commits. Their blocks may have been overwritten since,
//! so what is found there is believed no more than anything else: each block has to have its checksum, its
//! address and its generation.

use std::cmp::Reverse;

use vlinder_format::superblock::{BackupRoot, Superblock};
use vlinder_format::{Generation, Logical};

use crate::{FsError, Result};

/// Opens by what a superblock remembers, the newest first, and the state of the last commit before all.
/// `open` opens for reading, by the superblock as it was changed; the second of two tries of each takes the
/// chunk tree of that commit too.
///
/// # Errors
/// That of the state of the last commit, where there is no better.
pub(crate) fn open<T>(
    superblock: &Superblock,
    last: FsError,
    open: &dyn Fn(Superblock) -> Result<T>,
) -> Result<T> {
    let mut backups: Vec<&BackupRoot> =
        superblock.backup_roots.iter().filter(|backup| backup.tree_root != Logical(0)).collect();
    backups.sort_by_key(|backup| Reverse(backup.tree_root_generation));
    for backup in backups {
        for with_chunks in [false, true] {
            let generation = backup.tree_root_generation;
            match open(as_of(superblock, backup, with_chunks)) {
                Ok(opened) => {
                    warn(superblock.generation, generation, &last);
                    return Ok(opened);
                }
                Err(error) => tracing::warn!(%generation, %error, "a backup root is no good either"),
            }
        }
    }
    Err(last)
}

fn warn(newest: Generation, shown: Generation, error: &FsError) {
    tracing::warn!(
        "the trees of the last commit ({newest}) can't be read ({error}); shown is the state of commit {shown}: copy what \
         you need"
    );
}

/// The superblock as it was when a backup was the newest.
pub(crate) fn as_of(superblock: &Superblock, backup: &BackupRoot, with_chunks: bool) -> Superblock {
    let mut then = superblock.clone();
    then.generation = backup.tree_root_generation;
    then.root = backup.tree_root;
    then.root_level = backup.tree_root_level;
    then.log_root = Logical(0);
    if with_chunks {
        then.chunk_root = backup.chunk_root;
        then.chunk_root_level = backup.chunk_root_level;
        then.chunk_root_generation = backup.chunk_root_generation;
    }
    then
}
