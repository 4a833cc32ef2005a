//! What one change of a tree has learned of the blocks that it copies.

use std::collections::{HashMap, HashSet};

use vlinder_format::{Block, Logical};

use crate::{CopyEffect, Sharing, Space};

/// What this operation has learned of blocks that may be shared.
#[derive(Default)]
pub(crate) struct Learned {
    sharing: HashMap<Logical, Sharing>,
    /// Blocks whose copies change references of their children, and were charged.
    charged: HashSet<Logical>,
    /// Siblings that were asked for once; those that could not be read are done without.
    siblings: HashSet<Logical>,
}

impl Learned {
    pub(crate) fn insert(&mut self, logical: Logical, sharing: Sharing) {
        self.sharing.insert(logical, sharing);
    }

    pub(crate) fn get(&self, logical: Logical) -> Option<&Sharing> {
        self.sharing.get(&logical)
    }

    /// A copy of `parent` was made beside it: each child is referenced once more.
    pub(crate) fn one_more_for(&mut self, parent: &Block) {
        if parent.is_leaf() {
            return;
        }
        for child in parent.children() {
            if let Some(sharing) = self.sharing.get_mut(&child.logical) {
                sharing.references = sharing.references.saturating_add(1);
            }
        }
    }

    pub(crate) fn forget(&mut self) {
        self.sharing.clear();
    }

    pub(crate) fn copy_charged(&mut self, logical: Logical) {
        self.charged.insert(logical);
    }

    /// Whether a copy of a block is known to leave its children's references as they are.
    pub(crate) fn is_copied_alone(&self, logical: Logical) -> bool {
        self.sharing.get(&logical).is_some_and(|sharing| sharing.effect_of_copy(false).is_none())
    }

    /// What copying a block changes of its children's references, as far as is known.
    pub(crate) fn effect_of_copy(&self, block: &Block, inherited: bool) -> Option<CopyEffect> {
        self.sharing.get(&block.logical())?.effect_of_copy(inherited)
    }

    /// The effect of copying a block that has to be charged before.
    pub(crate) fn lacks_charge(&self, block: &Block, inherited: bool) -> Option<CopyEffect> {
        let effect = self.effect_of_copy(block, inherited);
        effect.filter(|_| !self.charged.contains(&block.logical()))
    }

    pub(crate) fn sibling_asked(&mut self, logical: Logical) {
        self.siblings.insert(logical);
    }

    /// Whether a sibling was asked for once.
    pub(crate) fn was_sibling_asked(&self, logical: Logical) -> bool {
        self.siblings.contains(&logical)
    }

    /// Whether anything was learned of sharing.
    pub(crate) fn knows_sharing(&self) -> bool {
        !self.sharing.is_empty()
    }

    /// Whether all that was learned still holds. Called with the sharing gate held.
    pub(crate) fn holds(&self, space: &dyn Space) -> bool {
        self.sharing.iter().all(|(logical, sharing)| space.sharing_holds(*logical, sharing))
    }
}
