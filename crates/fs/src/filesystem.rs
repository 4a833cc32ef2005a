//! An opened file system: the handle, and the parts that it puts together.

use vlinder_base::sync::Arc;
use vlinder_data::{FileStore, InodeId, begin};
use vlinder_format::inode::Timestamp;
use vlinder_format::{Generation, RootId};
use vlinder_transaction::{Engine, EngineError, Handle, ReadOnlyReason, Reservation};

use crate::access_time::AccessTimeRule;
use crate::closer::Closer;
use crate::file::FileContent;
use crate::health::{DeviceCounter, device_counters};
use crate::inode::Inode;
use crate::inode::table::InodeTable;
use crate::maintenance::Maintenance;
use crate::metadata::InodeAttributes;
use crate::name_view::Names;
use crate::new_file::flags_by_options;
use crate::open::Opener;
use crate::options::OpenOptions;
use crate::permission::Rights;
use crate::place_locks::PlaceLocks;
use crate::stamp::now;
use crate::statistics::Statistics;
use crate::subvolume::place::DirectoryTree;
use crate::subvolume::{Subvolume, Subvolumes};
use crate::{Result, background};

/// An opened file system. Clones share it; the last one that is dropped commits (see [`close`](Self::close)
/// for errors).
#[derive(Clone)]
pub struct Filesystem {
    shared: Arc<Shared>,
    /// Shared by the callers' handles, open files and open directories.
    closer: Arc<Closer>,
}

/// What the handles share: the parts that the views borrow.
struct Shared {
    options: OpenOptions,
    store: Arc<FileStore>,
    rights: Rights,
    tree: Arc<DirectoryTree>,
    inodes: Arc<InodeTable>,
    maintenance: Arc<Maintenance>,
    places: PlaceLocks,
    access_times: AccessTimeRule,
}

impl Filesystem {
    /// A file system of an engine. The top level is its root, whether that can be read or not.
    pub(crate) fn assemble(engine: Arc<Engine>, options: OpenOptions) -> Self {
        let store = Arc::new(FileStore::new(engine, options.data(), &options.registry));
        let inodes = Arc::new(InodeTable::new(Arc::clone(&store), &options));
        let maintenance = Arc::new(Maintenance::new(Arc::clone(&inodes), &options));
        let shared = Shared {
            rights: Rights::new(Arc::clone(&store), &options),
            tree: Arc::new(DirectoryTree::new(Arc::clone(store.engine()))),
            places: PlaceLocks::default(),
            access_times: AccessTimeRule::new(&options),
            maintenance,
            inodes,
            store,
            options,
        };
        Self { closer: Arc::new(Closer::new(Arc::clone(&shared.maintenance))), shared: Arc::new(shared) }
    }

    /// Whether reading leaves the access times as they are although the options would move them: so it is
    /// while the kernel shows a writable file system read-only.
    pub fn hold_access_times(&self, hold: bool) {
        self.shared.access_times.hold(hold);
    }

    /// Starts the thread in the background.
    pub(crate) fn start_background(&self) -> Result<()> {
        background::start(&self.shared.maintenance, &self.shared.options)
    }

    /// The data of its files.
    pub(crate) fn store(&self) -> &Arc<FileStore> {
        &self.shared.store
    }

    /// What the work on the file system as a whole needs.
    #[must_use]
    pub fn maintenance(&self) -> &Maintenance {
        &self.shared.maintenance
    }

