//! What the next commit has to do that no handle holds a promise for: pending items, delayed references,
//! snapshots. First as a bound from counts; where that finds no room, measured in the trees.

use crate::engine::Engine;
use crate::measuring::Measuring;
use crate::waiting_work::MeasuredChanges;
use vlinder_space::{Charge, Draw, FILE_EXTENT_ITEM_BYTES, INODE_ITEM_BYTES};

impl Engine {
    /// Items that changed outside a transaction: ordinary changes leave room for them, so that the next
    /// commit takes them. (It goes without those that find none.)
    pub fn await_items(&self, count: u64) {
        self.waiting.await_items(count);
    }

    /// Items that were awaited are in a transaction, or not needed any more.
    pub fn settle_awaited_items(&self, count: u64) {
        self.waiting.settle_awaited(count);
    }

    /// Whether one item more can be changed outside a transaction, for a participant to put in before the
    /// next commit. A caller that hears no leaves the item as it was: a commit that found no space for it
    /// could not end.
    pub fn has_room_for_item(&self) -> bool {
        let changes = Charge::leaves(1) + self.items_beside(1);
        let has_room = self.try_changes(changes, Draw::Nothing);
        if has_room {
            self.space.reservations().unpromise(changes);
        }
        has_room
    }

    /// What the next commit has to do at worst, by counts.
    pub(crate) fn waiting_changes(&self) -> Charge {
        self.queued_changes().at_least(self.waiting.ending())
    }

    /// Of what waits, all that has not begun to take its blocks.
    pub(crate) fn queued_changes(&self) -> Charge {
        let delayed = self.delayed.lock().charge();
        let (pending, shared_items) = self.pending.charge();
        delayed + pending + self.snapshots.charge() + self.copies_of_leaves(shared_items)
    }

    /// All that was ever added to [`waiting_changes`](Self::waiting_changes), and a block for each item that
    /// a handle put into a tree itself: a leaf that was measured may split since.
    pub(crate) fn grown_changes(&self) -> Charge {
        let delayed = self.delayed.lock().grown();
        let (pending, shared_items) = self.pending.grown();
        let edited = self.waiting.edited_items();
        let filled_leaves = Charge { blocks: edited, ..Charge::default() };
        delayed + pending + self.snapshots.grown() + self.copies_of_leaves(shared_items) + filled_leaves
    }

    /// What putting in all awaited items may change.
    pub(crate) fn awaited_changes(&self) -> Charge {
        self.items_beside(self.waiting.awaited_items())
    }

    /// What putting in so many items may change that changed outside a transaction. Nobody has noted of which
    /// tree they are.
    fn items_beside(&self, items: u64) -> Charge {
        let shared = if self.forest.may_share_blocks() { items } else { 0 };
        Charge::items(items, items.saturating_mul(INODE_ITEM_BYTES)) + self.copies_of_leaves(shared)
    }

    /// References that copies of so many shared leaves add or replace at worst: where each item is that of an
    /// extent.
    pub(crate) fn copies_of_leaves(&self, leaves: u64) -> Charge {
        let references = leaves.saturating_mul(u64::from(self.node_size()) / FILE_EXTENT_ITEM_BYTES);
        Charge { added_references: references, dropped_references: references, ..Charge::default() }
    }

    /// What the next commit has to do, as it was measured in this transaction, with what came since by
    /// counts; none if nobody measured.
    pub(crate) fn measured_changes(&self) -> Option<Charge> {
        let MeasuredChanges { generation, grown, changes, .. } = self.waiting.measured()?;
        (generation == self.generation()).then(|| changes + self.grown_changes().growth_since(grown))
    }

    /// Measures in the trees as they stand what the next commit has to do. False where that can't be read, or
    /// is too much to be looked at.
    pub(crate) fn measure_waiting(&self) -> bool {
        let measuring = Measuring::of(self);
        if !measuring.is_possible() {
            return false;
        }
        let number = self.waiting.begin_measuring();
        let (generation, grown) = (self.generation(), self.grown_changes());
        match measuring.waiting() {
            Ok(changes) => {
                self.metrics.waiting_measured.increment();
                self.waiting.end_measuring(MeasuredChanges { number, generation, grown, changes });
                true
            }
            Err(error) => {
                tracing::debug!(%error, "what waits for the commit could not be measured");
                false
            }
        }
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
    fn what_was_measured_holds_for_its_transaction_and_is_no_more_than_what_was_counted() {
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
        let price = |changes| engine.space.reservations().price_bytes(changes);
        assert_eq!(engine.measured_changes(), None);
        put(0..10);
        assert!(engine.measure_waiting());
        let measured = engine.measured_changes().unwrap();
        assert!(measured.blocks > 0 && price(measured) <= price(engine.waiting_changes()), "{measured:?}");
        put(10..11);
        let grown = engine.measured_changes().unwrap();
        assert_eq!(grown, measured + Charge::items(1, grown.item_bytes), "what came since is counted");
        let open = {
            let mut handle = engine.begin(Reservation::items(1)).unwrap();
            let key = Key::new(ObjectId(2000), ItemType::INODE_ITEM, 0);
            handle.edit(&tree, &[Edit::new(key, Change::Put(&inode_item()))]).unwrap();
            engine.measured_changes().unwrap()
        };
        let after_edit = open + Charge { blocks: 1, ..Charge::default() };
        assert_eq!(engine.measured_changes(), Some(after_edit), "the item filled a leaf that was measured");
        engine.commit().unwrap();
        assert_eq!(engine.measured_changes(), None, "another transaction");
        assert_eq!(engine.waiting_changes(), Charge::default());
    }

    #[test]
    fn what_takes_its_blocks_in_a_commit_counts_as_waiting_until_it_has_them() {
        require!(Tool("mkfs.btrfs"));
        let scratch = Scratch::new("ending");
        let engine = write(&new_image(&scratch, &[])).unwrap();
        let tree = engine.tree(RootId::FS_TREE).unwrap();
        let key = Key::new(ObjectId(1000), ItemType::INODE_ITEM, 0);
        engine.begin(Reservation::items(1)).unwrap().insert_pending(&tree, key, inode_item());
        let waiting = engine.waiting_changes();
        engine.waiting.begin_ending(waiting);
        engine.pending.remove(tree.id(), key, false);
        assert_eq!(engine.waiting_changes(), waiting);
        engine.waiting.end_ending();
        assert_eq!(engine.waiting_changes(), Charge::default());
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
            assert!(!engine.measure_waiting());
        }
        assert_eq!(engine.waiting_changes().items, count);
        engine.commit().unwrap();
        assert!(engine.measure_waiting(), "nothing waits");
    }
}
