//! A deletion of many items, a transaction at a time.

use vlinder_transaction::{ChangeKind, Charge, Handle, Reservation};

use crate::apply::ITEMS_IN_STEP;
use crate::begin::begin;
use crate::file_store::FileStore;
use crate::tries::Tries;
use crate::{DataError, Result, SpaceFailure};

/// A deletion of many items, a transaction at a time. Where there is no room for what a step may take at
/// worst, the next ones are smaller; the smallest is tried again.
pub struct DeletionSteps<'a> {
    store: &'a FileStore,
    most_items: usize,
    tries: Tries<'a>,
}

impl<'a> DeletionSteps<'a> {
    /// Steps of at most so many items.
    #[must_use]
    pub fn new(store: &'a FileStore, most_items: usize) -> Self {
        Self { store, most_items, tries: Tries::new(store.engine()) }
    }

    /// Of a file's extents.
    pub(crate) fn of_extents(store: &'a FileStore) -> Self {
        Self::new(store, ITEMS_IN_STEP)
    }

    /// How many items the next step has at most.
    pub const fn most_items(&self) -> usize {
        self.most_items
    }

    /// Joins a transaction for a step that removes `found` items, with these changes and one of the inode at
    /// worst; none where there was no room for that, and the caller has to look anew what to remove.
    ///
    /// # Errors
    /// No space for the smallest step after all tries; what beginning a transaction met.
    pub fn begin(&mut self, found: usize, changes: Charge) -> Result<Option<Handle<'a>>> {
        let reservation = Reservation::deletion(1).and(changes).of(ChangeKind::Truncation);
        match begin(self.store, reservation) {
            Ok(handle) => Ok(Some(handle)),
            Err(error) => self.look_anew(found, error).map(|()| None),
        }
    }

    /// Ends a step that removed `found` items, and gives its handle back; none where there was no room for
    /// it, nothing was changed, and the caller has to look anew what to remove.
    ///
    /// # Errors
    /// That of `removed` where it was no lack of space, or all tries were in vain.
    pub fn end<E: SpaceFailure + From<DataError>>(
        &mut self,
        found: usize,
        handle: Handle<'a>,
        removed: Result<(), E>,
    ) -> Result<Option<Handle<'a>>, E> {
        match removed {
            Ok(()) => {
                self.tries = Tries::new(self.store.engine());
                Ok(Some(handle))
            }
            Err(error) => {
                drop(handle);
                self.look_anew(found, error).map(|()| None)
            }
        }
    }

    fn look_anew<E: SpaceFailure + From<DataError>>(&mut self, found: usize, error: E) -> Result<(), E> {
        if error.is_no_space() && found > 1 {
            self.most_items = found / 2;
            return Ok(());
        }
        if self.tries.again(&error)? { Ok(()) } else { Err(error) }
    }
}
