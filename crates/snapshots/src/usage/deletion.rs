//! What a deletion would free, found by carrying it out on the counts alone.
//!
//! Tree blocks are a graph in which a block's count says how many parents and roots refer to it; a data
//! extent's count says how many file extent items of all leaves do. Deleting subvolumes drops the references
//! of their roots. A block whose references are all dropped is freed, and drops those that it has. Levels
//! fall with each step, so all drops of a block are known when its level's turn comes: a level is looked up
//! in the order of addresses, and what is freed is read in that order. Blocks that keep a reference are
//! never read.
//!
//! Deleting files drops the references of their items. An item of a leaf that several subvolumes share goes
//! only if the file goes from each of them. So the roots of subvolumes that lose files take part, and each
//! block carries the set of those above it. Where all references of a leaf were met, an item goes if its
//! inode goes from every subvolume in the set. Subvolumes that are deleted whole need not be in it.
//!
//! Invariants:
//! 1. A block is looked at once, at its level's turn, and read only if its references were all met.
//! 2. The set of such a block has each subvolume above it that is not deleted whole.
//! 3. More drops than the extent tree counts are an error: no bytes lead in circles, and nothing is freed
//!    twice.

use vlinder_base::sync::Arc;
use vlinder_forest::{Forest, OpenTree};
use vlinder_format::{Block, Generation, ItemType, Level, Logical};
use vlinder_tree::WantedBlock;

use super::blocks::{self, BATCH};
use super::counts::ReferenceCounts;
use super::dropped::{DroppedReferences, Gathered, Gathering};
use super::error::{ExtentKind, UsageError};
use super::extent_items;
use super::number_set::NumberSet;
use super::root_sets::{RootSet, RootSets};

/// What a deletion gives back, in bytes of extents. A chunk with copies takes as many times that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Of file data, as stored.
    pub data_bytes: u64,
    /// Of the blocks of subvolume trees.
    pub metadata_bytes: u64,
}

impl Freed {
    /// Data and metadata together.
    #[must_use]
    pub const fn total_bytes(self) -> u64 {
        self.data_bytes.saturating_add(self.metadata_bytes)
    }
}

/// An extent that a deletion frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FreedExtent {
    /// Where it begins.
    pub start: Logical,
    /// Its bytes on disk.
    pub disk_bytes: u64,
    /// Whether it holds file data, and not a tree block.
    pub is_data: bool,
}

/// References to a block that were met.
#[derive(Clone, Copy)]
struct MetBlock {
    address: u64,
    /// None once two parents disagreed.
    generation: Option<Generation>,
    /// The subvolumes above it that are not deleted whole.
    above: RootSet,
    count: u32,
}

impl Gathered for MetBlock {
    fn address(&self) -> u64 {
        self.address
    }
}

/// Takes another entry of a block into one.
fn merge(sets: &mut RootSets) -> impl FnMut(&mut MetBlock, &MetBlock) {
    |kept, other| {
        kept.count = kept.count.saturating_add(other.count);
        kept.above = sets.union(kept.above, other.above);
        if kept.generation != other.generation {
            kept.generation = None;
        }
    }
}

/// A subvolume that loses some of its files.
pub(super) struct LosingTree<'s> {
    /// Its tree.
    pub tree: Arc<OpenTree>,
    /// The inodes that go.
    pub inodes: &'s NumberSet,
}

/// A deletion that is carried out on counts.
pub(super) struct Deletion<'a, 'b> {
    forest: &'a Forest,
    counts: &'b mut ReferenceCounts<'a>,
    losing: &'b [LosingTree<'b>],
    sets: RootSets,
    /// References met, by the level of the block.
    met: [Gathering<MetBlock>; Level::COUNT],
    data: Gathering<DroppedReferences>,
    freed: Freed,
    /// Is told each freed extent.
    each: &'b mut dyn FnMut(FreedExtent),
    /// Is told how many blocks were read.
    watch: &'b dyn Fn(u64),
}

impl<'a, 'b> Deletion<'a, 'b> {
    /// The deletion of whole subvolumes, and of files of others.
    pub(super) fn new(
        (forest, counts): (&'a Forest, &'b mut ReferenceCounts<'a>),
        whole: &[Arc<OpenTree>],
        losing: &'b [LosingTree<'b>],
        each: &'b mut dyn FnMut(FreedExtent),
        watch: &'b dyn Fn(u64),
    ) -> Self {
        let mut deletion = Self {
            forest,
            counts,
            losing,
            sets: RootSets::new(losing.len()),
            met: Default::default(),
            data: Gathering::default(),
            freed: Freed::default(),
            each,
            watch,
        };
        for tree in whole {
            deletion.meet(&WantedBlock::root(tree.root()), RootSet::NONE);
        }
        for (place, losing) in losing.iter().enumerate() {
            let above = deletion.sets.one(place);
            deletion.meet(&WantedBlock::root(losing.tree.root()), above);
        }
        deletion
    }

