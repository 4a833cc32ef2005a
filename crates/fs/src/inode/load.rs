//! From the tree into memory.

use vlinder_base::sync::Arc;
use vlinder_format::inode::InodeItem;
use vlinder_format::{Damage, Key, Place};

use super::Inode;
use crate::ids::InodeId;
use crate::subvolume::Subvolume;
use crate::{Filesystem, Refusal, Result};

/// How often a load may be overtaken by a removal before something is wrong.
const ROUNDS: usize = 1000;

impl Filesystem {
    /// An inode by its id.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] where there is none; what reading met.
    pub fn inode(&self, id: InodeId) -> Result<Arc<Inode>> {
        for _ in 0..ROUNDS {
            let ticket = match self.shared().inodes.get(id) {
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
            if let Some(inode) = self.shared().inodes.insert(inode, ticket) {
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
        let data = self.engine().reader().item(subvolume.tree(), &key)?.ok_or(Refusal::NotFound)?;
        let damage = |fault: vlinder_format::inode::InodeFault| Damage::new(fault, place(&subvolume, key));
        let item = InodeItem::decode(&data).map_err(damage)?;
        let unknown =
            item.file_type().ok_or(vlinder_format::inode::InodeFault::FileType { found: item.mode });
        let file_type = unknown.map_err(damage)?;
        Ok(Inode::new(subvolume, id, file_type, item))
    }

    /// The inode, if it is in memory.
    #[must_use]
    pub fn inode_in_memory(&self, id: InodeId) -> Option<Arc<Inode>> {
        self.shared().inodes.get(id).ok()
    }
}

/// A place in a subvolume's tree, for errors.
pub(crate) fn place(subvolume: &Subvolume, key: Key) -> Place {
    Place { tree: Some(subvolume.id()), key: Some(key), ..Place::default() }
}
