//! The commit, as a chain of types: `Closing → Critical → Frozen → Flushed → Published`.
//!
//! | state | handles | what holds |
//! |---|---|---|
//! | `Closing` | begin and end | participants put in what they have delayed |
//! | `Critical` | none open, none begins | snapshots, pending items, references, groups, roots come to rest |
//! | `Frozen` | work in the next transaction | every changed block is immutable, the superblock is made |
//! | `Flushed` | – | every block is on the devices, and every device was flushed |
//! | `Published` | – | the superblock is durable; what the transaction freed may be taken, unless a lease holds it |
//!
//! Only [`Flushed`] can write a superblock. An error before `Frozen` leaves the trees in memory unsure, one
//! after it the devices: both make the file system read-only, with the reason. But where the host has no
//! space for an image, nothing is unsure: what is `Frozen` stays so ([`Unpublished`]), and the next commit
//! begins with it.

use vlinder_base::metrics::Timer;
use vlinder_base::sync::{Arc, MutexGuard};
use vlinder_device::Data;
use vlinder_format::superblock::{BackupRoot, Superblock};
use vlinder_format::{Generation, Logical, RootId};
use vlinder_tree::RootPointer;
use vlinder_volume::WriteRequest;

use crate::EngineError;
use crate::commit_price::PriceOfCommit;
use crate::committing_thread::CommittingThread;
use crate::drain::Drain;
use crate::engine_core::EngineCore;
use crate::sealing::seal_all;
use crate::snapshots::ReservedSnapshot;
use crate::unpublished::Unpublished;
use crate::unwinding::Unfinished;
use vlinder_forest::{OpenTree, find_root_item};

/// Participants are being asked.
struct Closing<'a> {
    core: &'a EngineCore,
}

/// No handle is open.
struct Critical<'a> {
    core: &'a EngineCore,
    generation: Generation,
    _timer: Timer<'a>,
}

/// Everything changed is immutable.
struct Frozen<'a> {
    core: &'a EngineCore,
    unpublished: Unpublished,
}

/// Everything is on the devices but the superblock.
struct Flushed<'a> {
    core: &'a EngineCore,
    unpublished: &'a Unpublished,
}

/// Blocks written in one batch.
const WRITE_BATCH_BLOCKS: usize = 512;

impl EngineCore {
    /// Makes everything durable that was done in handles that ended before this call.
    ///
    /// # Errors
    /// As [`Engine::commit`](crate::Engine::commit).
    pub(crate) fn commit(&self) -> Result<Generation, EngineError> {
        self.commit_with(None)
    }

    /// Commits, and takes a snapshot within that.
    pub(crate) fn commit_with(
        &self,
        snapshot: Option<ReservedSnapshot<'_>>,
    ) -> Result<Generation, EngineError> {
        self.latch().check_writable()?;
        let asked = self.generation();
        let Some(_thread) = CommittingThread::enter() else {
            assert!(snapshot.is_none(), "a participant wants a snapshot within a commit");
            return Ok(asked);
        };
        let mut held_up: MutexGuard<'_, Option<Unpublished>> = self.committer().lock();
        self.latch().check_writable()?;
        let committed = commit_alone(self, asked, snapshot, &mut held_up);
        committed.inspect_err(|error| self.note_failed_commit(error))
    }
}

/// Commits, with all other committers waiting.
fn commit_alone(
    core: &EngineCore,
    asked: Generation,
    snapshot: Option<ReservedSnapshot<'_>>,
    held_up: &mut Option<Unpublished>,
) -> Result<Generation, EngineError> {
    if let Some(unpublished) = held_up.take() {
        let unfinished = Unfinished::new(|| core.shutdown().break_off("a commit"));
        let published = publish(core, Frozen { core, unpublished }, held_up);
        unfinished.end();
        published?;
    }
    if snapshot.is_none() && core.running().has_published(asked) {
        // A commit of another thread took ours along.
        return Ok(asked);
    }
    let timer = core.metrics().commit_time.time();
    let unfinished = Unfinished::new(|| {
        core.shutdown().break_off("a commit");
        core.running().reopen();
    });
    let participants = Closing { core }.ask_participants();
    let closed = Closing { core }.close(snapshot.is_some());
    let frozen = closed.and_then(|critical| critical.map(|critical| critical.freeze(snapshot)).transpose());
    let published = match frozen {
        Ok(Some(frozen)) => publish(core, frozen, held_up).inspect(|_| drop(timer)),
        Ok(None) => {
            timer.discard();
            Ok(asked)
        }
        Err(error) => {
            core.shutdown().stop_writing(&error);
            core.running().reopen();
            Err(error)
        }
    };
    unfinished.end();
    published.and_then(|generation| participants.map(|()| generation))
}

