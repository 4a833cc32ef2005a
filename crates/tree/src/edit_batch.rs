//! The front of the two phases of a change: plan until nothing is lacking, then apply.

use vlinder_base::sync::Arc;
use vlinder_format::Generation;

use crate::edit::Edit;
use crate::learned::Learned;
use crate::plan::{Needs, Planned};
use crate::root::{Root, Unlocked};
use crate::search::Pins;
use crate::{AddressPool, Space, TreeError, Trees};

/// As for a search: each round loads or learns something, so only a tree that is changed under us sends us
/// around.
const ROUNDS: usize = 10_000;

impl Trees {
    /// Changes a tree: all edits or, on an error, none. They must be sorted by key, without repetition.
    ///
    /// Planned in memory under the root's lock; a miss drops the lock, loads, learns or takes what is needed
    /// and plans again; then applied, infallibly, without any I/O.
    ///
    /// # Errors
    /// What the plan met: an item in the way or missing, no space, damage, a device's failure.
    pub fn edit(
        &self,
        root: &Arc<Root>,
        generation: Generation,
        space: &dyn Space,
        pool: &mut AddressPool,
        edits: &[Edit<'_>],
    ) -> Result<(), TreeError> {
        assert!(
            edits.iter().zip(edits.iter().skip(1)).all(|(edit, next)| edit.key < next.key),
            "edits of tree {} are not in key order",
            root.id()
        );
        let Some(first) = edits.first() else { return Ok(()) };
        let mut pins = Pins::default();
        let (mut learned, mut unlocked) = (Learned::default(), Unlocked::new());
        for _ in 0..ROUNDS {
            let (needs, version) = {
                let mut state = root.write();
                let _timer = self.metrics.root_lock_hold_time.time();
                match self.plan(root, &state, generation, &mut pins, &learned, pool, edits)? {
                    Planned::Needs(needs) => (needs, state.version),
                    Planned::Ready(plan) => {
                        // What was learned of sharing stays true until the gate is free again.
                        let gate = plan.relies_on_sharing.then(|| space.sharing_gate().lock());
                        if gate.is_none() || learned.holds(space) {
                            self.apply(
                                root,
                                &mut state,
                                generation,
                                space,
                                pool,
                                &mut pins,
                                &mut learned,
                                edits,
                                plan,
                            );
                            return Ok(());
                        }
                        (Needs::relearn(), state.version)
                    }
                }
            };
            self.metrics.replans.increment();
            match self.fulfil(root, space, pool, &mut pins, &mut learned, needs) {
                // Another writer of the tree let go of a block that was asked for: nobody refers to it any
                // more.
                Err(error) if unlocked.excuses(&error, root, version) => learned.forget(),
                fulfilled => fulfilled?,
            }
        }
        Err(TreeError::Unsettled { root: root.id(), key: first.key })
    }

    /// Gets what a plan lacked, with no lock held.
    fn fulfil(
        &self,
        root: &Root,
        space: &dyn Space,
        pool: &mut AddressPool,
        pins: &mut Pins,
        learned: &mut Learned,
        needs: Needs,
    ) -> Result<(), TreeError> {
        if needs.relearn {
            learned.forget();
        }
        if !needs.blocks.is_empty() {
            self.load(&needs.blocks, pins)?;
        }
        for sibling in &needs.siblings {
            learned.sibling_asked(sibling.logical);
            // A merge does without a sibling that cannot be read; a reader that needs its items meets the
            // error.
            let _ = self.load(std::slice::from_ref(sibling), pins);
        }
        for block in &needs.sharing {
            learned.insert(block.logical(), space.sharing(block)?);
        }
        for (block, effect) in &needs.charges {
            space.charge_copy(root.id(), block, *effect)?;
            learned.copy_charged(block.logical());
        }
        pool.fill(space, root.id(), needs.addresses)
    }
}
