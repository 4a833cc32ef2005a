//! What is sent of one inode beside its names and its content.

use std::io::Write;

use vlinder_base::sync::Arc;
use vlinder_forest::Difference;
use vlinder_format::Key;
use vlinder_format::block::{HEADER_SIZE, ITEM_HEADER_SIZE};
use vlinder_format::directory::{DirectoryEntries, ENTRY_HEADER_SIZE};
use vlinder_format::inode::{FileType, InodeItem};

use super::content::ContentTurn;
use super::default_lists::{DEFAULT_LIST, DefaultLists};
use super::pipeline::Output;
use super::tree_names::item_fault;
use super::{Identity, SendError};
use crate::wire::{Command, Protocol, Times};

/// Set by root alone, and dropped by whatever changes owner or content: it comes after both.
const CAPABILITIES: &[u8] = b"security.capability";

/// Where an item and a longer value of it take more than a leaf together, Linux replaces the one by the
/// other only if the leaf has room by chance, and says ENOSPC else (`split_leaf` and `btrfs_setxattr`): there
/// the old value goes first. The receiver has leaves of so many bytes at least: a block of 4 KiB without its
/// header and the header of one item.
const LEAST_LEAF_BYTES: usize = 4096 - HEADER_SIZE - ITEM_HEADER_SIZE;

/// An inode of the new state while its items come, in the order of their keys.
pub(super) struct InodeTurn {
    pub identity: Identity,
    /// Where the receiver has it.
    pub path: Arc<[u8]>,
    /// Another inode had its number, and none of what that had is left.
    pub is_replaced: bool,
    /// The same inode in the old state.
    old: Option<InodeItem>,
    new: InodeItem,
    capabilities: Option<Vec<u8>>,
    /// What a regular file holds.
    pub content: Option<ContentTurn>,
}

impl InodeTurn {
    pub fn new(
        identity: Identity,
        old: Option<InodeItem>,
        new: InodeItem,
        path: Arc<[u8]>,
        is_replaced: bool,
    ) -> Self {
        let is_file = new.mode.file_type() == Some(FileType::Regular);
        let content = is_file.then(|| ContentTurn::new(identity.number, old.as_ref(), &new));
        Self { identity, path, is_replaced, old, new, capabilities: None, content }
    }

    /// Takes an item of extended attributes that is not the same in both states. One item holds all whose
    /// names have one hash.
    pub fn note_attributes<W: Write>(
        &mut self,
        key: Key,
        difference: Difference<'_>,
        lists: &mut DefaultLists,
        output: &mut Output<'_, W>,
    ) -> Result<(), SendError> {
        let old_bytes = match difference {
            Difference::Removed(old) | Difference::Changed { old, .. } => old.len(),
            Difference::Added(_) => 0,
        };
        let (before, after) = match difference {
            Difference::Removed(old) => (entries(key, old)?, Vec::new()),
            Difference::Added(new) => (Vec::new(), entries(key, new)?),
            Difference::Changed { old, new } => (entries(key, old)?, entries(key, new)?),
        };
        for (name, _) in before.iter().filter(|(name, _)| after.iter().all(|(kept, _)| kept != name)) {
            if *name != DEFAULT_LIST || lists.note_removed(self.identity) {
                output.put(&Command::RemoveXattr { path: &self.path, name })?;
            }
        }
        for attribute in after.into_iter().filter(|attribute| !before.contains(attribute)) {
            let (name, value) = attribute;
            if name == CAPABILITIES {
                self.capabilities = Some(value.to_vec());
            } else if name == DEFAULT_LIST {
                lists.note_given(self.identity);
            } else {
                let was_shorter = before.iter().any(|(old, had)| *old == name && had.len() < value.len());
                if was_shorter && old_bytes.saturating_add(entry_bytes(name, value)) > LEAST_LEAF_BYTES {
                    output.put(&Command::RemoveXattr { path: &self.path, name })?;
                }
                output.put(&Command::SetXattr { path: &self.path, name, value })?;
            }
        }
        Ok(())
    }

    /// Sends what has to come last.
    pub fn finish<W: Write>(self, output: &mut Output<'_, W>) -> Result<(), SendError> {
        let (path, old, new) = (&self.path[..], self.old.as_ref(), &self.new);
        let file_type = new.mode.file_type();
        let (uid, gid) = (u64::from(new.user.0), u64::from(new.group.0));
        let has_owner = old.is_some_and(|old| (old.user, old.group) == (new.user, new.group));
        if !has_owner {
            output.put(&Command::SetOwner { path, uid, gid })?;
        }
        // A change of the owner takes set-id bits away.
        let has_mode = has_owner && old.is_some_and(|old| old.mode == new.mode);
        if !has_mode && file_type != Some(FileType::SymbolicLink) {
            let mode = u64::from(new.mode.permissions());
            output.put(&Command::SetMode { path, mode })?;
        }
        // What Linux's receiver passes by: Linux tells it of a change alone.
        let has_other_flags = old.is_some_and(|old| old.flags != new.flags);
        if has_other_flags && file_type != Some(FileType::SymbolicLink) && output.protocol() >= Protocol::V2 {
            output.put(&Command::SetFileAttributes { path, flags: new.flags.0 })?;
        }
        if let Some(value) = &self.capabilities {
            output.put(&Command::SetXattr { path, name: CAPABILITIES, value })?;
        }
        // Those of directories come when nothing changes in them any more.
        if file_type != Some(FileType::Directory) {
            output.put(&Command::SetTimes { path, times: times_of(new) })?;
        }
        Ok(())
    }
}

/// The times of an inode as commands have them.
pub(super) fn times_of(item: &InodeItem) -> Times {
    Times {
        access: item.access_time,
        modification: item.modification_time,
        change: item.change_time,
        birth: Some(item.birth_time),
    }
}

/// Name and value of an extended attribute.
type Attribute<'a> = (&'a [u8], &'a [u8]);

/// What an attribute takes of its item.
const fn entry_bytes(name: &[u8], value: &[u8]) -> usize {
    ENTRY_HEADER_SIZE.saturating_add(name.len()).saturating_add(value.len())
}

/// The attributes in an item.
fn entries(key: Key, item: &[u8]) -> Result<Vec<Attribute<'_>>, SendError> {
    let mut found = Vec::new();
    for entry in DirectoryEntries::new(item) {
        let entry = entry.map_err(|fault| item_fault(fault, key))?;
        found.push((entry.name, entry.data));
    }
    Ok(found)
}
