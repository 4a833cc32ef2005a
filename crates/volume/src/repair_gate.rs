//! Keeps repairs and writes apart.
//!
//! A repair copies old bytes over a bad copy. Were a writer just replacing all copies, a reader with an
//! outdated address could take the new bytes of the first copy for damage and the old bytes of the second for
//! the truth, and "repair" would undo the write. So a repair is made only while no write is in flight, keeps
//! new ones out, and looks again first. It does not wait for writes: the thread that reads may itself have
//! some in flight.

use vlinder_base::sync::{Arc, Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    writes: usize,
    repairing: bool,
}

/// Any number of writes, or one repair.
#[derive(Debug, Default)]
pub(crate) struct RepairGate {
    state: Mutex<State>,
    changed: Condvar,
}

/// A write in flight, which may outlive the call that began it.
#[derive(Debug)]
pub(crate) struct WritePass(Arc<RepairGate>);

/// A repair in progress.
#[derive(Debug)]
pub(crate) struct RepairPass<'a>(&'a RepairGate);

impl RepairGate {
    pub(crate) fn enter_write(self: &Arc<Self>) -> WritePass {
        let mut state = self.state.lock();
        while state.repairing {
            self.changed.wait(&mut state);
        }
        state.writes = state.writes.saturating_add(1);
        WritePass(Arc::clone(self))
    }

    /// None while anything is being written or repaired.
    pub(crate) fn try_enter_repair(&self) -> Option<RepairPass<'_>> {
        let mut state = self.state.lock();
        if state.repairing || state.writes > 0 {
            return None;
        }
        state.repairing = true;
        Some(RepairPass(self))
    }
}

impl Drop for WritePass {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.writes = state.writes.saturating_sub(1);
        self.0.changed.notify_all();
    }
}

impl Drop for RepairPass<'_> {
    fn drop(&mut self) {
        self.0.state.lock().repairing = false;
        self.0.changed.notify_all();
    }
}
