//! What is known of the work that waits for the commit, beside what the queues themselves hold.

use vlinder_base::sync::Mutex;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_format::Generation;
use vlinder_space::Charge;

/// What the engine knows of what waits for the commit.
///
/// Invariants:
/// 1. Awaited items are released as often as they are awaited
///    ([`release_inode_items`](Self::release_inode_items) asserts that it is no more).
/// 2. What waits is counted from when it is queued until it has taken its blocks: while a commit takes it out
///    of the queues, it counts as ending ([`begin_ending`](Self::begin_ending)).
/// 3. A measurement holds for one transaction. The kept one is the one that began last, of those that ended.
#[derive(Default)]
pub(crate) struct WaitingWork {
    /// Items that changed outside a transaction: participants put them in before the next commit.
    awaited_items: AtomicU64,
    /// Items that handles ever put into trees themselves. Each took room in a leaf, which may split later for
    /// what waits.
    edited_items: AtomicU64,
    /// What waited when the transaction that is ending was closed; it leaves the queues before it takes its
    /// blocks.
    ending: Mutex<Charge>,
    /// The measurement that began last.
    measured: LastMeasurement,
}

impl WaitingWork {
    /// So many items changed outside a transaction.
    pub(crate) fn reserve_inode_items(&self, count: u64) {
        self.awaited_items.fetch_add(count, Ordering::Relaxed);
    }

    /// Items that were awaited are in a transaction, or not needed any more.
    pub(crate) fn release_inode_items(&self, count: u64) {
        let before = self.awaited_items.fetch_sub(count, Ordering::Relaxed);
        assert!(before >= count, "{count} of {before} awaited items are settled");
    }

    pub(crate) fn awaited_items(&self) -> u64 {
        self.awaited_items.load(Ordering::Relaxed)
    }

    /// A handle put so many items into trees itself.
    pub(crate) fn note_edits(&self, items: u64) {
        self.edited_items.fetch_add(items, Ordering::Relaxed);
    }

    /// Items that handles ever put into trees themselves.
    pub(crate) fn edited_items(&self) -> u64 {
        self.edited_items.load(Ordering::Relaxed)
    }

    /// The transaction closes: what waits takes its blocks now. A promise that is asked for meanwhile counts
    /// it still.
    pub(crate) fn begin_ending(&self, waiting: Charge) {
        *self.ending.lock() = waiting;
    }

    /// All that waited has taken its blocks.
    pub(crate) fn end_ending(&self) {
        *self.ending.lock() = Charge::default();
    }

    /// What takes its blocks right now.
    pub(crate) fn ending(&self) -> Charge {
        *self.ending.lock()
    }

    /// Gives the number of a measurement that begins: to be asked for before anything is looked at.
    pub(crate) fn begin_measuring(&self) -> u64 {
        self.measured.begin()
    }

    /// Keeps a measurement, unless one that began later has ended.
    pub(crate) fn end_measuring(&self, measured: MeasuredChanges) {
        self.measured.end(measured);
    }

    /// The measurement that began last.
    pub(crate) fn measured(&self) -> Option<MeasuredChanges> {
        self.measured.get()
    }
}

/// The measurement that began last. Threads measure beside one another, and one that began before a change
/// and ends after another's that saw it knows less: what came since would be added to it by counts.
#[derive(Debug, Default)]
struct LastMeasurement {
    begun: AtomicU64,
    kept: Mutex<Option<MeasuredChanges>>,
}

impl LastMeasurement {
    fn begin(&self) -> u64 {
        self.begun.fetch_add(1, Ordering::SeqCst)
    }

    fn end(&self, measured: MeasuredChanges) {
        let mut kept = self.kept.lock();
        if kept.is_none_or(|kept| kept.number < measured.number) {
            *kept = Some(measured);
        }
    }

    fn get(&self) -> Option<MeasuredChanges> {
        *self.kept.lock()
    }
}

/// What waits for the commit, as it was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MeasuredChanges {
    /// Of the measurement, in the order in which they began.
    pub(crate) number: u64,
    pub(crate) generation: Generation,
    /// All that had ever been added by then, by counts.
    pub(crate) grown: Charge,
    pub(crate) changes: Charge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_measurement_does_not_replace_one_begun_after_it() {
        let last = LastMeasurement::default();
        let measured = |number, blocks| MeasuredChanges {
            number,
            generation: Generation(7),
            grown: Charge::leaves(number),
            changes: Charge { blocks, ..Charge::default() },
        };
        assert_eq!(last.get(), None);
        let (early, late) = (last.begin(), last.begin());
        last.end(measured(late, 4));
        last.end(measured(early, 9));
        assert_eq!(last.get(), Some(measured(late, 4)));
        let next = last.begin();
        last.end(measured(next, 6));
        assert_eq!(last.get(), Some(measured(next, 6)), "the last one counts, not the smallest");
    }
}
