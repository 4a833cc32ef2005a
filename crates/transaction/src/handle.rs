//! A handle: the right to change things in the running transaction, with the space for it promised.

use std::collections::BTreeSet;

use vlinder_base::clock::Timestamp as Moment;
use vlinder_base::sync::{Arc, OnceLock};
use vlinder_format::inode::{InodeFlags, InodeItem, Mode, Timestamp};
use vlinder_format::root_item::{RootFlags, RootItem};
use vlinder_format::uuid_item::UuidKind;
use vlinder_format::{Generation, Key, Level, Logical, ObjectId, RootId, Uuid, orphan};
use vlinder_tree::{Change, Edit, Root};

use crate::EngineError;
use crate::change_kind::ChangeKind;
use crate::checksums::ChecksumTree;
use crate::data_extent::DataExtent;
use crate::editor::Editor;
use crate::engine_core::EngineCore;
use crate::extents::delayed::ExtentKind;
use crate::log_roots::FsyncLog;
use crate::quotas::add_quota_group;
use crate::reservation::Reservation;
use crate::unwinding::PanicWatch;
use crate::uuids::UuidTree;
use vlinder_forest::Referrer;
use vlinder_forest::{OpenTree, new_root_item};
use vlinder_space::Taken;
use vlinder_space::{Charge, Purpose, ReserveAccess, TreeSizes};

/// The right to change things in the running transaction. The transaction does not end while it is open.
pub struct Handle<'a> {
    core: &'a EngineCore,
    editor: Editor<'a>,
    generation: Generation,
    promised: Charge,
    kind: ChangeKind,
    /// The committer's own handle, in the critical phase.
    critical: bool,
    /// In debug builds, where items may be pending in trees that share blocks.
    charged: BTreeSet<(RootId, Key)>,
    watch: PanicWatch,
    time: OnceLock<Timestamp>,
}

fn timestamp(moment: Moment) -> Timestamp {
    Timestamp { seconds: moment.seconds, nanoseconds: moment.nanoseconds }
}

/// Extents with pending references that a transaction keeps in memory, at some 200 bytes each.
const MAX_DELAYED_HEADS: usize = 100_000;

impl EngineCore {
    /// Joins the running transaction, or waits for the next if it is just ending.
    ///
    /// # Errors
    /// [`EngineError::ReadOnly`]; [`EngineError::NoSpace`], before anything was changed.
    pub(crate) fn begin(&self, reservation: Reservation) -> Result<Handle<'_>, EngineError> {
        self.latch().check_writable()?;
        let _timer = self.metrics().begin_wait_time.time();
        self.commit_if_over_budget()?;
        self.reserver()
            .reserve_changes(reservation.changes, reservation.access, || self.commit().map(drop))?;
        self.begin_promised(reservation)
    }

    /// As [`begin`](Self::begin), for work that can wait: where there is no room right now, it fails at once
    /// instead of committing.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn begin_at_once(&self, reservation: Reservation) -> Result<Handle<'_>, EngineError> {
        self.latch().check_writable()?;
        let _timer = self.metrics().begin_wait_time.time();
        self.commit_if_over_budget()?;
        let reserver = self.reserver();
        if !reserver.try_changes(reservation.changes, reservation.access) {
            return Err(reserver.no_space(reservation.changes));
        }
        self.begin_promised(reservation)
    }

    /// Joins the transaction with a promise that was given.
    fn begin_promised(&self, reservation: Reservation) -> Result<Handle<'_>, EngineError> {
        let changes = reservation.changes;
        let joined = self.running().join(|| self.latch().check_writable());
        let generation = joined.inspect_err(|_| self.space().reservations().unreserve(changes))?;
        Ok(Handle {
            core: self,
            editor: self.editor(generation, Some(reservation.access.max(ReserveAccess::Margin)), changes),
            generation,
            promised: changes,
            kind: reservation.kind,
            critical: false,
            charged: BTreeSet::new(),
            watch: PanicWatch::new(),
            time: OnceLock::new(),
        })
    }

    /// Commits before the transaction outgrows the memory that it may take.
    fn commit_if_over_budget(&self) -> Result<(), EngineError> {
        let blocks = self.trees().store().dirty_bytes() > self.options().dirty_blocks_bytes();
        let items = self.queues().pending().bytes() > self.options().dirty_bytes / 4;
        let references = self.queues().delayed().len() > MAX_DELAYED_HEADS;
        if blocks || items || references { self.commit().map(drop) } else { Ok(()) }
    }
}

