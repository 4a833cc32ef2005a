//! Tree blocks that two histories contradict each other in.
//!
//! Two histories can allocate the same addresses in the same transactions, and then their superblocks say the
//! same of them. Their blocks differ all the same: leaves tell the time. The blocks of one side's trees are
//! compared, youngest first, with what lies at the same addresses on the other side. Where a block was
//! written in transaction *g*, and the other side's last transaction in question is *l*, a good block there
//! proves:
//!
//! | generation of the other side's block | bytes | proves |
//! |---|---|---|
//! | older than *g* | | nothing: garbage, or a write that was lost |
//! | *g* to *l* | the same, of a leaf that tells the time of *g* | that all transactions up to *g* are those of both |
//! | *g* to *l* | other ones | two histories: the first side had the address in use from *g* to *l* |
//! | newer than *l* | | nothing: the address was used again |

use std::collections::{BTreeMap, HashSet};

use vlinder_codec::checksum::{Checksum, checksum};
use vlinder_format::block::BlockRules;
use vlinder_format::inode::InodeItem;
use vlinder_format::root_item::RootItem;
use vlinder_format::superblock::Superblock;
use vlinder_format::{Block, DeviceId, Generation, ItemType, Level, Logical, RootId, Uuid};

use crate::chunk_source::MappedBy;
use crate::copies::Copies;
use crate::profile::{plan_read, reconstructions};
use crate::request::ReadRequest;
use crate::verified::StaleCopies;
use crate::volume::Volume;

/// Blocks that are looked at before a search is given up: it ends long before, but where an image was made
/// up.
const MAX_BLOCKS: usize = 1 << 18;

/// What a search found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// These two members contradict each other.
    Contradiction(DeviceId, DeviceId),
    /// All transactions up to this one are those of both sides.
    Common(Generation),
    /// There is none.
    Nothing,
}

/// Whose trees are compared with whose blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides<'a> {
    /// The members of which the superblock is.
    pub(super) walked: &'a [DeviceId],
    /// Those whose blocks at the same addresses are looked at. They may be the same members.
    pub(super) others: &'a [DeviceId],
    /// The youngest transaction that both sides may have had.
    pub(super) last: Generation,
}

/// How a block that waits is reached.
#[derive(Clone, Copy, Debug)]
struct Reached {
    level: Level,
    tree: RootId,
}

/// A search among the trees of a superblock.
pub(super) struct Search<'a> {
    volume: &'a Volume,
    sides: Sides<'a>,
    enters_trees: bool,
    tree_block_uuid: Uuid,
    /// Youngest last.
    waiting: BTreeMap<(Generation, Logical), Reached>,
    seen: HashSet<(Generation, Logical)>,
}

impl<'a> Search<'a> {
    /// A search that begins nowhere, among blocks that have this UUID.
    pub(super) fn new(volume: &'a Volume, tree_block_uuid: Uuid, sides: Sides<'a>) -> Self {
        let (waiting, seen) = (BTreeMap::new(), HashSet::new());
        Self { volume, sides, enters_trees: false, tree_block_uuid, waiting, seen }
    }

    /// It begins at the root of the chunk tree, too.
    pub(super) fn beginning_at_chunk_root(mut self, superblock: &Superblock) -> Self {
        let root = (superblock.chunk_root_generation, superblock.chunk_root);
        self.wait_for(root, superblock.chunk_root_level, RootId::CHUNK_TREE);
        self
    }

    /// It begins at the root of the root tree, too.
    pub(super) fn beginning_at_root(mut self, superblock: &Superblock) -> Self {
        let root = (superblock.generation, superblock.root);
        self.wait_for(root, superblock.root_level, RootId::ROOT_TREE);
        self
    }

    /// It begins at the root of the tree of fsync logs, too, and enters the logs.
    pub(super) fn beginning_at_log(mut self, superblock: &Superblock) -> Self {
        let generation = Generation(superblock.generation.0.saturating_add(1));
        // It names the logs as the root tree names trees.
        self.wait_for((generation, superblock.log_root), superblock.log_root_level, RootId::ROOT_TREE);
        self.entering_trees()
    }

