//! The trees of one state, each opened when it is first asked for.

use std::collections::HashMap;

use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_format::RootId;
use vlinder_tree::{Root, RootPointer, Trees};

use crate::{ForestError, OpenTree, find_root_item};

/// The trees that one root tree reaches.
///
/// Invariants:
/// 1. A number has at most one [`OpenTree`]: all readers and the writer of a tree share its root
///    ([`tree`](Self::tree) keeps the first one that was opened).
/// 2. `has_snapshots` is set before a tree that may share blocks can be found
///    ([`note_sharing`](Self::note_sharing)).
pub struct Forest {
    trees: Arc<Trees>,
    root_tree: Arc<Root>,
    open: Mutex<HashMap<RootId, Arc<OpenTree>>>,
    /// A tree that may share blocks with another one is or was open.
    has_snapshots: AtomicBool,
}

impl Forest {
    /// The state of a root tree, whose blocks come from `trees`. No other tree is open yet.
    #[must_use]
    pub fn new(trees: Arc<Trees>, root_tree: Arc<Root>) -> Self {
        Self { trees, root_tree, open: Mutex::default(), has_snapshots: AtomicBool::new(false) }
    }

    /// Another state whose blocks come from the same cache, which tells blocks of different generations
    /// apart.
    #[must_use]
    pub fn state_of(&self, root_tree: Arc<Root>) -> Self {
        Self::new(Arc::clone(&self.trees), root_tree)
    }

    /// The block cache and its source, for searches in the trees of this state.
    pub fn trees(&self) -> &Trees {
        &self.trees
    }

    /// The root tree.
    pub fn root_tree(&self) -> &Arc<Root> {
        &self.root_tree
    }

    /// The tree of a number, opened where it is not open yet.
    ///
    /// # Errors
    /// [`ForestError::NoSuchTree`], or what reading the root tree met.
    pub fn tree(&self, id: RootId) -> Result<Arc<OpenTree>, ForestError> {
        if let Some(tree) = self.open_tree(id) {
            return Ok(tree);
        }
        let found = find_root_item(&self.trees, &self.root_tree, id)?;
        let (key, item) = found.ok_or(ForestError::NoSuchTree { root: id })?;
        let pointer = RootPointer { logical: item.address, generation: item.generation, level: item.level };
        let tree = OpenTree::found(Root::new(id, pointer, item.last_snapshot), key, item);
        self.note_sharing(&tree);
        // Another thread may have opened it meanwhile; there must be one root for all.
        Ok(Arc::clone(self.open.lock().entry(id).or_insert(tree)))
    }

    /// The tree of a number, if it is open.
    pub fn open_tree(&self, id: RootId) -> Option<Arc<OpenTree>> {
        self.open.lock().get(&id).map(Arc::clone)
    }

    /// All open trees in the order of their numbers.
    pub fn open_trees(&self) -> Vec<Arc<OpenTree>> {
        let mut all: Vec<Arc<OpenTree>> = self.open.lock().values().map(Arc::clone).collect();
        all.sort_by_key(|tree| tree.id());
        all
    }

    /// Whether trees that are open may share blocks with others.
    pub fn may_share_blocks(&self) -> bool {
        self.has_snapshots.load(Ordering::Relaxed)
    }

    /// Takes in a tree: one that was made, or a stand-in for one that can't be read.
    pub fn insert(&self, tree: &Arc<OpenTree>) {
        self.note_sharing(tree);
        self.open.lock().insert(tree.id(), Arc::clone(tree));
    }

    /// Forgets a tree whose blocks are free.
    pub fn remove(&self, id: RootId) {
        self.open.lock().remove(&id);
    }

    fn note_sharing(&self, tree: &OpenTree) {
        if tree.may_share_blocks() {
            self.has_snapshots.store(true, Ordering::Relaxed);
        }
    }
}
