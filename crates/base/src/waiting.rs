//! Saying that the running thread is about to wait.
//!
//! A program that runs threads of its own can let another thread take over what a thread attends to, just
//! before that thread sleeps.

use std::cell::Cell;

thread_local! {
    static BEFORE: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// Has `before` called whenever the running thread is about to wait for another (a
/// [`Condvar`](crate::sync::Condvar), and so a channel; a [`Pool`](crate::parallel::Pool)), until it is told
/// otherwise. It must not wait itself. Locks are not announced: they are held for no longer than a change in
/// memory or one transfer takes.
pub fn announce_to(before: Option<fn()>) {
    BEFORE.set(before);
}

/// To be called before a wait that no [`Condvar`](crate::sync::Condvar) shows.
pub fn announce() {
    // Taken for the time of the call: what it does may look like a wait itself.
    if let Some(before) = BEFORE.take() {
        before();
        BEFORE.set(Some(before));
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sync::{Condvar, Mutex};

    thread_local! {
        static HEARD: Cell<u32> = const { Cell::new(0) };
    }

    fn hear() {
        HEARD.set(HEARD.get() + 1);
    }

    #[test]
    fn waits_are_announced_while_somebody_wants_to_know() {
        let (lock, condition) = (Mutex::new(()), Condvar::new());
        let wait = || {
            condition.wait_for(&mut lock.lock(), Duration::from_millis(1));
            HEARD.get()
        };
        assert_eq!(wait(), 0);
        announce_to(Some(hear));
        assert_eq!(wait(), 1);
        let (sender, receiver) = crate::channel::unbounded::<()>();
        assert!(receiver.recv_timeout(Duration::from_millis(1)).is_err());
        drop(sender);
        assert_eq!(HEARD.get(), 2, "a channel");
        crate::parallel::Pool::new(1).unwrap().map(&[1, 2], |_| ());
        assert!(HEARD.get() > 2, "a pool");
        announce_to(None);
        let before = HEARD.get();
        assert_eq!(wait(), before);
    }
}