impl<'a> Handle<'a> {
    /// The parts of the file system.
    pub(crate) fn core(&self) -> &'a EngineCore {
        self.core
    }

    /// What it changes trees with.
    pub(crate) fn editor(&self) -> &Editor<'a> {
        &self.editor
    }

    pub(crate) fn editor_mut(&mut self) -> &mut Editor<'a> {
        &mut self.editor
    }

    /// The committer's handle: no other is open.
    pub(crate) fn critical(core: &'a EngineCore, generation: Generation) -> Self {
        Self {
            core,
            editor: core.editor(generation, None, Charge::default()),
            generation,
            promised: Charge::default(),
            kind: ChangeKind::Commit,
            critical: true,
            charged: BTreeSet::new(),
            watch: PanicWatch::new(),
            time: OnceLock::new(),
        }
    }
}

impl Handle<'_> {
    /// The running transaction.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The time of day for all that this handle changes: when it was first asked for.
    pub fn time(&self) -> Timestamp {
        *self.time.get_or_init(|| timestamp(self.core.options().clock.now()))
    }

    /// [`time`](Self::time) where that is known; else about now, which costs less: for what is compared with
    /// no other time.
    pub fn time_about(&self) -> Timestamp {
        self.time.get().copied().unwrap_or_else(|| timestamp(self.core.options().clock.recently()))
    }

    /// Changes a tree: all edits or none; sorted by key.
    ///
    /// # Errors
    /// As [`vlinder_tree::Trees::edit`].
    pub fn edit(&mut self, tree: &OpenTree, edits: &[Edit<'_>]) -> Result<(), EngineError> {
        Ok(self.editor.edit(tree.root(), edits)?)
    }

    /// Changes the root tree: root references, orphans, the default subvolume.
    ///
    /// # Errors
    /// As [`vlinder_tree::Trees::edit`].
    pub fn edit_root_tree(&mut self, edits: &[Edit<'_>]) -> Result<(), EngineError> {
        Ok(self.editor.edit(self.core.trees().root_tree(), edits)?)
    }

    /// Makes sure of room for what items that will be pending at these keys take beyond their own leaves:
    /// where another tree shares these, copies add references to all that the leaves hold. Called before
    /// anything changes.
    ///
    /// # Errors
    /// No space; what reading met.
    pub fn charge_pending(&mut self, tree: &OpenTree, keys: &[Key]) -> Result<(), EngineError> {
        if !tree.may_share_blocks() || keys.is_empty() {
            return Ok(());
        }
        self.editor.space.charge_copies_at(tree, keys)?;
        if cfg!(debug_assertions) {
            self.charged.extend(keys.iter().map(|key| (tree.id(), *key)));
        }
        Ok(())
    }

    /// What will be pending in a tree that shares blocks was charged by
    /// [`charge_pending`](Self::charge_pending).
    fn assert_charged(&self, tree: &OpenTree, key: &Key) {
        if cfg!(debug_assertions) && tree.may_share_blocks() && !self.critical {
            assert!(self.charged.contains(&(tree.id(), *key)), "{key} of tree {} is not charged", tree.id());
        }
    }

    /// An item that the tree does not hold yet waits in memory for the commit.
    pub fn insert_pending(&mut self, tree: &OpenTree, key: Key, data: Vec<u8>) {
        self.assert_charged(tree, &key);
        self.leave_item(data.len());
        self.core.queues().pending().put(tree.id(), key, data, true, tree.may_share_blocks());
        self.mark_changed();
    }

    /// An item's data, new or not, wait in memory for the commit.
    pub fn put_pending(&mut self, tree: &OpenTree, key: Key, data: Vec<u8>) {
        self.assert_charged(tree, &key);
        self.leave_item(data.len());
        self.core.queues().pending().put(tree.id(), key, data, false, tree.may_share_blocks());
        self.mark_changed();
    }

    /// A removal waits in memory for the commit, or cancels a pending insertion.
    pub fn remove_pending(&mut self, tree: &OpenTree, key: Key) {
        self.leave_item(0);
        self.core.queues().pending().remove(tree.id(), key, tree.may_share_blocks());
        self.mark_changed();
    }

    /// One item more of so many bytes waits for the commit.
    fn leave_item(&self, bytes: usize) {
        let bytes = bytes + vlinder_format::block::ITEM_HEADER_SIZE;
        self.editor.space.leave(Charge::items(1, u64::try_from(bytes).unwrap_or(u64::MAX)));
    }

    /// Notes what the handle took of what it was promised: never more. (Checksums that go with what it leaves
    /// are not counted again: where the handle changed the checksum tree itself, the leaves are copied
    /// already.)
    fn check_use(&self, promised: Charge) {
        let core = self.core;
        let left = self.editor.space.left();
        let taken = self.editor.used_blocks();
        let sizes = core.space().reservations().sizes();
        let before = TreeSizes { made: 0, ..sizes };
        let after = TreeSizes { made: taken, ..sizes };
        // Two bounds of the same: each price by itself is rounded up, and priced together the blocks cost
        // their items as well.
        let together = after.price_blocks(&(left + Charge { blocks: taken, ..Charge::default() }));
        let used = together.min(taken.saturating_add(after.price_blocks(&left)));
        let blocks = before.price_blocks(&promised);
        core.metrics().most_used.note(self.kind, used, blocks);
        if used <= blocks || self.kind == ChangeKind::LogReplay {
            return;
        }
        core.metrics().broken_promises.increment();
        let kind = self.kind;
        debug_assert!(
            false,
            "a handle for {kind:?} took {used} blocks of {blocks}: {promised:?}, left {left:?}"
        );
        tracing::error!(
            ?kind,
            used,
            blocks,
            ?promised,
            ?left,
            "a handle took more than it was promised; please report it"
        );
    }

    /// As [`remove_pending`](Self::remove_pending), for an item that was removed, and that may have been put
    /// in since.
    pub fn remove_if_pending(&mut self, tree: &OpenTree, key: Key) {
        if matches!(self.core.queues().pending().get(tree.id(), &key), Some(Some(_))) {
            self.remove_pending(tree, key);
        }
    }

    /// Says that something changed that no tree shows yet (a root item).
    pub fn mark_changed(&self) {
        self.core.running().mark_changed();
    }

    /// Takes up to `most` bytes of data space in one piece, at least `least`, or where no piece of that
    /// length is left at least a sector; both are multiples of the sector size. No extent item tells of it
    /// before a reference is added.
    ///
    /// # Errors
    /// [`EngineError::NoSpace`], or what reading free space met.
    pub fn allocate_data(&mut self, least: u64, most: u64) -> Result<DataExtent, EngineError> {
        let mut least = least.max(1).min(most);
        loop {
            match self.core.space().take_data(least, most) {
                Ok((logical, length)) => return Ok(DataExtent { logical, length }),
                Err(Taken::Load(group)) => self.core.group_loader().load(group)?,
                Err(Taken::Chunk) => {
                    if self.core.chunk_maker().make_chunk(Purpose::Data)? {
                        continue;
                    }
                    let sector = u64::from(self.core.trees().checksum_geometry().sector_size);
                    if least <= sector && self.core.freed().revoke_leases(self.core.space().pins()) {
                        continue;
                    }
                    if least <= sector {
                        return Err(EngineError::NoSpace { kind: "data", needed_bytes: most });
                    }
                    least = sector;
                }
                Err(other) => unreachable!("{other:?} is no refusal of data space"),
            }
        }
    }

    /// Gives back data space that nothing refers to and whose content does not matter.
    pub fn release_data(&mut self, extent: DataExtent) {
        self.core.space().unreserve(extent.logical, extent.length);
    }

    /// A file refers to an extent; `fresh` for the first reference to one just allocated. `offset` is the
    /// file offset less the offset into the extent.
    pub fn add_data_reference(
        &mut self,
        extent: DataExtent,
        fresh: bool,
        root: RootId,
        inode: ObjectId,
        offset: u64,
    ) {
        let referrer = Referrer::File { root, inode, offset };
        self.editor.space.leave(Charge {
            added_references: 1,
            extents: u64::from(fresh),
            ..Charge::default()
        });
        self.core.queues().delayed().change(
            extent.logical,
            extent.length,
            ExtentKind::Data,
            referrer,
            1,
            fresh,
        );
    }

    /// A file refers to an extent no more. `extent` is the whole extent, wherever the file used it.
    pub fn drop_data_reference(&mut self, extent: DataExtent, root: RootId, inode: ObjectId, offset: u64) {
        let referrer = Referrer::File { root, inode, offset };
        self.editor.space.leave(Charge { dropped_references: 1, extents: 1, ..Charge::default() });
        self.core.queues().delayed().change(
            extent.logical,
            extent.length,
            ExtentKind::Data,
            referrer,
            -1,
            false,
        );
    }

    /// Enters the checksums of data just written, one for each sector from `start` on.
    ///
    /// # Errors
    /// What changing the checksum tree met.
    pub fn insert_checksums(&mut self, start: Logical, checksums: &[u8]) -> Result<(), EngineError> {
        let core = self.core;
        Ok(ChecksumTree::of(core.trees()).insert(&mut self.editor, start, checksums)?)
    }

    /// Removes the checksums of a range that will be written anew in place.
    ///
    /// # Errors
    /// What changing the checksum tree met.
    pub fn remove_checksums(&mut self, start: Logical, length: u64) -> Result<(), EngineError> {
        let core = self.core;
        Ok(ChecksumTree::of(core.trees()).remove(&mut self.editor, start, length)?)
    }

    /// How often an extent of data is referenced by the running transaction or by the last durable commit;
    /// none if there is no such extent. References that were dropped since count still, for a power cut
    /// brings them back: all but those of one inode at one place (file offset less offset into the extent),
    /// whose bytes stay where they are.
    ///
    /// # Errors
    /// What reading the extent tree met.
    pub fn extent_references(
        &self,
        logical: Logical,
        root: RootId,
        inode: ObjectId,
        offset: u64,
    ) -> Result<Option<u64>, EngineError> {
        let own = Referrer::File { root, inode, offset };
        let stored = self.core.trees().extent_tree().references(logical)?.map(|(count, _)| count);
        let delayed = self.core.queues().delayed();
        let pending = delayed.head(logical).map(|head| head.net());
        let lost = delayed.lost_beside(logical, own);
        Ok(match (stored, pending) {
            (None, None) => None,
            (stored, pending) => {
                let change = pending.unwrap_or_default().saturating_add(lost);
                Some(stored.unwrap_or_default().saturating_add_signed(change))
            }
        })
    }

    /// The number of a new subvolume.
    ///
    /// # Errors
    /// [`EngineError::NoSubvolumeNumber`].
    pub fn new_subvolume_number(&mut self) -> Result<RootId, EngineError> {
        self.core.numbers().take()
    }

    /// Makes an empty subvolume tree and its root item. Its root directory and its name are the caller's to
    /// add.
    ///
    /// # Errors
    /// No space, or no number left.
    pub fn create_subvolume_tree(
        &mut self,
        uuid: Uuid,
        time: Timestamp,
    ) -> Result<Arc<OpenTree>, EngineError> {
        let id = self.new_subvolume_number()?;
        let pointer = self.editor.create_tree(id)?;
        let generation = self.generation;
        let mut item = new_root_item(pointer);
        item.root_directory = ObjectId::FIRST_FREE;
        item.inode = subvolume_inode(self.core.trees().node_size());
        let extension = item.extension_mut();
        extension.uuid = uuid;
        extension.creation_transaction = generation;
        extension.change_transaction = generation;
        extension.creation_time = time;
        extension.change_time = time;
        let tree = OpenTree::made(Root::new(id, pointer, Generation(0)), RootItem::key(id, 0), item);
        self.core.trees().forest().insert(&tree);
        self.add_uuid(UuidKind::Own, uuid, id)?;
        self.add_quota_group(id)?;
        Ok(tree)
    }

    /// A subvolume is deleted: its names are gone already. Its blocks are freed after
    /// [`DeadTrees::add`](crate::DeadTrees::add).
    ///
    /// # Errors
    /// What changing the root tree met.
    pub fn delete_tree(&mut self, tree: &Arc<OpenTree>) -> Result<(), EngineError> {
        let item = tree.item();
        self.edit_root_tree(&[Edit::new(orphan::key(tree.id().object_id()), Change::Put(&[]))])?;
        tree.change_item(|item| {
            item.reference_count = 0;
            item.flags = item.flags.with(RootFlags::DEAD);
            item.drop_progress = Key::MIN;
            item.drop_level = Level::LEAF;
        });
        self.mark_changed();
        self.remove_uuid(UuidKind::Own, item.uuid(), tree.id())?;
        if !item.received_uuid().is_nil() {
            self.remove_uuid(UuidKind::Received, item.received_uuid(), tree.id())?;
        }
        Ok(())
    }

    /// A log was replayed with this handle: the commit that ends its transaction ends the log, too. Extents
    /// that came to nothing are free from then on.
    ///
    /// # Errors
    /// Never, unless the accounts of space are wrong.
    pub fn finish_log(&mut self, log: &FsyncLog) -> Result<(), EngineError> {
        log.finish(self.core.queues(), self.core.space().pins())?;
        self.mark_changed();
        Ok(())
    }

    /// Enters a subvolume under a UUID.
    ///
    /// # Errors
    /// What changing the tree met. A file system without a UUID tree is no error.
    pub fn add_uuid(&mut self, kind: UuidKind, uuid: Uuid, subvolume: RootId) -> Result<(), EngineError> {
        let Some(tree) = UuidTree::of(self.core.trees()) else { return Ok(()) };
        Ok(tree.add(&mut self.editor, kind, uuid, subvolume)?)
    }

    /// Removes a subvolume from under a UUID.
    ///
    /// # Errors
    /// What changing the tree met. An entry that is not there is no error, nor is one that is broken: Linux
    /// makes the tree anew where it does not fit.
    pub fn remove_uuid(&mut self, kind: UuidKind, uuid: Uuid, subvolume: RootId) -> Result<(), EngineError> {
        let Some(tree) = UuidTree::of(self.core.trees()) else { return Ok(()) };
        Ok(tree.remove(&mut self.editor, kind, uuid, subvolume)?)
    }

    /// Enters the quota group of a new subvolume, where quotas are on.
    pub(crate) fn add_quota_group(&mut self, subvolume: RootId) -> Result<(), EngineError> {
        let Some(tree) = &self.core.trees().fixed().quota else { return Ok(()) };
        Ok(add_quota_group(&mut self.editor, tree, subvolume)?)
    }
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        if self.critical {
            return;
        }
        if self.watch.saw_panic() {
            // Before the handle is counted as ended: what it changed must not be committed.
            self.core.shutdown().break_off("a change");
        }
        // Before the promise goes: what is held was taken on it.
        self.editor.give_back();
        self.core.queues().work().note_edits(self.editor.grown_items());
        let promised = self.promised + self.editor.space.further();
        self.editor.space.give_back_reserved();
        self.core.space().reservations().unreserve(self.promised);
        let was_last = self.core.running().leave();
        // Last: a failed assertion must not leave a handle that the committer waits for.
        if !self.watch.saw_panic() {
            self.check_use(promised);
            if was_last && self.kind != ChangeKind::LogReplay {
                self.core.reserver().check_room(self.kind, &self.core.metrics().broken_promises);
            }
        }
    }
}

/// The inode in a new subvolume's root item, filled as Linux fills it (`create_subvol`).
fn subvolume_inode(node_size: u32) -> InodeItem {
    InodeItem {
        generation: Generation(1),
        size_bytes: 3,
        link_count: 1,
        allocated_bytes: u64::from(node_size),
        mode: Mode(0o040_755),
        // Without it Linux takes the root item's own flags (read-only among them) for garbage and clears
        // them.
        flags: InodeFlags::ROOT_ITEM_INITIALIZED,
        ..InodeItem::default()
    }
}
