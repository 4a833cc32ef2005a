//! Shares looks at the room: a caller gets the result of a look that began after its call, though there is
//! one at a time.

use vlinder_base::sync::Mutex;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};

/// A caller that finds a look under way waits for it, since it may have read the room before what the caller
/// saw. Then one of the callers that wait looks for all of them. So a caller waits for two looks at most.
#[derive(Default)]
pub(super) struct Looks {
    /// How many looks have begun.
    begun: AtomicU64,
    /// Which look was the last to end. Held as long as a look lasts.
    ended: Mutex<u64>,
}

impl Looks {
    /// When this returns, a look has ended that began after this call.
    pub(super) fn ask(&self, look: impl FnOnce()) {
        let older = self.begun.load(Ordering::SeqCst);
        let mut ended = self.ended.lock();
        if *ended > older {
            return;
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        look();
        // Not reached on a panic: the next caller looks again.
        *ended = number;
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    use vlinder_base::sync::Arc;
    use vlinder_base::{channel, thread};

    use super::*;

    #[test]
    fn a_look_that_is_asked_for_during_another_follows_it() {
        let (looks, found) = (Arc::new(Looks::default()), Arc::new(Mutex::new(Vec::new())));
        let room = Arc::new(AtomicU64::new(5));
        let (begun, begins) = channel::bounded::<()>(1);
        let (end, ends) = channel::bounded::<()>(1);
        let first = thread::spawn("looks", {
            let (looks, found, room) = (Arc::clone(&looks), Arc::clone(&found), Arc::clone(&room));
            move || {
                looks.ask(|| {
                    let room = room.load(Ordering::SeqCst);
                    begun.send(()).unwrap();
                    ends.recv().unwrap();
                    found.lock().push(room);
                });
            }
        });
        begins.recv().unwrap();
        // A write fails after the room was read.
        room.store(0, Ordering::SeqCst);
        let ask = || {
            let (looks, found, room) = (Arc::clone(&looks), Arc::clone(&found), Arc::clone(&room));
            thread::spawn("asks", move || {
                looks.ask(|| found.lock().push(room.load(Ordering::SeqCst)));
                assert_eq!(found.lock().last(), Some(&0), "what is published last is new");
            })
        };
        let others: Vec<_> = (0..4).map(|_| ask()).collect();
        // So that all of them, most likely, have asked.
        thread::sleep(Duration::from_millis(100));
        end.send(()).unwrap();
        others.into_iter().chain([first]).for_each(|thread| thread.join().unwrap());
        let found = found.lock();
        assert_eq!(found[..2], [5, 0], "{found:?}");
        assert_eq!(looks.begun.load(Ordering::SeqCst), found.len() as u64);
    }

    #[test]
    fn each_requested_look_is_done_and_one_that_panics_ends_none() {
        let (looks, mut count) = (Looks::default(), 0);
        for _ in 0..3 {
            looks.ask(|| count += 1);
            assert!(catch_unwind(AssertUnwindSafe(|| looks.ask(|| panic!("on purpose")))).is_err());
        }
        assert_eq!((count, *looks.ended.lock(), looks.begun.load(Ordering::SeqCst)), (3, 5, 6));
    }
}
