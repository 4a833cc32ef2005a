//! The [`Space`] of one handle or of the committer: it counts what a handle takes, and asks for
//! more where a change turns out to copy a block that another tree shares. The plan phase asks, so that a
//! refusal changes nothing.

use std::collections::BTreeSet;

use vlinder_base::sync::Mutex;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_format::{Block, Key, Logical, RootId};
use vlinder_tree::{ChildReferences, CopyEffect, Sharing, Space, TreeError};

use crate::asking::{Asking, ReferenceMoves};
use crate::block_space::BlockSpace;
use vlinder_forest::OpenTree;
use vlinder_space::{Asker, Charge, ReserveAccess};

/// A handle's view of space.
pub(crate) struct HandleSpace<'a> {
    blocks: BlockSpace<'a>,
    /// What the handle may draw on for more than it was promised; `None` for the committer, which is never
    /// refused.
    access: Option<ReserveAccess>,
    /// Blocks taken and not given back.
    taken_blocks: AtomicU64,
    /// What the handle was promised when it began.
    promised: Charge,
    /// What it was promised beyond that.
    further: Mutex<Charge>,
    /// Blocks whose copies are paid with that already, each with the tree that gets the copy: another that
    /// shares the block copies it for itself.
    paid_copies: Mutex<BTreeSet<(RootId, Logical)>>,
    /// What the handle leaves for the commit to do, but for what `further` stands for.
    left: Mutex<Charge>,
}

impl<'a> HandleSpace<'a> {
    pub(crate) fn new(blocks: BlockSpace<'a>, access: Option<ReserveAccess>, promised: Charge) -> Self {
        Self {
            blocks,
            access,
            promised,
            taken_blocks: AtomicU64::new(0),
            further: Mutex::default(),
            paid_copies: Mutex::default(),
            left: Mutex::default(),
        }
    }

    /// Blocks taken and not given back.
    pub(crate) fn taken_blocks(&self) -> u64 {
        self.taken_blocks.load(Ordering::Relaxed)
    }

    /// What the handle was promised beyond its reservation.
    pub(crate) fn further(&self) -> Charge {
        *self.further.lock()
    }

    /// What the handle leaves for the commit to do, but for references that copies of shared blocks add:
    /// those were charged when the copies were planned.
    pub(crate) fn left(&self) -> Charge {
        *self.left.lock()
    }

    /// The handle leaves this for the commit to do as well.
    pub(crate) fn leave(&self, changes: Charge) {
        *self.left.lock() += changes;
    }

    /// The handle as it asks for more; none for the committer.
    fn asking(&self) -> Option<Asking<'_>> {
        let held = self.promised + self.further();
        self.access.map(|access| Asking::new(self.blocks.reserver(), Asker { access, held }))
    }

    /// Adds what was granted to what the handle was promised. On a refusal, raises `needed_bytes` by
    /// everything promised so far, because the caller begins anew without it.
    fn add(&self, asked: Result<Charge, TreeError>) -> Result<Charge, TreeError> {
        let mut further = self.further.lock();
        match asked {
            Ok(charge) => {
                *further += charge;
                Ok(charge)
            }
            Err(TreeError::NoSpace { root, needed_bytes }) => {
                let before = self.blocks.reserver().reservations().price_bytes(self.promised + *further);
                Err(TreeError::NoSpace { root, needed_bytes: needed_bytes.saturating_add(before) })
            }
            Err(error) => Err(error),
        }
    }

    /// The handle has ended: what it was promised beyond its reservation goes back.
    pub(crate) fn give_back_reserved(&self) {
        self.paid_copies.lock().clear();
        let further = std::mem::take(&mut *self.further.lock());
        self.blocks.reserver().reservations().unreserve(further);
    }

    /// Asks for more than the reservation: for references that copies of these blocks add or replace.
    ///
    /// # Errors
    /// [`TreeError::NoSpace`], with nothing changed; what reading met.
    pub(crate) fn charge_copies(
        &self,
        root: RootId,
        blocks: &[(&Block, CopyEffect)],
    ) -> Result<(), TreeError> {
        let Some(asking) = self.asking() else { return Ok(()) };
        let unpaid: Vec<(&Block, CopyEffect)> = {
            let paid = self.paid_copies.lock();
            let is_unpaid = |(block, _): &(&Block, _)| !paid.contains(&(root, block.logical()));
            blocks.iter().copied().filter(is_unpaid).collect()
        };
        let charge = asking.copies_of(root, &unpaid);
        self.add(charge).map(drop)
    }

    /// As [`charge_copies`](Self::charge_copies), of the leaves at these keys, in order, so far as others
    /// share them. A transaction copies each block once: where these leaves are known, they are not charged
    /// again.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn charge_copies_at(&self, tree: &OpenTree, keys: &[Key]) -> Result<(), TreeError> {
        let Some(asking) = self.asking() else { return Ok(()) };
        let (charge, copied) = match asking.copies_at(tree, keys) {
            Ok(promised) => promised,
            Err(error) => return self.add(Err(error)).map(drop),
        };
        self.add(Ok(charge))?;
        self.paid_copies.lock().extend(copied.into_iter().map(|block| (tree.id(), block)));
        Ok(())
    }

    /// Asks for what a snapshot whose name goes to these keys takes, and gives how much that is.
    ///
    /// # Errors
    /// As [`charge_copies`](Self::charge_copies).
    pub(crate) fn charge_snapshot(&self, tree: &OpenTree, keys: &[Key]) -> Result<Charge, TreeError> {
        let Some(asking) = self.asking() else { return Ok(Charge::default()) };
        self.add(asking.snapshot(tree, keys))
    }

    /// Asks for what references of a block's children take that come or go.
    ///
    /// # Errors
    /// As [`charge_copies`](Self::charge_copies).
    pub(crate) fn charge_reference_changes(
        &self,
        block: &Block,
        changes: ReferenceMoves,
    ) -> Result<(), TreeError> {
        let Some(asking) = self.asking() else { return Ok(()) };
        self.add(asking.reference_changes(block, changes)).map(drop)
    }
}

