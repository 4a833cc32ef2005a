//! Changes of items, and the front of the two phases: [`Trees::edit`].

use core::fmt;

use vlinder_base::sync::Arc;
use vlinder_format::{Generation, Key};

use crate::plan::{AddressPool, Learned, Needs, Planned};
use crate::root::{Root, Unlocked};
use crate::search::Pins;
use crate::{Space, TreeError, Trees};

/// As for a search: each round loads or learns something, so only a tree that is changed under us sends us around.
const ROUNDS: usize = 10_000;

/// What becomes of an item, decided by its present content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Keep,
    /// It has these data from now on, whether it was there or not.
    Put(Vec<u8>),
    /// It is gone, if it was there.
    Remove,
    /// The content is not what the caller had planned for: the whole edit is refused with [`TreeError::Conflict`].
    Conflict,
}

/// One change of one item.
pub enum Change<'a> {
    /// A new item; refused where the key exists.
    Insert(&'a [u8]),
    /// An item with these data, new or not.
    Put(&'a [u8]),
    /// Another content for an item that must exist.
    Replace(&'a [u8]),
    /// No item any more; refused where there is none.
    Remove,
    /// No item any more, whether there was one or not.
    RemoveIfPresent,
    /// What the closure makes of the present data. It may be asked more than once.
    Update(&'a (dyn Fn(Option<&[u8]>) -> Action + 'a)),
}

impl fmt::Debug for Change<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Insert(data) => write!(formatter, "Insert({} bytes)", data.len()),
            Self::Put(data) => write!(formatter, "Put({} bytes)", data.len()),
            Self::Replace(data) => write!(formatter, "Replace({} bytes)", data.len()),
            Self::Remove => formatter.write_str("Remove"),
            Self::RemoveIfPresent => formatter.write_str("RemoveIfPresent"),
            Self::Update(_) => formatter.write_str("Update"),
        }
    }
}

/// A change and the key that it is for.
#[derive(Debug)]
pub struct Edit<'a> {
    /// The item.
    pub key: Key,
    /// What becomes of it.
    pub change: Change<'a>,
}

impl<'a> Edit<'a> {
    /// A change of the item `key`.
    pub fn new(key: Key, change: Change<'a>) -> Self {
        Self { key, change }
    }

    /// The item gets these data, or goes if it is there and gets none.
    pub fn put_or_remove(key: Key, data: Option<&'a [u8]>) -> Self {
        Self::new(key, data.map_or(Change::RemoveIfPresent, Change::Put))
    }
}

impl Trees {
    /// Changes a tree: all edits or, on an error, none. They must be sorted by key, without repetition.
    ///
    /// Planned in memory under the root's lock; a miss drops the lock, loads, learns or takes what is needed and plans
    /// again; then applied, infallibly, without any I/O.
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
                // Another writer of the tree let go of a block that was asked for: nobody refers to it any more.
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
            // A merge does without a sibling that cannot be read; whoever needs its items meets the error.
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