/// Writes what is frozen, and its superblock. Where the host has no space for it, it is put into
/// `held_up`.
fn publish(
    core: &EngineCore,
    frozen: Frozen<'_>,
    held_up: &mut Option<Unpublished>,
) -> Result<Generation, EngineError> {
    let published = frozen.flush().and_then(Flushed::publish);
    let published = published.map_err(|error| core.troubles().or_host_full(error));
    let is_held_up = published.as_ref().is_err_and(EngineError::is_host_full);
    core.running().set_held_up(is_held_up);
    match &published {
        Ok(_) => {}
        // Neither state on the devices has lost anything: what this one freed is not free yet.
        Err(_) if is_held_up => *held_up = Some(frozen.unpublished),
        Err(error) => {
            core.shutdown().stop_writing(error);
            core.running().reopen();
        }
    }
    published
}

impl<'a> Closing<'a> {
    fn ask_participants(&self) -> Result<(), EngineError> {
        let participants = self.core.committer().participants();
        participants.iter().try_for_each(|participant| participant.before_commit())
    }

    /// Waits for the last handle; none if the transaction has changed nothing, and nothing is wanted of it.
    fn close(self, is_wanted: bool) -> Result<Option<Critical<'a>>, EngineError> {
        let core = self.core;
        let timer = core.metrics().critical_time.time();
        core.running().close();
        // A handle that ended meanwhile may have left half of a change.
        core.latch().check_writable()?;
        let is_unchanged = || {
            !is_wanted
                && core.trees().store().dirty_bytes() == 0
                && core.queues().is_empty()
                && !core.chunks().has_new()
        };
        let Some(generation) = core.running().reopen_unchanged(is_unchanged) else {
            timer.discard();
            return Ok(None);
        };
        Ok(Some(Critical { core, generation, _timer: timer }))
    }
}

