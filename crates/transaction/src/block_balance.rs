//! How many bytes of blocks each tree has more, or fewer, than its root item says.

use std::collections::HashMap;

use vlinder_base::sync::Mutex;
use vlinder_format::RootId;

/// Bytes of blocks that came to trees or left them since their root items were written.
#[derive(Default)]
pub(crate) struct BlockBalance {
    bytes: Mutex<HashMap<RootId, i64>>,
}

impl BlockBalance {
    /// A tree has so many bytes of blocks more.
    pub(crate) fn add(&self, tree: RootId, bytes: i64) {
        *self.bytes.lock().entry(tree).or_default() += bytes;
    }

    /// What a tree has more than its root item says.
    pub(crate) fn of(&self, tree: RootId) -> i64 {
        self.bytes.lock().get(&tree).copied().unwrap_or_default()
    }

    /// The root item of a tree says it.
    pub(crate) fn settle(&self, tree: RootId) {
        self.bytes.lock().remove(&tree);
    }
}
