//! What every pass shares: the volume, the rules, the blocks that were reached, the references counted so far, and the
//! report.

use vlinder_base::sync::Arc;
use vlinder_codec::checksum::ChecksumKind;
use vlinder_format::block::BlockRules;
use vlinder_format::extent::ExtentFlags;
use vlinder_format::file_extent::FileExtent;
use vlinder_format::superblock::Superblock;
use vlinder_format::validate::LeafRules;
use vlinder_format::{Block, ItemType, Key, Level, Logical, Place, RootId};
use vlinder_volume::Volume;

use crate::Options;
use crate::bitmap::BlockSet;
use crate::finding::{Finding, FindingKind, Report};
use crate::ledger::{Balance, Side};
use crate::references::{Extent, Use, User};
use crate::walk::{Tree, is_shareable};

/// Findings that are listed; the others are counted.
const MOST_FINDINGS: usize = 10_000;
/// Where Linux's scrub cannot read a tree block: across this border.
const STRIPE_BYTES: u64 = vlinder_format::chunk::STRIPE_LENGTH;

/// The state of a check.
pub(crate) struct Context<'a> {
    pub(crate) volume: Arc<Volume>,
    pub(crate) superblock: &'a Superblock,
    pub(crate) options: &'a Options<'a>,
    pub(crate) rules: LeafRules,
    pub(crate) block_rules: BlockRules,
    pub(crate) checksum_kind: ChecksumKind,
    /// Blocks that were reached.
    pub(crate) reached: BlockSet,
    /// Blocks whose children are referenced by parent.
    pub(crate) full: BlockSet,
    /// Who uses which extent.
    pub(crate) references: Balance<Use>,
    /// What is found by the rules goes into the report; off while facts are collected for an explanation.
    pub(crate) judging: bool,
    pub(crate) report: Report,
}

impl Context<'_> {
    /// Takes in a finding.
    pub(crate) fn find(&mut self, kind: FindingKind, place: Place) {
        if self.judging {
            self.list(kind, place);
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
        let extent = self.block_extent(tree.logical, tree.level);
        self.references.add(Side::Claimed, Use { extent, user }, 1);
    }

    pub(crate) fn block_extent(&self, logical: Logical, level: Level) -> Extent {
        Extent { logical, length: u64::from(self.rules.node_size), level: Some(level) }
    }

    /// A block of a tree is reached. When it is the first time, its place is judged, and who it uses is noted, from the
    /// child at `first_slot` on (those before were freed with half of a deleted subvolume). Gives whether it was.
    pub(crate) fn reach(
        &mut self,
        tree: &Tree,
        block: &Arc<Block>,
        is_root: bool,
        first_slot: usize,
    ) -> bool {
        let place = Place { tree: Some(tree.id), block: Some(block.logical()), ..Place::default() };
        let is_first = self.reached.insert(block.logical());
        if !is_first {
            if is_root || !is_shareable(tree.id) {
                self.find(FindingKind::BlockShared {}, place);
            }
            return false;
        }
        if self.judging {
            self.report.blocks = self.report.blocks.saturating_add(1);
            if let Some(progress) = self.options.progress {
                progress(u64::from(self.rules.node_size));
            }
        }
        let offset = block.logical().0 % STRIPE_BYTES;
        if offset.saturating_add(u64::from(self.rules.node_size)) > STRIPE_BYTES {
            self.find(FindingKind::BlockCrossesStripe {}, place);
        }
        if tree.has_references {
            self.claim_children(block, first_slot);
        }
        true
    }

    /// What a block refers to: by parent if its extent item says so, else by the tree that made the block.
    fn claim_children(&mut self, block: &Block, first_slot: usize) {
        let by_parent = self.full.contains(block.logical());
        let (owner, parent) = (block.owner(), block.logical());
        if let Some(level) = block.level().below() {
            let user = if by_parent { User::Parent(parent) } else { User::Root(owner) };
            for child in block.children().skip(first_slot) {
                let extent = self.block_extent(child.logical, level);
                self.references.add(Side::Claimed, Use { extent, user }, 1);
            }
            return;
        }
        for slot in 0..block.len() {
            let key = block.key(slot);
            if key.item_type != ItemType::EXTENT_DATA {
                continue;
            }
            let Ok(item) = FileExtent::decode(block.data(slot)) else { continue };
            let Some(range) = item.range().filter(|range| !range.is_hole()) else { continue };
            let user = if by_parent {
                User::Leaf(parent)
            } else {
                let offset = key.offset.wrapping_sub(range.offset_bytes);
                User::File { root: owner, inode: key.objectid, offset }
            };
            let extent = Extent { logical: range.address, length: range.disk_bytes, level: None };
            self.references.add(Side::Claimed, Use { extent, user }, 1);
        }
    }

    /// Notes that a block's children are referenced by parent.
    pub(crate) fn note_flags(&mut self, logical: Logical, flags: ExtentFlags) {
        if flags.has(ExtentFlags::FULL_BACK_REFERENCE) {
            self.full.insert(logical);
        }
    }

    /// Whether file systems like this one have holes without items.
    pub(crate) fn no_holes(&self) -> bool {
        self.superblock.incompat.has(vlinder_format::features::IncompatFeatures::NO_HOLES)
    }
}

/// The place of a key that is not in any block at hand.
pub(crate) fn at(tree: RootId, key: Key) -> Place {
    Place { tree: Some(tree), key: Some(key), ..Place::default() }
}
