//! What a panic breaks off is never committed, and nobody waits for it.
//!
//! A panic is a mistake of ours. The thread that answers requests catches it, so that one request fails and
//! not the program; locks are not poisoned, so that others read on. But what was being changed may be half
//! done, and a thread that others wait for may be the one that is gone. So every open handle, every commit
//! and every writing of the log makes the file system read-only if a panic ends it, and undoes what others
//! wait for.

use vlinder_base::thread;

/// Does something if it is dropped before [`end`](Self::end): a panic, or an early return, ended what it
/// watches over.
pub(crate) struct Unfinished<F: FnMut()> {
    undo: F,
    is_finished: bool,
}

impl<F: FnMut()> Unfinished<F> {
    pub(crate) fn new(undo: F) -> Self {
        Self { undo, is_finished: false }
    }

    /// It has ended as it should.
    pub(crate) fn end(mut self) {
        self.is_finished = true;
    }
}

impl<F: FnMut()> Drop for Unfinished<F> {
    fn drop(&mut self) {
        if !self.is_finished {
            (self.undo)();
        }
    }
}

/// Whether a panic began while something was held; one that it was made during does not count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PanicWatch {
    was_panicking: bool,
}

impl PanicWatch {
    pub(crate) fn new() -> Self {
        Self { was_panicking: thread::panicking() }
    }

    pub(crate) fn saw_panic(self) -> bool {
        thread::panicking() && !self.was_panicking
    }
}
