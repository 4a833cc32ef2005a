//! Names in directories: what a name stands for, and listing them.

mod read;

pub use read::{DirectoryRecord, OpenDirectory};

use vlinder_base::sync::Arc;
use vlinder_format::directory::{self, DirectoryEntry, DirectoryEntryType, DirectoryIndex, LONGEST_NAME};
use vlinder_format::inode_ref::{self, InodeReferences};
use vlinder_format::{Damage, ItemType, Key, ObjectId, RootId};
use vlinder_tree::Readahead;

use crate::ids::InodeId;
use crate::inode::Inode;
use crate::inode::load::place;
use crate::{Access, Caller, Filesystem, FsError, Refusal, Result};

/// Bytes of the longest name.
pub(crate) const LONGEST: u32 = 255;
const _: () = assert!(LONGEST as usize == LONGEST_NAME);
/// More names than an inode can have.
const MOST_NAMES: usize = 1 << 17;
/// More directories than lie above any name.
const MOST_LEVELS: usize = 1 << 16;

/// What a name in a directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameTarget {
    /// The inode, or the root directory of a subvolume, or the placeholder of one that is not there.
    pub(crate) id: InodeId,
    /// The location in the entry.
    pub(crate) location: Key,
    /// The entry's type.
    pub(crate) entry_type: DirectoryEntryType,
}

impl NameTarget {
    /// The subvolume that the entry names, there or not.
    pub(crate) fn subvolume(&self) -> Option<RootId> {
        (self.location.item_type == ItemType::ROOT_ITEM).then_some(RootId(self.location.objectid.0))
    }
}

/// Refuses names that no file can have. `.` and `..` are never in a directory.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > LONGEST_NAME {
        return Err(Refusal::NameTooLong.into());
    }
    if name.is_empty() {
        return Err(Refusal::NotFound.into());
    }
    if name.contains(&b'/') || name.contains(&0) {
        return Err(Refusal::InvalidArgument.into());
    }
    Ok(())
}

/// As [`check_name`], for a name that is to be made or removed.
pub(crate) fn check_new_name(name: &[u8]) -> Result<()> {
    check_name(name)?;
    match name {
        b"." => Err(Refusal::InvalidArgument.into()),
        b".." => Err(Refusal::NotEmpty.into()),
        _ => Ok(()),
    }
}

impl Filesystem {
    /// The file behind a name. `.` and `..` are answered too; `..` of the shown root is the root itself.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], [`Refusal::NotADirectory`], [`Refusal::AccessDenied`]; what reading met.
    pub fn lookup(&self, caller: &Caller, directory: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        if !directory.is_directory() {
            return Err(Refusal::NotADirectory.into());
        }
        self.access(caller, directory, Access::EXECUTE)?;
        match name {
            b"." => return Ok(Arc::clone(directory)),
            b".." => return self.inode(self.lookup_parent(directory)?),
            _ => check_name(name)?,
        }
        let _operation = directory.operation.read();
        let target = self.find_target(directory, name)?.ok_or(Refusal::NotFound)?;
        let inode = self.inode(target.id)?;
        self.check_place(directory, name, &inode)?;
        Ok(inode)
    }

    /// The file behind a name that a listing gave, as a look-up of that name would give it.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup) for who may do everything.
    pub fn listed(&self, directory: &Arc<Inode>, record: &DirectoryRecord) -> Result<Arc<Inode>> {
        if record.id.is_subvolume_root() {
            // Only a look-up tells whether the subvolume is there.
            return self.lookup(&Caller::superuser(), directory, &record.name);
        }
        let inode = self.inode(record.id)?;
        match self.check_place(directory, &record.name, &inode) {
            // Or it was moved since it was listed.
            Err(FsError::SecondPlace { .. }) => self.lookup(&Caller::superuser(), directory, &record.name),
            other => other.map(|()| inode),
        }
    }

    /// Makes sure that a directory is entered where it lies and nowhere else. So the directories of a
    /// subvolume are a tree for a reader that goes down, whatever their names say: no way leads round, and
    /// none leads twice to the same place. (Of a subvolume, [`Self::is_mounted_at`] says so.)
    fn check_place(&self, directory: &Inode, name: &[u8], inode: &Inode) -> Result<()> {
        if !inode.is_directory() || inode.is_placeholder() || inode.id().root != directory.id().root {
            return Ok(());
        }
        match self.first_name(inode)? {
            Some((parent, own)) if parent == directory.id() && own == name => Ok(()),
            _ => Err(FsError::SecondPlace { directory: directory.id(), found: inode.id() }),
        }
    }

