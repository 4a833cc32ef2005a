//! What a snapshot shows where its source holds another subvolume: the name, and behind it an empty
//! directory, since the subvolume is not in the snapshot. Linux makes it up each time that the name is looked
//! up (`new_simple_dir`, fs/btrfs/inode.c): nothing of it is on disk, and what is changed about it is
//! forgotten when its last user is gone.

use vlinder_base::sync::Arc;
use vlinder_data::InodeId;
use vlinder_format::inode::{FileType, InodeItem, Mode};
use vlinder_format::{ObjectId, RootId};

use super::Inode;
use super::table::InodeTable;
use crate::Result;
use crate::subvolume::Subvolume;

impl InodeTable {
    /// The placeholder of a subvolume that is not there, as nobody changed it.
    pub(super) fn load_placeholder(
        &self,
        subvolume: Arc<Subvolume>,
        id: InodeId,
        absent: RootId,
    ) -> Result<Inode> {
        let item = self.placeholder_item(&subvolume, absent)?;
        Ok(Inode::new(subvolume, id, FileType::Directory, item))
    }

    /// Takes back what was changed about a placeholder that nobody has open.
    pub(super) fn forget_changes(&self, inode: &Inode, absent: RootId) -> Result<()> {
        let item = self.placeholder_item(inode.subvolume(), absent)?;
        let mut state = inode.state();
        if state.opens == 0 {
            state.item = item;
        }
        Ok(())
    }

    /// It belongs to whom the directory belongs that it lies in. Its times are those of the snapshot, so that
    /// they are the same each time; Linux shows the present.
    fn placeholder_item(&self, subvolume: &Subvolume, absent: RootId) -> Result<InodeItem> {
        let created =
            subvolume.tree().item().extension.map(|extension| extension.creation_time).unwrap_or_default();
        let directory = subvolume.place_of_absent(absent).unwrap_or(ObjectId::FIRST_FREE);
        let owner = self.inode(InodeId::new(subvolume.id(), directory))?.state().item;
        Ok(InodeItem {
            link_count: 1,
            user: owner.user,
            group: owner.group,
            mode: Mode::new(FileType::Directory, 0o755),
            access_time: created,
            change_time: created,
            modification_time: created,
            birth_time: created,
            ..InodeItem::default()
        })
    }
}
