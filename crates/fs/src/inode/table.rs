//! The inodes and subvolumes of a file system in memory: loaded from the tree, kept until they are closed.

use std::collections::HashMap;

use vlinder_base::sync::{Arc, Mutex};
use vlinder_data::{FileStore, InodeId};
use vlinder_format::inode::InodeItem;
use vlinder_format::{Damage, RootId};
use vlinder_transaction::EngineError;

use super::Inode;
use super::cache::InodeCache;
use crate::options::OpenOptions;
use crate::put_off::PutOff;
use crate::subvolume::{Subvolume, place_in_tree};
use crate::{Refusal, Result};

/// How often a load may be overtaken by a removal before something is wrong.
const ROUNDS: usize = 1000;
/// An estimate of what an inode in memory takes, which turns a bound in bytes into one in inodes.
const INODE_BYTES: u64 = 1024;

/// The inodes in memory with their subvolumes, and the files without names that wait for their deletion.
pub(crate) struct InodeTable {
    pub(super) store: Arc<FileStore>,
    /// Fsyncs may write a log, so that changes are noted for them.
    has_log: bool,
    cache: InodeCache,
    subvolumes: Mutex<HashMap<RootId, Arc<Subvolume>>>,
    put_off: PutOff,
}

impl InodeTable {
    pub(crate) fn new(store: Arc<FileStore>, options: &OpenOptions) -> Self {
        let most_inodes = options
            .cached_inodes
            .unwrap_or_else(|| usize::try_from(options.cache_bytes / 8 / INODE_BYTES).unwrap_or(usize::MAX));
        Self {
            store,
            has_log: !options.no_tree_log,
            cache: InodeCache::new(most_inodes),
            subvolumes: Mutex::default(),
            put_off: PutOff::default(),
        }
    }

    /// The data of the files.
    pub(crate) fn store(&self) -> &Arc<FileStore> {
        &self.store
    }

    /// Whether fsyncs may write a log.
    pub(crate) fn has_log(&self) -> bool {
        self.has_log
    }

    /// An inode by its id.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] where there is none; what reading met.
    pub(crate) fn inode(&self, id: InodeId) -> Result<Arc<Inode>> {
        for _ in 0..ROUNDS {
            let ticket = match self.cache.get(id) {
                Ok(inode) => {
                    if let Some(absent) = id.absent {
                        self.forget_changes(&inode, absent)?;
                    }
                    return Ok(inode);
                }
                Err(ticket) => ticket,
            };
            let subvolume = self.subvolume(id.root)?;
            let inode = self.load(subvolume, id)?;
            if let Some(inode) = self.cache.insert(inode, ticket) {
                return Ok(inode);
            }
        }
        Err(Refusal::Stale.into())
    }

    fn load(&self, subvolume: Arc<Subvolume>, id: InodeId) -> Result<Inode> {
        if let Some(absent) = id.absent {
            return self.load_placeholder(subvolume, id, absent);
        }
        let key = InodeItem::key(id.number);
        let data = self.store.engine().reader().item(subvolume.tree(), &key)?.ok_or(Refusal::NotFound)?;
        let damage =
            |fault: vlinder_format::inode::InodeFault| Damage::new(fault, place_in_tree(&subvolume, key));
        let item = InodeItem::decode(&data).map_err(damage)?;
        let unknown =
            item.file_type().ok_or(vlinder_format::inode::InodeFault::FileType { found: item.mode });
        let file_type = unknown.map_err(damage)?;
        Ok(Inode::new(subvolume, id, file_type, item))
    }

    /// The inode, if it is in memory.
    pub(crate) fn inode_in_memory(&self, id: InodeId) -> Option<Arc<Inode>> {
        self.cache.get(id).ok()
    }

    /// Puts an inode that was just made into memory.
    pub(crate) fn insert_new(&self, inode: Inode) -> Arc<Inode> {
        self.cache.insert_new(inode)
    }

    /// Forgets an inode that is gone.
    pub(crate) fn forget(&self, id: InodeId) {
        self.cache.remove(id);
    }

    /// Deletions that found no space.
    pub(crate) fn put_off(&self) -> &PutOff {
        &self.put_off
    }

    /// A subvolume by its number. The first look at one finishes the deletions that a crash interrupted in
    /// it.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] where there is none or it was deleted; what reading met.
    pub(crate) fn subvolume(&self, root: RootId) -> Result<Arc<Subvolume>> {
        if let Some(subvolume) = self.subvolumes.lock().get(&root) {
            return Ok(Arc::clone(subvolume));
        }
        if !root.is_subvolume() {
            return Err(Refusal::NotFound.into());
        }
        let tree = match self.store.engine().tree(root) {
            Ok(tree) if !tree.item().is_deleted() => tree,
            Ok(_) | Err(EngineError::NoSuchTree { .. }) => return Err(Refusal::NotFound.into()),
            Err(error) => return Err(error.into()),
        };
        let (has_log, drops) = (self.has_log, self.store.drops());
        let loaded = Arc::new(Subvolume::new(self.store.engine(), tree, has_log, drops.clone()));
        let (subvolume, is_new) = {
            let mut subvolumes = self.subvolumes.lock();
            let entry = subvolumes.entry(root).or_insert_with(|| Arc::clone(&loaded));
            (Arc::clone(entry), Arc::ptr_eq(entry, &loaded))
        };
        if is_new && !self.store.is_read_only() {
            // Also where the subvolume itself is read-only, as on Linux: nobody could see what goes.
            self.delete_orphans(&subvolume)?;
        }
        Ok(subvolume)
    }

    /// Forgets a subvolume that was deleted, with its inodes that are not open.
    pub(crate) fn forget_subvolume(&self, root: RootId) {
        self.subvolumes.lock().remove(&root);
        self.cache.remove_subvolume(root);
    }

    /// Counts one opening more, until [`release`](Self::release).
    ///
    /// # Errors
    /// [`Refusal::NotFound`] where the file is gone.
    pub(crate) fn count_opening(&self, inode: &Inode) -> Result<()> {
        let _operation = inode.operation.read();
        let mut state = inode.state();
        // What lives on in a deleted subvolume was open before.
        if state.deleted || (state.opens == 0 && inode.subvolume().is_deleted()) {
            return Err(Refusal::NotFound.into());
        }
        state.opens += 1;
        Ok(())
    }

    /// Counts one opening less; at the last one of a file without names, deletes it. Errors leave it an
    /// orphan, which the background work deletes once there is space, or the next opening of the file system.
    pub(crate) fn release(&self, inode: &Arc<Inode>) {
        if let Err(error) = self.release_counted(inode) {
            tracing::warn!(inode = %inode.id(), %error, "a file without names could not be deleted; it is left for later");
        }
    }

    pub(crate) fn release_counted(&self, inode: &Arc<Inode>) -> Result<()> {
        let (is_closed, is_last) = {
            let mut state = inode.state();
            state.opens = state.opens.saturating_sub(1);
            (state.opens == 0, state.opens == 0 && state.orphan)
        };
        if is_closed && inode.subvolume().is_deleted() {
            // It was all that was left of its subvolume.
            self.cache.remove(inode.id());
            return Ok(());
        }
        if !is_last {
            vlinder_data::flush_replaced(&self.store, inode.node())?;
        }
        if is_last { self.delete_if_unused(inode) } else { Ok(()) }
    }
}
