//! Asking for more than was promised at the beginning of a handle: for references that copies of shared
//! blocks add, and for what cannot be known before. By counts where there is room for these, otherwise as
//! measured.

use vlinder_base::sync::Arc;
use vlinder_format::{Block, Key, Logical, RootId};
use vlinder_tree::{CopyEffect, MaybeShared, Precision, Root, Touch, TreeError};

use crate::extents::delayed::{MAX_REFERENCE_BYTES, TouchedExtent};
use crate::measuring::{NO_GENERATION, references_of};
use crate::promises::Reserver;
use vlinder_forest::OpenTree;
use vlinder_space::{Asker, Charge, ReserveAccess};

/// How references of a block's children change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReferenceMoves {
    /// They go, and with them extents.
    Dropped,
    /// Each is replaced by one of another kind.
    Renamed,
}

/// Items that a snapshot changes in the root tree: its root item, that of its source, and two references.
const SNAPSHOT_ROOT_ITEMS: u64 = 4;
/// Items that a snapshot changes in the tree of UUIDs: its own, and that of what it was received as.
const SNAPSHOT_UUIDS: u64 = 2;
/// Items that a snapshot changes in the quota tree.
const SNAPSHOT_QUOTA_ITEMS: u64 = 4;
/// Bytes that the name of a snapshot adds to a leaf at most.
const SNAPSHOT_NAME_BYTES: usize = 330;

/// A handle that asks for more.
#[derive(Clone, Copy)]
pub(crate) struct Asking<'a> {
    reserver: Reserver<'a>,
    asker: Asker,
}

impl<'a> Asking<'a> {
    pub(crate) fn new(reserver: Reserver<'a>, asker: Asker) -> Self {
        Self { reserver, asker }
    }

    /// Promises changes: as counted where there is ordinary room for that, else as measured. What draws on
    /// the reserve is measured, because a count would take there what the same handle asks for next.
    /// `measure` gives a charge of its own and data extents whose references change beside it; `items` will
    /// wait for the commit.
    ///
    /// # Errors
    /// [`TreeError::NoSpace`], of changes in the tree of `root`; what reading met.
    fn counted_or_measured(
        &self,
        root: RootId,
        counted: Charge,
        items: usize,
        measure: impl FnOnce() -> Result<(Charge, Vec<TouchedExtent>), TreeError>,
    ) -> Result<Charge, TreeError> {
        let ordinary = Asker { access: self.asker.access.min(ReserveAccess::Margin), ..self.asker };
        if self.reserver.try_changes(counted, ordinary) {
            return Ok(counted);
        }
        let measuring = self.reserver.measuring();
        if !measuring.may_reserve(0, items) {
            return self.reserve_or_refuse(root, counted);
        }
        let (charge, extents) = measure()?;
        if !measuring.may_reserve(extents.len(), items) {
            return self.reserve_or_refuse(root, counted);
        }
        let measured = charge + measuring.extents_beside_others(extents)?;
        if self.reserver.try_changes(measured, self.asker) {
            return Ok(measured);
        }
        if self.reserver.revoke_leases() {
            self.reserve_or_refuse(root, measured)
        } else {
            Err(self.refusal(root, measured))
        }
    }

    fn reserve_or_refuse(&self, root: RootId, charge: Charge) -> Result<Charge, TreeError> {
        if self.reserver.try_changes(charge, self.asker) {
            Ok(charge)
        } else {
            Err(self.refusal(root, charge))
        }
    }

    fn refusal(&self, root: RootId, charge: Charge) -> TreeError {
        TreeError::NoSpace { root, needed_bytes: self.reserver.reservations().price_bytes(charge) }
    }

    /// Promises what the references of these blocks' children take that copies of the blocks add, or replace.
    ///
    /// # Errors
    /// [`TreeError::NoSpace`]; what reading met.
    pub(crate) fn copies_of(
        &self,
        root: RootId,
        blocks: &[(&Block, CopyEffect)],
    ) -> Result<Charge, TreeError> {
        let mut extents = Vec::new();
        let mut charge = Charge::default();
        let mut counted = Charge::default();
        for (block, effect) in blocks {
            let before = extents.len();
            charge += references_of(block, *effect, &mut extents);
            let count = u64::try_from(extents.len() - before).unwrap_or(u64::MAX);
            counted.added_references += count;
            counted.dropped_references += if *effect == CopyEffect::Renamed { count } else { 0 };
        }
        let counted = counted + charge;
        self.counted_or_measured(root, counted, 0, || Ok((charge, extents)))
    }

