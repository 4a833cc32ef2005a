//! What changes can take of metadata space at worst: counts of what may be touched, and their price in tree
//! blocks. Arithmetic alone, without locks. docs/design/space.md derives the formula.
//!
//! Invariants:
//! 1. The price of a charge is at least what its changes take, in handles and in the commit, except for what
//!    every commit takes by itself ([`TreeSizes::commit_blocks`]).
//! 2. The price of a sum is at most the sum of the prices, so that charges can be added before they are
//!    priced.
//!
//! Sums, products and prices saturate: the disk tells some of the sizes, which must neither end the program
//! nor wrap to a small price, and the greatest number is an upper bound still. What goes back from a sum must
//! have been added to it: anything else is a mistake of ours, and asserted. For both to hold no sum may
//! saturate that something goes back from: a single change counts less than 2^32 of anything, as many as
//! memory holds of them less than 2^64.

use std::ops::{Add, AddAssign, SubAssign};

use vlinder_format::block::{HEADER_SIZE, ITEM_HEADER_SIZE, POINTER_SIZE};
use vlinder_format::file_extent::REGULAR_SIZE;
use vlinder_format::inode::InodeItem;

use crate::chains::Chains;

/// Bytes of an inode item with its header.
pub const INODE_ITEM_BYTES: u64 = (InodeItem::SIZE + ITEM_HEADER_SIZE) as u64;
/// Bytes of the item of a file's extent with its header.
pub const FILE_EXTENT_ITEM_BYTES: u64 = (REGULAR_SIZE + ITEM_HEADER_SIZE) as u64;

/// Bytes that one more reference takes in the extent tree at most: an item of its own with its header.
const REFERENCE_BYTES: u64 = 64;
/// Bytes that the item of a tree block takes in the extent tree at most: headers, first key and level, one
/// reference.
pub const BLOCK_ITEM_BYTES: u64 = 76;
/// Bytes that the free-space tree or the checksum tree takes for one extent more or less: an item's header,
/// and what is in it.
const EXTENT_BYTES: u64 = 64;
/// A leaf that splits leaves pieces that are a quarter full at least: half full, less one large item.
const PIECES_OF_LEAF: u64 = 4;
/// Pointers that a node holds at least after it was split: half of what the smallest node takes, some of them
/// left out for the nodes above, which take a pointer for each node.
const POINTERS_OF_HALF_NODE: u64 = 32;
const _: () = {
    const SMALLEST_NODE: usize = 4096;
    let half = ((SMALLEST_NODE - HEADER_SIZE) / POINTER_SIZE / 2) as u64;
    assert!(POINTERS_OF_HALF_NODE < half, "the pointers of one level and of those above");
};
/// Blocks that a commit takes beside the trees that are counted and the paths of the device, UUID and quota
/// trees: new root blocks, a conversion of a group to bitmaps, and the addresses that the plan of one edit
/// holds and does not use.
const COMMIT_SLACK_BLOCKS: u64 = 32;

/// Counts of what changes may touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Tree blocks, where it is known how many.
    pub blocks: u64,
    /// Leaves that may change, anywhere in any tree.
    pub leaves: u64,
    /// Items that may be put or removed and of which many may share a leaf.
    pub items: u64,
    /// Bytes of these items, headers included.
    pub item_bytes: u64,
    /// References to data extents that may be added.
    pub added_references: u64,
    /// References to data extents that may be dropped.
    pub dropped_references: u64,
    /// Data extents that may be allocated or freed.
    pub extents: u64,
    /// Runs of checksums that may be put or removed, and leaves that those fill that are removed.
    pub checksums: u64,
    /// Bytes of checksums that may be put.
    pub checksum_bytes: u64,
    /// References to tree blocks that may be added or dropped.
    pub block_references: u64,
    /// Places of tree blocks to which these references belong, but for places that were free before.
    pub block_places: u64,
}

impl Charge {
    /// Changes in so many leaves.
    #[must_use]
    pub const fn leaves(leaves: u64) -> Self {
        Self { leaves, ..Self::NOTHING }
    }

    /// So many items of so many bytes in all, headers included.
    #[must_use]
    pub const fn items(items: u64, item_bytes: u64) -> Self {
        Self { items, item_bytes, ..Self::NOTHING }
    }

