//! What changes can take of metadata space at worst: counts of what may be touched, and their price in tree blocks.
//! Arithmetic alone, without locks. docs/design/space.md derives the formula.
//!
//! Invariants:
//! 1. The price of a charge is at least what its changes take, in handles and in the commit, except for what every
//!    commit takes by itself ([`TreeSizes::commit_blocks`]).
//! 2. The price of a sum is at most the sum of the prices, so that charges can be added before they are priced.

use std::ops::{Add, AddAssign, SubAssign};

/// Bytes that one more reference takes in the extent tree at most: an item of its own with its header.
const REFERENCE_BYTES: u64 = 64;
/// Bytes that the item of a tree block takes in the extent tree at most: headers, first key and level, one reference.
const BLOCK_ITEM_BYTES: u64 = 76;
/// Bytes that the free-space tree or the checksum tree takes for one extent more or less: an item's header, and what is
/// in it.
const EXTENT_BYTES: u64 = 64;
/// A leaf that splits leaves pieces that are a quarter full at least: half full, less one large item.
const PIECES_OF_LEAF: u64 = 4;
/// Blocks that a commit takes beside the trees that are counted: paths of the device, UUID and quota trees, new root
/// blocks, a conversion of a group to bitmaps, and the addresses that the plan of one edit holds and does not use.
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

    const NOTHING: Self = Self {
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
    };

    /// By how much each count is higher than it was before.
    #[must_use]
    pub(crate) const fn growth_since(self, before: Self) -> Self {
        Self {
            blocks: self.blocks.saturating_sub(before.blocks),
            leaves: self.leaves.saturating_sub(before.leaves),
            items: self.items.saturating_sub(before.items),
            item_bytes: self.item_bytes.saturating_sub(before.item_bytes),
            added_references: self.added_references.saturating_sub(before.added_references),
            dropped_references: self.dropped_references.saturating_sub(before.dropped_references),
            extents: self.extents.saturating_sub(before.extents),
            checksums: self.checksums.saturating_sub(before.checksums),
            checksum_bytes: self.checksum_bytes.saturating_sub(before.checksum_bytes),
            block_references: self.block_references.saturating_sub(before.block_references),
        }
    }

    /// Each count so many times.
    #[must_use]
    pub const fn times(self, count: u64) -> Self {
        Self {
            blocks: self.blocks.saturating_mul(count),
            leaves: self.leaves.saturating_mul(count),
            items: self.items.saturating_mul(count),
            item_bytes: self.item_bytes.saturating_mul(count),
            added_references: self.added_references.saturating_mul(count),
            dropped_references: self.dropped_references.saturating_mul(count),
            extents: self.extents.saturating_mul(count),
            checksums: self.checksums.saturating_mul(count),
            checksum_bytes: self.checksum_bytes.saturating_mul(count),
            block_references: self.block_references.saturating_mul(count),
        }
    }
}

impl Add for Charge {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for Charge {
    fn add_assign(&mut self, other: Self) {
        self.blocks += other.blocks;
        self.leaves += other.leaves;
        self.items += other.items;
        self.item_bytes += other.item_bytes;
        self.added_references += other.added_references;
        self.dropped_references += other.dropped_references;
        self.extents += other.extents;
        self.checksums += other.checksums;
        self.checksum_bytes += other.checksum_bytes;
        self.block_references += other.block_references;
    }
}

impl SubAssign for Charge {
    fn sub_assign(&mut self, other: Self) {
        self.blocks -= other.blocks;
        self.leaves -= other.leaves;
        self.items -= other.items;
        self.item_bytes -= other.item_bytes;
        self.added_references -= other.added_references;
        self.dropped_references -= other.dropped_references;
        self.extents -= other.extents;
        self.checksums -= other.checksums;
        self.checksum_bytes -= other.checksum_bytes;
        self.block_references -= other.block_references;
    }
}

/// How large the trees are, in blocks: each block is copied at most once in a transaction, so this bounds every price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeSizes {
    /// Bytes of a block.
    pub(crate) block_bytes: u64,
    /// Levels of the highest tree.
    pub(crate) levels: u64,
    /// Blocks of the extent tree.
    pub(crate) extent: u64,
    /// Blocks of the free-space tree.
    pub(crate) free_space: u64,
    /// Blocks of the checksum tree.
    pub(crate) checksum: u64,
    /// Blocks of all other trees whose items pay `leaves` and `items`.
    pub(crate) others: u64,
    /// Blocks of the root tree and of the tree of group items that a commit may copy.
    pub(crate) roots_and_groups: u64,
    /// Blocks of the extent and free-space trees that tell of the places where tree blocks lie; all their blocks where
    /// nobody has counted.
    pub(crate) about_blocks: u64,
}

