//! What the next commit has to do that no handle holds a promise for: pending items, delayed references,
//! snapshots; and its bound, by counts or as it was measured in the trees.

use vlinder_base::metrics::{Counter, Registry, Unit};
use vlinder_base::sync::{Arc, Mutex, MutexGuard};
use vlinder_format::Generation;
use vlinder_format::checksum_item::ChecksumGeometry;
use vlinder_space::{Charge, FILE_EXTENT_ITEM_BYTES, INODE_ITEM_BYTES};

use crate::extents::delayed::DelayedReferences;
use crate::pending::PendingItems;
use crate::snapshot_charges::SnapshotCharges;
use crate::waiting_work::{MeasuredChanges, WaitingWork};

/// What waits for the commit, in three queues.
///
/// Invariants:
/// 1. [`waiting`](Self::waiting) is a bound of all that the next commit writes for handles that have ended,
///    also while the committer empties the queues ([`WaitingWork::begin_ending`]).
/// 2. [`grown`](Self::grown) never shrinks: what it gained since a measurement is a bound of what came since
///    ([`measured`](Self::measured)).
pub(crate) struct CommitQueues {
    delayed: Mutex<DelayedReferences>,
    pending: PendingItems,
    snapshots: SnapshotCharges,
    work: WaitingWork,
    /// Bytes of a tree block.
    node_size: u32,
    times_measured: Arc<Counter>,
}

impl CommitQueues {
    /// Empty ones, of a file system with such checksums.
    pub(crate) fn new(checksums: ChecksumGeometry, registry: &Registry) -> Self {
        Self {
            delayed: Mutex::new(DelayedReferences::new(checksums)),
            pending: PendingItems::new(registry),
            snapshots: SnapshotCharges::default(),
            work: WaitingWork::default(),
            node_size: checksums.node_size,
            times_measured: registry.counter(
                "space.waiting_measured",
                "times that space was short, and what waits for the commit was measured in the trees",
                Unit::Count,
            ),
        }
    }

    /// Changes of who refers to which extent.
    pub(crate) fn delayed(&self) -> MutexGuard<'_, DelayedReferences> {
        self.delayed.lock()
    }

    /// Items that are not in their trees yet.
    pub(crate) fn pending(&self) -> &PendingItems {
        &self.pending
    }

    /// What the promised snapshots take.
    pub(crate) fn snapshots(&self) -> &SnapshotCharges {
        &self.snapshots
    }

    /// What waits beside what the queues hold, and how much all of it is.
    pub(crate) fn work(&self) -> &WaitingWork {
        &self.work
    }

    /// Whether the queues hold nothing that a commit would write; a promised snapshot has a commit of its
    /// own.
    pub(crate) fn is_empty(&self) -> bool {
        self.delayed().is_empty() && self.pending.trees().is_empty()
    }

    /// What the next commit has to do at worst, by counts.
    pub(crate) fn waiting(&self) -> Charge {
        self.queued().at_least(self.work.ending())
    }

    /// Of what waits, all that has not begun to take its blocks.
    pub(crate) fn queued(&self) -> Charge {
        let delayed = self.delayed().charge();
        let (pending, shared_items) = self.pending.charge();
        delayed + pending + self.snapshots.charge() + self.copies_of_leaves(shared_items)
    }

    /// All that was ever added to [`waiting`](Self::waiting), and a block for each item that a handle put
    /// into a tree itself: a leaf that was measured may split since.
    pub(crate) fn grown(&self) -> Charge {
        let delayed = self.delayed().grown();
        let (pending, shared_items) = self.pending.grown();
        let edited = self.work.edited_items();
        let filled_leaves = Charge { blocks: edited, ..Charge::default() };
        delayed + pending + self.snapshots.grown() + self.copies_of_leaves(shared_items) + filled_leaves
    }

    /// What putting in all awaited items may change; trees may share blocks or not.
    pub(crate) fn awaited(&self, may_share_blocks: bool) -> Charge {
        self.items_beside(self.work.awaited_items(), may_share_blocks)
    }

    /// What putting in so many items may change that changed outside a transaction. Nobody has noted of which
    /// tree they are.
    pub(crate) fn items_beside(&self, items: u64, may_share_blocks: bool) -> Charge {
        let shared = if may_share_blocks { items } else { 0 };
        Charge::items(items, items.saturating_mul(INODE_ITEM_BYTES)) + self.copies_of_leaves(shared)
    }

    /// References that copies of so many shared leaves add or replace at worst: where each item is that of an
    /// extent.
    pub(crate) fn copies_of_leaves(&self, leaves: u64) -> Charge {
        let references = leaves.saturating_mul(u64::from(self.node_size) / FILE_EXTENT_ITEM_BYTES);
        Charge { added_references: references, dropped_references: references, ..Charge::default() }
    }

    /// What the next commit has to do, as it was measured in the running transaction, with what came since by
    /// counts; none if nobody measured.
    pub(crate) fn measured(&self, running: Generation) -> Option<Charge> {
        let MeasuredChanges { generation, grown, changes, .. } = self.work.measured()?;
        (generation == running).then(|| changes + self.grown().growth_since(grown))
    }

    /// A measurement has ended.
    pub(crate) fn end_measuring(&self, measured: MeasuredChanges) {
        self.times_measured.increment();
        self.work.end_measuring(measured);
    }
}