    pub(crate) const NOTHING: Self = Self {
        blocks: 0,
        leaves: 0,
        items: 0,
        item_bytes: 0,
        added_references: 0,
        dropped_references: 0,
        extents: 0,
        checksums: 0,
        checksum_bytes: 0,
        block_references: 0,
        block_places: 0,
    };

    /// By how much each count is higher than it was before.
    #[must_use]
    pub fn growth_since(self, before: Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    /// Of it, what is about references to tree blocks.
    #[must_use]
    pub fn of_blocks(self) -> Self {
        let Self { block_references, block_places, .. } = self;
        Self { block_references, block_places, ..Self::NOTHING }
    }

    /// Each count as high as in both charges.
    #[must_use]
    pub fn at_least(self, other: Self) -> Self {
        self.with(other, u64::max)
    }

    /// Each count so many times.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        self.with(self, |one, _| one.saturating_mul(count))
    }

    /// Each count made of both charges'.
    fn with(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            blocks: combine(self.blocks, other.blocks),
            leaves: combine(self.leaves, other.leaves),
            items: combine(self.items, other.items),
            item_bytes: combine(self.item_bytes, other.item_bytes),
            added_references: combine(self.added_references, other.added_references),
            dropped_references: combine(self.dropped_references, other.dropped_references),
            extents: combine(self.extents, other.extents),
            checksums: combine(self.checksums, other.checksums),
            checksum_bytes: combine(self.checksum_bytes, other.checksum_bytes),
            block_references: combine(self.block_references, other.block_references),
            block_places: combine(self.block_places, other.block_places),
        }
    }
}

impl Add for Charge {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.with(other, u64::saturating_add)
    }
}

impl AddAssign for Charge {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Charge {
    fn sub_assign(&mut self, other: Self) {
        *self = self.with(other, given_back);
    }
}

/// What is left of a sum when a part of it goes back.
pub(crate) fn given_back(sum: u64, part: u64) -> u64 {
    assert!(part <= sum, "{part} go back of a sum of {sum}");
    sum - part
}

/// How large the trees are, in blocks: each block is copied at most once in a transaction, so this bounds
/// every price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeSizes {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Levels of the highest tree.
    pub levels: u64,
    /// Blocks of the extent tree.
    pub extent: u64,
    /// Blocks of the free-space tree.
    pub free_space: u64,
    /// Blocks of the checksum tree.
    pub checksum: u64,
    /// Blocks of the trees of files, shared ones once for each open tree: each copies them for itself.
    pub files: u64,
    /// Blocks that handles made in the trees of files since these came to rest. Of `files`, as many are
    /// copied already, or were paid for by what filled them.
    pub made: u64,
    /// Blocks of the root tree and of the tree of group items that a commit may copy.
    pub roots_and_groups: u64,
    /// Blocks of the extent and free-space trees that tell of the places where tree blocks lie; all their
    /// blocks where nobody has counted.
    pub about_blocks: u64,
    /// What every commit changes of these two trees, as far as somebody looked.
    pub own_moves: Option<OwnMoves>,
    /// Blocks that places have room for that were chosen for new blocks: what was looked at is true of these.
    pub chosen_blocks: u64,
}

/// What every commit changes of the extent and free-space trees because it moves their own blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnMoves {
    /// Leaves of the extent tree.
    pub chains: Chains,
    /// Nodes of the extent tree, and all blocks of the free-space tree.
    pub other_blocks: u64,
    /// Blocks of root items, and of group items where these have a tree of their own.
    pub roots: u64,
    /// How often leaves of the extent tree may split, and nodes, where new blocks come to lie in the chosen
    /// places.
    pub splits: u64,
}

impl OwnMoves {
    /// Copies and splits, where blocks of other trees leave so many places, and so many leaves of the extent
    /// tree are not copied for another reason.
    fn blocks(&self, left_places: u64, uncopied: u64) -> u64 {
        self.chains
            .closed
            .saturating_add(self.chains.longest(left_places))
            .min(uncopied)
            .saturating_add(self.splits)
            .saturating_add(self.roots)
            .saturating_add(self.other_blocks.saturating_mul(2))
    }
}

