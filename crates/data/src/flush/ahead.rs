//! Flushing without waiting for the last of it (see [`super::deferred`]).

use vlinder_base::sync::Arc;

use super::deferred::finish_batch;
use super::deferred_batch::DeferredFiles;
use super::file_flush::MAX_BATCH_BYTES;
use super::files::flush_groups;
use super::run::FlushRun;
use super::settled::lock_settled;
use crate::Result;
use crate::file_node::FileNode;
use crate::file_store::FileStore;

/// Flushes what is dirty of files, and leaves the last of it under way, after what was under way before is
/// finished.
///
/// # Errors
/// What either met.
pub fn flush_ahead(store: &FileStore) -> Result<()> {
    let mut files = store.write_back().files();
    // The others are under way, and are to stay so until more is.
    files.retain(|node| !node.data().unflushed().dirty.is_empty());
    flush_groups(&files, |group| flush_files_ahead(store, group))
}

fn flush_files_ahead(store: &FileStore, group: &[&Arc<FileNode>]) -> Result<()> {
    let _locks: Vec<_> = group.iter().map(|node| lock_settled(store, node)).collect();
    let mut flight = FlushRun::take(store, group);
    // All of it at once, as far as it goes: what comes before the last batch would be waited for.
    let Some(step) = flight.start(MAX_BATCH_BYTES)? else { return flight.settle_jobs() };
    let mut under_way = store.write_back().under_way.0.lock();
    // The devices have something to do meanwhile.
    let finished = finish_batch(store, &mut under_way);
    *under_way = Some(DeferredFiles { jobs: std::mem::take(&mut flight.jobs), step });
    finished
}
