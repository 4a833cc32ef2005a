//! What changes take in the trees as they stand: of what waits for the commit, and of what is about to be
//! promised. Closer than any count, and dearer: it reads.

use std::ops::Range;

use vlinder_base::sync::Arc;
use vlinder_format::checksum_item::ChecksumGeometry;
use vlinder_format::{Block, Generation, ItemType, Key, Logical, ObjectId, RootId};
use vlinder_tree::{CopyEffect, MaybeShared, Measured, Precision, Root, Touch, TreeError};

use crate::EngineError;
use crate::commit_queues::CommitQueues;
use crate::extents::delayed::{MAX_REFERENCE_BYTES, TouchedExtent};
use crate::extents::leaf_extents::data_extents;
use crate::phase::RunningTransaction;
use crate::system_trees::SystemTrees;
use crate::waiting_work::MeasuredChanges;
use vlinder_forest::OpenTree;
use vlinder_space::{Charge, SpaceManager};

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

/// More extents or items than this are not measured: a commit costs little more.
pub(crate) const MAX_MEASURED: usize = 8192;
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

/// No generation: every block counts as one to be copied.
pub(crate) const NO_GENERATION: Generation = Generation(u64::MAX);

/// Measures in the trees of the running transaction.
#[derive(Clone, Copy)]
pub(crate) struct Measuring<'a> {
    trees: &'a SystemTrees,
    queues: &'a CommitQueues,
    space: &'a SpaceManager,
    running: &'a RunningTransaction,
}

impl<'a> Measuring<'a> {
    pub(crate) fn new(
        trees: &'a SystemTrees,
        queues: &'a CommitQueues,
        space: &'a SpaceManager,
        running: &'a RunningTransaction,
    ) -> Self {
        Self { trees, queues, space, running }
    }

    /// Extents whose references wait for the commit, or items, whichever are more.
    fn waiting_pieces(&self) -> usize {
        self.queues
            .delayed()
            .len()
            .max(usize::try_from(self.queues.pending().entries()).unwrap_or(usize::MAX))
    }

    /// Whether what waits is little enough to be looked at.
    fn is_possible(&self) -> bool {
        self.waiting_pieces() <= MAX_MEASURED
    }

    /// Whether what waits, and so many extents and items beside it, is little enough for a promise that is
    /// measured. It holds as long as what waits can be measured again.
    pub(crate) fn may_reserve(&self, further_extents: usize, further_items: usize) -> bool {
        let further = further_extents.max(further_items);
        self.waiting_pieces().saturating_add(further) <= MAX_PROMISED_BY_MEASURE
    }

    /// Measures in the trees as they stand what the next commit has to do. False where that can't be read, or
    /// is too much to be looked at.
    pub(crate) fn measure_waiting(&self) -> bool {
        if !self.is_possible() {
            return false;
        }
        let queues = self.queues;
        let number = queues.work().begin_measuring();
        let (generation, grown) = (self.running.generation(), queues.grown());
        match self.waiting() {
            Ok(changes) => {
                queues.end_measuring(MeasuredChanges { number, generation, grown, changes });
                true
            }
            Err(error) => {
                tracing::debug!(%error, "what waits for the commit could not be measured");
                false
            }
        }
    }

    /// What the next commit has to do.
    fn waiting(&self) -> Result<Charge, EngineError> {
        let (mut extents, waiting) = {
            let delayed = self.queues.delayed();
            (delayed.touched_data(), delayed.charge())
        };
        let mut charge = self.queues.snapshots().charge() + waiting.of_blocks();
        for id in self.queues.pending().trees() {
            let tree = self.trees.tree(id, self.space.reservations())?;
            let touches = self.queues.pending().touches(id);
            let copies = self.touches(id, tree.root(), &touches)?;
            charge += copies.charge;
            extents.extend(copies.extents);
        }
        charge += self.extents(extents)?;
        Ok(charge)
    }

    /// What changes at places of one tree take there, and what copies of shared blocks add.
    pub(crate) fn touches(
        &self,
        id: RootId,
        root: &Arc<Root>,
        touches: &[Touch],
    ) -> Result<MeasuredTouches, TreeError> {
        root.read_unlocked(|| self.touches_once(id, root, touches))
    }