impl TreeSizes {
    /// The price of a charge, in blocks.
    pub fn price_blocks(&self, charge: &Charge) -> u64 {
        // What most handles have left.
        if *charge == Charge::NOTHING {
            return 0;
        }
        let Charge {
            leaves,
            items,
            item_bytes,
            added_references,
            dropped_references,
            extents,
            checksums,
            ..
        } = *charge;
        let checksum_splits =
            checksums.saturating_mul(2).saturating_add(self.leaves_for(charge.checksum_bytes));
        let checksum_bytes = EXTENT_BYTES.saturating_mul(checksums).saturating_add(charge.checksum_bytes);
        let references = added_references.saturating_add(dropped_references);
        let blocks = [
            charge.blocks,
            leaves.saturating_mul(self.path().saturating_add(1)),
            self.copies(items, self.files.saturating_sub(self.made)),
            self.splits(items, item_bytes, self.files),
            self.copies(references, self.extent),
            self.splits(added_references, REFERENCE_BYTES.saturating_mul(added_references), self.extent),
            self.copies(extents, self.free_space),
            self.splits(extents, EXTENT_BYTES.saturating_mul(extents), self.free_space),
            // A run of checksums may begin in one leaf and end in another.
            self.copies(checksums.saturating_mul(2), self.checksum),
            self.splits(checksum_splits, checksum_bytes, self.checksum),
        ];
        let blocks = blocks.into_iter().fold(0, u64::saturating_add);
        // Each block that comes and each that goes has an item in the extent tree, and pointers in nodes that
        // split.
        let block_items = charge.block_references.saturating_add(blocks.saturating_mul(2));
        blocks
            .saturating_add(self.leaves_for(block_items.saturating_mul(BLOCK_ITEM_BYTES)))
            .saturating_add(blocks.div_ceil(POINTERS_OF_HALF_NODE))
    }

    /// The price of a charge, in bytes.
    pub fn price_bytes(&self, charge: &Charge) -> u64 {
        self.price_blocks(charge).saturating_mul(self.block_bytes)
    }

    /// What the commit that does these changes takes by itself, in blocks: copies and splits of what tells of
    /// the places of tree blocks, since the copies come and go there; copies of the root items and of the
    /// group items. There are two bounds: by all that tells of such places, and by how far the moves of the
    /// blocks go.
    pub fn commit_blocks(&self, changes: &Charge) -> u64 {
        let paths = self.levels.saturating_mul(4);
        let rest = COMMIT_SLACK_BLOCKS.saturating_add(paths);
        let all = self.about_blocks.saturating_mul(2).saturating_add(self.roots_and_groups);
        let price = self.price_blocks(changes);
        let by_moves = self.own_moves.map(|own| {
            // Each block that is copied leaves a place; where it goes was free, and chosen.
            let left = price.saturating_add(paths).saturating_add(own.roots);
            // What references to data make it copy is in the price.
            let references = changes.added_references.saturating_add(changes.dropped_references);
            let uncopied = self.extent.saturating_sub(self.copies(references, self.extent));
            own.blocks(left.saturating_add(changes.block_places), uncopied)
        });
        let is_true = |about: &u64| {
            *about < all && price.saturating_add(*about).saturating_add(rest) <= self.chosen_blocks
        };
        by_moves.filter(is_true).unwrap_or(all).saturating_add(rest)
    }

    /// What these changes and the commit that does them take, bounded by how far moves go, if enough places
    /// were chosen; none where nobody looked, or the other bound is lower.
    pub fn blocks_by_moves(&self, changes: &Charge) -> Option<u64> {
        let by_moves = TreeSizes { chosen_blocks: u64::MAX, ..*self }.commit_blocks(changes);
        let by_all = TreeSizes { own_moves: None, ..*self }.commit_blocks(changes);
        (by_moves < by_all).then(|| by_moves.saturating_add(self.price_blocks(changes)))
    }

    /// The same, in bytes.
    pub fn commit_bytes(&self, changes: &Charge) -> u64 {
        self.commit_blocks(changes).saturating_mul(self.block_bytes)
    }

    /// Nodes and a leaf.
    fn path(&self) -> u64 {
        self.levels.max(1)
    }

    /// Copies that so many changes make in a tree of so many blocks.
    fn copies(&self, changes: u64, tree: u64) -> u64 {
        changes.saturating_mul(self.path()).min(tree)
    }