    /// It enters the trees that the root tree names.
    pub(super) const fn entering_trees(mut self) -> Self {
        self.enters_trees = true;
        self
    }

    fn wait_for(&mut self, block: (Generation, Logical), level: Level, tree: RootId) {
        if !self.seen.contains(&block) {
            self.waiting.insert(block, Reached { level, tree });
        }
    }

    /// Looks at the blocks that are younger than `floor`, the youngest first, until one proves something.
    pub(super) fn run(mut self, floor: Generation) -> Evidence {
        while let Some((at, reached)) = self.waiting.pop_last() {
            if at.0 <= floor || self.seen.len() >= MAX_BLOCKS {
                return Evidence::Nothing;
            }
            self.seen.insert(at);
            // The other side never had a leaf that is younger; a leaf leads nowhere, but in the root tree.
            let is_too_young = at.0 > self.sides.last;
            if is_too_young && reached.level.0 == 0 && reached.tree != RootId::ROOT_TREE {
                continue;
            }
            let copies = self.copies(at.1, reached.tree);
            if !is_too_young && let Some(evidence) = self.compare(at.0, &copies) {
                return evidence;
            }
            let is_wanted = |block: &Block| block.generation() == at.0 && block.level() == reached.level;
            if let Some((_, block)) = copies.iter().find(|(_, block)| is_wanted(block)) {
                self.enter(block, reached);
            }
        }
        Evidence::Nothing
    }

    /// What is at an address: each copy that is a block of this file system which belongs there, whichever it
    /// is. Copies of the side that is walked come first.
    fn copies(&self, logical: Logical, tree: RootId) -> Vec<(DeviceId, Block)> {
        let by = if tree == RootId::CHUNK_TREE { MappedBy::SystemChunks } else { MappedBy::AnyChunk };
        let places = self.places(logical, by);
        let mut copies: Vec<(DeviceId, Block)> =
            places.into_iter().filter_map(|(device, block)| Some((device, block?))).collect();
        copies.sort_by_key(|(device, _)| !self.sides.walked.contains(device));
        copies
    }

    /// Whether a block of this generation is on the side that is walked, and was not written on the other
    /// one, where it has a place, too.
    pub(super) fn lacks(&self, logical: Logical, generation: Generation) -> bool {
        let is_there =
            |block: &Option<Block>| block.as_ref().is_some_and(|block| block.generation() == generation);
        let places = self.places(logical, MappedBy::AnyChunk);
        let has = |device: &DeviceId| places.iter().any(|(on, block)| on == device && is_there(block));
        let lacks = |device: &DeviceId| places.iter().any(|(on, block)| on == device && !is_there(block));
        self.sides.walked.iter().any(has) && self.sides.others.iter().any(lacks)
    }

    /// A member of the other side that has an older block where the side that is walked has one of this
    /// generation: that one was not written there.
    pub(super) fn older_than(&self, logical: Logical, generation: Generation) -> Option<DeviceId> {
        let copies = self.copies(logical, RootId::ROOT_TREE);
        let is_written = |(device, block): &(DeviceId, Block)| {
            self.sides.walked.contains(device) && block.generation() == generation
        };
        let is_older = |(device, block): &&(DeviceId, Block)| {
            self.sides.others.contains(device) && block.generation() < generation
        };
        copies
            .iter()
            .any(is_written)
            .then(|| copies.iter().find(is_older))
            .flatten()
            .map(|(device, _)| *device)
    }

