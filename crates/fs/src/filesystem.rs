//! An opened file system: the handle, opening, committing, closing.

use std::collections::HashMap;
use std::path::Path;

use vlinder_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_device::{Device, FileDevice};
use vlinder_format::inode::{GroupId, Timestamp, UserId};
use vlinder_format::superblock::Superblock;
use vlinder_format::{Generation, RootId};
use vlinder_transaction::{
    COMMIT_EVENTS, Engine, EngineError, EngineOptions, Handle, Participant, ReadOnlyReason, Reservation,
};
use vlinder_volume::{MappedChunk, OpenRules, Opened, Volume};

use crate::data::{FileStore, begin, flush};
use crate::fsync_log::FsyncMetrics;
use crate::host_retry::HostRetry;
use crate::ids::InodeId;
use crate::inode::Inode;
use crate::inode::cache::InodeCache;
use crate::options::{OpenOptions, Owners};
use crate::participant::{put_dirty_inodes, register};
use crate::put_off::PutOff;
use crate::subvolume::{LowestParents, Subvolume};
use crate::{FsError, Refusal, Result, SubvolumeChoice};

/// An estimate of what an inode in memory takes, which turns a bound in bytes into one in inodes.
const INODE_BYTES: u64 = 1024;
/// Unreadable chunks that are named one by one.
const CHUNKS_NAMED: usize = 16;
/// An opened file system. Clones share it; the last one that is dropped commits (see [`close`](Self::close)
/// for errors).
#[derive(Clone)]
pub struct Filesystem {
    shared: Arc<Shared>,
    /// Shared by the callers' handles; those that the file system makes for itself have none.
    _closer: Option<Arc<Closer>>,
}

/// Commits when the last handle of a caller is dropped.
struct Closer(Arc<Shared>);

impl Drop for Closer {
    fn drop(&mut self) {
        // The next opener of the image must find nobody at work on it.
        self.0.store.background().stop();
        let filesystem = Filesystem::from_shared(Arc::clone(&self.0));
        if !filesystem.is_read_only()
            && let Err(error) = filesystem.sync()
        {
            tracing::error!(target: COMMIT_EVENTS, %error, "the last commit failed");
        }
    }
}

pub(crate) struct Shared {
    pub(crate) engine: Arc<Engine>,
    pub(crate) options: OpenOptions,
    pub(crate) inodes: InodeCache,
    /// Held by renames that move a directory, and by whatever asks for a directory's ancestors meanwhile.
    pub(crate) rename: Mutex<()>,
    /// Held while subvolumes get, change or lose their places, so that none is put into one that is being
    /// deleted. Comes before the rename lock.
    pub(crate) subvolume_places: Mutex<()>,
    /// Known once a subvolume was met that has no reference back.
    pub(crate) lowest_parents: Mutex<Option<LowestParents>>,
    /// File data.
    pub(crate) store: Arc<FileStore>,
    pub(crate) host_retry: HostRetry,
    pub(crate) put_off: PutOff,
    pub(crate) fsync: FsyncMetrics,
    /// The subvolume that is shown as the root.
    root: AtomicU64,
    /// With `owners=me`: as whose all files are shown.
    pub(crate) shown_owner: Option<(UserId, GroupId)>,
    subvolumes: Mutex<HashMap<RootId, Arc<Subvolume>>>,
    /// Reading changes nothing, whatever the options say.
    access_times_held: AtomicBool,
    /// Keeps what the engine holds only weakly.
    participant: Mutex<Option<Arc<dyn Participant>>>,
}

impl Filesystem {
    /// Opens the file system on these files or block devices: bootstrap, space, log replay, orphans.
    ///
    /// # Errors
    /// What the devices, the superblock, the trees or the options say.
    pub fn open<P: AsRef<Path>>(paths: &[P], options: OpenOptions) -> Result<Self> {
        let how = if options.read_only {
            vlinder_device::OpenOptions::reader()
        } else {
            vlinder_device::OpenOptions::writer()
        };
        let mut devices: Vec<Arc<dyn Device>> = Vec::with_capacity(paths.len());
        for path in paths {
            devices.push(Arc::new(FileDevice::open(path.as_ref(), &how)?));
        }
        Self::open_devices(devices, options)
    }

