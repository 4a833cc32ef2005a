//! Locks and atomics with parking_lot's interface: `lock()` gives the guard, nothing is poisoned.

#[cfg(not(feature = "shuttle"))]
mod condition;
#[cfg(feature = "shuttle")]
mod model;

pub use std::sync::{Arc, Weak};

/// A cell for constants of the process, in a `static`: written once, never the model's, whose locks must not
/// outlive one run. What writes it takes no lock and no other [`ProcessOnce`].
pub use std::sync::OnceLock as ProcessOnce;

#[cfg(not(feature = "shuttle"))]
pub use condition::AnnouncedCondvar as Condvar;
#[cfg(not(feature = "shuttle"))]
pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult};
#[cfg(not(feature = "shuttle"))]
pub use std::sync::{OnceLock, atomic};

#[cfg(feature = "shuttle")]
pub use model::{
    Condvar, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard, WaitTimeoutResult,
};
#[cfg(feature = "shuttle")]
pub use shuttle::sync::atomic;

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::thread;
    use std::time::Duration;

    #[test]
    fn a_waiter_sees_what_was_written_before_it_was_woken() {
        let pair = Arc::new((Mutex::new(0), Condvar::new()));
        let other = Arc::clone(&pair);
        let writer = thread::spawn("writer", move || {
            *other.0.lock() = 7;
            other.1.notify_all();
        });
        let mut value = pair.0.lock();
        while *value == 0 {
            pair.1.wait(&mut value);
        }
        assert_eq!(*value, 7);
        drop(value);
        writer.join().unwrap();
    }

    #[test]
    fn waiting_ends_at_the_timeout_and_try_lock_refuses_a_held_lock() {
        let (lock, condition) = (Mutex::new(()), Condvar::new());
        let mut guard = lock.lock();
        assert!(condition.wait_for(&mut guard, Duration::from_millis(5)).timed_out());
        assert!(lock.try_lock().is_none());
        drop(guard);
        assert!(lock.try_lock().is_some());
    }

    #[test]
    fn a_panic_under_a_lock_does_not_poison_it() {
        let lock = Arc::new(Mutex::new(1));
        let other = Arc::clone(&lock);
        let failed = thread::spawn("panics", move || {
            let _guard = other.lock();
            panic!("on purpose");
        })
        .join();
        assert!(failed.is_err());
        assert_eq!(*lock.lock(), 1);
    }
}
