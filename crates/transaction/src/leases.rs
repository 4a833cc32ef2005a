//! Leases on committed states: granted between commits, and paid for in space that stays pinned.

use vlinder_base::sync::{Arc, Weak};
use vlinder_format::RootId;
use vlinder_tree::lease::{CommitLease, LeaseObserver};
use vlinder_tree::{Root, RootPointer};

use crate::engine::Engine;
use crate::{EngineError, ReadOnlyReason};
use vlinder_forest::find_root_item;

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
        Ok(self.freed.lease(self.volume.published_superblocks(), observer))
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
}

impl LeaseObserver for Engine {
    fn lease_ended(&self) {
        self.freed.release(self.space.pins());
    }
}
