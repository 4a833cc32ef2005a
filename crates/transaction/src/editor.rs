//! Changes trees on behalf of one transaction handle or of the committer.

use vlinder_base::sync::Arc;
use vlinder_format::{Generation, Key, RootId};
use vlinder_tree::{AddressPool, Change, Edit, Root, RootPointer, TreeError, TreeIdentity, Trees};

use crate::handle_space::HandleSpace;

/// An owned change: the data that an item gets, or none for its removal.
pub(crate) type ItemChange = (Key, Option<Vec<u8>>);

/// Trees, the space they grow in, and addresses held for them.
pub(crate) struct Editor<'a> {
    pub(crate) trees: &'a Trees,
    pub(crate) space: HandleSpace<'a>,
    pub(crate) generation: Generation,
    pub(crate) identity: TreeIdentity,
    metadata: AddressPool,
    system: AddressPool,
    /// Items that edits put: each may have filled a leaf.
    grown_items: u64,
}

impl<'a> Editor<'a> {
    pub(crate) fn new(
        trees: &'a Trees,
        space: HandleSpace<'a>,
        generation: Generation,
        identity: TreeIdentity,
    ) -> Self {
        let (metadata, system) = (AddressPool::default(), AddressPool::default());
        Self { trees, space, generation, identity, metadata, system, grown_items: 0 }
    }

    /// All of the edits or none; sorted by key.
    pub(crate) fn edit(&mut self, root: &Arc<Root>, edits: &[Edit<'_>]) -> Result<(), TreeError> {
        let is_removal = |edit: &&Edit<'_>| matches!(edit.change, Change::Remove | Change::RemoveIfPresent);
        let grown = edits.len().saturating_sub(edits.iter().filter(is_removal).count());
        self.grown_items = self.grown_items.saturating_add(u64::try_from(grown).unwrap_or(u64::MAX));
        let pool = if root.id() == RootId::CHUNK_TREE { &mut self.system } else { &mut self.metadata };
        self.trees.edit(root, self.generation, &self.space, pool, edits)
    }

    /// Puts and removes items; sorted by key. On an error some may be done.
    pub(crate) fn change_items(&mut self, root: &Arc<Root>, changes: &[ItemChange]) -> Result<(), TreeError> {
        let edits: Vec<Edit<'_>> =
            changes.iter().map(|(key, data)| Edit::put_or_remove(*key, data.as_deref())).collect();
        self.edit_in_parts(root, &edits)
    }

    /// As [`edit`](Self::edit), in parts where there are too few free blocks for all at once: the plan of an
    /// edit holds more addresses than the edit takes in the end, and the more edits the more of them. On an
    /// error some may be done.
    pub(crate) fn edit_in_parts(&mut self, root: &Arc<Root>, edits: &[Edit<'_>]) -> Result<(), TreeError> {
        match self.edit(root, edits) {
            Err(TreeError::NoSpace { .. }) if edits.len() > 1 => {
                let (first, second) = edits.split_at(edits.len() / 2);
                self.edit_in_parts(root, first)?;
                self.edit_in_parts(root, second)
            }
            other => other,
        }
    }

    /// One item gets these data.
    pub(crate) fn put(&mut self, root: &Arc<Root>, key: Key, data: &[u8]) -> Result<(), TreeError> {
        self.edit(root, &[Edit::new(key, Change::Put(data))])
    }

    /// One item goes, if it is there.
    pub(crate) fn remove(&mut self, root: &Arc<Root>, key: Key) -> Result<(), TreeError> {
        self.edit(root, &[Edit::new(key, Change::RemoveIfPresent)])
    }

    /// Items that were put, whether or not a leaf split for them.
    pub(crate) fn grown_items(&self) -> u64 {
        self.grown_items
    }

    /// Blocks that changes took: those that were taken, without those that are held for changes to come.
    pub(crate) fn used_blocks(&self) -> u64 {
        let held = self.metadata.held() + self.system.held();
        self.space.taken_blocks().saturating_sub(u64::try_from(held).unwrap_or(u64::MAX))
    }

    /// An empty tree.
    pub(crate) fn create_tree(&mut self, id: RootId) -> Result<RootPointer, TreeError> {
        self.trees.create_tree(id, self.generation, &self.identity, &self.space, &mut self.metadata)
    }

    /// The tree's root block belongs to this transaction from now on.
    pub(crate) fn touch(&mut self, root: &Arc<Root>) -> Result<(), TreeError> {
        self.trees.touch(root, self.generation, &self.space, &mut self.metadata)
    }

    /// A tree that shares everything with `source`.
    pub(crate) fn copy_tree(&mut self, source: &Arc<Root>, id: RootId) -> Result<RootPointer, TreeError> {
        self.trees.copy_tree(source, id, self.generation, &self.space, &mut self.metadata)
    }
}

impl Editor<'_> {
    /// Gives back the addresses that are held for changes to come.
    pub(crate) fn give_back(&mut self) {
        self.metadata.give_back(&self.space, RootId::EXTENT_TREE);
        self.system.give_back(&self.space, RootId::CHUNK_TREE);
    }
}

impl Drop for Editor<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}
