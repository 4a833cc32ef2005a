//! What a commit takes, against what was kept for it.

use crate::change_kind::ChangeKind;
use crate::engine::Engine;
use crate::handle::Handle;
use vlinder_space::{Charge, TreeSizes};

/// What a commit may take at worst, in blocks.
pub(crate) struct PriceOfCommit {
    blocks: u64,
    changes: Charge,
    sizes: TreeSizes,
}

impl Engine {
    /// What the commit that begins may take, as closely as it is known. No handle is open.
    pub(crate) fn price_of_commit(&self) -> PriceOfCommit {
        let block = u64::from(self.node_size());
        let price = |changes| PriceOfCommit {
            blocks: self.space.reservations().price_of_commit_bytes(changes) / block,
            changes,
            sizes: self.space.reservations().sizes(),
        };
        let counted = price(self.waiting_changes());
        match self.measured_changes().map(price) {
            Some(measured) if measured.blocks < counted.blocks => measured,
            _ => counted,
        }
    }

    /// A commit took no more than what was kept for it.
    pub(crate) fn check_price_of_commit(&self, price: &PriceOfCommit, handle: &Handle<'_>) {
        let taken = handle.editor.used_blocks();
        let PriceOfCommit { blocks, changes, sizes } = price;
        self.metrics.most_used.note(ChangeKind::Commit, taken, *blocks);
        debug_assert!(taken <= *blocks, "a commit took {taken} blocks of {blocks}: {changes:?} in {sizes:?}");
        if taken > *blocks {
            self.metrics.broken_promises.increment();
            tracing::error!(
                taken,
                blocks,
                ?changes,
                ?sizes,
                "a commit took more than was kept; please report it"
            );
        }
    }
}
