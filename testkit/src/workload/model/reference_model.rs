//! The model: predicts operations, takes in what came of them, and learns what only the file system knows.

use std::collections::BTreeMap;

use rustix::io::Errno;

use super::apply::perform;
use super::node::{FileId, Node, Seen};
use super::state::ModelState;
use super::tree::SubvolumeModel;
use crate::workload::node_kind::NodeKind;
use crate::workload::operation::{OpenSlot, Operation, Place, Token};

/// What came of an operation on the file system under test.
pub type Outcome = Result<Option<FileId>, Errno>;

/// The file system did something else than the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the model expects {expected}, the file system gives {found}")]
pub struct Mismatch {
    /// What the model expects.
    pub expected: String,
    /// What was found.
    pub found: String,
}

/// Every subvolume, and which files are open.
#[derive(Clone, Debug)]
pub struct Model {
    state: ModelState,
}

impl Model {
    /// A new file system: a top-level directory with these permissions.
    pub fn new(permissions: u32, modified: (i64, u32)) -> Self {
        let root = Node::new(NodeKind::Directory, permissions, modified);
        Self { state: ModelState::new(root, modified) }
    }

    /// The root directory of a subvolume.
    pub fn root_directory(root: u64) -> FileId {
        FileId::root_directory(root)
    }

    /// The number of a subvolume.
    pub fn root_of(&self, subvolume: Token) -> Option<u64> {
        self.state.root_of(subvolume)
    }

    /// A file by its tokens, if it exists (it may have no name any more).
    pub fn file(&self, place: Place) -> Option<FileId> {
        self.state.file(place)
    }

    /// What is open in a slot.
    pub fn open_file_of(&self, slot: OpenSlot) -> Option<FileId> {
        self.state.open_files().file(slot)
    }

    /// An inode.
    pub fn node(&self, file: FileId) -> Option<&Node> {
        self.state.node(file)
    }

    /// Every subvolume by number.
    pub fn subvolumes(&self) -> &BTreeMap<u64, SubvolumeModel> {
        self.state.tree().subvolumes()
    }

    /// The subvolume that is mounted by default.
    pub fn default_subvolume(&self) -> u64 {
        self.state.default_subvolume()
    }

    /// How many inodes there are in all.
    pub fn inode_count(&self) -> usize {
        self.subvolumes().values().map(|subvolume| subvolume.nodes.len()).sum()
    }

    /// Bytes that writing all files anew would take, as if nothing were shared.
    pub fn stored_bytes(&self) -> u64 {
        let nodes = self.subvolumes().values().flat_map(|subvolume| subvolume.nodes.values());
        nodes.map(|node| node.content.stored_bytes()).sum()
    }

    /// What the operation should come to.
    ///
    /// # Errors
    /// The refusal that Linux gives.
    pub fn predict(&mut self, operation: &Operation) -> Result<(), Errno> {
        self.state.set_trial(true);
        let result = perform(&mut self.state, operation);
        self.state.set_trial(false);
        result
    }

    /// Takes in what came of an operation at a time; gives the files that it touched, to be looked at.
    ///
    /// # Errors
    /// A success where the model expects a refusal or the other way round. A full file system may refuse
    /// anything.
    pub fn take_in(
        &mut self,
        operation: &Operation,
        now: (i64, u32),
        outcome: &Outcome,
    ) -> Result<Vec<FileId>, Mismatch> {
        let predicted = self.predict(operation);
        let mismatch = || Mismatch { expected: format!("{predicted:?}"), found: format!("{outcome:?}") };
        // Which flags and properties go together is the file system's to say; what it says must last.
        let is_open = matches!(operation, Operation::SetFlags { .. } | Operation::SetCompression { .. });
        match (predicted, outcome) {
            (_, Err(Errno::NOSPC)) | (Err(_), Err(_)) => Ok(Vec::new()),
            (Ok(()), Err(_)) if is_open => Ok(Vec::new()),
            (Ok(()), Ok(made)) => {
                self.state.begin(now, *made);
                self.state.tree_mut().take_touched();
                let performed = perform(&mut self.state, operation);
                assert_eq!(performed, Ok(()), "the model's own prediction failed for {operation:?}");
                self.note_token(operation);
                Ok(self.state.tree_mut().take_touched())
            }
            _ => Err(mismatch()),
        }
    }

    fn note_token(&mut self, operation: &Operation) {
        let (Some(token), Some(made)) = (operation.made(), self.state.made()) else { return };
        let is_subvolume =
            matches!(operation, Operation::CreateSubvolume { .. } | Operation::Snapshot { .. });
        self.state.tokens_mut().note(token, made, is_subvolume);
    }

    /// Forgets who had what open: the file system was closed. Files without names go.
    pub fn close_all(&mut self) {
        for slot in self.state.open_files().slots() {
            self.state.release(slot);
        }
    }

    /// What is read of a file is remembered where the model does not know better.
    ///
    /// # Errors
    /// It contradicts what the model knows.
    pub fn learn(&mut self, file: FileId, seen: &Seen) -> Result<(), Mismatch> {
        let Some(node) = self.state.tree_mut().node_mut(file) else { return Ok(()) };
        node.modified.get_or_insert(seen.modified);
        node.flags.get_or_insert(seen.flags);
        let expected = node.seen();
        if expected == *seen {
            return Ok(());
        }
        Err(Mismatch { expected: format!("{file:?} {expected:?}"), found: format!("{seen:?}") })
    }

    /// As [`learn`](Self::learn), for `btrfs.compression`.
    ///
    /// # Errors
    /// It contradicts what the model knows.
    pub fn learn_compression(&mut self, file: FileId, found: Option<Vec<u8>>) -> Result<(), Mismatch> {
        let Some(node) = self.state.tree_mut().node_mut(file) else { return Ok(()) };
        let found = found.unwrap_or_default();
        let expected = node.compression.get_or_insert_with(|| found.clone());
        if *expected == found {
            return Ok(());
        }
        let text = |value: &[u8]| format!("{file:?} compression {:?}", String::from_utf8_lossy(value));
        Err(Mismatch { expected: text(expected), found: text(&found) })
    }

    /// What must be seen of an inode, as far as all of it is known.
    pub fn seen(&self, file: FileId) -> Option<Seen> {
        let node = self.node(file)?;
        (node.modified.is_some() && node.flags.is_some()).then(|| node.seen())
    }

    /// Whether what a file shows as a hole is one: no byte in it differs from zero.
    pub fn is_hole(&self, file: FileId, start: u64, end: u64) -> bool {
        let node = self.node(file).filter(|node| node.kind == NodeKind::File);
        node.is_some_and(|node| node.content.is_zero(start, end))
    }
}