impl Drop for HandleSpace<'_> {
    fn drop(&mut self) {
        self.give_back_reserved();
    }
}

impl Space for HandleSpace<'_> {
    fn take(&self, root: RootId, count: usize, into: &mut Vec<Logical>) -> Result<(), TreeError> {
        let had = into.len();
        let taken = self.blocks.take(root, count, into);
        let blocks = u64::try_from(into.len().saturating_sub(had)).unwrap_or(u64::MAX);
        self.taken_blocks.fetch_add(blocks, Ordering::Relaxed);
        taken
    }

    fn give(&self, root: RootId, unused: &mut Vec<Logical>) {
        let blocks = u64::try_from(unused.len()).unwrap_or(u64::MAX);
        self.taken_blocks.fetch_sub(blocks, Ordering::Relaxed);
        self.blocks.give(root, unused);
    }

    fn sharing(&self, block: &Block) -> Result<Sharing, TreeError> {
        self.blocks.sharing(block)
    }

    fn charge_copy(&self, root: RootId, block: &Block, effect: CopyEffect) -> Result<(), TreeError> {
        self.charge_copies(root, &[(block, effect)])
    }

    fn sharing_gate(&self) -> &Mutex<()> {
        self.blocks.sharing_gate()
    }

    fn sharing_holds(&self, logical: Logical, known: &Sharing) -> bool {
        self.blocks.sharing_holds(logical, known)
    }

    fn block_created(&self, root: RootId, block: &Block, first_key: &Key) {
        self.blocks.block_created(root, block, first_key);
    }

    fn block_dropped(&self, root: RootId, block: &Block, last: bool) -> bool {
        self.blocks.block_dropped(root, block, last)
    }

    fn share_children(&self, root: RootId, block: &Block, references: ChildReferences, add: bool) {
        self.blocks.share_children(root, block, references, add);
    }

    fn set_full_back_references(&self, block: &Block) {
        self.blocks.set_full_back_references(block);
    }
}

#[cfg(test)]
mod tests {
    use vlinder_format::{ItemType, ObjectId};
    use vlinder_testkit::{Scratch, require};
    use vlinder_tree::{Change, Edit, WantedBlock};

    use super::*;
    use crate::Reservation;
    use crate::opening_tests::{new_image, write};

    #[test]
    fn it_counts_blocks_that_it_keeps_and_gives_back_the_rest() {
        require!(Tool("mkfs.btrfs"));
        let scratch = Scratch::new("handle_space");
        let engine = write(&new_image(&scratch, &[])).unwrap();
        let space =
            HandleSpace::new(engine.core().block_space(), Some(ReserveAccess::Nothing), Charge::default());
        let mut blocks = Vec::new();
        space.take(RootId::FS_TREE, 5, &mut blocks).unwrap();
        assert_eq!((blocks.len(), space.taken_blocks()), (5, 5));
        space.give(RootId::FS_TREE, &mut blocks.split_off(2));
        assert_eq!(space.taken_blocks(), 2);
        space.give(RootId::FS_TREE, &mut blocks);
        assert_eq!(space.taken_blocks(), 0);

        let tree = engine.tree(RootId::FS_TREE).unwrap();
        let key = Key::MIN;
        space.charge_snapshot(&tree, &[key]).unwrap();
        space.charge_copies_at(&tree, &[key, key]).unwrap();
        assert_eq!(space.further(), engine.core().space().reservations().promised_changes());
        assert_ne!(space.further(), Charge::default());
        space.leave(Charge::leaves(3));
        assert_eq!(space.left(), Charge::leaves(3));
        space.give_back_reserved();
        assert_eq!(engine.core().space().reservations().promised_changes(), Charge::default());
        space.charge_copies_at(&tree, &[key]).unwrap();
        drop(space);
        assert_eq!(engine.core().space().reservations().promised_changes(), Charge::default());
    }