    /// The file system by names: looking them up, making, moving and removing them.
    #[must_use]
    pub fn names(&self) -> Names<'_> {
        let shared = &*self.shared;
        let flags = flags_by_options(&shared.options);
        Names::new(&shared.rights, &shared.tree, self.opener(), &shared.places, flags)
    }

    /// The attributes of files: those of stat, extended ones, and flags.
    #[must_use]
    pub fn attributes(&self) -> InodeAttributes<'_> {
        let shared = &*self.shared;
        InodeAttributes::new(&shared.store, &shared.rights, &shared.access_times, &shared.options)
    }

    /// The content of files.
    #[must_use]
    pub fn files(&self) -> FileContent<'_> {
        let shared = &*self.shared;
        let options = &shared.options;
        FileContent::new(&shared.rights, self.opener(), &shared.access_times, &shared.maintenance, options)
    }

    /// The subvolumes.
    #[must_use]
    pub fn subvolumes(&self) -> Subvolumes<'_> {
        let by_users = self.shared.options.user_may_delete_subvolumes;
        Subvolumes::new(self.names(), &self.shared.maintenance, by_users)
    }

    /// How full the file system is. Inodes are not counted: there is no bound to them but space.
    ///
    /// # Errors
    /// What reading the chunks and their groups met: a file system that is only read learns how full it is
    /// with the first call.
    pub fn statistics(&self) -> Result<Statistics> {
        Statistics::of(self.engine())
    }

    /// The error counters of the devices, which are stored as Linux stores them (DEV_STATS), and what was
    /// healed on them and by them since the file system was opened.
    #[must_use]
    pub fn device_counters(&self) -> Vec<DeviceCounter> {
        device_counters(self.engine())
    }

    /// What decides whether a caller may do something.
    #[must_use]
    pub fn rights(&self) -> &Rights {
        &self.shared.rights
    }

    pub(crate) fn tree(&self) -> &Arc<DirectoryTree> {
        &self.shared.tree
    }

    pub(crate) fn inodes(&self) -> &Arc<InodeTable> {
        &self.shared.inodes
    }

    pub(crate) fn opener(&self) -> Opener<'_> {
        Opener::new(&self.shared.inodes, &self.closer)
    }

    /// The engine below.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        self.shared.store.engine()
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
        now(self.engine())
    }

    /// The subvolume that is shown as the root.
    #[must_use]
    pub fn root_id(&self) -> InodeId {
        self.shared.tree.root_id()
    }

    /// The root directory.
    ///
    /// # Errors
    /// What reading it met.
    pub fn root(&self) -> Result<Arc<Inode>> {
        self.inodes().inode(self.tree().root_id())
    }

    /// Whether the file system as a whole takes no changes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.shared.store.is_read_only()
    }

    /// Joins the running transaction with space for so many items reserved. Before it is refused, unflushed
    /// data are written out, which take less in the end than is kept for them; but not of files whose extents
    /// the caller may hold.
    ///
    /// # Errors
    /// No space, or the file system is read-only.
    pub fn begin(&self, items: u32) -> Result<Handle<'_>> {
        Ok(begin(self.store(), Reservation::items(items))?)
    }

    /// An inode by its id.
    ///
    /// # Errors
    /// [`Refusal::NotFound`](crate::Refusal::NotFound) where there is none; what reading met.
    pub fn inode(&self, id: InodeId) -> Result<Arc<Inode>> {
        self.shared.inodes.inode(id)
    }

    /// A subvolume by its number. The first look at one finishes the deletions that a crash interrupted in
    /// it.
    ///
    /// # Errors
    /// [`Refusal::NotFound`](crate::Refusal::NotFound) where there is none or it was deleted; what reading
    /// met.
    pub fn subvolume(&self, root: RootId) -> Result<Arc<Subvolume>> {
        self.shared.inodes.subvolume(root)
    }

    /// Writes everything out and commits: what was done before is durable when this returns.
    ///
    /// # Errors
    /// As [`Maintenance::sync`].
    pub fn sync(&self) -> Result<Generation> {
        self.shared.maintenance.sync()
    }

    /// Writes everything out, commits, and lets go of this handle.
    ///
    /// # Errors
    /// As [`sync`](Self::sync); that an error made the file system read-only before, so that what was done
    /// since the last success may be lost.
    pub fn close(self) -> Result<()> {
        match self.engine().read_only_reason() {
            None => self.sync().map(drop),
            Some(reason @ ReadOnlyReason::Error(_)) => Err(EngineError::ReadOnly { reason }.into()),
            Some(_) => Ok(()),
        }
    }
}

impl std::fmt::Debug for Filesystem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Filesystem")
            .field("root", &self.tree().root_id().root)
            .finish_non_exhaustive()
    }
}
