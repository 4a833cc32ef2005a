//! The numbers of subvolumes that are made from now on.

use vlinder_base::sync::Mutex;
use vlinder_format::{ObjectId, RootId};

use crate::EngineError;

/// The next subvolume's number. None is given twice, nor is one that a subvolume has or had.
pub(crate) struct SubvolumeNumbers {
    next: Mutex<u64>,
}

impl SubvolumeNumbers {
    /// The numbers after the highest subvolume's.
    pub(crate) fn after(highest: u64) -> Self {
        Self { next: Mutex::new(highest.saturating_add(1).max(ObjectId::FIRST_FREE.0)) }
    }

    /// Whether there are subvolumes beside the top level, or were in the past.
    pub(crate) fn has_given_any(&self) -> bool {
        *self.next.lock() > ObjectId::FIRST_FREE.0
    }

    /// The number of a new subvolume.
    ///
    /// # Errors
    /// [`EngineError::NoSubvolumeNumber`].
    pub(crate) fn take(&self) -> Result<RootId, EngineError> {
        let mut next = self.next.lock();
        let id = RootId(*next);
        if !id.is_subvolume() || id.0 >= 1 << 48 {
            return Err(EngineError::NoSubvolumeNumber);
        }
        *next += 1;
        Ok(id)
    }
}
