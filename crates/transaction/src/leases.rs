//! Leases on committed states: granted between commits, and paid for in space that stays pinned.

use vlinder_base::sync::{Arc, Weak};
use vlinder_format::{Generation, RootId};
use vlinder_tree::lease::{CommitLease, LeaseObserver};
use vlinder_tree::{Root, RootPointer};

use crate::engine::Engine;
use crate::{EngineError, ReadOnlyReason};
use vlinder_forest::find_root_item;
use vlinder_space::{Needing, Waiting};

/// Pieces of space that leases may hold, at some 50 bytes of memory each; beyond, they are revoked.
const MOST_HELD_PIECES: usize = 1 << 19;

impl Engine {
    /// Commits, and leases the state that was published: it stays readable until the lease is dropped or
    /// revoked. What was done before this call is in it.
    ///
    /// # Errors
    /// What the commit met. A file system that is read-only leases what is on its devices.
    pub fn lease(self: &Arc<Self>) -> Result<CommitLease, EngineError> {
        match self.read_only_reason() {
            None => drop(self.commit()?),
            // What is published after such an error is not known.
            Some(reason @ ReadOnlyReason::Error(_)) => return Err(EngineError::ReadOnly { reason }),
            Some(_) => {}
        }
        // No commit is under way: nothing of what was published is freed yet.
        let _committer = self.committer.lock();
        let observer: Weak<Self> = Arc::downgrade(self);
        Ok(self.leases.grant(self.volume.published_superblocks(), observer))
    }

    /// The root of a tree in a leased state, for searches in [`Engine::forest`].
    ///
    /// # Errors
    /// [`EngineError::NoSuchTree`], what reading met, or that the lease was revoked.
    pub fn leased_tree(&self, lease: &CommitLease, id: RootId) -> Result<Arc<Root>, EngineError> {
        let found = lease.root_tree().map(|root| find_root_item(self.forest.trees(), &root, id)).transpose();
        // A state that was given up may look like anything.
        lease.confirm()?;
        let (_, item) = found?.flatten().ok_or(EngineError::NoSuchTree { root: id })?;
        let pointer = RootPointer { logical: item.address, generation: item.generation, level: item.level };
        Ok(Root::new(id, pointer, item.last_snapshot))
    }

    /// The leases that reach an extent that the transaction of `freed` frees.
    pub(crate) fn needing(&self, born: Generation, freed: Generation) -> Option<Needing> {
        self.leases.needing(born, Generation(freed.0.saturating_sub(1)))
    }

    fn still_needing(&self, (oldest, newest): Needing) -> Option<Needing> {
        self.leases.needing(oldest, newest)
    }

    /// The superblock is durable: holds back what leased states reach of what the transaction freed.
    pub(crate) fn hold_leased(&self) {
        self.space.pins().hold_leased(|needing| self.still_needing(needing));
        let (_, pieces) = self.count_held();
        if pieces > MOST_HELD_PIECES {
            self.revoke_leases();
        }
    }

    /// Takes all leases back if that gives space; false if they hold none.
    pub(crate) fn revoke_leases(&self) -> bool {
        let (bytes, _) = self.space.pins().held();
        if bytes == 0 {
            return false;
        }
        let leases = self.leases.revoke_all();
        tracing::warn!(leases, bytes, "leases on committed states were taken back: their space is needed");
        self.release_unleased();
        true
    }

    /// Frees what no lease needs any more.
    fn release_unleased(&self) {
        // One at a time: another's ranges may be discarded at this moment.
        let _releasing = self.releasing.lock();
        self.space.pins().release_unleased(|needing| self.still_needing(needing));
        self.discard(&self.space.pins().waiting_ranges(Waiting::Released));
        self.space.pins().unpin(Waiting::Released);
        self.count_held();
    }

    fn count_held(&self) -> (u64, usize) {
        let (bytes, pieces) = self.space.pins().held();
        self.metrics.lease_held_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        (bytes, pieces)
    }
}

impl LeaseObserver for Engine {
    fn lease_ended(&self) {
        self.release_unleased();
    }
}