    /// Splits that so many new items, of so many bytes in all, make: each at most one, and no more than every
    /// leaf of the tree once and then one for each piece of a leaf that they fill.
    fn splits(&self, items: u64, bytes: u64, tree: u64) -> u64 {
        items.min(tree.saturating_add(self.leaves_for(bytes)))
    }

    /// Leaves that so many bytes of items fill at worst.
    fn leaves_for(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(PIECES_OF_LEAF).div_ceil(self.block_bytes.max(1))
    }
}

#[cfg(test)]
mod tests {
    use vlinder_format::{ItemType, Key, Logical, ObjectId};

    use super::*;
    use crate::chains::{ExtentLeaf, ExtentLeaves};

    fn sizes() -> TreeSizes {
        TreeSizes {
            block_bytes: 16 << 10,
            levels: 3,
            extent: 100,
            free_space: 4,
            checksum: 10,
            files: 1000,
            made: 0,
            roots_and_groups: 2,
            about_blocks: 12,
            own_moves: None,
            chosen_blocks: 0,
        }
    }

    #[test]
    fn nothing_costs_nothing_and_a_commit_costs_its_own_part() {
        assert_eq!(sizes().price_blocks(&Charge::default()), 0);
        assert_eq!(sizes().commit_blocks(&Charge::default()), 2 * 12 + 2 + COMMIT_SLACK_BLOCKS + 12);
    }

    #[test]
    fn a_commit_costs_what_it_moves_and_no_more_than_all_places() {
        let leaf = |number: u64| ExtentLeaf {
            first: Key::new(ObjectId(number * 100), ItemType::EXTENT_ITEM, 0),
            at: Logical(number / 10 * 100 + number),
        };
        let chains = ExtentLeaves::new((0..4000).map(leaf).collect()).chains([0]);
        let own_moves = Some(OwnMoves { chains, other_blocks: 5, roots: 3, splits: 7 });
        let extent = 5000;
        let sizes = TreeSizes { about_blocks: 4100, own_moves, chosen_blocks: u64::MAX, extent, ..sizes() };
        let rest = COMMIT_SLACK_BLOCKS + 12;
        let commit = |changes: Charge| sizes.commit_blocks(&changes);
        let of_moves = |left| 1 + chains.longest(left) + 7 + 3 + 2 * 5 + rest;
        assert_eq!(commit(Charge::default()), of_moves(12 + 3));
        let blocks = Charge { blocks: 7, ..Charge::default() };
        assert_eq!(commit(blocks), of_moves(12 + 3 + sizes.price_blocks(&blocks)));
        let references = Charge { block_references: 3, block_places: 2, ..Charge::default() };
        assert_eq!(commit(references), of_moves(12 + 3 + sizes.price_blocks(&references) + 2));
        assert_eq!(commit(Charge::leaves(1 << 40)), of_moves(u64::MAX), "every leaf once");
        let data = Charge { added_references: 1 << 40, ..Charge::default() };
        let in_price = TreeSizes { extent: 4000, ..sizes };
        assert_eq!(in_price.commit_blocks(&data), 7 + 3 + 2 * 5 + rest, "all leaves are copied already");
        let enough = commit(blocks) + sizes.price_blocks(&blocks);
        let chosen = |chosen_blocks| TreeSizes { chosen_blocks, ..sizes }.commit_blocks(&blocks);
        assert_eq!(
            (chosen(enough), chosen(enough - 1)),
            (commit(blocks), 2 * 4100 + 2 + rest),
            "of other places"
        );
        let few = TreeSizes { about_blocks: 20, ..sizes };
        assert_eq!(few.commit_blocks(&Charge::leaves(1 << 40)), 2 * 20 + 2 + rest);
    }

    #[test]
    fn a_price_is_bounded_by_every_block_copied_and_split_once() {
        let price = |charge| sizes().price_blocks(&charge);
        let references = |added_references| Charge { added_references, ..Charge::default() };
        let dropped = |dropped_references| Charge { dropped_references, ..Charge::default() };
        // The items of the blocks that come and go, and the pointers to them, come on top: one leaf and one
        // node, or more.
        assert_eq!(price(references(1)), 3 + 1 + 1 + 1, "a path and a split");
        let splits = 100 + (10_000 * REFERENCE_BYTES * PIECES_OF_LEAF).div_ceil(16 << 10);
        assert_eq!(price(references(10_000)), 100 + splits + 14 + 12, "every block, and what is put in");
        assert_eq!(price(dropped(1)), 3 + 1 + 1, "a path");
        assert_eq!(price(dropped(10_000)), 100 + 4 + 4, "what goes splits nothing");
    }