    /// Each device from which a copy of the block at an address can be read, with what is a block of this
    /// file system and belongs there.
    fn places(&self, logical: Logical, by: MappedBy) -> Vec<(DeviceId, Option<Block>)> {
        let length = u64::from(self.volume.geometry().node_size);
        // The other side may have removed the chunk since.
        let Ok(chunk) = self.volume.chunk_by(by, logical, length) else { return Vec::new() };
        let request = ReadRequest { logical, length: usize::try_from(length).unwrap_or(usize::MAX) };
        let (mut places, copies) = (Vec::new(), Copies::new(self.volume, &chunk));
        for reconstruction in 0..reconstructions(&chunk) {
            // What is worked out of parities is of no one member.
            let Ok(parts) = plan_read(&chunk, logical, length, reconstruction) else { continue };
            let Some(device) = parts.first().map(|part| part.device) else { continue };
            // What a device can't read proves nothing of what was written there.
            let Ok(bytes) = copies.read(request, reconstruction, StaleCopies::Accept) else { continue };
            places.push((device, self.sound(bytes, logical)));
        }
        places
    }

    /// The block in these bytes, if it is one of this file system that belongs at an address.
    fn sound(&self, bytes: Vec<u8>, logical: Logical) -> Option<Block> {
        let geometry = self.volume.geometry();
        let rules = BlockRules { node_size: geometry.node_size, sector_size: geometry.sector_size };
        if !self.checksum_matches(&bytes) {
            return None;
        }
        let block = Block::parse(bytes.into_boxed_slice(), &rules).ok()?;
        let is_ours = block.header().fsid() == self.tree_block_uuid
            || self.volume.members().is_seed_block_uuid(block.header().fsid());
        (is_ours && block.logical() == logical).then_some(block)
    }

    fn checksum_matches(&self, bytes: &[u8]) -> bool {
        let kind = self.volume.geometry().checksum_kind;
        let Some((field, covered)) = bytes.split_first_chunk::<32>() else { return false };
        Checksum::from_field(*field).matches(&checksum(kind, covered), kind)
    }

    /// What the copies prove of a block of this generation.
    fn compare(&self, generation: Generation, copies: &[(DeviceId, Block)]) -> Option<Evidence> {
        let walked = copies
            .iter()
            .find(|(device, block)| self.sides.walked.contains(device) && block.generation() == generation);
        let (device, block) = walked?;
        let in_question = generation..=self.sides.last;
        let others = copies.iter().filter(|(other, found)| {
            // One device has one history. Two good copies on it are of a transaction that was begun twice.
            other != device && self.sides.others.contains(other) && in_question.contains(&found.generation())
        });
        let mut is_same = false;
        for (other, found) in others {
            if found.bytes() != block.bytes() {
                return Some(Evidence::Contradiction(*device, *other));
            }
            is_same = true;
        }
        (is_same && tells_the_time(block)).then_some(Evidence::Common(generation))
    }

    fn enter(&mut self, block: &Block, reached: Reached) {
        if !block.is_leaf() {
            for child in block.children() {
                self.wait_for(
                    (child.generation, child.logical),
                    Level(reached.level.0.saturating_sub(1)),
                    reached.tree,
                );
            }
        } else if reached.tree == RootId::ROOT_TREE && self.enters_trees {
            for slot in (0..block.len()).filter(|slot| block.key(*slot).item_type == ItemType::ROOT_ITEM) {
                let Ok(item) = RootItem::decode(block.data(slot)) else { continue };
                self.wait_for(
                    (item.generation, item.address),
                    item.level,
                    RootId(block.key(slot).objectid.0),
                );
            }
        }
    }
}

/// Whether a leaf has times that its own transaction stored: no other wrote the same.
fn tells_the_time(block: &Block) -> bool {
    let generation = block.generation();
    block.is_leaf()
        && (0..block.len()).any(|slot| match block.key(slot).item_type {
            ItemType::INODE_ITEM => {
                InodeItem::decode(block.data(slot)).is_ok_and(|inode| inode.transaction == generation)
            }
            ItemType::ROOT_ITEM => RootItem::decode(block.data(slot)).is_ok_and(|root| {
                root.extension.is_some_and(|extension| extension.change_transaction == generation)
            }),
            _ => false,
        })
}
