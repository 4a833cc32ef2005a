//! Default ACLs of directories. What a receiver of Linux's makes in a directory that has one inherits from it
//! what the sender's file does not have, and no command takes that away again. So no directory has one while
//! names are made in it: one that the old state has is taken away first, and those of the new state are given
//! at the end.

use std::collections::HashSet;

use vlinder_format::directory::DirectoryEntries;

use super::tree_names::item_fault;
use super::{Identity, Names, SendError, TreeNames};

/// The extended attribute that holds a default ACL.
pub(super) const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

/// What is known of default ACLs while a subvolume is sent.
#[derive(Default)]
pub(super) struct DefaultLists {
    /// Directories that lack theirs at the receiver since it was taken away.
    cleared: HashSet<Identity>,
    /// Directories that may get one at the end.
    waiting: HashSet<Identity>,
    /// The directory that was asked about last, and has none in the old state.
    without: Option<Identity>,
}

impl DefaultLists {
    /// A name is about to be made in a directory; true if its default ACL has to be taken away first.
    ///
    /// # Errors
    /// What reading met.
    pub fn must_go(&mut self, directory: Identity, old: Option<&TreeNames<'_>>) -> Result<bool, SendError> {
        let Some(old) = old else { return Ok(false) };
        if self.without == Some(directory) || self.cleared.contains(&directory) {
            return Ok(false);
        }
        if default_list(old, directory)?.is_none() {
            self.without = Some(directory);
            return Ok(false);
        }
        self.waiting.insert(directory);
        Ok(self.cleared.insert(directory))
    }

    /// A directory has no default ACL any more; true if the receiver's still has it.
    pub fn note_removed(&mut self, directory: Identity) -> bool {
        self.cleared.insert(directory)
    }

    /// A directory gets a default ACL, or another one: at the end.
    pub fn note_given(&mut self, directory: Identity) {
        self.waiting.insert(directory);
    }

    /// The directories that may get one now, each once.
    pub fn take_waiting(&mut self) -> Vec<Identity> {
        let mut all: Vec<Identity> = self.waiting.drain().collect();
        all.sort_unstable();
        all
    }
}

/// The default ACL of a directory in a state; none if it has none there, or is not there.
///
/// # Errors
/// What reading met.
pub(super) fn default_list(state: &TreeNames<'_>, directory: Identity) -> Result<Option<Vec<u8>>, SendError> {
    if state.inode(directory.number)?.is_none_or(|found| found.identity != directory) {
        return Ok(None);
    }
    for (key, data) in state.attributes(directory.number)? {
        for entry in DirectoryEntries::new(&data) {
            let entry = entry.map_err(|fault| item_fault(fault, key))?;
            if entry.name == DEFAULT_LIST {
                return Ok(Some(entry.data.to_vec()));
            }
        }
    }
    Ok(None)
}
