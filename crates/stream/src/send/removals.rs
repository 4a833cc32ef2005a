//! Directories that go: each after all that lay in it.

use std::collections::BTreeMap;

use super::{Identity, SendError};

/// Directories that the new state does not have.
#[derive(Default)]
pub(super) struct Removals {
    /// Each with its parent in the old state.
    parents: BTreeMap<Identity, Identity>,
}

impl Removals {
    /// A directory goes.
    pub fn add(&mut self, directory: Identity, parent: Identity) {
        self.parents.insert(directory, parent);
    }

    /// All directories, each behind those that lie in it.
    ///
    /// # Errors
    /// Directories that lie in one another.
    pub fn in_order(&self) -> Result<Vec<Identity>, SendError> {
        let mut children: BTreeMap<Identity, usize> = self.parents.keys().map(|key| (*key, 0)).collect();
        for parent in self.parents.values() {
            if let Some(count) = children.get_mut(parent) {
                *count += 1;
            }
        }
        let mut empty: Vec<Identity> =
            children.iter().filter(|(_, count)| **count == 0).map(|(key, _)| *key).collect();
        let mut order = Vec::with_capacity(children.len());
        while let Some(directory) = empty.pop() {
            order.push(directory);
            let parent = self.parents[&directory];
            if let Some(count) = children.get_mut(&parent) {
                *count -= 1;
                if *count == 0 {
                    empty.push(parent);
                }
            }
        }
        match children.iter().find(|(_, count)| **count > 0) {
            Some((directory, _)) => Err(SendError::PathTooLong { inode: directory.number }),
            None => Ok(order),
        }
    }
}