    /// As [`open`](Self::open), on devices of any make.
    ///
    /// # Errors
    /// As there.
    pub fn open_devices(devices: Vec<Arc<dyn Device>>, options: OpenOptions) -> Result<Self> {
        options.check()?;
        let access = if options.read_only {
            vlinder_volume::Access::ReadOnly
        } else {
            vlinder_volume::Access::ReadWrite
        };
        let rules = OpenRules {
            may_miss: options.degraded,
            history: options.history,
            ignores_flags: options.rescue.ignores_super_flags,
            ..OpenRules::default()
        };
        let reopen = |devices, access| Volume::open_by(devices, rules, access);
        let opened = reopen(devices.clone(), access)?;
        let superblock = opened.superblock.clone();
        let last = if !superblock.has_log() || options.rescue.leaves_log {
            Self::open_volume(opened, options.clone())
        } else {
            let engine_options = Self::engine_options(&options);
            crate::log_replay::open_engine(&devices, opened, &reopen, engine_options)
                .and_then(|engine| Self::with_engine(engine, options.clone()))
        };
        let filesystem = match last {
            // What the caller asked for and is not there is not damaged.
            Err(error) if options.rescue.uses_backup_roots && error.errno() == rustix::io::Errno::IO => {
                crate::backup_roots::open(&superblock, error, &|superblock| {
                    let opened = reopen(devices.clone(), access)?;
                    Self::open_volume(Opened { superblock, ..opened }, options.clone())
                })?
            }
            other => other?,
        };
        filesystem.warn_of_members();
        if filesystem.engine().is_bad_root(RootId::CHECKSUM_TREE) {
            tracing::warn!("the checksum tree can't be read: data are given out unverified");
        }
        Ok(filesystem)
    }

    /// Names the members that are missing or stale, and what can't be read without them.
    fn warn_of_members(&self) {
        let volume = self.engine().volume();
        for member in volume.members().iter().filter(|member| member.is_stale) {
            let name = member.device.describe().name;
            tracing::warn!(
                "{name}: device {} was away when the others were written to; what it has is used where no other copy is good",
                member.id
            );
        }
        for device in self.engine().missing_devices() {
            tracing::warn!("device {device} is missing; what is only there can't be read");
        }
        warn_of_chunks(&volume.unreadable_chunks(), "can't be read whole");
        if volume.members().iter().any(|member| member.is_stale) {
            // A chunk that can't be read is told of where somebody wants to read it.
            let _ = volume.load_chunks();
        }
        let stale = "is had only from a device that was away: data without checksums may be old";
        warn_of_chunks(&volume.stale_chunks(), stale);
    }

