//! What becomes of a source's entries on their way into the image: owners, modes and device nodes of a table,
//! one owner for all, times that are no later than the image's, and attributes that are left out.

use std::collections::HashSet;

use vlinder_base::clock::Timestamp;

use super::directory::join;
use super::entry::{Content, Entry, FileState, Kind};
use super::error::{SourceError, shown};
use super::private_attributes::PrivateAttributes;
use crate::mkfs::owner_table::{OwnerTable, TableKind, TableNode};

/// The rules of one image.
pub(in super::super) struct EntryRules {
    /// User and group of all that the table does not name.
    pub(in super::super) owner: Option<(u32, u32)>,
    pub(in super::super) table: OwnerTable,
    /// No time is later (`SOURCE_DATE_EPOCH`).
    pub(in super::super) latest: Option<Timestamp>,
    pub(in super::super) private_attributes: PrivateAttributes,
}

impl EntryRules {
    /// The source directory itself.
    pub(super) fn apply_to_root(&self, mut entry: Entry) -> Entry {
        self.adjust(&mut entry);
        if let Some(node) = self.table.root() {
            node.give_to(&mut entry);
        }
        entry
    }

    /// Changes what an entry of the directory at `path` is given.
    ///
    /// # Errors
    /// [`SourceError::Table`] where the table says that it is something else.
    pub(super) fn apply(&self, path: &[u8], entry: &mut Entry) -> Result<(), SourceError> {
        self.adjust(entry);
        let Some(node) = self.table.directory(path).and_then(|nodes| nodes.get(&entry.name)) else {
            return Ok(());
        };
        if !node.kind.is(&entry.kind) {
            let path = shown(&join(path, &entry.name));
            return Err(SourceError::Table {
                path,
                line: node.line,
                what: "it is something else in the source",
            });
        }
        node.give_to(entry);
        entry.is_in_table = true;
        Ok(())
    }

    /// Sees that each directory that the table has entries of was seen.
    ///
    /// # Errors
    /// [`SourceError::Table`].
    pub(super) fn check_all_seen(&self, seen: &HashSet<Vec<u8>>) -> Result<(), SourceError> {
        match self.table.directories().find(|(path, _)| !seen.contains(*path)) {
            Some((path, line)) => {
                let what = "there is no such directory for its entries; a line of type d makes it";
                Err(SourceError::Table { path: shown(path), line, what })
            }
            None => Ok(()),
        }
    }

    fn adjust(&self, entry: &mut Entry) {
        if let Some((user, group)) = self.owner {
            (entry.user, entry.group) = (user, group);
        }
        if let Some(latest) = self.latest {
            entry.modification_time = entry.modification_time.min(latest);
            entry.access_time = entry.access_time.min(latest);
        }
    }

    /// An entry that the table makes.
    ///
    /// # Errors
    /// [`SourceError::Table`] for a symbolic link: a table can't say where it leads.
    pub(super) fn made(&self, path: &[u8], name: &[u8], node: &TableNode) -> Result<Entry, SourceError> {
        let (major, minor) = node.device;
        let kind = match node.kind {
            TableKind::Regular => Kind::Regular(Content::Loaded(Vec::new())),
            TableKind::Directory => Kind::Directory,
            TableKind::CharacterDevice => Kind::CharacterDevice(major, minor),
            TableKind::BlockDevice => Kind::BlockDevice(major, minor),
            TableKind::Fifo => Kind::Fifo,
            TableKind::Socket => Kind::Socket,
            TableKind::SymbolicLink => {
                let what = "the source has no such link, and a table can't say where one leads";
                return Err(SourceError::Table { path: shown(&join(path, name)), line: node.line, what });
            }
        };
        let mut entry = Entry {
            name: name.to_vec(),
            kind,
            // No file of the host has it, and what has one name is not asked for it.
            seen: FileState::still((u64::MAX, u64::MAX)),
            links: 1,
            permissions: 0,
            user: 0,
            group: 0,
            size_bytes: 0,
            may_have_holes: false,
            access_time: self.table.modified(),
            modification_time: self.table.modified(),
            is_in_table: true,
            attributes: Vec::new(),
        };
        self.adjust(&mut entry);
        node.give_to(&mut entry);
        Ok(entry)
    }
}

impl TableKind {
    fn is(self, kind: &Kind) -> bool {
        matches!(
            (self, kind),
            (Self::Regular, Kind::Regular(_))
                | (Self::Directory, Kind::Directory)
                | (Self::CharacterDevice, Kind::CharacterDevice(..))
                | (Self::BlockDevice, Kind::BlockDevice(..))
                | (Self::Fifo, Kind::Fifo)
                | (Self::Socket, Kind::Socket)
                | (Self::SymbolicLink, Kind::SymbolicLink(_))
        )
    }
}

impl TableNode {
    fn give_to(&self, entry: &mut Entry) {
        (entry.user, entry.group) = (self.user, self.group);
        entry.permissions = self.permissions;
        match &mut entry.kind {
            Kind::CharacterDevice(major, minor) | Kind::BlockDevice(major, minor) => {
                (*major, *minor) = self.device;
            }
            // A link has no mode that counts.
            Kind::SymbolicLink(_) => entry.permissions = 0o777,
            _ => {}
        }
    }
}
