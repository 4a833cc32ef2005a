//! What the next commit has to do that no handle holds a promise for: pending items, delayed references,
//! snapshots. First as a bound from counts; where that finds no room, measured in the trees.

use std::ops::Range;

use vlinder_base::sync::Arc;
use vlinder_format::checksum_item::ChecksumGeometry;
use vlinder_format::{Block, Generation, ItemType, Key, Logical, ObjectId, RootId};
use vlinder_tree::{CopyEffect, MaybeShared, Measured, Precision, Root, Touch, TreeError};

use crate::EngineError;
use crate::engine::Engine;
use crate::extents::delayed::{MAX_REFERENCE_BYTES, TouchedExtent};
use crate::waiting_work::MeasuredChanges;
use vlinder_forest::OpenTree;
use vlinder_space::{Asker, Charge, Draw, FILE_EXTENT_ITEM_BYTES, INODE_ITEM_BYTES};

/// What changes at places of one tree take, as the tree was when it was measured.
#[derive(Debug, Default)]
pub(crate) struct MeasuredTouches {
    /// What they take in the tree itself, and of references to tree blocks.
    pub(crate) charge: Charge,
    /// Data extents to which copies of shared leaves add references.
    pub(crate) extents: Vec<TouchedExtent>,
    /// The blocks whose copies add references.
    pub(crate) copied: Vec<Logical>,
}

/// How references of a block's children change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReferenceMoves {
    /// They go, and with them extents.
    Dropped,
    /// Each is replaced by one of another kind.
    Renamed,
}

