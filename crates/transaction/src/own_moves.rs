//! Looks at how far the moves of the extent tree's own blocks go, where space is short: which of its leaves
//! tell of the places that a commit takes and leaves in any case. Each copied leaf moves, and so changes the
//! leaf that tells of its place.

use std::collections::BTreeSet;
use std::ops::Range;

use vlinder_format::{Generation, ItemType, Key, Logical, ObjectId};
use vlinder_tree::{Precision, Touch, TreeError};

use crate::global_reserve::ReserveSizing;
use crate::group_loader::GroupLoader;
use crate::measuring::NO_GENERATION;
use vlinder_space::{BLOCK_ITEM_BYTES, Charge, ExtentLeaf, ExtentLeaves, OwnMoves, TreeSizes};

/// Leaves that a deletion of a name may change, which is to fit beside what waits.
const DELETION_LEAVES: u64 = 8;
/// So many blocks are tried first to be chosen for what is new.
const MIN_CHOSEN: u64 = 128;

/// What does not depend on which places are chosen.
struct Trees {
    leaves: ExtentLeaves,
    /// Leaves that every commit changes.
    always: BTreeSet<usize>,
    other_blocks: usize,
    roots: usize,
}

impl ReserveSizing<'_> {
    /// Chooses places for new blocks, as few as what is owed and a deletion get by with, and looks at what
    /// commits change that take these.
    pub(crate) fn own_moves(&self, about_blocks: u64, owed: &Charge) -> Result<OwnMoves, TreeError> {
        while let Some(group) = self.space.begin_loading() {
            GroupLoader::new(self.trees, self.space, self.chunks).load(group)?;
        }
        let trees = self.look_at_own_places()?;
        let wanted = *owed + Charge::leaves(DELETION_LEAVES);
        let mut blocks = MIN_CHOSEN;
        loop {
            let places = self.space.longest_free_places(blocks);
            let found = trees.moves_into(&places, self.splits_by(&places)?);
            let own_moves = Some(found);
            let length: u64 = places.iter().map(|place| place.end - place.start).sum();
            let chosen_blocks = length / u64::from(self.trees.node_size());
            let sizes =
                TreeSizes { about_blocks, own_moves, chosen_blocks, ..self.space.reservations().sizes() };
            let enough = sizes.blocks_by_moves(&wanted);
            if enough.is_none_or(|enough| enough <= chosen_blocks) || chosen_blocks < blocks {
                self.space.choose_places(&places);
                return Ok(found);
            }
            // As many as would be enough, had the places of more of them no other leaves.
            blocks = enough.unwrap_or(0).max(blocks.saturating_add(blocks / 8));
        }
    }

    /// How often leaves and nodes of the extent tree split for the items of new blocks that take all of these
    /// places.
    fn splits_by(&self, places: &[Range<u64>]) -> Result<u64, TreeError> {
        let object = |address: u64| Key::new(ObjectId(address), ItemType(0), 0);
        let touch = |place: &Range<u64>| Touch {
            keys: object(place.start)..object(place.end),
            growth_bytes: usize::try_from(
                (place.end - place.start) / u64::from(self.trees.node_size()) * BLOCK_ITEM_BYTES,
            )
            .unwrap_or(usize::MAX),
        };
        let mut touches: Vec<Touch> = places.iter().map(touch).collect();
        touches.sort_unstable_by_key(|touch| touch.keys.start);
        let root = self.trees.fixed().extent.root();
        Ok(self
            .trees
            .store()
            .measure(root, NO_GENERATION, Generation(0), &touches, Precision::Leaves)?
            .splits)
    }

    fn look_at_own_places(&self) -> Result<Trees, TreeError> {
        let extent = self.trees.store().shape(self.trees.fixed().extent.root())?;
        let mut other_blocks = extent.nodes.len();
        let leaf = |(first, at): &(Key, Logical)| ExtentLeaf { first: *first, at: *at };
        let leaves = ExtentLeaves::new(extent.leaves.iter().map(leaf).collect());
        let mut always: BTreeSet<usize> =
            self.space.group_keys().iter().map(|key| leaves.leaf_of(key)).collect();
        // What handles have moved already, and all blocks of small trees that every commit may change.
        let mut moved = self.queues.delayed().block_places();
        moved.extend(&extent.nodes);
        for tree in self.trees.fixed().free_space.iter() {
            let shape = self.trees.store().shape(tree.root())?;
            other_blocks = other_blocks.saturating_add(shape.nodes.len()).saturating_add(shape.leaves.len());
            moved.extend(shape.places());
        }
        let mut roots = 0_usize;
        let of_groups = Some(self.trees.fixed().groups.root())
            .filter(|groups| groups.id() != self.trees.fixed().extent.id());
        for root in std::iter::once(self.trees.root_tree()).chain(of_groups) {
            let before = moved.len();
            moved.extend(self.trees.store().shape(root)?.places());
            roots += moved.len() - before;
        }
        always.extend(moved.iter().map(|at| leaves.leaf_about(*at)));
        Ok(Trees { leaves, always, other_blocks, roots })
    }
}

impl Trees {
    /// What commits change whose new blocks take these places, with so many splits.
    fn moves_into(&self, places: &[Range<u64>], splits: u64) -> OwnMoves {
        let about = |place: &Range<u64>| {
            let last = Logical(place.end.saturating_sub(1));
            self.leaves.leaf_about(Logical(place.start))..=self.leaves.leaf_about(last)
        };
        let about_chosen: BTreeSet<usize> = places.iter().flat_map(about).collect();
        let blocks = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        OwnMoves {
            chains: self.leaves.chains(self.always.union(&about_chosen).copied()),
            other_blocks: blocks(self.other_blocks),
            roots: blocks(self.roots),
            splits,
        }
    }
}
