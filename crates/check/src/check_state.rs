//! What every pass shares: the volume, the rules, the blocks that were reached, the references counted so
//! far, and the report.

use std::collections::BTreeSet;

use vlinder_base::sync::{Arc, Mutex};
use vlinder_format::block::{BLOCK_FLAG_RELOCATION, BLOCK_FLAG_WRITTEN, BackReferenceRevision, BlockRules};
use vlinder_format::extent::{ExtentFlags, ExtentHeader};
use vlinder_format::superblock::Superblock;
use vlinder_format::validate::LeafRules;
use vlinder_format::{Block, Key, Level, Logical, Place, RootId};
use vlinder_volume::Volume;

use crate::bitmap::BlockSet;
use crate::block_head::BlockHead;
use crate::checked_tree::CheckedTree;
use crate::expected::Expected;
use crate::extent_use::{Use, User};
use crate::faulty::Faulty;
use crate::finding::FindingKind;
use crate::judge::Judge;
use crate::ledger::{Balance, Side};
use crate::options::Options;
use crate::owners::Owners;
use crate::packed::Packed;
use crate::ranges::Gathering;
use crate::report::{Finding, Report};
use crate::shared::Summaries;
use crate::sorted::{Record, Sorter};
use crate::store::Store;
use crate::workers::Workers;
use vlinder_base::random::{OsRandom, Random};

/// Findings that are listed; the others are counted.
const MAX_FINDINGS: usize = 10_000;
/// Where Linux's scrub cannot read a tree block: across this border.
const STRIPE_BYTES: u64 = vlinder_format::chunk::STRIPE_LENGTH;

/// The state of a check.
pub(crate) struct CheckState<'a> {
    pub(crate) judge: Judge<'a>,
    pub(crate) options: &'a Options<'a>,
    pub(crate) workers: Workers,
    /// Where lists go that are too large for memory.
    pub(crate) store: Store,
    /// Blocks that were reached.
    pub(crate) reached: BlockSet,
    /// Of these, those that a relocation put where they are.
    pub(crate) relocated: BlockSet,
    /// The uses of extents: those that trees claim against those that the extent tree records.
    pub(crate) references: Balance<Use>,
    /// What simple quotas count, if they are on.
    pub(crate) owners: Option<Owners>,
    /// What shared blocks of subvolumes come to.
    pub(crate) summaries: Summaries,
    /// There are trees of a relocation.
    pub(crate) relocates: bool,
    /// Blocks that are said to be left by their owners, and are not.
    pub(crate) left: BTreeSet<Logical>,
    /// Items of extents that could not be used.
    pub(crate) faulty_extents: Faulty,
    /// Compressed extents, where they are unpacked.
    pub(crate) packed: Sorter<Packed>,
    /// Bytes that are to be read and judged, as far as that is known.
    pub(crate) expected_bytes: Option<u64>,
    /// What is found by the rules goes into the report; off while facts are collected for an explanation.
    pub(crate) judging: bool,
    pub(crate) report: Report,
}

impl<'a> CheckState<'a> {
    pub(crate) fn new(volume: Arc<Volume>, superblock: &'a Superblock, options: &'a Options<'a>) -> Self {
        let geometry = *volume.geometry();
        let rules = LeafRules {
            sector_size: geometry.sector_size,
            node_size: geometry.node_size,
            checksum_size: u32::try_from(geometry.checksum_kind.size_bytes()).unwrap_or(u32::MAX),
            generation: superblock.generation,
            features: superblock.features(),
            writable: false,
        };
        let chunks: Vec<(Logical, u64)> =
            volume.chunks().snapshot().iter().map(|chunk| (chunk.logical, chunk.chunk.length)).collect();
        let store = Store::new(options.temporary.cloned());
        let set =
            || BlockSet::new(geometry.sector_size, chunks.iter().copied(), &store, options.list_bytes());
        let judge = Judge {
            full: set(),
            shared: set(),
            volume,
            superblock,
            rules,
            block_rules: BlockRules { node_size: geometry.node_size, sector_size: geometry.sector_size },
            checksum_kind: geometry.checksum_kind,
            unpacks: options.data_checksums,
            lacks: Mutex::default(),
            secret: OsRandom.next_u64(),
        };
        Self {
            reached: set(),
            relocated: set(),
            packed: Sorter::new(&store, options.list_bytes()),
            judge,
            options,
            workers: Workers::new(options.threads),
            store,
            references: Balance::new(),
            owners: None,
            summaries: Summaries::default(),
            relocates: false,
            left: BTreeSet::new(),
            faulty_extents: Faulty::default(),
            expected_bytes: None,
            judging: true,
            report: Report::default(),
        }
    }