    /// What a name stands for; the caller holds the directory's operation lock.
    pub(crate) fn find_target(&self, directory: &Inode, name: &[u8]) -> Result<Option<NameTarget>> {
        if directory.is_placeholder() {
            return Ok(None);
        }
        let key = directory::item_key(directory.number(), name);
        let subvolume = directory.subvolume();
        let Some(found) = self.engine().forest().trees().get(subvolume.tree().root(), &key)? else {
            return Ok(None);
        };
        let entry = directory::find(found.data(), name)
            .map_err(|fault| Damage::new(fault, found.place(subvolume.id())))?;
        entry.map(|entry| self.resolve(directory, &entry, key)).transpose()
    }

    /// The id behind an entry.
    fn resolve(&self, directory: &Inode, entry: &DirectoryEntry<'_>, key: Key) -> Result<NameTarget> {
        let root = directory.id().root;
        let location = entry.location;
        let id = match location.item_type {
            ItemType::INODE_ITEM => InodeId::new(root, location.objectid),
            ItemType::ROOT_ITEM => {
                let nested = RootId(location.objectid.0);
                if self.is_mounted_at(nested, directory, entry.name)? {
                    InodeId::root_of(nested)
                } else {
                    directory.subvolume().note_absent(nested, directory.number());
                    InodeId::placeholder(root, nested)
                }
            }
            found => {
                let fault = directory::DirectoryFault::LocationType { found };
                return Err(Damage::new(fault, place(directory.subvolume(), key)).into());
            }
        };
        Ok(NameTarget { id, location, entry_type: entry.entry_type })
    }

    /// The directory that a directory lies in; that of the shown root, and of a subvolume without a name, is
    /// itself.
    ///
    /// # Errors
    /// What reading met.
    pub fn lookup_parent(&self, directory: &Inode) -> Result<InodeId> {
        let id = directory.id();
        if id == self.root_id() {
            return Ok(id);
        }
        if id.is_subvolume_root() {
            return Ok(self.place_of_subvolume(id.root)?.map_or(id, |place| place.directory));
        }
        if let Some(absent) = id.absent {
            let place = directory.subvolume().place_of_absent(absent).unwrap_or(ObjectId::FIRST_FREE);
            return Ok(InodeId::new(id.root, place));
        }
        let first = inode_ref::key(id.number, ObjectId(0));
        let found = self.engine().forest().trees().ceiling(directory.subvolume().tree().root(), &first)?;
        let found = found.filter(|position| {
            position.key().objectid == id.number && position.key().item_type == ItemType::INODE_REF
        });
        let parent = found.ok_or(Refusal::NotFound)?.key().offset;
        Ok(InodeId::new(id.root, ObjectId(parent)))
    }

    /// One name of a file, for showing where it is: its directory, and the name there.
    ///
    /// # Errors
    /// What reading met.
    pub fn first_name(&self, inode: &Inode) -> Result<Option<(InodeId, Vec<u8>)>> {
        let id = inode.id();
        if id.is_subvolume_root() {
            return Ok(self.place_of_subvolume(id.root)?.map(|place| (place.directory, place.name)));
        }
        let first = inode_ref::key(id.number, ObjectId(0));
        let tree = inode.subvolume().tree();
        let Some(found) = self.engine().forest().trees().ceiling(tree.root(), &first)? else {
            return Ok(None);
        };
        if found.key().objectid != id.number {
            return Ok(None);
        }
        let damage = |fault: inode_ref::InodeReferenceFault| Damage::new(fault, found.place(id.root));
        match found.key().item_type {
            ItemType::INODE_REF => {
                let Some(reference) = InodeReferences::new(found.data()).next() else { return Ok(None) };
                let reference = reference.map_err(damage)?;
                let parent = InodeId::new(id.root, ObjectId(found.key().offset));
                Ok(Some((parent, reference.name.to_vec())))
            }
            ItemType::INODE_EXTREF => {
                let Some(reference) = inode_ref::ExtendedReferences::new(found.data()).next() else {
                    return Ok(None);
                };
                let reference = reference.map_err(damage)?;
                Ok(Some((InodeId::new(id.root, reference.parent), reference.name.to_vec())))
            }
            _ => Ok(None),
        }
    }