impl TreeSizes {
    /// The price of a charge, in blocks.
    pub(crate) fn price_blocks(&self, charge: &Charge) -> u64 {
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
            self.copies(items, self.others),
            self.splits(items, item_bytes, self.others),
            self.copies(references, self.extent),
            self.splits(added_references, REFERENCE_BYTES.saturating_mul(added_references), self.extent),
            self.copies(extents, self.free_space),
            self.splits(extents, EXTENT_BYTES.saturating_mul(extents), self.free_space),
            // A run of checksums may begin in one leaf and end in another.
            self.copies(checksums.saturating_mul(2), self.checksum),
            self.splits(checksum_splits, checksum_bytes, self.checksum),
        ];
        let blocks = blocks.into_iter().fold(0, u64::saturating_add);
        // Each block that comes and each that goes has an item in the extent tree, and pointers in nodes that split.
        let block_items = charge.block_references.saturating_add(blocks.saturating_mul(2));
        blocks
            .saturating_add(self.leaves_for(block_items.saturating_mul(BLOCK_ITEM_BYTES)))
            .saturating_add(blocks.div_ceil(32))
    }

    /// What every commit that changes anything takes by itself, in blocks: copies and splits of what tells of the places
    /// of tree blocks, since its own copies come and go there; copies of the root items and of the group items.
    pub(crate) fn commit_blocks(&self) -> u64 {
        self.about_blocks
            .saturating_mul(2)
            .saturating_add(self.roots_and_groups)
            .saturating_add(COMMIT_SLACK_BLOCKS)
            .saturating_add(self.levels.saturating_mul(4))
    }

    /// Nodes and a leaf.
    fn path(&self) -> u64 {
        self.levels.max(1)
    }

    /// Copies that so many changes make in a tree of so many blocks.
    fn copies(&self, changes: u64, tree: u64) -> u64 {
        changes.saturating_mul(self.path()).min(tree)
    }

    /// Splits that so many new items, of so many bytes in all, make: each at most one, and no more than every leaf of
    /// the tree once and then one for each piece of a leaf that they fill.
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
    use super::*;

    fn sizes() -> TreeSizes {
        TreeSizes {
            block_bytes: 16 << 10,
            levels: 3,
            extent: 100,
            free_space: 4,
            checksum: 10,
            others: 1000,
            roots_and_groups: 2,
            about_blocks: 12,
        }
    }

    #[test]
    fn nothing_costs_nothing_and_a_commit_costs_its_own_part() {
        assert_eq!(sizes().price_blocks(&Charge::default()), 0);
        assert_eq!(sizes().commit_blocks(), 2 * 12 + 2 + COMMIT_SLACK_BLOCKS + 12);
    }

    #[test]
    fn a_price_is_bounded_by_every_block_copied_and_split_once_and_by_what_is_put_in() {
        let references = |added_references| Charge { added_references, ..Charge::default() };
        let few = sizes().price_blocks(&references(1));
        assert!((4..=6).contains(&few), "a path and a split: {few}");
        let many = sizes().price_blocks(&references(10_000));
        assert!(many < 2 * 100 + 2 * 10_000 * REFERENCE_BYTES * PIECES_OF_LEAF / (16 << 10), "{many}");
        let dropped = Charge { dropped_references: 10_000, ..Charge::default() };
        assert!(sizes().price_blocks(&dropped) < 110, "what goes splits nothing");
    }

    /// Over small counts of every kind, against the definition.
    #[test]
    fn the_price_of_a_sum_is_at_most_the_sum_of_the_prices_but_for_rounding() {
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
