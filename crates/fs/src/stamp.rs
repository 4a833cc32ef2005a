//! What a handle writes into the inodes that it changes: its transaction and one time.

use vlinder_format::Generation;
use vlinder_format::inode::Timestamp;
use vlinder_transaction::{Engine, Handle};

/// The transaction and the time of all changes of one handle. Times of one change are equal, so no order of
/// them can be told.
#[derive(Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) generation: Generation,
    pub(crate) time: Timestamp,
}

impl Stamp {
    pub(crate) fn of(handle: &Handle<'_>) -> Self {
        Self { generation: handle.generation(), time: handle.time() }
    }
}

/// The time of day.
pub(crate) fn now(engine: &Engine) -> Timestamp {
    let now = engine.clock().now();
    Timestamp { seconds: now.seconds, nanoseconds: now.nanoseconds }
}

/// As [`now`], but of the kernel's last tick: at most ten milliseconds earlier, and without a system call.
pub(crate) fn recently(engine: &Engine) -> Timestamp {
    let recently = engine.clock().recently();
    Timestamp { seconds: recently.seconds, nanoseconds: recently.nanoseconds }
}
