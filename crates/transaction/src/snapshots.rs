//! Snapshots: promised while handles work, taken in the critical phase of a commit, when nothing moves. The
//! thread that wants one commits, and hands it to that commit.

use vlinder_base::sync::Arc;
use vlinder_format::inode::Timestamp;
use vlinder_format::root_item::{RootFlags, RootItem};
use vlinder_format::uuid_item::UuidKind;
use vlinder_format::{Generation, Key, RootId, Uuid};
use vlinder_tree::Root;

use crate::EngineError;
use crate::engine_core::EngineCore;
use crate::handle::Handle;
use vlinder_forest::OpenTree;

/// What is done right after the tree was copied: `fs` gives the snapshot its name. Since the copy is made,
/// the name is not in the snapshot itself, even where it lies in the source.
pub type AfterSnapshot = Box<dyn FnOnce(&mut Handle<'_>, &Arc<OpenTree>) -> Result<(), EngineError> + Send>;

/// A snapshot to be taken.
pub struct SnapshotRequest {
    /// What it is of.
    pub source: Arc<OpenTree>,
    /// Its number.
    pub id: RootId,
    /// Its UUID.
    pub uuid: Uuid,
    /// The UUID of its parent: the source's, unless it stands in for the source.
    pub parent: Uuid,
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

/// A snapshot that has room to be taken, and the right to it: dropped without
/// [`commit`](ReservedSnapshot::commit), it is not taken.
#[must_use = "a snapshot is taken by its commit"]
pub struct ReservedSnapshot<'a> {
    request: SnapshotRequest,
    promise: SnapshotReservation<'a>,
}

/// What a snapshot is charged; it counts as waiting for the commit until it is dropped.
struct SnapshotReservation<'a> {
    core: &'a EngineCore,
    snapshot: RootId,
}

impl Drop for SnapshotReservation<'_> {
    fn drop(&mut self) {
        self.core.queues().snapshots().settle(self.snapshot);
    }
}

impl SnapshotRequest {
    /// Makes sure of room for the snapshot. It is taken by [`ReservedSnapshot::commit`], which the caller
    /// calls with no handle open.
    ///
    /// # Errors
    /// No space for what the snapshot's name changes once the tree is shared; what reading met.
    pub fn reserve<'a>(self, handle: &mut Handle<'a>) -> Result<ReservedSnapshot<'a>, EngineError> {
        let charge = handle.editor().space.charge_snapshot(&self.directory_tree, &self.name_keys)?;
        let (core, snapshot) = (handle.core(), self.id);
        core.queues().snapshots().add(snapshot, charge);
        Ok(ReservedSnapshot { request: self, promise: SnapshotReservation { core, snapshot } })
    }
}

impl ReservedSnapshot<'_> {
    /// The number of the snapshot.
    #[must_use]
    pub fn id(&self) -> RootId {
        self.request.id
    }

    /// Commits, and takes the snapshot in the critical phase of that commit.
    ///
    /// # Errors
    /// As [`Engine::commit`](crate::Engine::commit). Where the commit before still waits for space on the
    /// host, the snapshot is not taken.
    pub fn commit(self) -> Result<Generation, EngineError> {
        let core = self.promise.core;
        core.commit_with(Some(self))
    }

    /// Takes the snapshot. Everything pending of the source is in its tree.
    pub(crate) fn take(self, handle: &mut Handle<'_>) -> Result<(), EngineError> {
        let Self { request, promise } = self;
        // Its blocks are taken now.
        drop(promise);
        let SnapshotRequest { source, id, uuid, parent, time, read_only, after, .. } = request;
        let generation = handle.generation();
        let pointer = handle.editor_mut().copy_tree(source.root(), id)?;
        source.change_item(|item| item.last_snapshot = generation);
        let item = snapshot_item(source.item(), generation, (uuid, parent), time, read_only);
        let key = RootItem::key(id, generation.0);
        let root = Root::new(id, pointer, generation);
        let tree = OpenTree::made(root, key, item);
        handle.core().trees().forest().insert(&tree);
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
    (uuid, parent): (Uuid, Uuid),
    time: Timestamp,
    read_only: bool,
) -> RootItem {
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