/// Items that a snapshot changes in the root tree: its root item, that of its source, and two references.
const SNAPSHOT_ROOT_ITEMS: u64 = 4;
/// Items that a snapshot changes in the tree of UUIDs: its own, and that of what it was received as.
const SNAPSHOT_UUIDS: u64 = 2;
/// Items that a snapshot changes in the quota tree.
const SNAPSHOT_QUOTA_ITEMS: u64 = 4;
/// Bytes that the name of a snapshot adds to a leaf at most.
const SNAPSHOT_NAME_BYTES: usize = 330;
/// More extents or items than this are not measured: a commit costs little more.
const MAX_MEASURED: usize = 8192;
/// Where this many wait, promises are given by counts alone. A promise that was measured is smaller than the
/// counts that its handle leaves, so what it leaves must be measurable, with all that other open handles
/// leave.
const MAX_PROMISED_BY_MEASURE: usize = MAX_MEASURED / 2;
/// Promises that are measured beside one another, each as if it alone filled a leaf, which may split of all
/// of them: a leaf that has room for so many times what one puts there counts as one that does not split.
const PROMISES_OF_LEAF: usize = 4;
/// Bytes that the free-space tree or the checksum tree may grow by for one extent, with room for two promises
/// more that are measured beside it: cutting an item in two adds a header of 25 bytes.
const MAX_SPACE_ITEM_BYTES: usize = 64;

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
        if self.waiting_pieces() > MAX_MEASURED {
            return false;
        }
        let number = self.waiting.begin_measuring();
        let (generation, grown) = (self.generation(), self.grown_changes());
        match self.try_measure_waiting() {
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

    /// Extents whose references wait for the commit, or items, whichever are more.
    fn waiting_pieces(&self) -> usize {
        self.delayed.lock().len().max(usize::try_from(self.pending.entries()).unwrap_or(usize::MAX))
    }

    /// Whether what waits, and so many extents and items beside it, is little enough for a promise that is
    /// measured. It holds as long as what waits can be measured again.
    fn may_promise_by_measure(&self, further_extents: usize, further_items: usize) -> bool {
        let further = further_extents.max(further_items);
        self.waiting_pieces().saturating_add(further) <= MAX_PROMISED_BY_MEASURE
    }

    fn try_measure_waiting(&self) -> Result<Charge, EngineError> {
        let (mut extents, waiting) = {
            let delayed = self.delayed.lock();
            (delayed.touched_data(), delayed.charge())
        };
        let mut charge = self.snapshots.charge() + waiting.of_blocks();
        for id in self.pending.trees() {
            let tree = self.tree(id)?;
            let touches = self.pending.touches(id);
            let copies = self.measure_touches(id, tree.root(), &touches)?;
            charge += copies.charge;
            extents.extend(copies.extents);
        }
        charge += self.measure_extents(extents)?;
        Ok(charge)
    }

    /// What changes at places of one tree take there, and what copies of shared blocks add.
    pub(crate) fn measure_touches(
        &self,
        id: RootId,
        root: &Arc<Root>,
        touches: &[Touch],
    ) -> Result<MeasuredTouches, TreeError> {
        root.read_unlocked(|| self.measure_touches_once(id, root, touches))
    }

    fn measure_touches_once(
        &self,
        id: RootId,
        root: &Arc<Root>,
        touches: &[Touch],
    ) -> Result<MeasuredTouches, TreeError> {
        let (generation, last_snapshot) = (self.generation(), root.last_snapshot());
        let measured =
            self.forest.trees().measure(root, generation, last_snapshot, touches, Precision::Leaves)?;
        let mut found = MeasuredTouches {
            charge: Charge { blocks: measured.blocks(), ..Charge::default() },
            ..MeasuredTouches::default()
        };
        let mut effects = Vec::with_capacity(measured.shared.len());
        for MaybeShared { block, parent } in &measured.shared {
            let inherited =
                parent.is_some_and(|parent| effects.get(parent) == Some(&Some(CopyEffect::Added)));
            let effect = self.sharing_at(block.logical(), id)?.effect_of_copy(inherited);
            effects.push(effect);
            if let Some(effect) = effect {
                found.charge += references_of(block, effect, &mut found.extents);
                found.copied.push(block.logical());
            }
        }
        Ok(found)
    }

    /// What changes of data extents' references take of the extent, free-space and checksum trees.
    fn measure_extents(&self, mut extents: Vec<TouchedExtent>) -> Result<Charge, TreeError> {
        extents.sort_unstable_by_key(|extent| extent.logical);
        extents.dedup_by(|later, first| {
            let same = later.logical == first.logical;
            if same {
                first.growth_bytes = first.growth_bytes.saturating_add(later.growth_bytes);
                first.moves_space |= later.moves_space;
            }
            same
        });
        let generation = self.generation();
        let measure = |root: &Arc<Root>, places: &[Touch], precision| {
            self.forest.trees().measure(root, generation, Generation(0), places, precision)
        };
        let places = extents.iter().map(|extent| touch_extent(extent, extent.growth_bytes));
        let places: Vec<Touch> = places.collect();
        let mut charge = Charge::default();
        let mut add = |measured: Measured| {
            charge += Charge { blocks: measured.blocks(), returned: measured.copies, ..Charge::default() };
        };
        add(measure(self.fixed.extent.root(), &places, Precision::Leaves)?);
        extents.retain(|extent| extent.moves_space);
        if let Some(free_space) = &self.fixed.free_space {
            let places = extents.iter().map(|extent| touch_extent(extent, MAX_SPACE_ITEM_BYTES));
            let places: Vec<Touch> = places.collect();
            add(measure(free_space.root(), &places, Precision::Leaves)?);
        }
        let checksums: Vec<Touch> = extents.iter().map(touch_checksums).collect();
        add(measure(self.fixed.checksum.root(), &checksums, Precision::Leaves)?);
        Ok(charge)
    }

    /// Promises changes: as counted where there is room for that, else as measured. `measure` gives a charge
    /// of its own and data extents whose references change beside it; `items` will wait for the commit.
    ///
    /// # Errors
    /// [`TreeError::NoSpace`], of changes in the tree of `root`; what reading met.
    fn promise_counted_or_measured(
        &self,
        (root, asker): (RootId, Asker),
        counted: Charge,
        items: usize,
        measure: impl FnOnce() -> Result<(Charge, Vec<TouchedExtent>), TreeError>,
    ) -> Result<Charge, TreeError> {
        if self.try_changes(counted, asker) {
            return Ok(counted);
        }
        let refused = |changes| TreeError::NoSpace {
            root,
            needed_bytes: self.space.reservations().price_bytes(changes),
        };
        if !self.may_promise_by_measure(0, items) {
            return Err(refused(counted));
        }
        let (charge, extents) = measure()?;
        if !self.may_promise_by_measure(extents.len(), items) {
            return Err(refused(counted));
        }
        let measured = charge + self.measure_extents(beside_others(extents))?;
        let promised =
            self.try_changes(measured, asker) || (self.revoke_leases() && self.try_changes(measured, asker));
        if promised { Ok(measured) } else { Err(refused(measured)) }
    }

    /// Promises what the references of these blocks' children take that copies of the blocks add, or replace.
    ///
    /// # Errors
    /// [`TreeError::NoSpace`]; what reading met.
    pub(crate) fn promise_references_of(
        &self,
        root: RootId,
        blocks: &[(&Block, CopyEffect)],
        asker: Asker,
    ) -> Result<Charge, TreeError> {
        let mut extents = Vec::new();
        let mut charge = Charge::default();
        let mut counted = Charge::default();
        for (block, effect) in blocks {
            let before = extents.len();
            charge += references_of(block, *effect, &mut extents);
            let count = u64::try_from(extents.len() - before).unwrap_or(u64::MAX);
            counted.added_references += count;
            counted.dropped_references += if *effect == CopyEffect::Renamed { count } else { 0 };
        }
        let counted = counted + charge;
        let asker = asker.for_shared_copies();
        self.promise_counted_or_measured((root, asker), counted, 0, || Ok((charge, extents)))
    }

    /// Promises what references of a leaf's data extents, or of a node's children, take that come or go.
    ///
    /// # Errors
    /// As [`promise_references_of`](Self::promise_references_of).
    pub(crate) fn promise_reference_changes(
        &self,
        block: &Block,
        changes: ReferenceMoves,
        asker: Asker,
    ) -> Result<Charge, TreeError> {
        let mut extents = Vec::new();
        let charge = references_of(block, CopyEffect::Renamed, &mut extents);
        let count = u64::try_from(extents.len()).unwrap_or(u64::MAX);
        let counted = match changes {
            ReferenceMoves::Dropped => {
                Charge { dropped_references: count, extents: count, checksums: count, ..charge }
            }
            ReferenceMoves::Renamed => {
                Charge { dropped_references: count, added_references: count, ..charge }
            }
        };
        for extent in &mut extents {
            extent.moves_space = changes == ReferenceMoves::Dropped;
            extent.growth_bytes = if extent.moves_space { 0 } else { MAX_REFERENCE_BYTES };
        }
        self.promise_counted_or_measured((block.owner(), asker), counted, 0, || Ok((charge, extents)))
    }

    /// Blocks that a new root takes in the trees that tell of roots: for each item a path, and a leaf that
    /// splits; for each tree a level that comes on top.
    fn blocks_of_new_root(&self) -> u64 {
        let fixed = &self.fixed;
        let blocks = |root: &Root, items: u64| (u64::from(root.pointer().level.0) + 2) * items + 1;
        let of_tree =
            |tree: &Option<Arc<OpenTree>>, items| tree.as_ref().map_or(0, |tree| blocks(tree.root(), items));
        blocks(self.forest.root_tree(), SNAPSHOT_ROOT_ITEMS)
            + of_tree(&fixed.uuid, SNAPSHOT_UUIDS)
            + of_tree(&fixed.quota, SNAPSHOT_QUOTA_ITEMS)
    }

    /// Promises what giving a snapshot its name may change, after the tree was copied: the leaves at these
    /// keys are shared then.
    ///
    /// # Errors
    /// As [`promise_references_of`](Self::promise_references_of).
    pub(crate) fn promise_snapshot(
        &self,
        tree: &OpenTree,
        keys: &[Key],
        asker: Asker,
    ) -> Result<Charge, TreeError> {
        let own = Charge { blocks: self.blocks_of_new_root(), ..Charge::default() };
        let leaves = u64::try_from(keys.len()).unwrap_or(u64::MAX);
        let counted = own + Charge::leaves(leaves) + self.copies_of_leaves(leaves);
        self.promise_counted_or_measured((tree.id(), asker), counted, keys.len(), || {
            // No generation's block is the transaction's own, once the tree is copied.
            let touches: Vec<Touch> = keys.iter().map(|key| Touch::at(*key, SNAPSHOT_NAME_BYTES)).collect();
            let measured = self.forest.trees().measure(
                tree.root(),
                NO_GENERATION,
                NO_GENERATION,
                &touches,
                Precision::Leaves,
            )?;
            let mut extents = Vec::new();
            let mut charge = own + Charge { blocks: measured.blocks(), ..Charge::default() };
            for MaybeShared { block, .. } in &measured.shared {
                // The tree was copied beside, so each block has another reference.
                charge += references_of(block, CopyEffect::Added, &mut extents);
            }
            Ok((charge, extents))
        })
    }

    /// Promises what pending items at these keys of a tree take beyond their own leaves: the references that
    /// copies of shared leaves add. Gives, where it was measured, which blocks' copies are paid with that.
    ///
    /// # Errors
    /// As [`promise_references_of`](Self::promise_references_of).
    pub(crate) fn promise_copies_at(
        &self,
        tree: &OpenTree,
        keys: &[Key],
        asker: Asker,
    ) -> Result<(Charge, Vec<Logical>), TreeError> {
        let counted = self.copies_of_leaves(u64::try_from(keys.len()).unwrap_or(u64::MAX));
        let mut copied = Vec::new();
        let asker = asker.for_shared_copies();
        let promised = self.promise_counted_or_measured((tree.id(), asker), counted, keys.len(), || {
            let touches: Vec<Touch> = keys.iter().map(|key| Touch::at(*key, 0)).collect();
            let measured = self.measure_touches(tree.id(), tree.root(), &touches)?;
            copied = measured.copied;
            Ok((measured.charge.of_blocks(), measured.extents))
        })?;
        Ok((promised, copied))
    }

    /// References that copies of shared leaves at these keys of a tree add or replace, as they would be
    /// promised by measure; none where that is too much to be looked at, or can't be read: no handle need be
    /// open, so a commit may take away what is read.
    pub(crate) fn measure_copies_at(&self, tree: &OpenTree, keys: Vec<Range<Key>>) -> Option<Charge> {
        let measure = || {
            let touches: Vec<Touch> = keys.into_iter().map(|keys| Touch { keys, growth_bytes: 0 }).collect();
            let MeasuredTouches { charge, extents, .. } =
                self.measure_touches(tree.id(), tree.root(), &touches)?;
            if !self.may_promise_by_measure(extents.len(), 0) {
                return Ok(None);
            }
            Ok(Some(charge.of_blocks() + self.measure_extents(beside_others(extents))?))
        };
        measure().unwrap_or_else(|error: TreeError| {
            tracing::debug!(%error, "copies of shared leaves could not be measured");
            None
        })
    }
}