    /// All paths of a file from the root of its subvolume, in the order of its references; none where it has
    /// no name or is that root.
    ///
    /// # Errors
    /// What reading met; [`Refusal::SymbolicLinkLoop`] where its directories lead to no root.
    pub fn paths_in_subvolume(&self, id: InodeId) -> Result<Vec<Vec<u8>>> {
        let mut paths = Vec::new();
        for (parent, name) in self.all_names(id)? {
            let mut parts = vec![name];
            let mut current = InodeId::new(id.root, parent);
            while !current.is_subvolume_root() {
                if parts.len() > MOST_LEVELS {
                    return Err(Refusal::SymbolicLinkLoop.into());
                }
                let inode = self.inode(current)?;
                let (above, name) = self.first_name(&inode)?.ok_or(Refusal::NotFound)?;
                parts.push(name);
                current = above;
            }
            parts.reverse();
            paths.push(parts.join(&b'/'));
        }
        Ok(paths)
    }

    /// The directories and names of an inode's references, in the order of their items.
    ///
    /// # Errors
    /// What reading met.
    pub fn all_names(&self, id: InodeId) -> Result<Vec<(ObjectId, Vec<u8>)>> {
        let subvolume = self.subvolume(id.root)?;
        let (root, inode) = (id.root, id.number);
        let first = inode_ref::key(inode, ObjectId(0));
        let mut cursor =
            self.engine().forest().trees().cursor(subvolume.tree().root(), &first, Readahead::None)?;
        let mut names = Vec::new();
        while let Some(position) = cursor.position() {
            let key = position.key();
            if key.objectid != inode || key.item_type > ItemType::INODE_EXTREF || names.len() > MOST_NAMES {
                break;
            }
            let damage = |fault: inode_ref::InodeReferenceFault| Damage::new(fault, position.place(root));
            if key.item_type == ItemType::INODE_REF {
                for reference in InodeReferences::new(position.data()) {
                    names.push((ObjectId(key.offset), reference.map_err(damage)?.name.to_vec()));
                }
            } else {
                for reference in inode_ref::ExtendedReferences::new(position.data()) {
                    let reference = reference.map_err(damage)?;
                    names.push((reference.parent, reference.name.to_vec()));
                }
            }
            cursor.advance()?;
        }
        // The root directory's one reference is to itself, and its name `..` is none.
        names.retain(|(parent, _)| *parent != inode);
        Ok(names)
    }

    /// The index for a new name; the caller holds the directory's operation lock exclusively. Numbers go up
    /// from the highest that is or waits to be in the tree. The last one, 2^64-1, is given to no name: no
    /// other could follow.
    ///
    /// # Errors
    /// [`Refusal::IndexUsedUp`]; what reading met.
    pub(crate) fn take_index(&self, directory: &Inode) -> Result<DirectoryIndex> {
        let known = directory.state().next_index;
        let next = match known {
            Some(next) => next,
            None => self.first_free_index(directory)?,
        };
        let following = next.0.checked_add(1).ok_or(Refusal::IndexUsedUp)?;
        directory.state().next_index = Some(DirectoryIndex(following));
        Ok(next)
    }

    /// The index behind the highest. The last one, 2^64-1, stands as well for none: a name may have it
    /// already, and none is given it.
    pub(crate) fn first_free_index(&self, directory: &Inode) -> Result<DirectoryIndex> {
        if let Some(next) = directory.state().next_index {
            return Ok(next);
        }
        let tree = directory.subvolume().tree();
        let last = directory::index_key(directory.number(), DirectoryIndex(u64::MAX));
        let end = end_of_indexes(directory);
        let mut next = DirectoryIndex::FIRST;
        let is_index = |key: &Key| key.objectid == directory.number() && key.item_type == ItemType::DIR_INDEX;
        if let Some(last) =
            self.engine().forest().trees().floor(tree.root(), &last)?.filter(|last| is_index(&last.key()))
        {
            next = next.max(DirectoryIndex(last.key().offset.saturating_add(1)));
        }
        loop {
            let from = directory::index_key(directory.number(), next);
            let waiting = self.engine().reader().items(tree, from, end, 4096)?;
            let Some((last, _)) = waiting.last() else { return Ok(next) };
            match last.offset.checked_add(1) {
                Some(following) => next = DirectoryIndex(following),
                None => return Ok(DirectoryIndex(u64::MAX)),
            }
        }
    }
}

/// The first key behind all indexes of a directory: one with the last index, 2^64-1, lies before it.
pub(crate) fn end_of_indexes(directory: &Inode) -> Key {
    let behind = ItemType(ItemType::DIR_INDEX.0.saturating_add(1));
    Key::new(directory.number(), behind, 0)
}
