//! What the snapshots take that are promised and not taken yet.

use std::collections::BTreeMap;

use vlinder_base::sync::Mutex;
use vlinder_format::RootId;
use vlinder_space::Charge;

/// What taking the promised snapshots may change, by their numbers.
///
/// Invariant: a charge is here from when its snapshot is promised until the commit takes the snapshot, or
/// until the promise is dropped ([`ReservedSnapshot`](crate::ReservedSnapshot)).
#[derive(Default)]
pub(crate) struct SnapshotCharges {
    waiting: Mutex<BTreeMap<RootId, Charge>>,
    /// All that was ever charged.
    grown: Mutex<Charge>,
}

impl SnapshotCharges {
    /// A snapshot of this number is promised.
    pub(crate) fn add(&self, snapshot: RootId, charge: Charge) {
        self.waiting.lock().insert(snapshot, charge);
        *self.grown.lock() += charge;
    }

    /// A snapshot is being taken, or never will be.
    pub(crate) fn settle(&self, snapshot: RootId) {
        self.waiting.lock().remove(&snapshot);
    }

    /// What taking all of them may change.
    pub(crate) fn charge(&self) -> Charge {
        self.waiting.lock().values().fold(Charge::default(), |sum, charge| sum + *charge)
    }

    /// All that was ever added to [`charge`](Self::charge).
    pub(crate) fn grown(&self) -> Charge {
        *self.grown.lock()
    }
}