    /// Carries it out.
    pub(super) fn run(mut self) -> Result<Freed, UsageError> {
        for level in (0..Level::COUNT).rev() {
            self.free_level(level)?;
        }
        self.free_data()?;
        Ok(self.freed)
    }

    /// A reference to a block is met.
    fn meet(&mut self, block: &WantedBlock, above: RootSet) {
        let met = MetBlock { address: block.logical.0, generation: Some(block.generation), above, count: 1 };
        if let Some(level) = self.met.get_mut(block.level.index()) {
            level.push(met, merge(&mut self.sets));
        }
    }

    /// Reads the blocks of a level of which all references were met.
    fn free_level(&mut self, level: usize) -> Result<(), UsageError> {
        let Some(met) = self.met.get_mut(level) else { return Ok(()) };
        let met = met.take_sorted(merge(&mut self.sets));
        let level = Level(u8::try_from(level).unwrap_or(u8::MAX));
        self.counts.expect(met.len());
        let mut batch: Vec<(WantedBlock, RootSet)> = Vec::with_capacity(BATCH);
        for block in met {
            let address = Logical(block.address);
            let counted = self.counts.look_up(address, ExtentKind::TreeBlock)?.references;
            let met = u64::from(block.count);
            if met > counted {
                return Err(UsageError::Miscounted { kind: ExtentKind::TreeBlock, address, met, counted });
            }
            if met < counted {
                continue;
            }
            let generation = block.generation.ok_or(UsageError::Ambiguous { address })?;
            batch.push((blocks::wanted(address, generation, level), block.above));
            if batch.len() >= BATCH {
                self.free_batch(&mut batch)?;
            }
        }
        self.free_batch(&mut batch)
    }

    fn free_batch(&mut self, batch: &mut Vec<(WantedBlock, RootSet)>) -> Result<(), UsageError> {
        let wanted: Vec<WantedBlock> = batch.iter().map(|(block, _)| *block).collect();
        let read = blocks::read(self.forest, &wanted)?;
        (self.watch)(u64::try_from(read.len()).unwrap_or(u64::MAX));
        for (block, (_, above)) in read.iter().zip(batch.drain(..)) {
            if above == RootSet::NONE {
                let disk_bytes = u64::from(self.forest.trees().source().node_size());
                self.freed.metadata_bytes = self.freed.metadata_bytes.saturating_add(disk_bytes);
                (self.each)(FreedExtent { start: block.logical(), disk_bytes, is_data: false });
            }
            if block.is_leaf() { self.free_items(block, above)? } else { self.meet_children(block, above) }
        }
        Ok(())
    }

    /// Meets the references of a node; where not all goes, of those below which a file goes.
    fn meet_children(&mut self, node: &Block, above: RootSet) {
        let losing = self.losing_in(above);
        for slot in 0..node.len() {
            let child = WantedBlock::child(vlinder_format::RootId::FS_TREE, node, slot);
            let first = child.first_key.map_or(0, |key| key.objectid.0);
            let last = child.before.map_or(u64::MAX, |key| key.objectid.0);
            if losing.iter().all(|losing| losing.inodes.intersects(first, last)) {
                self.meet(&child, above);
            }
        }
    }

    /// Drops the references of a leaf's items that go.
    fn free_items(&mut self, leaf: &Block, above: RootSet) -> Result<(), UsageError> {
        let losing = self.losing_in(above);
        for slot in 0..leaf.len() {
            let key = leaf.key(slot);
            if key.item_type != ItemType::EXTENT_DATA
                || !losing.iter().all(|losing| losing.inodes.contains(key.objectid.0))
            {
                continue;
            }
            if let Some(run) = extent_items::run_at(leaf, slot)? {
                let dropped = DroppedReferences { address: run.extent.0, count: 1 };
                self.data.push(dropped, DroppedReferences::merge);
            }
        }
        Ok(())
    }

    fn losing_in(&self, above: RootSet) -> Vec<&'b LosingTree<'b>> {
        let losing = self.losing;
        self.sets.places(above).into_iter().filter_map(|place| losing.get(place)).collect()
    }

    /// Looks up the extents whose references were dropped.
    fn free_data(&mut self) -> Result<(), UsageError> {
        let dropped = self.data.take_sorted(DroppedReferences::merge);
        self.counts.expect(dropped.len());
        for DroppedReferences { address, count } in dropped {
            let start = Logical(address);
            let counted = self.counts.look_up(start, ExtentKind::Data)?;
            if count > counted.references {
                let (kind, counted) = (ExtentKind::Data, counted.references);
                return Err(UsageError::Miscounted { kind, address: start, met: count, counted });
            }
            if count == counted.references {
                self.freed.data_bytes = self.freed.data_bytes.saturating_add(counted.disk_bytes);
                (self.each)(FreedExtent { start, disk_bytes: counted.disk_bytes, is_data: true });
            }
        }
        Ok(())
    }
}