    /// Each kind of count, at its name.
    fn counts(charge: &mut Charge) -> [(&'static str, &mut u64); 11] {
        [
            ("blocks", &mut charge.blocks),
            ("leaves", &mut charge.leaves),
            ("items", &mut charge.items),
            ("item_bytes", &mut charge.item_bytes),
            ("added_references", &mut charge.added_references),
            ("dropped_references", &mut charge.dropped_references),
            ("extents", &mut charge.extents),
            ("checksums", &mut charge.checksums),
            ("checksum_bytes", &mut charge.checksum_bytes),
            ("block_references", &mut charge.block_references),
            ("block_places", &mut charge.block_places),
        ]
    }

    #[test]
    fn what_counts_more_costs_no_less_and_little_is_free() {
        for kind in 0..11 {
            let mut price = 0;
            for count in [1, 2, 3, 10, 1000, 1 << 20, 1 << 40, u64::MAX] {
                let mut charge = Charge { items: 1, checksums: 1, ..Charge::default() };
                let base = sizes().price_blocks(&charge);
                let (name, counted) = counts(&mut charge).into_iter().nth(kind).unwrap();
                *counted = count;
                let now = sizes().price_blocks(&charge);
                assert!(now >= price.max(base), "{count} {name}: {now}");
                price = now;
            }
            let mut alone = Charge::default();
            let (name, counted) = counts(&mut alone).into_iter().nth(kind).unwrap();
            *counted = 1;
            assert_eq!(
                sizes().price_blocks(&alone) == 0,
                matches!(name, "item_bytes" | "block_places"),
                "{name}"
            );
        }
    }

    #[test]
    fn what_is_copied_and_what_is_left_cost_no_more_than_all() {
        let all = Charge::items(5000, 5000 * FILE_EXTENT_ITEM_BYTES);
        let price = sizes().price_blocks(&all);
        for made in [1, 30, 600, 1000] {
            let rest = TreeSizes { made, ..sizes() };
            let left = Charge::items(4990, 4990 * FILE_EXTENT_ITEM_BYTES);
            assert!(made + rest.price_blocks(&left) <= price, "{made} made");
        }
        assert!(1 + sizes().price_blocks(&all) > price, "a bound that forgets what was copied");
    }

    #[test]
    fn sums_saturate_and_cost_all_there_is() {
        let all = Charge { items: u64::MAX, item_bytes: u64::MAX, blocks: u64::MAX, ..Charge::default() };
        assert_eq!(all + all, all);
        assert_eq!(all.times(3), all);
        assert_eq!(sizes().price_blocks(&all), u64::MAX);
        assert_eq!(Charge::items(3, 30).growth_since(all), Charge::default());
    }

    #[test]
    #[should_panic(expected = "3 go back of a sum of 2")]
    fn what_was_not_added_does_not_go_back() {
        let mut sum = Charge::items(2, 100);
        sum -= Charge::items(3, 10);
    }

    /// Over small counts of every kind.
    #[test]
    fn the_price_of_a_sum_is_at_most_the_sum_of_the_prices() {
        let sizes = sizes();
        let charge = |seed: u64| Charge {
            blocks: seed % 2,
            leaves: seed % 7,
            items: seed % 11 * 3,
            item_bytes: seed % 11 * 300,
            added_references: seed % 13 * 5,
            dropped_references: seed % 5,
            extents: seed % 17,
            checksums: seed % 19,
            checksum_bytes: seed % 19 * 16,
            block_references: seed % 3 * 100,
            block_places: seed % 3 * 50,
        };
        for left in 0..200 {
            for right in 0..50 {
                let (left, right) = (charge(left * 31 + 7), charge(right * 17 + 3));
                let sum = sizes.price_blocks(&(left + right));
                assert!(sum <= sizes.price_blocks(&left) + sizes.price_blocks(&right), "{left:?} {right:?}");
                let mut rest = left + right;
                rest -= right;
                assert_eq!(rest, left);
            }
        }
    }
}
