//! Reads the running transaction's state: what the trees hold, with what is in memory beside them.

use vlinder_base::sync::Arc;
use vlinder_codec::checksum::ChecksumKind;
use vlinder_forest::{ChecksumLookup, Forest, ForestError, OpenTree, find_root_item};
use vlinder_format::{Key, RootId};
use vlinder_tree::lease::CommitLease;
use vlinder_tree::{Root, RootPointer};

use crate::EngineError;
use crate::commit_queues::CommitQueues;
use crate::pending::PendingWindow;
use crate::system_trees::SystemTrees;

/// Looks things up in the trees of the running transaction, and in leased ones.
#[derive(Clone, Copy)]
pub struct TransactionReader<'a> {
    trees: &'a SystemTrees,
    queues: &'a CommitQueues,
    /// Kind of every checksum.
    checksums: ChecksumKind,
}

impl<'a> TransactionReader<'a> {
    pub(crate) fn new(trees: &'a SystemTrees, queues: &'a CommitQueues, checksums: ChecksumKind) -> Self {
        Self { trees, queues, checksums }
    }

    /// An item, with what is pending of it.
    ///
    /// # Errors
    /// What reading the tree met.
    pub fn item(&self, tree: &OpenTree, key: &Key) -> Result<Option<Vec<u8>>, EngineError> {
        if let Some(pending) = self.queues.pending().get(tree.id(), key) {
            return Ok(pending);
        }
        Ok(self.trees.store().get(tree.root(), key)?.map(|position| position.data().to_vec()))
    }

    /// Items from `from` up to and without `to`, with what is pending of them, in order, at most `limit`.
    ///
    /// # Errors
    /// What reading the tree met.
    pub fn items(
        &self,
        tree: &OpenTree,
        from: Key,
        to: Key,
        limit: usize,
    ) -> Result<Vec<(Key, Vec<u8>)>, EngineError> {
        if from >= to {
            return Ok(Vec::new());
        }
        let mut pending = PendingWindow::new(self.queues.pending(), tree.id(), from, to);
        let mut items = Vec::new();
        let mut cursor =
            self.trees.store().cursor(tree.root(), &from, vlinder_tree::Readahead::Forward(8))?;
        while items.len() < limit {
            let stored = cursor.item().filter(|(key, _)| *key < to).map(|(key, data)| (key, data.to_vec()));
            match (stored, pending.first_key()) {
                (None, None) => break,
                (Some((key, data)), next) if next.is_none_or(|other| key < other) => {
                    items.push((key, data));
                    cursor.advance()?;
                }
                (stored, Some(_)) => {
                    let Some((key, data)) = pending.take() else { break };
                    match key.next() {
                        // What was drained between two parts is in the tree now, and maybe not in the
                        // cursor's leaf.
                        Some(next) if pending.took_last_of_part() => cursor.seek(&next)?,
                        _ if stored.is_some_and(|(other, _)| other == key) => cursor.advance()?,
                        _ => {}
                    }
                    items.extend(data.map(|data| (key, data)));
                }
                (Some(_), None) => break,
            }
        }
        Ok(items)
    }

    /// The checksums of data, for look-ups.
    ///
    /// # Errors
    /// What opening the checksum tree met.
    pub fn checksum_lookup(&self) -> Result<ChecksumLookup<'a>, ForestError> {
        ChecksumLookup::new(self.trees.forest(), self.trees.checksum_geometry(), self.checksums)
    }

    /// The checksum tree of another state of the same file system, for look-ups.
    ///
    /// # Errors
    /// What opening the checksum tree met.
    pub fn checksum_lookup_in<'f>(&self, forest: &'f Forest) -> Result<ChecksumLookup<'f>, ForestError> {
        ChecksumLookup::new(forest, self.trees.checksum_geometry(), self.checksums)
    }

    /// The chunk tree, for searches.
    pub fn chunk_tree(&self) -> &'a Arc<Root> {
        self.trees.chunk()
    }

    /// Whether a tree that reading files can do without is missing or has a root that can't be read
    /// ([`Rescue::ignores_bad_roots`](crate::Rescue::ignores_bad_roots)).
    pub fn is_bad_root(&self, id: RootId) -> bool {
        self.trees.fixed().bad.contains(&id)
    }

    /// The root of a tree in a leased state, for searches in [`Engine::forest`](crate::Engine::forest).
    ///
    /// # Errors
    /// [`EngineError::NoSuchTree`], what reading met, or that the lease was revoked.
    pub fn leased_tree(&self, lease: &CommitLease, id: RootId) -> Result<Arc<Root>, EngineError> {
        let found = lease.root_tree().map(|root| find_root_item(self.trees.store(), &root, id)).transpose();
        // A state that was given up may look like anything.
        lease.confirm()?;
        let (_, item) = found?.flatten().ok_or(EngineError::NoSuchTree { root: id })?;
        let pointer = RootPointer { logical: item.address, generation: item.generation, level: item.level };
        Ok(Root::new(id, pointer, item.last_snapshot))
    }
}
