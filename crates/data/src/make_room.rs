//! Making room for writers: what is unflushed takes less in the end than is promised to it, and a commit
//! frees what was dropped.
//!
//! Invariant: what was tried in vain is not tried again before something has changed. A file system that
//! stays full makes no commit for each write that fails
//! ([`Attempts::is_vain`](crate::room_attempts::Attempts)).

use crate::file_store::FileStore;
use crate::room_attempts::Signs;
use crate::{Result, SpaceFailure, flush};

/// Tries what may make room: writes out what is unflushed and commits. False where that was tried in vain
/// before, and nothing has changed since.
///
/// # Errors
/// What flushing and committing met, but for a lack of room.
pub fn make_room(store: &FileStore) -> Result<bool> {
    let attempts = store.attempts();
    let before = signs_of_room(store)?;
    if attempts.is_vain(before) {
        return Ok(false);
    }
    for done in [flush::flush_all(store), store.engine().commit().map(drop).map_err(Into::into)] {
        match done {
            // A file that finds no room keeps its bytes; the others have been written out.
            Err(error) if error.is_no_space() => {
                tracing::debug!(%error, "making room");
            }
            other => other?,
        }
    }
    attempts.note(signs_of_room(store)?);
    Ok(true)
}

/// Bytes that the next commit frees.
///
/// # Errors
/// What learning how full the file system is met.
pub fn bytes_freed_by_commit(store: &FileStore) -> Result<u64> {
    let report = store.engine().space()?;
    Ok(report.kinds.iter().map(|kind| kind.pinned_bytes).sum())
}

fn signs_of_room(store: &FileStore) -> Result<Signs> {
    Ok(Signs {
        unflushed_bytes: store.write_back().bytes(),
        pinned_bytes: bytes_freed_by_commit(store)?,
        room_bytes: store.engine().room_for_data(),
        drops: store.attempts().drops().count(),
    })
}
