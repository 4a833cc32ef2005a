//! A tree's handle: where its root block lies, and the lock that its writer holds for an apply.

use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use vlinder_format::block::BLOCK_FLAG_RELOCATION;
use vlinder_format::block::BLOCK_FLAG_WRITTEN;
use vlinder_format::{Block, Generation, Level, Logical, RootId};

use crate::TreeError;

/// How often what failed without a lock is tried again, where the tree changed meanwhile. A block that a
/// device can't read, beside writers who change the tree all the time, must not be asked for again and again:
/// each try may take a device seconds.
const EXCUSES: u32 = 8;

/// What is read of a tree with no lock held, and may be of the past by the time it is there.
pub(crate) struct Unlocked {
    left: u32,
}

impl Unlocked {
    pub(crate) fn new() -> Self {
        Self { left: EXCUSES }
    }

    /// Whether an error is to be forgotten, and what met it done again: the tree was at `version` before, and
    /// changed.
    pub(crate) fn excuses(&mut self, error: &TreeError, root: &Root, version: u64) -> bool {
        if !error.may_be_of_the_past() || root.version() == version {
            return false;
        }
        let left = self.left.checked_sub(1);
        self.left = left.unwrap_or_default();
        left.is_some()
    }
}

/// Where a root block lies, as the tree's root item or the superblock records it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RootPointer {
    /// Address of the root block.
    pub logical: Logical,
    /// Its generation.
    pub generation: Generation,
    /// Its level: the height of the tree above its leaves.
    pub level: Level,
}

/// What a root's lock guards.
pub(crate) struct RootState {
    pub(crate) pointer: RootPointer,
    /// Counts changes of the tree, for cursors.
    pub(crate) version: u64,
}

/// A tree. Readers share its lock for a descent in memory, a writer holds it for an apply; neither ever over
/// I/O.
pub struct Root {
    id: RootId,
    state: RwLock<RootState>,
    last_snapshot: AtomicU64,
}

impl Root {
    /// The tree `id` with its root block at `pointer`; `last_snapshot` as its root item says (0 for trees
    /// that cannot be snapshotted).
    pub fn new(id: RootId, pointer: RootPointer, last_snapshot: Generation) -> Arc<Self> {
        Arc::new(Self {
            id,
            state: RwLock::new(RootState { pointer, version: 0 }),
            last_snapshot: AtomicU64::new(last_snapshot.0),
        })
    }

    /// The tree's number.
    pub fn id(&self) -> RootId {
        self.id
    }

    /// Where the root block lies at this moment.
    pub fn pointer(&self) -> RootPointer {
        self.state.read().pointer
    }

    /// Counts the changes of this tree since it was opened.
    pub fn version(&self) -> u64 {
        self.state.read().version
    }

    /// Reads with no lock held. What fails while the tree changes is read again: the tree may have let go of
    /// what was read.
    ///
    /// # Errors
    /// That of a read during which the tree stayed as it was, or of the last of a few.
    pub fn read_unlocked<T>(&self, mut read: impl FnMut() -> Result<T, TreeError>) -> Result<T, TreeError> {
        let mut unlocked = Unlocked::new();
        loop {
            let version = self.version();
            match read() {
                Err(error) if unlocked.excuses(&error, self, version) => {}
                result => return result,
            }
        }
    }

    /// The generation of the newest snapshot taken of this tree: older blocks may be shared.
    pub fn last_snapshot(&self) -> Generation {
        Generation(self.last_snapshot.load(Ordering::Acquire))
    }

    /// A snapshot of this tree is taken in `generation`: all blocks up to then may be shared, and are copied
    /// before a change even where this transaction made them.
    pub fn mark_snapshot(&self, generation: Generation) {
        self.last_snapshot.store(generation.0, Ordering::Release);
    }

    /// Whether a snapshot of this tree was taken in `generation`, so that even its blocks may be shared.
    pub(crate) fn was_snapshotted_in(&self, generation: Generation) -> bool {
        self.last_snapshot() == generation
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, RootState> {
        self.state.read()
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, RootState> {
        self.state.write()
    }

    /// Whether a block has to go to a new address before it may change in `generation`.
    pub(crate) fn must_cow(&self, block: &Block, generation: Generation) -> bool {
        block.generation() != generation
            || block.has_flag(BLOCK_FLAG_WRITTEN)
            || (self.id != RootId::TREE_RELOCATION && block.has_flag(BLOCK_FLAG_RELOCATION))
            || self.was_snapshotted_in(generation)
    }

    /// Whether another tree may reference the block too. The root block itself never is: a snapshot copies
    /// it.
    pub(crate) fn may_share(&self, block: &Block, is_root: bool) -> bool {
        self.id.is_shareable()
            && !is_root
            && (block.generation() <= self.last_snapshot() || block.has_flag(BLOCK_FLAG_RELOCATION))
    }
}

#[cfg(test)]
mod tests {
    use vlinder_format::block::BlockFault;
    use vlinder_format::{Damage, Place};

    use super::*;

    fn damage() -> TreeError {
        Damage::new(BlockFault::Address { found: Logical(0) }, Place::default()).into()
    }

    fn changed(root: &Root) {
        root.write().version += 1;
    }

    #[test]
    fn what_fails_is_read_again_a_bounded_number_of_times() {
        let root = Root::new(RootId::FS_TREE, RootPointer::default(), Generation(0));
        let tries = |changes: u32, fails: u32, error: fn() -> TreeError| {
            let mut tries = 0;
            let read = root.read_unlocked(|| {
                tries += 1;
                if tries <= changes {
                    changed(&root);
                }
                if tries <= fails { Err(error()) } else { Ok(()) }
            });
            (tries, read.is_ok())
        };
        let no_space = || TreeError::NoSpace { root: RootId::FS_TREE, needed_bytes: 0 };
        assert_eq!(tries(0, 1, damage), (1, false), "the tree stayed as it was");
        assert_eq!(tries(1, 1, damage), (2, true));
        assert_eq!(tries(1, 2, damage), (2, false));
        assert_eq!(tries(u32::MAX, u32::MAX, damage), (1 + EXCUSES, false));
        assert_eq!(tries(u32::MAX, u32::MAX, no_space), (1, false), "no error of the past");
    }
}