    fn touches_once(
        &self,
        id: RootId,
        root: &Arc<Root>,
        touches: &[Touch],
    ) -> Result<MeasuredTouches, TreeError> {
        let (generation, last_snapshot) = (self.running.generation(), root.last_snapshot());
        let measured =
            self.trees.store().measure(root, generation, last_snapshot, touches, Precision::Leaves)?;
        let mut found = MeasuredTouches {
            charge: Charge { blocks: measured.blocks(), ..Charge::default() },
            ..MeasuredTouches::default()
        };
        let mut effects = Vec::with_capacity(measured.shared.len());
        for MaybeShared { block, parent } in &measured.shared {
            let inherited =
                parent.is_some_and(|parent| effects.get(parent) == Some(&Some(CopyEffect::Added)));
            let effect = self.trees.sharing_at(block.logical(), id, self.queues)?.effect_of_copy(inherited);
            effects.push(effect);
            if let Some(effect) = effect {
                found.charge += references_of(block, effect, &mut found.extents);
                found.copied.push(block.logical());
            }
        }
        Ok(found)
    }

    /// What changes of data extents' references take of the extent, free-space and checksum trees.
    fn extents(&self, mut extents: Vec<TouchedExtent>) -> Result<Charge, TreeError> {
        extents.sort_unstable_by_key(|extent| extent.logical);
        extents.dedup_by(|later, first| {
            let same = later.logical == first.logical;
            if same {
                first.growth_bytes = first.growth_bytes.saturating_add(later.growth_bytes);
                first.moves_space |= later.moves_space;
            }
            same
        });
        let generation = self.running.generation();
        let measure = |root: &Arc<Root>, places: &[Touch], precision| {
            self.trees.store().measure(root, generation, Generation(0), places, precision)
        };
        let places = extents.iter().map(|extent| touch_extent(extent, extent.growth_bytes));
        let places: Vec<Touch> = places.collect();
        let mut charge = Charge::default();
        let mut add = |measured: Measured| {
            charge += Charge { blocks: measured.blocks(), ..Charge::default() };
        };
        add(measure(self.trees.fixed().extent.root(), &places, Precision::Leaves)?);
        extents.retain(|extent| extent.moves_space);
        if let Some(free_space) = &self.trees.fixed().free_space {
            let places = extents.iter().map(|extent| touch_extent(extent, MAX_SPACE_ITEM_BYTES));
            let places: Vec<Touch> = places.collect();
            add(measure(free_space.root(), &places, Precision::Leaves)?);
        }
        let checksums: Vec<Touch> = extents.iter().map(touch_checksums).collect();
        add(measure(self.trees.fixed().checksum.root(), &checksums, Precision::Leaves)?);
        Ok(charge)
    }

    /// As a promise measures extents that others are measured beside.
    pub(crate) fn extents_beside_others(&self, mut extents: Vec<TouchedExtent>) -> Result<Charge, TreeError> {
        for extent in &mut extents {
            extent.growth_bytes = extent.growth_bytes.saturating_mul(PROMISES_OF_LEAF);
        }
        self.extents(extents)
    }

    /// References that copies of shared leaves at these keys of a tree add or replace, as they would be
    /// promised by measure; none where that is too much to be looked at, or can't be read: no handle need be
    /// open, so a commit may take away what is read.
    pub(crate) fn copies_at(&self, tree: &OpenTree, keys: Vec<Range<Key>>) -> Option<Charge> {
        let measure = || {
            let touches: Vec<Touch> = keys.into_iter().map(|keys| Touch { keys, growth_bytes: 0 }).collect();
            let MeasuredTouches { charge, extents, .. } = self.touches(tree.id(), tree.root(), &touches)?;
            if !self.may_reserve(extents.len(), 0) {
                return Ok(None);
            }
            Ok(Some(charge.of_blocks() + self.extents_beside_others(extents)?))
        };
        measure().unwrap_or_else(|error: TreeError| {
            tracing::debug!(%error, "copies of shared leaves could not be measured");
            None
        })
    }
}

/// The references that a copy of a block adds or replaces: those to tree blocks as a charge, those to data
/// extents one by one.
pub(crate) fn references_of(block: &Block, effect: CopyEffect, extents: &mut Vec<TouchedExtent>) -> Charge {
    if !block.is_leaf() {
        let block_places = u64::try_from(block.len()).unwrap_or(u64::MAX);
        let changes = if effect == CopyEffect::Renamed { 2 } else { 1 };
        let block_references = block_places.saturating_mul(changes);
        return Charge { block_references, block_places, ..Charge::default() };
    }
    extents.extend(data_extents(block).map(|(logical, length, ..)| TouchedExtent {
        logical,
        length,
        growth_bytes: MAX_REFERENCE_BYTES,
        moves_space: false,
    }));
    Charge::default()
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
