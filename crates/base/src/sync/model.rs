//! parking_lot's interface over shuttle's locks, for model runs.

use shuttle::sync as inner;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

/// A mutual exclusion lock that the model's scheduler sees.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(inner::Mutex<T>);

/// The right to what a [`Mutex`] holds, until it is dropped.
pub struct MutexGuard<'a, T: ?Sized>(
    // Empty only while a `Condvar` owns the guard, that is, never where a caller can look.
    Option<inner::MutexGuard<'a, T>>,
);

impl<T> Mutex<T> {
    /// A new unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(inner::Mutex::new(value))
    }

    /// The value, without its lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// The lock, if nobody holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard(Some(guard))),
            Err(TryLockError::Poisoned(error)) => Some(MutexGuard(Some(error.into_inner()))),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value, which nobody else can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Mutex")
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_deref().expect("a guard is empty only inside Condvar::wait")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_deref_mut().expect("a guard is empty only inside Condvar::wait")
    }
}

/// Whether a wait ended because its time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// True if the time was over before anybody notified.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// A condition to wait for under a [`Mutex`].
#[derive(Default)]
pub struct Condvar(inner::Condvar);

impl Condvar {
    /// A condition that nobody waits for.
    pub const fn new() -> Self {
        Self(inner::Condvar::new())
    }

    /// Gives the lock up, waits to be notified, and takes the lock again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("a guard is empty only inside Condvar::wait");
        guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }

    /// As [`wait`](Self::wait), for at most `timeout`. A model run has no time: shuttle's wait never times
    /// out, so what depends on a timeout to make progress shows as a deadlock.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> WaitTimeoutResult {
        let held = guard.0.take().expect("a guard is empty only inside Condvar::wait");
        let (held, result) = self.0.wait_timeout(held, timeout).unwrap_or_else(PoisonError::into_inner);
        guard.0 = Some(held);
        WaitTimeoutResult(result.timed_out())
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Condvar")
    }
}

/// A lock for many readers or one writer.
#[derive(Default)]
pub struct RwLock<T: ?Sized>(inner::RwLock<T>);

pub use inner::{RwLockReadGuard, RwLockWriteGuard};

impl<T> RwLock<T> {
    /// A new unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(inner::RwLock::new(value))
    }

    /// The value, without its lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until nobody writes.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody reads or writes.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to read, if nobody writes.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.0.try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The right to write, if nobody reads or writes.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        match self.0.try_write() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value, which nobody else can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> fmt::Debug for RwLock<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("RwLock")
    }
}

/// A cell that is written once. The lock around the first write is the model's, because std's would block the
/// only thread a model run has.
#[derive(Debug)]
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    writing: Mutex<()>,
}

impl<T> OnceLock<T> {
    /// An empty cell.
    pub const fn new() -> Self {
        Self { value: std::sync::OnceLock::new(), writing: Mutex::new(()) }
    }

    /// The value, if it was written.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Writes the value.
    ///
    /// # Errors
    /// Gives the value back if the cell was written before.
    pub fn set(&self, value: T) -> Result<(), T> {
        let _writing = self.writing.lock();
        self.value.set(value)
    }

    /// The value, made by `make` if the cell is empty.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.value.get() {
            return value;
        }
        let _writing = self.writing.lock();
        self.value.get_or_init(make)
    }

    /// The value, without its cell.
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}