    /// Does something of which the rules say nothing, because they did before; blocks are reached anew.
    pub(crate) fn quietly(&mut self, work: impl FnOnce(&mut Self)) {
        let judging = core::mem::replace(&mut self.judging, false);
        work(self);
        self.judging = judging;
    }
}

impl CheckState<'_> {
    /// A set of ranges that is one of those that are large where data are fragmented.
    pub(crate) fn gathering(&self) -> Gathering {
        Gathering::new(&self.store, self.options.list_bytes())
    }

    /// A list that is one of those.
    pub(crate) fn sorter<R: Record>(&self) -> Sorter<R> {
        Sorter::new(&self.store, self.options.list_bytes())
    }

    /// Takes in a finding.
    pub(crate) fn find(&mut self, kind: FindingKind, place: Place) {
        if self.judging {
            self.list(kind, place);
        }
    }

    /// Part of a tree could not be read.
    pub(crate) fn lose(&mut self) {
        if let Some(owners) = self.owners.as_mut().filter(|_| self.judging) {
            owners.lose();
        }
    }

    /// Takes in a finding of an explanation.
    pub(crate) fn list(&mut self, kind: FindingKind, place: Place) {
        if self.report.findings.len() < MAX_FINDINGS {
            self.report.findings.push(Finding { kind, place });
        } else {
            self.report.not_listed = self.report.not_listed.saturating_add(1);
        }
    }

    /// The root of a tree is used by the tree.
    pub(crate) fn claim_root(&mut self, tree: &CheckedTree) {
        let user =
            if tree.id == RootId::TREE_RELOCATION { User::Parent(tree.logical) } else { User::Root(tree.id) };
        let extent = self.judge.block_extent(tree.logical, tree.level);
        self.references.add(Side::Claimed, Use { extent, user }, 1);
    }

    /// Bytes were read and judged.
    pub(crate) fn advance(&mut self, bytes: u64) {
        if let Some(progress) = self.options.progress.filter(|_| self.judging) {
            progress(bytes, self.expected_bytes);
        }
    }

    /// A block of a tree is reached, for the first time or not: its place is judged.
    pub(crate) fn reach(&mut self, tree: &CheckedTree, head: &BlockHead, is_root: bool, is_first: bool) {
        let logical = head.logical;
        let place = Place { tree: Some(tree.id), block: Some(logical), ..Place::default() };
        if !is_first {
            if is_root || !tree.id.is_shareable() {
                self.find(FindingKind::BlockShared {}, place);
            }
            return;
        }
        if head.is_relocated() {
            self.relocated.insert(logical);
        }
        let is_own = is_root || !tree.id.is_shareable() || head.owner == tree.id && !head.is_relocated();
        if tree.has_references && is_own && self.judge.full.contains(logical) {
            self.find_left(logical);
        }
        // Snapshots are read after what they are of, so that the owner is the first unless it has left the
        // block.
        let is_foreign = tree.id.is_shareable() && head.owner != tree.id;
        if tree.has_references && is_foreign && !self.relocates && !self.judge.full.contains(logical) {
            let reason = "belongs to another tree, which does not lead to it";
            self.find(FindingKind::BlockOwner { reason }, place);
        }
        if tree.has_references {
            let extent = self.judge.block_extent(logical, head.level);
            self.references.add(Side::Claimed, Use { extent, user: User::Made(head.generation) }, 1);
            self.judge_flags(tree, head, place);
        }
        let node_size = u64::from(self.judge.rules.node_size);
        if self.judging {
            self.report.blocks = self.report.blocks.saturating_add(1);
            if let Some(owners) = &mut self.owners {
                owners.add_block(head, node_size);
            }
            self.advance(node_size);
        }
        if (logical.0 % STRIPE_BYTES).saturating_add(node_size) > STRIPE_BYTES {
            self.find(FindingKind::BlockCrossesStripe {}, place);
        }
    }

    /// A block's flags are known; only of shareable trees a relocation leaves marks, on blocks that refer by
    /// parent.
    fn judge_flags(&mut self, tree: &CheckedTree, head: &BlockHead, place: Place) {
        let known = BLOCK_FLAG_WRITTEN | BLOCK_FLAG_RELOCATION;
        let may_be_relocated =
            tree.id.is_shareable() && (self.relocates || self.judge.full.contains(head.logical));
        let is_odd = head.flags & !known != 0
            || head.revision != BackReferenceRevision::MIXED
            || (head.is_relocated() && !may_be_relocated);
        if is_odd {
            let (found, revision) = (head.flags, head.revision.0);
            self.find(FindingKind::BlockFlags { found, revision }, place);
        }
    }

    /// Notes who a node refers to: by parent if its extent item says so, else by the tree that made the node.
    /// Children before the first slot were freed with half of a deleted subvolume.
    pub(crate) fn claim_children(&mut self, node: &Block, first_slot: usize) {
        let level = node.level().below().unwrap_or(Level::LEAF);
        let by_parent = self.judge.full.contains(node.logical());
        let user = if by_parent { User::Parent(node.logical()) } else { User::Root(node.owner()) };
        for child in node.children().skip(first_slot) {
            let extent = self.judge.block_extent(child.logical, level);
            self.references.add(Side::Claimed, Use { extent, user }, 1);
        }
    }

    /// What several trees share is no newer than the last snapshot of each of them, or was put there by a
    /// relocation: a writer takes what is newer for the tree's own, writes it over and frees it
    /// (`btrfs_block_can_be_shared`, `update_ref_for_cow`). Children before the first slot are gone.
    ///
    /// No node leads to what is newer than itself, so that what lies below a shared block that was judged
    /// needs no look.
    pub(crate) fn judge_sharing(&mut self, tree: &CheckedTree, node: &Block, first_slot: usize) {
        let Some(last_snapshot) = tree.last_snapshot.filter(|_| self.judging) else { return };
        for (slot, child) in node.children().enumerate().skip(first_slot) {
            let (found, block) = (child.generation, child.logical);
            let is_right = found <= last_snapshot || !self.judge.shared.contains(block);
            if is_right || self.is_relocated(&Expected::of_child(tree.id, node, slot)) {
                continue;
            }
            let place = Place {
                tree: Some(tree.id),
                block: Some(node.logical()),
                slot: u32::try_from(slot).ok(),
                key: Some(child.key),
            };
            self.find(FindingKind::SharedNewer { block, found, last_snapshot }, place);
        }
    }

    /// Whether a block was put where it is by a relocation; also where it can't be read, which is found
    /// elsewhere. What another tree reached before is not read again: after a balance all that a thousand
    /// snapshots share is such.
    fn is_relocated(&self, expected: &Expected) -> bool {
        if self.reached.contains(expected.logical) {
            return self.relocated.contains(expected.logical);
        }
        let mut found_elsewhere = Vec::new();
        let block = self.judge.read(&[*expected], &mut found_elsewhere).pop().flatten();
        block.is_none_or(|block| block.has_flag(BLOCK_FLAG_RELOCATION))
    }

    /// A block that its owner has not left is said to be left; found once. While a relocation is under way
    /// its trees and others lead to such blocks.
    fn find_left(&mut self, block: Logical) {
        if !self.relocates && self.left.len() < MAX_FINDINGS && self.left.insert(block) {
            let place = Place { tree: Some(RootId::EXTENT_TREE), block: Some(block), ..Place::default() };
            let reason = "is said to be left by its owner, whose tree leads to it";
            self.find(FindingKind::BlockOwner { reason }, place);
        }
    }

    /// Notes how a block is referred to, and how it refers to its children.
    pub(crate) fn note_block(&mut self, logical: Logical, header: &ExtentHeader) {
        let is_full = header.flags.has(ExtentFlags::FULL_BACK_REFERENCE);
        if is_full {
            self.judge.full.insert(logical);
            // Trees that are read before this one share nothing.
            if self.reached.contains(logical) {
                self.find_left(logical);
            }
        }
        if header.references > 1 {
            self.judge.shared.insert(logical);
        }
    }
}

/// The place of a key that is not in any block at hand.
pub(crate) fn at(tree: RootId, key: Key) -> Place {
    Place { tree: Some(tree), key: Some(key), ..Place::default() }
}

#[cfg(test)]
pub(crate) mod tests {
    use vlinder_device::Device;
    use vlinder_testkit::hostile;
    use vlinder_volume::Access;
    use vlinder_volume::superblock::SuperblockChoice;

    use super::*;

    /// Does something in a check of a small sound image.
    pub(crate) fn with_context(work: impl FnOnce(&mut CheckState<'_>)) {
        let image: Arc<dyn Device> = Arc::new(hostile::sound(1));
        let opened = Volume::open(vec![image], SuperblockChoice::Automatic, Access::ReadOnly).unwrap();
        let (superblock, options) = (opened.superblock, Options::default());
        work(&mut CheckState::new(Arc::new(opened.volume), &superblock, &options));
    }
}
