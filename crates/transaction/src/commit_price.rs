//! What a commit takes, against what was kept for it.

use crate::change_kind::ChangeKind;
use crate::engine_core::EngineCore;
use crate::metrics::EngineMetrics;
use vlinder_space::{Charge, TreeSizes};

/// What a commit may take at worst, in blocks.
pub(crate) struct PriceOfCommit {
    blocks: u64,
    changes: Charge,
    sizes: TreeSizes,
}

impl PriceOfCommit {
    /// What the commit that begins may take, as closely as it is known. No handle is open.
    pub(crate) fn of(core: &EngineCore) -> Self {
        let block = u64::from(core.trees().node_size());
        let reservations = core.space().reservations();
        let price = |changes| Self {
            blocks: reservations.price_of_commit_bytes(changes) / block,
            changes,
            sizes: reservations.sizes(),
        };
        let counted = price(core.queues().waiting());
        match core.queues().measured(core.generation()).map(price) {
            Some(measured) if measured.blocks < counted.blocks => measured,
            _ => counted,
        }
    }

    /// A commit took no more than what was kept for it.
    pub(crate) fn check(&self, metrics: &EngineMetrics, taken: u64) {
        let Self { blocks, changes, sizes } = self;
        metrics.most_used.note(ChangeKind::Commit, taken, *blocks);
        debug_assert!(taken <= *blocks, "a commit took {taken} blocks of {blocks}: {changes:?} in {sizes:?}");
        if taken > *blocks {
            metrics.broken_promises.increment();
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
