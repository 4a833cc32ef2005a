//! Where a subvolume lies: in which directory of which other subvolume, under which name.
//!
//! The root tree says so twice, in the parent's reference to the subvolume and in the subvolume's reference
//! back. Linux goes down by the first alone (`fixup_tree_root_location`), and a subvolume may then lie at
//! several places of a damaged file system, or in a circle. Here each lies at one: the first reference back
//! says where, or, if there is none at all, the reference of the parent with the lowest number.

use std::collections::HashMap;

use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_data::InodeId;
use vlinder_format::directory::DirectoryIndex;
use vlinder_format::root_ref::RootReference;
use vlinder_format::{Damage, ItemType, Key, ObjectId, RootId};
use vlinder_transaction::Engine;
use vlinder_tree::{Position, Readahead};

use crate::inode::Inode;
use crate::{FsError, Result};

/// Of each subvolume that is referred to, the parent with the lowest number.
type LowestParents = HashMap<RootId, RootId>;

/// Where a subvolume has its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubvolumePlace {
    /// The directory.
    pub(crate) directory: InodeId,
    /// The name in it.
    pub(crate) name: Vec<u8>,
    /// The name's index.
    pub(crate) index: DirectoryIndex,
}

impl SubvolumePlace {
    fn decode(parent: RootId, found: &Position) -> Result<Self> {
        let reference = RootReference::decode(found.data())
            .map_err(|fault| Damage::new(fault, found.place(RootId::ROOT_TREE)))?;
        let directory = InodeId::new(parent, reference.directory);
        Ok(Self { directory, name: reference.name.to_vec(), index: reference.index })
    }
}

/// The directories of the subvolumes, as the trees tell of them: what a name stands for, and where a
/// directory or a subvolume lies.
pub(crate) struct DirectoryTree {
    engine: Arc<Engine>,
    /// The subvolume that is shown as the root.
    root: AtomicU64,
    /// Known once a subvolume was met that has no reference back.
    lowest_parents: Mutex<Option<LowestParents>>,
}

impl DirectoryTree {
    /// The top level is its root at first.
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, root: AtomicU64::new(RootId::FS_TREE.0), lowest_parents: Mutex::new(None) }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Shows another subvolume as the root.
    pub(crate) fn show(&self, root: RootId) {
        self.root.store(root.0, Ordering::Release);
    }

    /// The subvolume that is shown as the root.
    pub(crate) fn root_id(&self) -> InodeId {
        InodeId::root_of(RootId(self.root.load(Ordering::Acquire)))
    }

    /// Where a subvolume has its name; none for the top level and for one that has no name.
    ///
    /// # Errors
    /// What reading met.
    pub(crate) fn place_of_subvolume(&self, root: RootId) -> Result<Option<SubvolumePlace>> {
        if root == RootId::FS_TREE {
            return Ok(None);
        }
        match self.place_by_back_reference(root)? {
            Some(place) => Ok(Some(place)),
            None => self.place_by_lowest_parent(root),
        }
    }

    /// As [`place_of_subvolume`](Self::place_of_subvolume), for who changes the place: both references go
    /// then.
    ///
    /// # Errors
    /// [`FsError::NoBackReference`]; what reading met.
    pub(crate) fn whole_place_of_subvolume(&self, root: RootId) -> Result<Option<SubvolumePlace>> {
        let place = self.place_by_back_reference(root)?;
        if place.is_none() && self.place_of_subvolume(root)?.is_some() {
            return Err(FsError::NoBackReference { subvolume: root });
        }
        Ok(place)
    }

    /// Whether a subvolume lies somewhere in another one, as far as the references can be read.
    ///
    /// # Errors
    /// What reading met.
    pub(crate) fn lies_in(&self, subvolume: RootId, parent: RootId) -> Result<bool> {
        let back = RootReference::backward_key(subvolume, parent);
        if self.engine.forest().trees().get(self.engine.forest().root_tree(), &back)?.is_some() {
            return Ok(true);
        }
        Ok(self.place_of_subvolume(subvolume)?.is_some_and(|place| place.directory.root == parent))
    }

    /// Whether a subvolume lies at this name. In a snapshot of its parent the name is there, the subvolume is
    /// not.
    ///
    /// It does if its one place is here, and the parent's reference agrees. The shown subvolume lies nowhere.
    /// So subvolumes are a tree for a reader that goes down from the shown root, whatever their references
    /// say.
    pub(crate) fn is_mounted_at(&self, nested: RootId, directory: &Inode, name: &[u8]) -> Result<bool> {
        if nested == self.root_id().root {
            return Ok(false);
        }
        let here = |place: Option<SubvolumePlace>| {
            place.is_some_and(|place| place.directory == directory.id() && place.name == name)
        };
        Ok(here(self.place_of_subvolume(nested)?) && here(self.place_in(directory.id().root, nested)?))
    }

    fn place_by_back_reference(&self, root: RootId) -> Result<Option<SubvolumePlace>> {
        let first = RootReference::backward_key(root, RootId(0));
        let found = self.engine.forest().trees().ceiling(self.engine.forest().root_tree(), &first)?;
        let is_ours = |key: Key| key.objectid == root.object_id() && key.item_type == ItemType::ROOT_BACKREF;
        let found = found.filter(|position| is_ours(position.key()));
        found.map(|found| SubvolumePlace::decode(RootId(found.key().offset), &found)).transpose()
    }

    /// What a parent's reference says of a subvolume.
    fn place_in(&self, parent: RootId, root: RootId) -> Result<Option<SubvolumePlace>> {
        let key = RootReference::forward_key(parent, root);
        let found = self.engine.forest().trees().get(self.engine.forest().root_tree(), &key)?;
        found.map(|found| SubvolumePlace::decode(parent, &found)).transpose()
    }

    fn place_by_lowest_parent(&self, root: RootId) -> Result<Option<SubvolumePlace>> {
        let known = self.lowest_parents.lock().as_ref().map(|parents| parents.get(&root).copied());
        let parent = match known {
            Some(parent) => parent,
            None => {
                let parents = lowest_parents(&self.engine)?;
                let parent = parents.get(&root).copied();
                *self.lowest_parents.lock() = Some(parents);
                parent
            }
        };
        parent.map_or(Ok(None), |parent| self.place_in(parent, root))
    }
}

/// Looked up once: references that are made later have one back.
fn lowest_parents(engine: &Engine) -> Result<LowestParents> {
    let mut parents = LowestParents::new();
    let first = Key::new(RootId::FS_TREE.object_id(), ItemType::ROOT_REF, 0);
    let mut cursor = engine.forest().trees().cursor(engine.forest().root_tree(), &first, Readahead::None)?;
    while let Some(key) = cursor.key().filter(|key| key.objectid <= ObjectId::LAST_FREE) {
        if key.item_type == ItemType::ROOT_REF {
            parents.entry(RootId(key.offset)).or_insert(RootId(key.objectid.0));
        }
        cursor.advance()?;
    }
    Ok(parents)
}