impl<'a> Critical<'a> {
    /// Brings everything to rest and freezes it; the next transaction opens.
    fn freeze(self, snapshot: Option<ReservedSnapshot<'_>>) -> Result<Frozen<'a>, EngineError> {
        let core = self.core;
        let price = PriceOfCommit::of(core);
        core.queues().work().begin_ending(core.queues().waiting());
        {
            let mut drain = Drain::begin(core, self.generation);
            drain.put_pending()?;
            if let Some(snapshot) = snapshot {
                snapshot.take(&mut drain.handle)?;
            }
            drain.put_pending()?;
            drain.write_statistics()?;
            drain.mark_quotas()?;
            drain.remove_empty_chunks()?;
            // The superblock says one generation for itself and for the root tree's block.
            drain.handle.editor_mut().touch(core.trees().root_tree())?;
            drain.run_to_fixpoint()?;
            price.check(core.metrics(), drain.handle.editor().used_blocks());
            // Addresses held beyond need go back before the free-space tree is frozen; nothing on disk knows
            // them.
            drop(drain);
        }
        core.queues().work().end_ending();
        core.reserve_sizing().size_global_reserve();
        core.space().gather_blocks();
        let superblock = self.make_superblock();
        let blocks = core.trees().store().freeze(self.generation);
        core.log().end_transaction(self.generation, core.trees().node_size(), core.space().pins())?;
        core.space().pins().freeze_pinned();
        core.queues().delayed().begin_transaction();
        let device_items = core.chunks().device_items();
        core.running().begin_next();
        Ok(Frozen { core, unpublished: Unpublished { blocks, superblock, device_items } })
    }

    /// The superblock of this transaction.
    fn make_superblock(&self) -> Superblock {
        let core = self.core;
        let (root, chunk) = (core.trees().root_tree().pointer(), core.trees().chunk().pointer());
        assert_eq!(root.generation, self.generation, "the root tree was not copied by this transaction");
        let used = core.space().used_bytes();
        let mut superblock = core.superblock();
        let uuid_tree_is_complete = superblock.uuid_tree_generation == superblock.generation;
        superblock.generation = self.generation;
        (superblock.root, superblock.root_level) = (root.logical, root.level);
        (superblock.chunk_root, superblock.chunk_root_level) = (chunk.logical, chunk.level);
        superblock.chunk_root_generation = chunk.generation;
        superblock.log_root = Logical(0);
        superblock.log_root_level = Default::default();
        superblock.bytes_used = used;
        // `cache_generation` stays: whatever a v1 space cache says of free space is out of date from now on,
        // and one whose generation is not the superblock's is cleared by Linux.
        if core.trees().fixed().uuid.is_some() && uuid_tree_is_complete {
            superblock.uuid_tree_generation = self.generation;
        }
        let backup = self.backup_root(&superblock);
        let next = next_backup(&superblock.backup_roots);
        if let Some(slot) = superblock.backup_roots.get_mut(next) {
            *slot = backup;
        }
        superblock.clone()
    }

    /// Where the top-level subvolume lies, which need not be open; none if its item cannot be read, as Linux
    /// leaves it.
    fn top_level(&self) -> RootPointer {
        if let Some(tree) = self.core.trees().forest().open_tree(RootId::FS_TREE) {
            return tree.root().pointer();
        }
        let found = find_root_item(self.core.trees().store(), self.core.trees().root_tree(), RootId::FS_TREE);
        let item = found.ok().flatten().map(|(_, item)| item).unwrap_or_default();
        RootPointer { logical: item.address, generation: item.generation, level: item.level }
    }

    fn backup_root(&self, superblock: &Superblock) -> BackupRoot {
        let fixed = self.core.trees().fixed();
        let top_level = self.top_level();
        let pointer = |tree: &Arc<OpenTree>| tree.root().pointer();
        let (extent, device, checksum) =
            (pointer(&fixed.extent), pointer(&fixed.device), pointer(&fixed.checksum));
        BackupRoot {
            tree_root: superblock.root,
            tree_root_generation: superblock.generation,
            tree_root_level: superblock.root_level,
            chunk_root: superblock.chunk_root,
            chunk_root_generation: superblock.chunk_root_generation,
            chunk_root_level: superblock.chunk_root_level,
            extent_root: extent.logical,
            extent_root_generation: extent.generation,
            extent_root_level: extent.level,
            fs_root: top_level.logical,
            fs_root_generation: top_level.generation,
            fs_root_level: top_level.level,
            device_root: device.logical,
            device_root_generation: device.generation,
            device_root_level: device.level,
            checksum_root: checksum.logical,
            checksum_root_generation: checksum.generation,
            checksum_root_level: checksum.level,
            total_bytes: superblock.total_bytes,
            bytes_used: superblock.bytes_used,
            device_count: superblock.device_count,
            ..BackupRoot::default()
        }
    }
}

/// The slot after the newest.
fn next_backup(roots: &[BackupRoot; 4]) -> usize {
    let newest = (0..roots.len()).max_by_key(|slot| roots[*slot].tree_root_generation).unwrap_or_default();
    (newest + 1) % roots.len()
}

impl<'a> Frozen<'a> {
    /// Seals every block (checksum, and a last look at it) on all cores, writes them in address order,
    /// flushes. A batch at a time is in memory twice.
    fn flush(&'a self) -> Result<Flushed<'a>, EngineError> {
        // Trees change while a commit closes, too: what they met there must stop it before anything is
        // written, for what was called free may be in use.
        self.core.latch().check_unbroken()?;
        let Self { core, unpublished } = self;
        // Blocks go to places that were free in the last commit; in another program's they need not be.
        core.volume().check_sole_writer()?;
        for addresses in unpublished.blocks.chunks(WRITE_BATCH_BLOCKS) {
            let batch = core.trees().store().frozen(addresses);
            let sealed = seal_all(core.blocks(), &batch)?;
            core.trees().store().seal_frozen(&sealed);
            let requests = sealed
                .into_iter()
                .map(|block| WriteRequest { logical: block.logical(), data: Data::Inside(block as _) })
                .collect();
            core.volume().write(requests)?;
        }
        let written = u64::try_from(unpublished.blocks.len()).unwrap_or(u64::MAX);
        core.metrics().blocks_written.add(written);
        core.volume().flush_all()?;
        Ok(Flushed { core, unpublished })
    }
}

impl Flushed<'_> {
    /// Writes the superblocks, the primary durably; then what the transaction freed is free.
    fn publish(self) -> Result<Generation, EngineError> {
        let Self { core, unpublished: Unpublished { superblock, device_items, .. } } = self;
        core.volume().write_superblocks(superblock, device_items)?;
        core.queues().delayed().forget_dropped();
        core.blocks().set_generation(superblock.generation);
        core.trees().store().thaw();
        if core.chunks().forget_removed() {
            core.space().forget_unallocated();
        }
        core.freed().publish(core.space().pins());
        core.running().publish(superblock.generation);
        core.metrics().commits.increment();
        Ok(superblock.generation)
    }
}
