//! The UUID tree: subvolumes by their own and by their received UUID.

use vlinder_format::uuid_item::{self, UuidKind};
use vlinder_format::{RootId, Uuid};
use vlinder_tree::{Action, Change, Edit};

use crate::EngineError;
use crate::handle::Handle;

impl Handle<'_> {
    /// Enters a subvolume under a UUID.
    ///
    /// # Errors
    /// What changing the tree met. A file system without a UUID tree is no error.
    pub fn add_uuid(&mut self, kind: UuidKind, uuid: Uuid, subvolume: RootId) -> Result<(), EngineError> {
        let Some(tree) = &self.core.trees().fixed().uuid else { return Ok(()) };
        let add = |present: Option<&[u8]>| {
            let mut item = present.unwrap_or_default().to_vec();
            uuid_item::append(&mut item, subvolume);
            Action::Put(item)
        };
        Ok(self.editor.edit(tree.root(), &[Edit::new(uuid_item::key(kind, uuid), Change::Update(&add))])?)
    }

    /// Removes a subvolume from under a UUID.
    ///
    /// # Errors
    /// What changing the tree met. An entry that is not there is no error, nor is one that is broken: Linux
    /// makes the tree anew where it does not fit.
    pub fn remove_uuid(&mut self, kind: UuidKind, uuid: Uuid, subvolume: RootId) -> Result<(), EngineError> {
        let Some(tree) = &self.core.trees().fixed().uuid else { return Ok(()) };
        let remove = |present: Option<&[u8]>| {
            let Some(mut item) = present.map(<[u8]>::to_vec) else { return Action::Keep };
            match uuid_item::remove(&mut item, subvolume) {
                Ok(true) if item.is_empty() => Action::Remove,
                Ok(true) => Action::Put(item),
                Ok(false) | Err(_) => Action::Keep,
            }
        };
        Ok(self
            .editor
            .edit(tree.root(), &[Edit::new(uuid_item::key(kind, uuid), Change::Update(&remove))])?)
    }
}
