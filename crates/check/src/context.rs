//! What every pass shares: the volume, the rules, the blocks that were reached, the references counted so far, and the
//! report.

use std::collections::BTreeSet;

use vlinder_base::sync::Arc;
use vlinder_codec::checksum::ChecksumKind;
use vlinder_format::block::{BLOCK_FLAG_RELOCATION, BLOCK_FLAG_WRITTEN, BackReferenceRevision, BlockRules};
use vlinder_format::extent::{ExtentFlags, ExtentHeader};
use vlinder_format::file_extent::FileExtent;
use vlinder_format::superblock::Superblock;
use vlinder_format::validate::LeafRules;
use vlinder_format::{Block, ItemType, Key, Level, Logical, Place, RootId};
use vlinder_volume::Volume;

use crate::Options;
use crate::bitmap::BlockSet;
use crate::compressed::Packed;
use crate::faulty::Faulty;
use crate::finding::FindingKind;
use crate::ledger::{Balance, Prepared, Side};
use crate::owners::{Head, Owners};
use crate::ranges::Gathering;
use crate::reader::Expected;
use crate::references::{Extent, Use, User};
use crate::report::{Finding, Report};
use crate::shared::Summaries;
use crate::sorted::{Record, Sorter};
use crate::store::Store;
use crate::walk::Tree;
use crate::workers::Workers;

/// Findings that are listed; the others are counted.
const MOST_FINDINGS: usize = 10_000;
/// What grows with a file system and is there at one time: lists of data extents, of all extents, of free space and of
/// checksums; sets of blocks that were reached, were relocated, are shared, and refer by parent; five lists of what the root tree says; and three
/// that come and go: of one subvolume its orphans, its inodes without a name and the subvolumes in it, or two levels of what
/// subvolumes use, or what of the root tree is put in another order. And, where data are read, one of compressed extents.
const LISTS: usize = 17;
/// What they take in memory together, before they go to temporary space: half a million runs each.
const LISTS_BYTES: usize = 64 << 20;
/// Where Linux's scrub cannot read a tree block: across this border.
const STRIPE_BYTES: u64 = vlinder_format::chunk::STRIPE_LENGTH;

/// What every thread judges by.
pub(crate) struct Judge<'a> {
    pub(crate) volume: Arc<Volume>,
    pub(crate) superblock: &'a Superblock,
    pub(crate) rules: LeafRules,
    pub(crate) block_rules: BlockRules,
    pub(crate) checksum_kind: ChecksumKind,
    /// Blocks whose children are referenced by parent.
    pub(crate) full: BlockSet,
    /// Blocks that several others refer to.
    pub(crate) shared: BlockSet,
    /// Compressed data are unpacked.
    pub(crate) unpacks: bool,
    /// Nobody who made the image knows it.
    pub(crate) secret: u64,
}

/// The state of a check.
pub(crate) struct Context<'a> {
    pub(crate) judge: Judge<'a>,
    pub(crate) options: &'a Options<'a>,
    pub(crate) workers: Workers,
    /// Where lists go that are too large for memory.
    pub(crate) store: Store,
    /// Blocks that were reached.
    pub(crate) reached: BlockSet,
    /// Of these, those that a relocation put where they are.
    pub(crate) relocated: BlockSet,
    /// Who uses which extent.
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

impl Judge<'_> {
    pub(crate) fn block_extent(&self, logical: Logical, level: Level) -> Extent {
        Extent { logical, length: u64::from(self.rules.node_size), level: Some(level) }
    }

    /// Whether file systems like this one have holes without items.
    pub(crate) fn no_holes(&self) -> bool {
        self.superblock.incompat.has(vlinder_format::features::IncompatFeatures::NO_HOLES)
    }

    /// The data extents that a leaf refers to.
    pub(crate) fn claim_extents(&self, references: &Balance<Use>, leaf: &Block, claims: &mut Prepared<Use>) {
        let by_parent = self.full.contains(leaf.logical());
        for slot in 0..leaf.len() {
            let key = leaf.key(slot);
            if key.item_type != ItemType::EXTENT_DATA {
                continue;
            }
            let Ok(item) = FileExtent::decode(leaf.data(slot)) else { continue };
            let Some(range) = item.range().filter(|range| !range.is_hole()) else { continue };
            let user = if by_parent {
                User::Leaf(leaf.logical())
            } else {
                let offset = key.offset.wrapping_sub(range.offset_bytes);
                User::File { root: leaf.owner(), inode: key.objectid, offset }
            };
            let extent = Extent { logical: range.address, length: range.disk_bytes, level: None };
            references.prepare(Side::Claimed, Use { extent, user }, 1, claims);
        }
    }
}

