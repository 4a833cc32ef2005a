//! Whose turn it is to commit, and what a commit asks first.

use vlinder_base::sync::{Arc, Mutex, MutexGuard, Weak};

use crate::Participant;
use crate::unpublished::Unpublished;

/// One thread at a time commits; what it froze and could not publish waits here for the next.
///
/// Invariants:
/// 1. A superblock is published only by the thread that holds the lock ([`lock`](Self::lock)).
/// 2. What is held up is published before the transaction after it is frozen (`commit.rs`).
#[derive(Default)]
pub(crate) struct Committer {
    held_up: Mutex<Option<Unpublished>>,
    participants: Mutex<Vec<Weak<dyn Participant>>>,
}

impl Committer {
    /// Waits until no other thread commits; gives what an earlier commit left to be published.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Option<Unpublished>> {
        self.held_up.lock()
    }

    /// A commit asks this one for what it has delayed.
    pub(crate) fn register(&self, participant: Weak<dyn Participant>) {
        self.participants.lock().push(participant);
    }

    /// The participants that there still are.
    pub(crate) fn participants(&self) -> Vec<Arc<dyn Participant>> {
        let mut registered = self.participants.lock();
        registered.retain(|participant| participant.strong_count() > 0);
        registered.iter().filter_map(Weak::upgrade).collect()
    }
}