    /// Promises what references of a leaf's data extents, or of a node's children, take that come or go.
    ///
    /// # Errors
    /// As [`copies_of`](Self::copies_of).
    pub(crate) fn reference_changes(
        &self,
        block: &Block,
        changes: ReferenceMoves,
    ) -> Result<Charge, TreeError> {
        let mut extents = Vec::new();
        let charge = references_of(block, CopyEffect::Renamed, &mut extents);
        let count = u64::try_from(extents.len()).unwrap_or(u64::MAX);
        let counted = match changes {
            ReferenceMoves::Dropped => {
                Charge { dropped_references: count, extents: count, checksums: count, ..charge }
            }
            ReferenceMoves::Renamed => {
                Charge { dropped_references: count, added_references: count, ..charge }
            }
        };
        for extent in &mut extents {
            extent.moves_space = changes == ReferenceMoves::Dropped;
            extent.growth_bytes = if extent.moves_space { 0 } else { MAX_REFERENCE_BYTES };
        }
        self.counted_or_measured(block.owner(), counted, 0, || Ok((charge, extents)))
    }

    /// Blocks that a new root takes in the trees that tell of roots: for each item a path, and a leaf that
    /// splits; for each tree a level that comes on top.
    fn blocks_of_new_root(&self) -> u64 {
        let fixed = self.reserver.trees().fixed();
        let blocks = |root: &Root, items: u64| (u64::from(root.pointer().level.0) + 2) * items + 1;
        let of_tree =
            |tree: &Option<Arc<OpenTree>>, items| tree.as_ref().map_or(0, |tree| blocks(tree.root(), items));
        blocks(self.reserver.trees().root_tree(), SNAPSHOT_ROOT_ITEMS)
            + of_tree(&fixed.uuid, SNAPSHOT_UUIDS)
            + of_tree(&fixed.quota, SNAPSHOT_QUOTA_ITEMS)
    }

    /// Promises what giving a snapshot its name may change, after the tree was copied: the leaves at these
    /// keys are shared then.
    ///
    /// # Errors
    /// As [`copies_of`](Self::copies_of).
    pub(crate) fn snapshot(&self, tree: &OpenTree, keys: &[Key]) -> Result<Charge, TreeError> {
        let own = Charge { blocks: self.blocks_of_new_root(), ..Charge::default() };
        let leaves = u64::try_from(keys.len()).unwrap_or(u64::MAX);
        let counted = own + Charge::leaves(leaves) + self.reserver.queues().copies_of_leaves(leaves);
        self.counted_or_measured(tree.id(), counted, keys.len(), || {
            // No generation's block is the transaction's own, once the tree is copied.
            let touches: Vec<Touch> = keys.iter().map(|key| Touch::at(*key, SNAPSHOT_NAME_BYTES)).collect();
            let measured = self.reserver.trees().store().measure(
                tree.root(),
                NO_GENERATION,
                NO_GENERATION,
                &touches,
                Precision::Leaves,
            )?;
            let mut extents = Vec::new();
            let mut charge = own + Charge { blocks: measured.blocks(), ..Charge::default() };
            for MaybeShared { block, .. } in &measured.shared {
                // The tree was copied beside, so each block has another reference.
                charge += references_of(block, CopyEffect::Added, &mut extents);
            }
            Ok((charge, extents))
        })
    }

    /// Promises what pending items at these keys of a tree take beyond their own leaves: the references that
    /// copies of shared leaves add. Gives, where it was measured, which blocks' copies are paid with that.
    ///
    /// # Errors
    /// As [`copies_of`](Self::copies_of).
    pub(crate) fn copies_at(
        &self,
        tree: &OpenTree,
        keys: &[Key],
    ) -> Result<(Charge, Vec<Logical>), TreeError> {
        let counted = self.reserver.queues().copies_of_leaves(u64::try_from(keys.len()).unwrap_or(u64::MAX));
        let mut copied = Vec::new();
        let promised = self.counted_or_measured(tree.id(), counted, keys.len(), || {
            let touches: Vec<Touch> = keys.iter().map(|key| Touch::at(*key, 0)).collect();
            let measured = self.reserver.measuring().touches(tree.id(), tree.root(), &touches)?;
            copied = measured.copied;
            Ok((measured.charge.of_blocks(), measured.extents))
        })?;
        Ok((promised, copied))
    }
}
