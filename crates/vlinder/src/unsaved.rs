//! Whether an image was changed since it was last made durable by request, and whether files of it are open.

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};

/// Shared by an image and its open files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unsaved(Arc<AtomicBool>);

impl Unsaved {
    /// Something is about to be changed, whatever comes of it.
    pub(crate) fn note(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Drops the note: its reader was told what became of the changes.
    pub(crate) fn forget(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether something was changed.
    pub(crate) fn is_noted(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Makes durable by `work` what was changed before, and forgets it if that succeeds. What is changed
    /// meanwhile stays noted.
    pub(crate) fn save<T, E>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let was_noted = self.0.swap(false, Ordering::AcqRel);
        let result = work();
        if was_noted && result.is_err() {
            self.note();
        }
        result
    }

    /// How many files are open beside the image.
    pub(crate) fn open_files(&self) -> usize {
        Arc::strong_count(&self.0).saturating_sub(1)
    }
}
