//! Joining the running transaction.

use vlinder_transaction::{Handle, Reservation};

use crate::file_store::FileStore;
use crate::{Result, flush};

/// Joins the running transaction with what a reservation asks for. Before it is refused, unflushed data are
/// written out, which take less in the end than is kept for them; but not of files whose extents the caller
/// may hold.
///
/// # Errors
/// No space, or the file system is read-only.
pub fn begin(store: &FileStore, reservation: Reservation) -> Result<Handle<'_>> {
    // The commit waits for the handle, so it takes along what is noted here.
    begin_unnoted(store, reservation).inspect(|_| store.background().note_change())
}

/// As [`begin`], for what may as well be done later: room that is not there is refused at once.
///
/// # Errors
/// As there.
pub fn begin_at_once(store: &FileStore, reservation: Reservation) -> Result<Handle<'_>> {
    let begun = store.engine().begin_at_once(reservation)?;
    store.background().note_change();
    Ok(begun)
}

/// As [`begin`], for changes that are noted already, or need no commit of their own.
///
/// # Errors
/// As there.
pub(crate) fn begin_unnoted(store: &FileStore, reservation: Reservation) -> Result<Handle<'_>> {
    match store.engine().begin(reservation) {
        Err(error) if error.is_no_space() && !store.write_back().is_empty() => {
            if let Err(error) = flush::flush_idle(store) {
                // The data stay; a caller that asks for them to be durable is told.
                tracing::debug!(%error, "data could not be written out");
            }
            Ok(store.engine().begin(reservation)?)
        }
        begun => Ok(begun?),
    }
}