#[cfg(test)]
mod tests {
    use vlinder_format::inode::{InodeItem, Mode};
    use vlinder_format::{Generation, ItemType, Key, ObjectId, RootId};
    use vlinder_testkit::{Scratch, require};
    use vlinder_tree::{Change, Edit};

    use super::*;
    use crate::Reservation;
    use crate::measuring::MAX_MEASURED;
    use crate::opening_tests::{new_image, write};

    fn inode_item() -> Vec<u8> {
        let item = InodeItem {
            mode: Mode(0o100_644),
            generation: Generation(1),
            link_count: 1,
            ..InodeItem::default()
        };
        item.encode().to_vec()
    }

    /// Inode items of one leaf wait: counted they cost a path each, measured the leaf's copy and what it
    /// splits into.
    #[test]
    fn what_was_measured_holds_for_its_transaction() {
        require!(Tool("mkfs.btrfs"));
        let scratch = Scratch::new("measured");
        let engine = write(&new_image(&scratch, &[])).unwrap();
        let tree = engine.tree(RootId::FS_TREE).unwrap();
        let put = |numbers: std::ops::Range<u64>| {
            let mut handle = engine.begin(Reservation::items(100)).unwrap();
            for number in numbers {
                let key = Key::new(ObjectId(1000 + number), ItemType::INODE_ITEM, 0);
                handle.insert_pending(&tree, key, inode_item());
            }
        };
        let price = |changes| engine.core().space().reservations().price_bytes(changes);
        assert_eq!(engine.core().queues().measured(engine.generation()), None);
        put(0..10);
        assert!(engine.core().reserver().measuring().measure_waiting());
        let measured = engine.core().queues().measured(engine.generation()).unwrap();
        assert!(
            measured.blocks > 0 && price(measured) <= price(engine.core().queues().waiting()),
            "{measured:?}"
        );
        put(10..11);
        let grown = engine.core().queues().measured(engine.generation()).unwrap();
        assert_eq!(grown, measured + Charge::items(1, grown.item_bytes), "what came since is counted");
        let open = {
            let mut handle = engine.begin(Reservation::items(1)).unwrap();
            let key = Key::new(ObjectId(2000), ItemType::INODE_ITEM, 0);
            handle.edit(&tree, &[Edit::new(key, Change::Put(&inode_item()))]).unwrap();
            engine.core().queues().measured(engine.generation()).unwrap()
        };
        let after_edit = open + Charge { blocks: 1, ..Charge::default() };
        assert_eq!(
            engine.core().queues().measured(engine.generation()),
            Some(after_edit),
            "the item filled a leaf that was measured"
        );
        engine.commit().unwrap();
        assert_eq!(engine.core().queues().measured(engine.generation()), None, "another transaction");
        assert_eq!(engine.core().queues().waiting(), Charge::default());
    }

    #[test]
    fn what_takes_blocks_in_a_commit_waits_until_it_has_them() {
        require!(Tool("mkfs.btrfs"));
        let scratch = Scratch::new("ending");
        let engine = write(&new_image(&scratch, &[])).unwrap();
        let tree = engine.tree(RootId::FS_TREE).unwrap();
        let key = Key::new(ObjectId(1000), ItemType::INODE_ITEM, 0);
        engine.begin(Reservation::items(1)).unwrap().insert_pending(&tree, key, inode_item());
        let waiting = engine.core().queues().waiting();
        engine.core().queues().work().begin_ending(waiting);
        engine.core().queues().pending().remove(tree.id(), key, false);
        assert_eq!(engine.core().queues().waiting(), waiting);
        engine.core().queues().work().end_ending();
        assert_eq!(engine.core().queues().waiting(), Charge::default());
    }

    #[test]
    fn more_than_can_be_looked_at_is_not_measured() {
        require!(Tool("mkfs.btrfs"));
        let scratch = Scratch::new("unmeasured");
        let engine = write(&new_image(&scratch, &[])).unwrap();
        let tree = engine.tree(RootId::FS_TREE).unwrap();
        let count = u64::try_from(MAX_MEASURED).unwrap() + 1;
        {
            let mut handle = engine.begin(Reservation::items(200)).unwrap();
            for number in 0..count {
                let key = Key::new(ObjectId(1000 + number), ItemType::INODE_ITEM, 0);
                handle.insert_pending(&tree, key, inode_item());
            }
            assert!(!engine.core().reserver().measuring().measure_waiting());
        }
        assert_eq!(engine.core().queues().waiting().items, count);
        engine.commit().unwrap();
        assert!(engine.core().reserver().measuring().measure_waiting(), "nothing waits");
    }
}
