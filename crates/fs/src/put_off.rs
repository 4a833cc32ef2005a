//! Deletions that found no space and are tried again.

use vlinder_base::sync::{Arc, Mutex};

use crate::Result;
use crate::inode::Inode;

/// Files without names whose deletion found no space. Each has its orphan item, so a crash forgets none of
/// them.
#[derive(Default)]
pub(crate) struct PutOff(Mutex<Vec<Arc<Inode>>>);

impl PutOff {
    pub(crate) fn add(&self, inode: &Arc<Inode>) {
        let mut files = self.0.lock();
        if !files.iter().any(|file| file.id() == inode.id()) {
            files.push(Arc::clone(inode));
        }
    }

    /// Deletes each of the files by `delete`, which puts a file off again where it finds no space. The first
    /// failure ends the round: each try may commit several times, and a sync must not do that for every file
    /// of a full disk.
    pub(crate) fn try_again(&self, mut delete: impl FnMut(&Arc<Inode>) -> Result<()>) {
        let mut files = std::mem::take(&mut *self.0.lock()).into_iter();
        for inode in files.by_ref() {
            if let Err(error) = delete(&inode) {
                tracing::debug!(inode = %inode.id(), %error, "a file without names is still there");
                break;
            }
        }
        files.for_each(|inode| self.add(&inode));
    }

    #[cfg(test)]
    pub(crate) fn ids(&self) -> Vec<vlinder_data::InodeId> {
        self.0.lock().iter().map(|inode| inode.id()).collect()
    }
}