impl Options<'_> {
    /// What one list may hold in memory.
    pub(crate) fn list_bytes(&self) -> usize {
        self.lists_bytes.unwrap_or(LISTS_BYTES) / LISTS
    }
}

impl Context<'_> {
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
        if self.report.findings.len() < MOST_FINDINGS {
            self.report.findings.push(Finding { kind, place });
        } else {
            self.report.not_listed = self.report.not_listed.saturating_add(1);
        }
    }

    /// The root of a tree is used by the tree.
    pub(crate) fn claim_root(&mut self, tree: &Tree) {
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
    pub(crate) fn reach(&mut self, tree: &Tree, head: &Head, is_root: bool, is_first: bool) {
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
        // Snapshots are read after what they are of, so that the owner is the first unless it has left the block.
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

    /// A block's flags are known; only of shareable trees a relocation leaves marks, on blocks that refer by parent.
    fn judge_flags(&mut self, tree: &Tree, head: &Head, place: Place) {
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

    /// Notes who a node refers to: by parent if its extent item says so, else by the tree that made the node. Children
    /// before the first slot were freed with half of a deleted subvolume.
    pub(crate) fn claim_children(&mut self, node: &Block, first_slot: usize) {
        let level = node.level().below().unwrap_or(Level::LEAF);
        let by_parent = self.judge.full.contains(node.logical());
        let user = if by_parent { User::Parent(node.logical()) } else { User::Root(node.owner()) };
        for child in node.children().skip(first_slot) {
            let extent = self.judge.block_extent(child.logical, level);
            self.references.add(Side::Claimed, Use { extent, user }, 1);
        }
    }

    /// What several trees share is no newer than the last snapshot of each of them, or was put there by a relocation: a writer
    /// takes what is newer for the tree's own, writes it over and frees it (`btrfs_block_can_be_shared`,
    /// `update_ref_for_cow`). Children before the first slot are gone.
    ///
    /// No node leads to what is newer than itself, so that what lies below a shared block that was judged needs no look.
    pub(crate) fn judge_sharing(&mut self, tree: &Tree, node: &Block, first_slot: usize) {
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

    /// Whether a block was put where it is by a relocation; also where it can't be read, which is found elsewhere. What another
    /// tree reached before is not read again: after a balance all that a thousand snapshots share is such.
    fn is_relocated(&self, expected: &Expected) -> bool {
        if self.reached.contains(expected.logical) {
            return self.relocated.contains(expected.logical);
        }
        let mut found_elsewhere = Vec::new();
        let block = self.judge.read(&[*expected], &mut found_elsewhere).pop().flatten();
        block.is_none_or(|block| block.has_flag(BLOCK_FLAG_RELOCATION))
    }

    /// A block that its owner has not left is said to be left; found once. While a relocation is under way its trees and others
    /// lead to such blocks.
    fn find_left(&mut self, block: Logical) {
        if !self.relocates && self.left.len() < MOST_FINDINGS && self.left.insert(block) {
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
    pub(crate) fn with_context(work: impl FnOnce(&mut Context<'_>)) {
        let image: Arc<dyn Device> = Arc::new(hostile::sound(1));
        let opened = Volume::open(vec![image], SuperblockChoice::Automatic, Access::ReadOnly).unwrap();
        let (superblock, options) = (opened.superblock, Options::default());
        work(&mut Context::new(Arc::new(opened.volume), &superblock, &options));
    }
}
