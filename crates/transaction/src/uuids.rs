//! The UUID tree: subvolumes by their own and by their received UUID.

use vlinder_base::sync::Arc;
use vlinder_format::uuid_item::{self, UuidKind};
use vlinder_format::{RootId, Uuid};
use vlinder_tree::{Action, Change, Edit, Root, TreeError};

use crate::editor::Editor;
use crate::system_trees::SystemTrees;

/// The UUID tree of one file system.
pub(crate) struct UuidTree<'a> {
    pub(crate) root: &'a Arc<Root>,
}

impl<'a> UuidTree<'a> {
    /// None where the file system has none.
    pub(crate) fn of(trees: &'a SystemTrees) -> Option<Self> {
        trees.fixed().uuid.as_ref().map(|tree| Self { root: tree.root() })
    }

    /// Enters a subvolume under a UUID.
    pub(crate) fn add(
        &self,
        editor: &mut Editor<'_>,
        kind: UuidKind,
        uuid: Uuid,
        subvolume: RootId,
    ) -> Result<(), TreeError> {
        let add = |present: Option<&[u8]>| {
            let mut item = present.unwrap_or_default().to_vec();
            uuid_item::append(&mut item, subvolume);
            Action::Put(item)
        };
        editor.edit(self.root, &[Edit::new(uuid_item::key(kind, uuid), Change::Update(&add))])
    }

    /// Removes a subvolume from under a UUID. An entry that is not there is no error, nor is one that is
    /// broken.
    pub(crate) fn remove(
        &self,
        editor: &mut Editor<'_>,
        kind: UuidKind,
        uuid: Uuid,
        subvolume: RootId,
    ) -> Result<(), TreeError> {
        let remove = |present: Option<&[u8]>| {
            let Some(mut item) = present.map(<[u8]>::to_vec) else { return Action::Keep };
            match uuid_item::remove(&mut item, subvolume) {
                Ok(true) if item.is_empty() => Action::Remove,
                Ok(true) => Action::Put(item),
                Ok(false) | Err(_) => Action::Keep,
            }
        };
        editor.edit(self.root, &[Edit::new(uuid_item::key(kind, uuid), Change::Update(&remove))])
    }
}