/// The references that a copy of a block adds or replaces: those to tree blocks as a charge, those to data
/// extents one by one.
fn references_of(block: &Block, effect: CopyEffect, extents: &mut Vec<TouchedExtent>) -> Charge {
    if !block.is_leaf() {
        let block_places = u64::try_from(block.len()).unwrap_or(u64::MAX);
        let changes = if effect == CopyEffect::Renamed { 2 } else { 1 };
        let block_references = block_places.saturating_mul(changes);
        return Charge { block_references, block_places, ..Charge::default() };
    }
    extents.extend(Engine::data_extents(block).map(|(logical, length, ..)| TouchedExtent {
        logical,
        length,
        growth_bytes: MAX_REFERENCE_BYTES,
        moves_space: false,
    }));
    Charge::default()
}

/// The extents as a promise measures them that others are measured beside.
fn beside_others(mut extents: Vec<TouchedExtent>) -> Vec<TouchedExtent> {
    for extent in &mut extents {
        extent.growth_bytes = extent.growth_bytes.saturating_mul(PROMISES_OF_LEAF);
    }
    extents
}

/// Where an extent's items lie, in the trees that are ordered by address.
fn touch_extent(extent: &TouchedExtent, growth_bytes: usize) -> Touch {
    let object = |logical: Logical| Key::new(ObjectId(logical.0), ItemType(0), 0);
    let end = Logical(extent.logical.0.saturating_add(extent.length));
    Touch { keys: object(extent.logical)..object(end), growth_bytes }
}

/// Where an extent's checksums lie: they may begin in the item before.
fn touch_checksums(extent: &TouchedExtent) -> Touch {
    let end = Logical(extent.logical.0.saturating_add(extent.length));
    let keys = ChecksumGeometry::key(extent.logical)..ChecksumGeometry::key(end);
    Touch { keys, growth_bytes: MAX_SPACE_ITEM_BYTES }
}

/// No generation: every block counts as one to be copied.
pub(crate) const NO_GENERATION: Generation = Generation(u64::MAX);

#[cfg(test)]
mod tests {
    use vlinder_format::inode::{InodeItem, Mode};
    use vlinder_testkit::{Scratch, require};
    use vlinder_tree::{Change, Edit};

    use super::*;
    use crate::Reservation;
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