    #[test]
    fn a_copy_is_paid_once() {
        require!(Tool("mkfs.btrfs"));
        let scratch = Scratch::new("paid_copies");
        let engine = write(&new_image(&scratch, &[])).unwrap();
        let mut handle = engine.begin(Reservation::items(2000)).unwrap();
        let tree = engine.tree(RootId::FS_TREE).unwrap();
        let keys = (1000..1744).map(|number| Key::new(ObjectId(number), ItemType::INODE_ITEM, 0));
        let edits: Vec<Edit<'_>> = keys.map(|key| Edit::new(key, Change::Insert(&[0; 160]))).collect();
        handle.edit(&tree, &edits).unwrap();
        let node = engine.core().trees().store().block(&WantedBlock::root(tree.root())).unwrap();
        let children = u64::try_from(node.len()).unwrap();
        assert!(children > 1);
        let space =
            HandleSpace::new(engine.core().block_space(), Some(ReserveAccess::Nothing), Charge::default());
        space.charge_copies(tree.id(), &[(&node, CopyEffect::Added)]).unwrap();
        assert_eq!(space.further().block_references, children);
        space.paid_copies.lock().insert((tree.id(), node.logical()));
        space.charge_copies(tree.id(), &[(&node, CopyEffect::Added)]).unwrap();
        assert_eq!(space.further().block_references, children);
        space.charge_copies(RootId(999), &[(&node, CopyEffect::Added)]).unwrap();
        assert_eq!(space.further().block_references, 2 * children, "another tree copies it for itself");
        space.give_back_reserved();
        space.charge_copies(tree.id(), &[(&node, CopyEffect::Added)]).unwrap();
        assert_eq!(space.further().block_references, children, "of another promise");
    }

    /// Promises blocks until ordinary changes find no room.
    fn take_ordinary_room(engine: &crate::Engine) {
        let blocks = |blocks| Charge { blocks, ..Charge::default() };
        for shift in (0..20).rev() {
            while engine.core().reserver().try_changes(blocks(1 << shift), ReserveAccess::Margin) {}
        }
    }

    /// A count of what leaves may hold at most would take what the same handle asks for next.
    #[test]
    fn what_draws_on_the_reserve_is_measured_and_not_counted() {
        require!(Tool("mkfs.btrfs"));
        let scratch = Scratch::new("measured_reserve");
        let engine = write(&new_image(&scratch, &[])).unwrap();
        let (tree, keys) = (engine.tree(RootId::FS_TREE).unwrap(), [Key::MIN]);
        let counted = engine.core().queues().copies_of_leaves(1);
        let space =
            HandleSpace::new(engine.core().block_space(), Some(ReserveAccess::Reserve), Charge::default());
        space.charge_copies_at(&tree, &keys).unwrap();
        assert_eq!(space.further(), counted, "there is ordinary room");
        space.give_back_reserved();
        take_ordinary_room(&engine);
        assert!(
            engine.core().reserver().try_changes(counted, ReserveAccess::Reserve),
            "the reserve has room for the count"
        );
        engine.core().space().reservations().unreserve(counted);
        space.charge_copies_at(&tree, &keys).unwrap();
        assert_eq!(space.further(), Charge::default(), "no other tree shares the leaf");
    }

    #[test]
    fn a_refusal_says_all_that_the_next_try_needs() {
        require!(Tool("mkfs.btrfs"));
        let scratch = Scratch::new("handle_space_refused");
        let engine = write(&new_image(&scratch, &[])).unwrap();
        let promised = Charge::leaves(7);
        let space = HandleSpace::new(engine.core().block_space(), Some(ReserveAccess::Nothing), promised);
        let refused = space.add(Err(TreeError::NoSpace { root: RootId::FS_TREE, needed_bytes: 4096 }));
        let Err(TreeError::NoSpace { needed_bytes, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(needed_bytes, 4096 + engine.core().space().reservations().price_bytes(promised));
        assert_eq!(space.further(), Charge::default());
    }

    #[test]
    fn the_committer_is_never_refused_and_is_promised_nothing() {
        require!(Tool("mkfs.btrfs"));
        let scratch = Scratch::new("committer_space");
        let engine = write(&new_image(&scratch, &[])).unwrap();
        let space = HandleSpace::new(engine.core().block_space(), None, Charge::default());
        let tree = engine.tree(RootId::FS_TREE).unwrap();
        space.charge_copies_at(&tree, &[Key::MIN; 100_000]).unwrap();
        assert_eq!(space.charge_snapshot(&tree, &[Key::MIN]).unwrap(), Charge::default());
        assert_eq!(engine.core().space().reservations().promised_changes(), Charge::default());
    }
}
