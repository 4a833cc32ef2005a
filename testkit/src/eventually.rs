//! Waiting for what others do, with an end.

use std::time::Duration;

use vlinder_base::clock::{Clock, SystemClock};
use vlinder_base::thread;

/// Longer than a busy machine takes; a test that waits in vain fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until it holds.
///
/// # Panics
/// If it does not within a minute.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    let start = clock.monotonic();
    while !holds() {
        assert!(clock.monotonic() - start < PATIENCE, "in vain for a minute: {what}");
        thread::yield_now();
    }
}
