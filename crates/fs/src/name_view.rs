//! The view of a file system by names: what they stand for, and where files have theirs.

use vlinder_base::sync::Arc;
use vlinder_data::{FileStore, InodeId};
use vlinder_format::inode::InodeFlags;
use vlinder_format::inode_ref::{self, InodeReferences};
use vlinder_format::{Damage, ItemType, ObjectId, RootId};
use vlinder_transaction::Engine;
use vlinder_tree::Readahead;

use crate::directory::target::NameTarget;
use crate::directory::{DirectoryRecord, check_name, check_new_name};
use crate::inode::Inode;
use crate::inode::table::InodeTable;
use crate::open::Opener;
use crate::permission::Rights;
use crate::place_locks::PlaceLocks;
use crate::subvolume::place::DirectoryTree;
use crate::{Access, Caller, FsError, Refusal, Result};

/// More names than an inode can have.
const MAX_NAMES: usize = 1 << 17;
/// More directories than lie above any name.
const MAX_LEVELS: usize = 1 << 16;

/// More names on the way to the top than any path has.
const MAX_STEPS: usize = 1 << 16;

/// The names of a file system.
#[derive(Clone, Copy)]
pub struct Names<'a> {
    rights: &'a Rights,
    tree: &'a Arc<DirectoryTree>,
    opener: Opener<'a>,
    places: &'a PlaceLocks,
    /// What the options give to new regular files.
    new_file_flags: InodeFlags,
}

impl<'a> Names<'a> {
    pub(crate) fn new(
        rights: &'a Rights,
        tree: &'a Arc<DirectoryTree>,
        opener: Opener<'a>,
        places: &'a PlaceLocks,
        new_file_flags: InodeFlags,
    ) -> Self {
        Self { rights, tree, opener, places, new_file_flags }
    }

    pub(crate) fn engine(self) -> &'a Engine {
        self.opener.inodes().store().engine()
    }

    pub(crate) fn store(self) -> &'a Arc<FileStore> {
        self.opener.inodes().store()
    }

    pub(crate) fn inodes(self) -> &'a Arc<InodeTable> {
        self.opener.inodes()
    }

    pub(crate) fn opener(self) -> Opener<'a> {
        self.opener
    }

    pub(crate) fn rights(self) -> &'a Rights {
        self.rights
    }

    pub(crate) fn tree(self) -> &'a Arc<DirectoryTree> {
        self.tree
    }

    pub(crate) fn places(self) -> &'a PlaceLocks {
        self.places
    }

    pub(crate) fn new_file_flags(self) -> InodeFlags {
        self.new_file_flags
    }

    /// The file behind a name. `.` and `..` are answered too; `..` of the shown root is the root itself.
    ///
    /// # Errors
    /// [`Refusal::NotFound`], [`Refusal::NotADirectory`], [`Refusal::AccessDenied`]; what reading met.
    pub fn lookup(&self, caller: &Caller, directory: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        if !directory.is_directory() {
            return Err(Refusal::NotADirectory.into());
        }
        self.rights().access(caller, directory, Access::EXECUTE)?;
        match name {
            b"." => return Ok(Arc::clone(directory)),
            b".." => return self.inodes().inode(self.tree().lookup_parent(directory)?),
            _ => check_name(name)?,
        }
        let _operation = directory.operation.read();
        let target = self.tree().find_target(directory, name)?.ok_or(Refusal::NotFound)?;
        let inode = self.inodes().inode(target.id)?;
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
        let inode = self.inodes().inode(record.id)?;
        match self.check_place(directory, &record.name, &inode) {
            // Or it was moved since it was listed.
            Err(FsError::SecondPlace { .. }) => self.lookup(&Caller::superuser(), directory, &record.name),
            other => other.map(|()| inode),
        }
    }

    /// Makes sure that a directory is entered where it lies and nowhere else. So the directories of a
    /// subvolume are a tree for a reader that goes down, whatever their names say: no way leads round, and
    /// none leads twice to the same place. (Of a subvolume, [`DirectoryTree::is_mounted_at`] says so.)
    fn check_place(&self, directory: &Inode, name: &[u8], inode: &Inode) -> Result<()> {
        if !inode.is_directory() || inode.is_placeholder() || inode.id().root != directory.id().root {
            return Ok(());
        }
        match self.tree().first_name(inode)? {
            Some((parent, own)) if parent == directory.id() && own == name => Ok(()),
            _ => Err(FsError::SecondPlace { directory: directory.id(), found: inode.id() }),
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
                if parts.len() > MAX_LEVELS {
                    return Err(Refusal::SymbolicLinkLoop.into());
                }
                let inode = self.inodes().inode(current)?;
                let (above, name) = self.tree().first_name(&inode)?.ok_or(Refusal::NotFound)?;
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
        let subvolume = self.inodes().subvolume(id.root)?;
        let (root, inode) = (id.root, id.number);
        let first = inode_ref::key(inode, ObjectId(0));
        let mut cursor =
            self.engine().forest().trees().cursor(subvolume.tree().root(), &first, Readahead::None)?;
        let mut names = Vec::new();
        while let Some(position) = cursor.position() {
            let key = position.key();
            if key.objectid != inode || key.item_type > ItemType::INODE_EXTREF || names.len() > MAX_NAMES {
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

    /// The directory that a directory lies in; that of the shown root, and of a subvolume without a name, is
    /// itself.
    ///
    /// # Errors
    /// What reading met.
    pub fn lookup_parent(&self, directory: &Inode) -> Result<InodeId> {
        self.tree.lookup_parent(directory)
    }

    /// The path of a directory (or of one name of a file) from the top level, without a leading slash.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for what has no name; what reading met.
    pub fn path_of(&self, id: InodeId) -> Result<Vec<u8>> {
        let top = InodeId::root_of(RootId::FS_TREE);
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut current = id;
        for _ in 0..MAX_STEPS {
            if current == top {
                names.reverse();
                return Ok(names.join(&b'/'));
            }
            let inode = self.inodes().inode(current)?;
            let (parent, name) = self.tree().first_name(&inode)?.ok_or(Refusal::NotFound)?;
            names.push(name);
            current = parent;
        }
        Err(Refusal::SymbolicLinkLoop.into())
    }

    pub(crate) fn find_victim(
        &self,
        caller: &Caller,
        directory: &Inode,
        name: &[u8],
    ) -> Result<(NameTarget, Arc<Inode>)> {
        if !directory.is_directory() {
            return Err(Refusal::NotADirectory.into());
        }
        check_new_name(name)?;
        self.rights().access(caller, directory, Access::EXECUTE)?;
        let target = self.tree().find_target(directory, name)?.ok_or(Refusal::NotFound)?;
        Ok((target, self.inodes().inode(target.id)?))
    }
}
