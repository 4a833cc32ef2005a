//! Snapshots: asked for while handles work, taken in the critical phase of the commit, when nothing moves.

use vlinder_base::sync::{Arc, Mutex};
use vlinder_format::inode::Timestamp;
use vlinder_format::root_item::{RootFlags, RootItem};
use vlinder_format::uuid_item::UuidKind;
use vlinder_format::{Generation, Key, RootId, Uuid};
use vlinder_tree::Root;

use crate::EngineError;
use crate::engine::Engine;
use crate::handle::Handle;
use vlinder_forest::OpenTree;
use vlinder_space::Charge;

/// What is done right after the tree was copied: `fs` gives the snapshot its name. Since the copy is made,
/// the name is not in the snapshot itself, even where it lies in the source.
pub type AfterSnapshot = Box<dyn FnOnce(&mut Handle<'_>, &Arc<OpenTree>) -> Result<(), EngineError> + Send>;

/// A snapshot to be taken by the next commit.
pub struct SnapshotRequest {
    /// What it is of.
    pub source: Arc<OpenTree>,
    /// Its number.
    pub id: RootId,
    /// Its UUID.
    pub uuid: Uuid,
    /// When it is made.
    pub time: Timestamp,
    /// It cannot be written.
    pub read_only: bool,
    /// The tree in which it gets its name, and where that goes, in order.
    pub directory_tree: Arc<OpenTree>,
    /// The keys of the items that its name changes there.
    pub name_keys: Vec<Key>,
    /// What is done once the tree is there.
    pub after: AfterSnapshot,
}

/// Snapshots that wait for the commit.
#[derive(Default)]
pub(crate) struct SnapshotQueue {
    waiting: Mutex<Vec<(SnapshotRequest, Charge)>>,
    /// All that was ever charged.
    grown: Mutex<Charge>,
}

impl SnapshotQueue {
    pub(crate) fn push(&self, request: SnapshotRequest, charge: Charge) {
        self.waiting.lock().push((request, charge));
        *self.grown.lock() += charge;
    }

    pub(crate) fn take(&self) -> Vec<SnapshotRequest> {
        std::mem::take(&mut *self.waiting.lock()).into_iter().map(|(request, _)| request).collect()
    }

    /// What taking all that wait may change.
    pub(crate) fn charge(&self) -> Charge {
        self.waiting.lock().iter().fold(Charge::default(), |sum, (_, charge)| sum + *charge)
    }

    /// All that was ever added to [`charge`](Self::charge).
    pub(crate) fn grown(&self) -> Charge {
        *self.grown.lock()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }
}

impl Engine {
    /// Takes one snapshot. Everything pending of the source is in its tree.
    pub(crate) fn take_snapshot(
        &self,
        handle: &mut Handle<'_>,
        request: SnapshotRequest,
    ) -> Result<(), EngineError> {
        let SnapshotRequest { source, id, uuid, time, read_only, after, .. } = request;
        let generation = handle.generation();
        let pointer = handle.editor.copy_tree(source.root(), id)?;
        source.change_item(|item| item.last_snapshot = generation);
        let item = snapshot_item(source.item(), generation, uuid, time, read_only);
        let key = RootItem::key(id, generation.0);
        let root = Root::new(id, pointer, generation);
        let tree = OpenTree::made(root, key, item);
        self.forest.insert(&tree);
        handle.add_uuid(UuidKind::Own, uuid, id)?;
        handle.add_quota_group(id)?;
        let received = item.received_uuid();
        if !received.is_nil() {
            handle.add_uuid(UuidKind::Received, received, id)?;
        }
        after(handle, &tree)
    }
}

/// The root item of a snapshot (Linux: `create_pending_snapshot`): the source's, with its own identity. Where
/// it comes from is kept only by a read-only snapshot of something received.
fn snapshot_item(
    source: RootItem,
    generation: Generation,
    uuid: Uuid,
    time: Timestamp,
    read_only: bool,
) -> RootItem {
    let parent = source.uuid();
    let mut item = source;
    item.last_snapshot = generation;
    item.flags = if read_only {
        item.flags.with(RootFlags::READ_ONLY)
    } else {
        item.flags.without(RootFlags::READ_ONLY)
    };
    {
        let extension = item.extension_mut();
        extension.uuid = uuid;
        extension.parent_uuid = parent;
        if !read_only {
            extension.received_uuid = Uuid::NIL;
            extension.send_transaction = Generation(0);
            extension.receive_transaction = Generation(0);
            extension.send_time = Timestamp::default();
            extension.receive_time = Timestamp::default();
        }
        extension.creation_time = time;
        extension.creation_transaction = generation;
    }
    item.set_generation(generation);
    item
}
