//! The running transaction as handles see it: open, or for a moment closed.

use vlinder_base::sync::{Condvar, Mutex};
use vlinder_format::Generation;

use crate::EngineError;

/// What the lock guards.
#[derive(Debug)]
struct Phase {
    /// The running transaction.
    generation: Generation,
    /// The last transaction whose superblock is durable.
    published: Generation,
    /// Handles open in it.
    handles: usize,
    /// The committer is in its critical phase, or waits for the last handle: no new handle begins.
    critical: bool,
    /// Something changed that no dirty block shows yet.
    changed: bool,
    /// The commit before the running transaction is frozen, and waits for space on the host.
    is_held_up: bool,
}

/// The running transaction, with the handles that are open in it.
///
/// Invariants:
/// 1. No handle joins from [`close`](Self::close) on until the committer opens the transaction again
///    ([`reopen`](Self::reopen)) or begins the next one ([`begin_next`](Self::begin_next)).
/// 2. The running transaction is the one after the published one, or the one after that while the commit
///    between them is written.
/// 3. Each handle that joined leaves once, and none leaves in a later transaction: the committer waits.
pub(crate) struct RunningTransaction {
    phase: Mutex<Phase>,
    phase_changed: Condvar,
}

/// Handles that are open, and whether the commit before waits for space on the host.
pub(crate) struct Activity {
    pub(crate) has_handles: bool,
    pub(crate) is_held_up: bool,
}

/// Why a handle of a transaction does not hear that the commit before it is published.
pub(crate) enum Unpublishable {
    /// That commit waits for space on the host.
    HeldUp,
    /// Nothing can be changed any more.
    Refused(EngineError),
}

impl RunningTransaction {
    /// The first transaction after this commit.
    pub(crate) fn after(published: Generation) -> Self {
        let phase = Phase {
            generation: published.next(),
            published,
            handles: 0,
            critical: false,
            changed: false,
            is_held_up: false,
        };
        Self { phase: Mutex::new(phase), phase_changed: Condvar::new() }
    }

    pub(crate) fn generation(&self) -> Generation {
        self.phase.lock().generation
    }

    /// Whether the superblock of a transaction, or of a later one, is durable.
    pub(crate) fn has_published(&self, generation: Generation) -> bool {
        self.phase.lock().published >= generation
    }

    /// Something changed that no dirty block shows.
    pub(crate) fn mark_changed(&self) {
        self.phase.lock().changed = true;
    }

    /// Has every thread that waits here look anew: nothing can be changed any more.
    pub(crate) fn wake(&self) {
        // A thread that has looked and does not wait yet would miss it.
        drop(self.phase.lock());
        self.phase_changed.notify_all();
    }

    pub(crate) fn activity(&self) -> Activity {
        let phase = self.phase.lock();
        Activity { has_handles: phase.handles > 0, is_held_up: phase.is_held_up }
    }

    /// Looks at something if no handle is open, none is kept from beginning, and all before the transaction
    /// is published; no handle begins meanwhile.
    pub(crate) fn look_at_rest<T>(&self, look: impl FnOnce(Generation) -> Option<T>) -> Option<T> {
        let phase = self.phase.lock();
        let rests = phase.handles == 0 && !phase.critical && phase.published.next() == phase.generation;
        if rests { look(phase.generation) } else { None }
    }

    /// A handle joins, or waits for the next transaction if this one is just ending.
    ///
    /// # Errors
    /// What `check` says: that nothing can be changed.
    pub(crate) fn join(
        &self,
        check: impl FnOnce() -> Result<(), EngineError>,
    ) -> Result<Generation, EngineError> {
        let mut phase = self.phase.lock();
        while phase.critical {
            self.phase_changed.wait(&mut phase);
        }
        check()?;
        phase.handles += 1;
        Ok(phase.generation)
    }

    /// A handle has ended; gives whether it was the last.
    pub(crate) fn leave(&self) -> bool {
        let mut phase = self.phase.lock();
        phase.handles -= 1;
        if phase.handles == 0 {
            self.phase_changed.notify_all();
        }
        phase.handles == 0
    }

    /// Waits until the commit before the transaction of a handle is published.
    pub(crate) fn wait_until_published(
        &self,
        transaction: Generation,
        check: impl Fn() -> Result<(), EngineError>,
    ) -> Result<(), Unpublishable> {
        let mut phase = self.phase.lock();
        while phase.published.next() < transaction {
            check().map_err(Unpublishable::Refused)?;
            if phase.is_held_up {
                return Err(Unpublishable::HeldUp);
            }
            self.phase_changed.wait(&mut phase);
        }
        assert_eq!(phase.published.next(), transaction, "a handle outlived its transaction");
        Ok(())
    }

    /// Lets no handle join any more, and waits for the last.
    pub(crate) fn close(&self) {
        let mut phase = self.phase.lock();
        phase.critical = true;
        while phase.handles > 0 {
            self.phase_changed.wait(&mut phase);
        }
    }

    /// The closed transaction, if it has changed anything; otherwise it is open again.
    pub(crate) fn reopen_unchanged(&self, is_unchanged: impl FnOnce() -> bool) -> Option<Generation> {
        let mut phase = self.phase.lock();
        if phase.changed || !is_unchanged() {
            return Some(phase.generation);
        }
        phase.critical = false;
        self.phase_changed.notify_all();
        None
    }

    /// The threads that wait to begin go on.
    pub(crate) fn reopen(&self) {
        self.phase.lock().critical = false;
        self.phase_changed.notify_all();
    }

    /// The closed transaction is frozen; the next one opens.
    pub(crate) fn begin_next(&self) {
        let mut phase = self.phase.lock();
        phase.generation = phase.generation.next();
        phase.critical = false;
        phase.changed = false;
        self.phase_changed.notify_all();
    }

    /// Whether what is frozen waits for space on the host.
    pub(crate) fn set_held_up(&self, is_held_up: bool) {
        self.phase.lock().is_held_up = is_held_up;
        if is_held_up {
            self.phase_changed.notify_all();
        }
    }

    /// The superblock of a transaction is durable.
    pub(crate) fn publish(&self, generation: Generation) {
        self.phase.lock().published = generation;
        self.phase_changed.notify_all();
    }
}
