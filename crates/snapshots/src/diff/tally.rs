//! How much changed.

use vlinder_format::inode::FileType;

use super::change::{Change, ChangeKind, Subject};

/// How many changed, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The new state alone has them.
    pub added: u64,
    /// The old state alone has them.
    pub removed: u64,
    /// They have another name, whatever else changed of them.
    pub renamed: u64,
    /// Another inode has their name.
    pub replaced: u64,
    /// They have their names, and something beside times changed.
    pub changed: u64,
    /// Only times changed.
    pub times: u64,
}

/// The sum of many changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeTally {
    /// What is no directory.
    pub files: Counts,
    /// Directories, and other subvolumes' names.
    pub directories: Counts,
    /// Bytes of regular files that were added, and by which others grew.
    pub added_bytes: u64,
    /// Bytes of regular files that were removed, and by which others shrank.
    pub removed_bytes: u64,
    /// Bytes of the sectors that differ in files that both states have.
    pub changed_bytes: u64,
}

impl ChangeTally {
    /// Takes in a change.
    pub fn add(&mut self, change: &Change) {
        let is_directory =
            !matches!(change.subject, Subject::Inode { file_type, .. } if file_type != FileType::Directory);
        let counts = if is_directory { &mut self.directories } else { &mut self.files };
        let is_of_times =
            change.differences.times && change.added_names.is_empty() && change.removed_names.is_empty();
        let count = match change.kind {
            ChangeKind::Added => &mut counts.added,
            ChangeKind::Removed => &mut counts.removed,
            ChangeKind::Renamed => &mut counts.renamed,
            ChangeKind::Replaced => &mut counts.replaced,
            ChangeKind::Changed if is_of_times => &mut counts.times,
            ChangeKind::Changed => &mut counts.changed,
        };
        *count = count.saturating_add(1);
        let size = change.size_bytes;
        self.added_bytes = self.added_bytes.saturating_add(size.new.saturating_sub(size.old));
        self.removed_bytes = self.removed_bytes.saturating_add(size.old.saturating_sub(size.new));
        self.changed_bytes = self.changed_bytes.saturating_add(change.differences.changed_bytes);
    }
}
