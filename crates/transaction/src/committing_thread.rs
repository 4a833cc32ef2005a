//! Which thread commits.

use std::cell::Cell;

std::thread_local! {
    /// Whether this thread is committing: what a participant does meanwhile must not commit again.
    static COMMITTING: Cell<bool> = const { Cell::new(false) };
}

/// Says for its lifetime that this thread commits.
pub(crate) struct CommittingThread;

impl CommittingThread {
    /// None where the calling thread commits already.
    pub(crate) fn enter() -> Option<Self> {
        // Built only where it is given: one that is dropped at once would end the commit that is under way.
        COMMITTING.with(|committing| (!committing.replace(true)).then(|| Self))
    }

    /// Whether the calling thread commits: what it asks for then is part of the commit.
    pub(crate) fn is_this() -> bool {
        COMMITTING.with(Cell::get)
    }
}

impl Drop for CommittingThread {
    fn drop(&mut self) {
        COMMITTING.with(|committing| committing.set(false));
    }
}

#[cfg(test)]
mod tests {
    use super::CommittingThread;

    #[test]
    fn a_committing_thread_is_refused_until_its_commit_ends() {
        let committing = CommittingThread::enter();
        assert!(committing.is_some());
        assert!(CommittingThread::enter().is_none());
        assert!(CommittingThread::enter().is_none(), "a refusal must not end the commit");
        drop(committing);
        assert!(CommittingThread::enter().is_some());
    }
}
