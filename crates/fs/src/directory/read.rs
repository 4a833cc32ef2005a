//! Listing a directory, stable under changes: names come in the order of their indexes, which are given in
//! the order of creation and never again, so a position stays right whatever is made or removed.

use core::fmt;

use vlinder_base::sync::Arc;
use vlinder_data::InodeId;
use vlinder_format::directory::{self, DirectoryEntry, DirectoryEntryType, DirectoryIndex};
use vlinder_format::inode::FileType;
use vlinder_format::{Damage, ItemType, Key, RootId};

use crate::closer::Closer;
use crate::directory::index::{end_of_indexes, first_free_index};
use crate::directory::record::DirectoryRecord;
use crate::inode::Inode;
use crate::inode::table::InodeTable;
use crate::name_view::Names;
use crate::subvolume::place::DirectoryTree;
use crate::subvolume::place_in_tree;
use crate::{Access, Caller, Refusal, Result};

/// A directory open for listing.
pub struct OpenDirectory {
    tree: Arc<DirectoryTree>,
    inodes: Arc<InodeTable>,
    /// An open directory keeps the file system open.
    _closer: Arc<Closer>,
    inode: Arc<Inode>,
    /// Names made later are not listed, so that a listing ends even if each name read makes a new one (a
    /// rename of all files does). The last index stands for the end of all: a name that has it is listed.
    end: DirectoryIndex,
}

impl fmt::Debug for OpenDirectory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "open directory {:?}", self.inode)
    }
}

impl OpenDirectory {
    /// The directory.
    #[must_use]
    pub fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// Begins anew: names made since are listed.
    ///
    /// # Errors
    /// What reading met.
    pub fn rewind(&mut self) -> Result<()> {
        if self.inode.is_placeholder() {
            return Ok(());
        }
        let _operation = self.inode.operation.read();
        self.end = first_free_index(self.tree.engine(), &self.inode)?;
        Ok(())
    }

    /// Whether names were made since it began.
    ///
    /// # Errors
    /// What reading met.
    pub fn is_outdated(&self) -> Result<bool> {
        if self.inode.is_placeholder() {
            return Ok(false);
        }
        let _operation = self.inode.operation.read();
        Ok(first_free_index(self.tree.engine(), &self.inode)? > self.end)
    }

    /// Names from an offset on, none at the end; at most `most`, and one more where only the last index would
    /// be left. A name that no file can have is left out.
    ///
    /// # Errors
    /// What reading met.
    pub fn read(&self, from: u64, most: usize) -> Result<Vec<DirectoryRecord>> {
        self.read_and_tell(from, most, &mut |_| {})
    }

    /// As [`read`](Self::read); gives `refuse` each name that is left out.
    ///
    /// # Errors
    /// What reading met.
    pub fn read_and_tell(
        &self,
        from: u64,
        most: usize,
        refuse: &mut dyn FnMut(DirectoryRecord),
    ) -> Result<Vec<DirectoryRecord>> {
        let mut records = Vec::new();
        let _operation = self.inode.operation.read();
        if self.inode.state().deleted {
            return Ok(records);
        }
        if from == 0 && most > 0 {
            records.push(dot(b".", self.inode.id(), 0));
        }
        if from <= 1 && records.len() < most {
            let parent = self.tree.lookup_parent(&self.inode)?;
            records.push(dot(b"..", parent, 1));
        }
        if self.inode.is_placeholder() {
            return Ok(records);
        }
        // A reader that goes on at the last index has had the name before it, and the last one with it.
        if from == u64::MAX {
            return Ok(records);
        }
        let mut next = DirectoryIndex(from).max(DirectoryIndex::FIRST);
        let last = DirectoryIndex(u64::MAX);
        let index = |index| directory::index_key(self.inode.number(), index);
        let end = if self.end == last { end_of_indexes(&self.inode) } else { index(self.end) };
        while next < self.end && records.len() < most || next == last && self.end == last {
            let tree = self.inode.subvolume().tree();
            let wanted = most.saturating_sub(records.len()).max(1);
            let items = self.tree.engine().reader().items(tree, index(next), end, wanted)?;
            for (key, data) in &items {
                let record = self.record(key, data)?;
                if directory::is_file_name(&record.name) {
                    records.push(record);
                } else {
                    refuse(record);
                }
            }
            match items.last().and_then(|(last, _)| last.offset.checked_add(1)) {
                Some(following) => next = DirectoryIndex(following),
                None => break,
            }
        }
        Ok(records)
    }

    fn record(&self, key: &Key, data: &[u8]) -> Result<DirectoryRecord> {
        let damage = |fault: directory::DirectoryFault| {
            Damage::new(fault, place_in_tree(self.inode.subvolume(), *key))
        };
        let entry = DirectoryEntry::decode(data).map_err(damage)?;
        let id = match entry.location.item_type {
            ItemType::ROOT_ITEM => InodeId::root_of(RootId(entry.location.objectid.0)),
            _ => InodeId::new(self.inode.id().root, entry.location.objectid),
        };
        let file_type = entry.entry_type.file_type().unwrap_or(FileType::Regular);
        Ok(DirectoryRecord { name: entry.name.to_vec(), id, file_type, offset: key.offset })
    }
}

fn dot(name: &[u8], id: InodeId, offset: u64) -> DirectoryRecord {
    let file_type = DirectoryEntryType::DIRECTORY.file_type().unwrap_or(FileType::Directory);
    DirectoryRecord { name: name.to_vec(), id, file_type, offset }
}

impl Drop for OpenDirectory {
    fn drop(&mut self) {
        self.inodes.release(&self.inode);
    }
}

/// Opens a directory for listing.
///
/// # Errors
/// [`Refusal::NotADirectory`], [`Refusal::AccessDenied`]; what reading met.
pub(crate) fn open_directory(
    names: Names<'_>,
    caller: &Caller,
    directory: &Arc<Inode>,
) -> Result<OpenDirectory> {
    if !directory.is_directory() {
        return Err(Refusal::NotADirectory.into());
    }
    names.rights().access(caller, directory, Access::READ)?;
    directory.state().opens += 1;
    let mut open = OpenDirectory {
        tree: Arc::clone(names.tree()),
        inodes: Arc::clone(names.inodes()),
        _closer: Arc::clone(names.opener().closer()),
        inode: Arc::clone(directory),
        end: DirectoryIndex::FIRST,
    };
    open.rewind()?;
    Ok(open)
}
