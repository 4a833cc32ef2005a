//! Which files are flushed, and together with which others.

use vlinder_base::sync::Arc;
use vlinder_format::RootId;

use super::deferred;
use super::run::FlushRun;
use super::settled::{lock_settled, try_lock_settled};
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::{DataError, Result, SpaceFailure};

/// Files flushed together: as many as it takes for the cost of a batch to be small beside that of its files,
/// and so few that their locks are soon free again.
const FILES_IN_GROUP: usize = 256;

/// Nor are files flushed together that have more bytes.
const GROUP_BYTES: u64 = 32 << 20;

/// Writes out the data of every file that has some, so that a commit makes them durable.
///
/// # Errors
/// The gravest that writing met; every file is tried.
pub fn flush_all(store: &FileStore) -> Result<()> {
    let files = store.write_back().files();
    flush_groups(&files, |group| flush_files(store, group))
}

/// Has files flushed, some of one subvolume at a time, in the order in which locks of several are taken: that
/// of their ids.
///
/// # Errors
/// The gravest ([`DataError::graver`]); every file is tried, but for a host that is full: there the others
/// would find no room either.
pub(super) fn flush_groups(
    files: &[Arc<FileNode>],
    mut flush: impl FnMut(&[&Arc<FileNode>]) -> Result<()>,
) -> Result<()> {
    let mut result = Ok(());
    for group in groups(files) {
        let mut group: Vec<&Arc<FileNode>> = group.iter().collect();
        group.sort_by_key(|node| node.id());
        group.dedup_by_key(|node| node.id());
        for group in group.chunk_by(|left, right| left.id().root == right.id().root) {
            let flushed = flush(group);
            let is_vain = flushed.as_ref().is_err_and(DataError::is_host_full);
            result = DataError::graver(result, flushed);
            if is_vain {
                return result;
            }
        }
    }
    result
}

/// Splits files into those that are flushed together: neighbours in the list.
fn groups(files: &[Arc<FileNode>]) -> impl Iterator<Item = &[Arc<FileNode>]> {
    let mut rest = files;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |node: &&Arc<FileNode>| {
            bytes += node.data().unflushed().dirty.bytes();
            bytes <= GROUP_BYTES
        };
        let count = rest.iter().take(FILES_IN_GROUP).take_while(fits).count().max(1);
        let (group, behind) = rest.split_at_checked(count)?;
        rest = behind;
        Some(group)
    })
}

/// As [`flush_all`] for the committer, who must not wait for a file whose extents somebody is changing,
/// because that may be waiting for the commit: such files are left out.
///
/// # Errors
/// As [`flush_all`].
pub(crate) fn flush_idle(store: &FileStore) -> Result<()> {
    let mut result = deferred::finish_idle(store);
    for node in store.write_back().files() {
        if let Some(_extents) = try_lock_settled(store, &node) {
            let flushed = flush_locked(store, &node);
            result = DataError::graver(result, flushed);
        }
    }
    result
}

/// Writes out a file's data, so that a commit makes them durable.
///
/// # Errors
/// What writing met; the data stay in memory then.
pub fn flush(store: &FileStore, node: &Arc<FileNode>) -> Result<()> {
    flush_files(store, &[node])
}

/// Writes out the data of every file of a subvolume: before a snapshot of it.
///
/// # Errors
/// As [`flush_all`].
pub fn flush_subvolume(store: &FileStore, root: RootId) -> Result<()> {
    let files: Vec<Arc<FileNode>> = store.write_back().files();
    let files: Vec<Arc<FileNode>> = files.into_iter().filter(|node| node.id().root == root).collect();
    flush_groups(&files, |group| flush_files(store, group))
}

/// Writes out a file that is closed after its content was dropped: who replaces a file so expects the new
/// content to be there after a crash. (Linux: `BTRFS_INODE_FLUSH_ON_CLOSE`.)
///
/// # Errors
/// As [`flush`].
pub fn flush_replaced(store: &FileStore, node: &Arc<FileNode>) -> Result<()> {
    let replaced = std::mem::take(&mut node.data().unflushed().replaced);
    if replaced { flush(store, node) } else { Ok(()) }
}

/// Brings the unflushed bytes of the file system back under their limit.
///
/// # Errors
/// What writing met; the data stay in memory then.
pub fn flush_until_below_limit(store: &FileStore) -> Result<()> {
    let write_back = store.write_back();
    let mut files = write_back.files();
    files.sort_by_cached_key(|node| node.data().unflushed().dirty_since);
    for group in groups(&files) {
        // Well below, so that the next write does not come here again.
        if write_back.is_under_half() {
            break;
        }
        flush_groups(group, |group| flush_files(store, group))?;
    }
    Ok(())
}

/// Flushes files of one subvolume.
fn flush_files(store: &FileStore, group: &[&Arc<FileNode>]) -> Result<()> {
    let _locks: Vec<_> = group.iter().map(|node| lock_settled(store, node)).collect();
    FlushRun::take(store, group).run()
}

/// [`flush`] for who holds the file's extents locked.
pub(crate) fn flush_locked(store: &FileStore, node: &Arc<FileNode>) -> Result<()> {
    FlushRun::take(store, &[node]).run()
}
