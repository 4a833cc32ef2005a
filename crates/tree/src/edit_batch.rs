//! The front of the two phases of a change: plan until nothing is lacking, then apply.

use vlinder_base::sync::Arc;
use vlinder_format::{Generation, Key};

use crate::apply::Writer;
use crate::edit::Edit;
use crate::learned::Learned;
use crate::plan::{Needs, Planned, Planner};
use crate::root::{Root, Unlocked};
use crate::tree_blocks::{Pins, TreeBlocks};
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
        let (pins, learned) = (Pins::default(), Learned::default());
        let batch = EditBatch { blocks: self.blocks(), root, generation, space, pool, pins, learned };
        batch.run(&first.key, edits)
    }
}

/// One batch of edits of one tree.
struct EditBatch<'a> {
    blocks: &'a TreeBlocks,
    root: &'a Root,
    generation: Generation,
    space: &'a dyn Space,
    pool: &'a mut AddressPool,
    pins: Pins,
    learned: Learned,
}

impl EditBatch<'_> {
    fn run(mut self, first: &Key, edits: &[Edit<'_>]) -> Result<(), TreeError> {
        let mut unlocked = Unlocked::new();
        for _ in 0..ROUNDS {
            let (needs, version) = match self.attempt(edits)? {
                None => return Ok(()),
                Some(lacking) => lacking,
            };
            self.blocks.metrics.replans.increment();
            match self.fulfil(needs) {
                // Another writer of the tree let go of a block that was asked for: nobody refers to it any
                // more.
                Err(error) if unlocked.excuses(&error, self.root, version) => self.learned.forget(),
                fulfilled => fulfilled?,
            }
        }
        Err(TreeError::Unsettled { root: self.root.id(), key: *first })
    }

    /// Plans the edits and applies them under the root's lock. Where they can't be applied yet, gives what is
    /// lacking, and at which version of the tree.
    fn attempt(&mut self, edits: &[Edit<'_>]) -> Result<Option<(Needs, u64)>, TreeError> {
        let Self { blocks, root, generation, space, pool, pins, learned } = self;
        let (blocks, root, generation, space) = (*blocks, *root, *generation, *space);
        let mut state = root.write();
        let _timer = blocks.metrics.root_lock_hold_time.time();
        let planner = Planner::new(blocks, root, &state, generation, learned, pins);
        let plan = match planner.plan(pool, edits)? {
            Planned::Needs(needs) => return Ok(Some((needs, state.version))),
            Planned::Ready(plan) => plan,
        };
        // What was learned of sharing stays true until the gate is free again.
        let gate = plan.relies_on_sharing.then(|| space.sharing_gate().lock());
        if gate.is_some() && !learned.holds(space) {
            return Ok(Some((Needs::relearn(), state.version)));
        }
        Writer::new(blocks, root, &mut state, generation, space, pool, pins, learned).apply(edits, &plan);
        Ok(None)
    }

    /// Gets what a plan lacked, with no lock held.
    fn fulfil(&mut self, needs: Needs) -> Result<(), TreeError> {
        if needs.relearn {
            self.learned.forget();
        }
        if !needs.blocks.is_empty() {
            self.blocks.load(&needs.blocks, &mut self.pins)?;
        }
        for sibling in &needs.siblings {
            self.learned.sibling_asked(sibling.logical);
            // A merge does without a sibling that cannot be read; a reader that needs its items meets the
            // error.
            let _ = self.blocks.load(std::slice::from_ref(sibling), &mut self.pins);
        }
        for block in &needs.sharing {
            self.learned.insert(block.logical(), self.space.sharing(block)?);
        }
        for (block, effect) in &needs.charges {
            self.space.charge_copy(self.root.id(), block, *effect)?;
            self.learned.copy_charged(block.logical());
        }
        self.pool.fill(self.space, self.root.id(), needs.addresses)
    }
}
