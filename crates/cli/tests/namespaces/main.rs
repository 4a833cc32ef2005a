//! The command beside mount namespaces: what it does for users who have one, and where a mount is seen in
//! several.
//!
//! A new namespace has a copy of each mount that is there, and keeps the servers of these mounts alive. So
//! these tests are a program of their own, and run one after another.

mod attacks;
#[path = "../it/common.rs"]
#[allow(dead_code, reason = "the other test program uses the rest")]
mod common;
mod ending;
mod mounting;
mod moved;
mod namespace;
#[path = "../it/place.rs"]
#[allow(dead_code, reason = "the other test program uses the rest")]
mod place;
mod rootless;
mod socket_places;
mod strangers;
mod verbs_table;

use vlinder_base::sync::{Mutex, MutexGuard};

static ALONE: Mutex<()> = Mutex::new(());

/// Held by each test while it runs.
fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock()
}
