//! Names in directories: what a name stands for, and listing them.

pub(crate) mod index;
mod read;
pub(crate) mod target;

pub use read::{DirectoryRecord, OpenDirectory};

use vlinder_base::sync::Arc;
use vlinder_format::directory::LONGEST_NAME;
use vlinder_format::inode_ref::{self, InodeReferences};
use vlinder_format::{Damage, ItemType, ObjectId};
use vlinder_tree::Readahead;

use crate::ids::InodeId;
use crate::inode::Inode;
use crate::{Access, Caller, Filesystem, FsError, Refusal, Result};

/// Bytes of the longest name.
pub(crate) const LONGEST: u32 = 255;
const _: () = assert!(LONGEST as usize == LONGEST_NAME);
/// More names than an inode can have.
const MOST_NAMES: usize = 1 << 17;
/// More directories than lie above any name.
const MOST_LEVELS: usize = 1 << 16;

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
    /// none leads twice to the same place. (Of a subvolume, [`Self::is_mounted_at`] says so.)
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
                if parts.len() > MOST_LEVELS {
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
}