    /// Opens a committed state, for reading, that another process has leased to this one
    /// ([`CommitLease`](vlinder_tree::CommitLease)): the one of these superblocks, one for each device in the
    /// same order. What is read is worth nothing if the lease is revoked meanwhile.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_leased(
        devices: Vec<Arc<dyn Device>>,
        superblocks: Vec<Superblock>,
        options: OpenOptions,
    ) -> Result<Self> {
        options.check()?;
        let options = OpenOptions { read_only: true, ..options };
        Self::open_volume(Volume::open_leased(devices, superblocks)?, options)
    }

    fn open_volume(opened: Opened, options: OpenOptions) -> Result<Self> {
        let leave_log = Some(ReadOnlyReason::Log);
        let engine_options = EngineOptions { leave_log, ..Self::engine_options(&options) };
        Self::with_engine(Engine::open(opened, engine_options)?, options)
    }

    pub(crate) fn engine_options(options: &OpenOptions) -> EngineOptions {
        EngineOptions {
            read_only: options.read_only,
            leave_log: None,
            cache_bytes: options.cache_bytes,
            dirty_bytes: options.dirty_bytes,
            discard: options.discard,
            clock: Arc::clone(&options.clock),
            random: Arc::clone(&options.random),
            registry: Arc::clone(&options.registry),
            disabled: options.disabled,
            rescue: options.rescue.of_engine(),
        }
    }

    fn with_engine(engine: Arc<Engine>, options: OpenOptions) -> Result<Self> {
        let choice = options.subvolume.clone();
        let filesystem = Self::assemble(engine, options);
        let root = filesystem.choose_subvolume(&choice)?;
        filesystem.shared.root.store(root.0, Ordering::Release);
        match filesystem.subvolume(root) {
            Err(error)
                if error.refusal() == Some(Refusal::NotFound) && choice == SubvolumeChoice::Default =>
            {
                return Err(FsError::NoDefaultSubvolume { subvolume: root });
            }
            other => other?,
        };
        if filesystem.engine().read_only_reason().is_none() {
            let (store, flush_on_commit) = (&filesystem.shared.store, filesystem.options().flush_on_commit);
            let participant = register(store, flush_on_commit);
            *filesystem.shared.participant.lock() = Some(participant);
            if filesystem.options().background {
                filesystem.start_background()?;
            }
        }
        Ok(filesystem)
    }

    /// A file system of an engine. The top level is its root, whether that can be read or not.
    pub(crate) fn assemble(engine: Arc<Engine>, options: OpenOptions) -> Self {
        let shown_owner = (options.owners == Owners::Me).then(|| {
            let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
            (UserId(user.as_raw()), GroupId(group.as_raw()))
        });
        let most_inodes = options
            .cached_inodes
            .unwrap_or_else(|| usize::try_from(options.cache_bytes / 8 / INODE_BYTES).unwrap_or(usize::MAX));
        let inodes = InodeCache::new(most_inodes);
        let shared = Shared {
            store: Arc::new(FileStore::new(Arc::clone(&engine), &options)),
            engine,
            host_retry: HostRetry::default(),
            put_off: PutOff::default(),
            fsync: FsyncMetrics::new(&options.registry),
            options,
            inodes,
            rename: Mutex::new(()),
            subvolume_places: Mutex::new(()),
            lowest_parents: Mutex::new(None),
            root: AtomicU64::new(RootId::FS_TREE.0),
            shown_owner,
            subvolumes: Mutex::new(HashMap::new()),
            access_times_held: AtomicBool::new(false),
            participant: Mutex::new(None),
        };
        let shared = Arc::new(shared);
        Self { _closer: Some(Arc::new(Closer(Arc::clone(&shared)))), shared }
    }

    /// Whether reading leaves the access times as they are although the options would move them: so it is
    /// while the kernel shows a writable file system read-only.
    pub fn hold_access_times(&self, hold: bool) {
        self.shared.access_times_held.store(hold, Ordering::Release);
    }

    pub(crate) fn holds_access_times(&self) -> bool {
        self.shared.access_times_held.load(Ordering::Acquire)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The data of its files.
    pub(crate) fn store(&self) -> &FileStore {
        &self.shared.store
    }

    pub(crate) fn from_shared(shared: Arc<Shared>) -> Self {
        Self { shared, _closer: None }
    }

    /// The engine below.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.shared.engine
    }

    /// The options that the file system was opened with.
    #[must_use]
    pub fn options(&self) -> &OpenOptions {
        &self.shared.options
    }

    /// Bytes of a sector: the unit of data.
    #[must_use]
    pub fn sector_size(&self) -> u32 {
        self.engine().sector_size()
    }

    /// The time of day.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let now = self.engine().clock().now();
        Timestamp { seconds: now.seconds, nanoseconds: now.nanoseconds }
    }

    /// As [`now`](Self::now), but of the kernel's last tick: at most ten milliseconds earlier, and without a
    /// system call.
    pub(crate) fn recently(&self) -> Timestamp {
        let recently = self.engine().clock().recently();
        Timestamp { seconds: recently.seconds, nanoseconds: recently.nanoseconds }
    }

    /// The subvolume that is shown as the root.
    #[must_use]
    pub fn root_id(&self) -> InodeId {
        InodeId::root_of(RootId(self.shared.root.load(Ordering::Acquire)))
    }

    /// The root directory.
    ///
    /// # Errors
    /// What reading it met.
    pub fn root(&self) -> Result<Arc<Inode>> {
        self.inode(self.root_id())
    }

    /// A subvolume by its number. The first look at one finishes the deletions that a crash interrupted in
    /// it.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] where there is none or it was deleted; what reading met.
    pub fn subvolume(&self, root: RootId) -> Result<Arc<Subvolume>> {
        if let Some(subvolume) = self.shared.subvolumes.lock().get(&root) {
            return Ok(Arc::clone(subvolume));
        }
        if !root.is_subvolume() {
            return Err(Refusal::NotFound.into());
        }
        let tree = match self.engine().tree(root) {
            Ok(tree) if !tree.item().is_deleted() => tree,
            Ok(_) | Err(EngineError::NoSuchTree { .. }) => return Err(Refusal::NotFound.into()),
            Err(error) => return Err(error.into()),
        };
        let (has_log, drops) = (!self.options().no_tree_log, self.shared.store.attempts().drops());
        let loaded = Arc::new(Subvolume::new(self.engine(), tree, has_log, drops.clone()));
        let (subvolume, is_new) = {
            let mut subvolumes = self.shared.subvolumes.lock();
            let entry = subvolumes.entry(root).or_insert_with(|| Arc::clone(&loaded));
            (Arc::clone(entry), Arc::ptr_eq(entry, &loaded))
        };
        if is_new && !self.is_read_only() {
            // Also where the subvolume itself is read-only, as on Linux: nobody could see what goes.
            self.delete_orphans(&subvolume)?;
        }
        Ok(subvolume)
    }

    /// Forgets a subvolume that was deleted.
    pub(crate) fn forget_subvolume(&self, root: RootId) {
        self.shared.subvolumes.lock().remove(&root);
    }

    /// Refuses changes of what is read-only.
    ///
    /// # Errors
    /// [`Refusal::ReadOnly`], or [`Refusal::Stale`] in a deleted subvolume.
    pub fn check_writable(&self, subvolume: &Subvolume) -> Result<()> {
        if subvolume.is_deleted() {
            return Err(Refusal::Stale.into());
        }
        if self.is_read_only() || subvolume.is_read_only() {
            return Err(Refusal::ReadOnly.into());
        }
        Ok(())
    }

    /// As [`check_writable`](Self::check_writable), for a change of a file's own data and attributes: an open
    /// file outlives its subvolume.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn check_file_writable(&self, inode: &Inode) -> Result<()> {
        let subvolume = inode.subvolume();
        if subvolume.is_deleted() && inode.is_open() {
            let is_read_only = self.is_read_only() || subvolume.is_read_only();
            return if is_read_only { Err(Refusal::ReadOnly.into()) } else { Ok(()) };
        }
        self.check_writable(subvolume)
    }

    /// Whether the file system as a whole takes no changes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.shared.options.read_only || self.engine().read_only_reason().is_some()
    }

    /// Joins the running transaction with space for so many items reserved. Before it is refused, unflushed
    /// data are written out, which take less in the end than is kept for them; but not of files whose extents
    /// the caller may hold.
    ///
    /// # Errors
    /// No space, or the file system is read-only.
    pub fn begin(&self, items: u32) -> Result<Handle<'_>> {
        begin(self.store(), Reservation::items(items))
    }

    /// Writes everything out and commits: what was done before is durable when this returns.
    ///
    /// # Errors
    /// What writing met; nothing can be said then of what was done since the last success.
    pub fn sync(&self) -> Result<Generation> {
        self.shared.store.background().begin_commit();
        self.delete_put_off();
        // One file that finds no room must not keep all others from becoming durable.
        let flushed = flush::flush_all(self.store());
        match (flushed, self.commit()) {
            (Ok(()), Ok(generation)) => {
                self.engine().note_all_durable();
                Ok(generation)
            }
            (Err(error), Ok(_)) => {
                self.engine().note_failed_commit(&error);
                Err(error)
            }
            (Ok(()), Err(error)) => Err(error),
            (Err(flush_error), Err(error)) => Err(error.or_graver(flush_error)),
        }
    }

    /// Makes durable what is in transactions, and every inode item that changed beside them. (The commit
    /// takes those too, but one of another thread that is under way may have asked for them before they
    /// changed.)
    ///
    /// # Errors
    /// What putting them in or committing met.
    pub fn commit(&self) -> Result<Generation> {
        self.flush_for_commit()?;
        put_dirty_inodes(self.store())?;
        Ok(self.engine().commit()?)
    }

    /// With `flushoncommit`, writes out the data of every file, and waits for those that others are writing
    /// out. The commit itself cannot wait for these, which may be waiting for it, so a caller that asks for
    /// one comes here before.
    pub(crate) fn flush_for_commit(&self) -> Result<()> {
        if self.options().flush_on_commit { flush::flush_all(self.store()) } else { Ok(()) }
    }

    /// Writes everything out, commits, and lets go of this handle.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn close(self) -> Result<()> {
        if !self.is_read_only() {
            self.sync()?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Filesystem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Filesystem").field("root", &self.root_id().root).finish_non_exhaustive()
    }
}

/// Names chunks that something is wrong with, the first few one by one.
fn warn_of_chunks(chunks: &[Arc<MappedChunk>], what: &str) {
    for chunk in chunks.iter().take(CHUNKS_NAMED) {
        let (start, length, kind) = (chunk.logical, chunk.chunk.length, chunk.chunk.flags);
        tracing::warn!("the chunk of {length} bytes at {start} ({kind}) {what}");
    }
    if let Some(more) = chunks.len().checked_sub(CHUNKS_NAMED).filter(|more| *more > 0) {
        tracing::warn!("of {more} more chunks the same is true");
    }
}
