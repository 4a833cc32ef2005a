//! What the keeper of the gate has to do, and when.
//!
//! Invariants, and the function that keeps each:
//! 1. A file that was to be shut later is shut at each of the times after the reply, and not before
//!    ([`Schedule::shut_later`], [`Schedule::next`]).
//! 2. While files are open for writing there is a look at least once in each tick, whatever else is due
//!    ([`Schedule::next`]). An opening during a look is not lost ([`Schedule::look`]).
//! 3. After [`Schedule::end`] nothing is due.

use std::collections::BTreeMap;
use std::time::Duration;

use vlinder_base::clock::Clock;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Condvar, Mutex};

use crate::transport::NodeNumber;

/// How long after a reply the kernel is told again: it takes the reply when the program that waits for it
/// runs.
const AFTER_REPLY: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(20), Duration::from_millis(200)];
/// How often there is a look.
const TICK: Duration = Duration::from_millis(250);

/// What is to be done.
#[derive(Default)]
pub(super) struct Schedule {
    /// A file was opened for writing since the keeper saw that none is.
    is_busy: AtomicBool,
    plan: Mutex<Plan>,
    wake: Condvar,
}

#[derive(Default)]
struct Plan {
    /// Files to shut, by when.
    later: BTreeMap<Duration, Vec<NodeNumber>>,
    ended: bool,
}

/// What is due.
pub(super) enum Due {
    Shut(Vec<NodeNumber>),
    Look,
    End,
}

impl Schedule {
    /// When the next look is due after one that ends now.
    pub(super) fn look_after(now: Duration) -> Duration {
        now.saturating_add(TICK)
    }

    /// A file was opened for writing.
    pub(super) fn note_opened(&self) {
        if !self.is_busy.load(Ordering::Relaxed) && !self.is_busy.swap(true, Ordering::SeqCst) {
            let _plan = self.plan.lock();
            self.wake.notify_one();
        }
    }

    /// Does a look, which returns whether there is a reason for another one.
    pub(super) fn look(&self, look: impl FnOnce() -> bool) {
        // Cleared before the look, so that an opening meanwhile is not lost.
        self.is_busy.store(false, Ordering::SeqCst);
        let is_busy = look();
        self.is_busy.fetch_or(is_busy, Ordering::SeqCst);
    }

    /// Has a file shut some time after now, and again.
    pub(super) fn shut_later(&self, node: NodeNumber, now: Duration) {
        let mut plan = self.plan.lock();
        for delay in AFTER_REPLY {
            plan.later.entry(now.saturating_add(delay)).or_default().push(node);
        }
        drop(plan);
        self.wake.notify_one();
    }

    /// Nothing is to be done any more.
    pub(super) fn end(&self) {
        self.plan.lock().ended = true;
        self.wake.notify_one();
    }

    /// What is due, as soon as anything is. While no file is open for writing, the next look moves on with
    /// the time.
    pub(super) fn next(&self, clock: &dyn Clock, next_look: &mut Duration) -> Due {
        let mut plan = self.plan.lock();
        loop {
            if plan.ended {
                return Due::End;
            }
            let now = clock.monotonic();
            let is_busy = self.is_busy.load(Ordering::SeqCst);
            if is_busy && now >= *next_look {
                return Due::Look;
            }
            if !is_busy {
                *next_look = Self::look_after(now);
            }
            let later = plan.later.split_off(&now.saturating_add(Duration::from_nanos(1)));
            let due = std::mem::replace(&mut plan.later, later);
            if !due.is_empty() {
                return Due::Shut(due.into_values().flatten().collect());
            }
            let next = plan.later.keys().next().copied();
            let next = next.into_iter().chain(is_busy.then_some(*next_look)).min();
            match next {
                Some(next) => drop(self.wake.wait_for(&mut plan, next.saturating_sub(now))),
                None => self.wake.wait(&mut plan),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use vlinder_base::clock::{FixedClock, Timestamp};

    use super::*;

    #[test]
    fn files_that_are_shut_all_the_time_keep_no_look_away() {
        let clock = FixedClock::new(Timestamp::EPOCH);
        let schedule = Schedule::default();
        schedule.note_opened();
        let (mut next_look, mut shut) = (TICK, 0);
        let step = Duration::from_millis(10);
        for _ in 0..100 {
            schedule.shut_later(NodeNumber::ROOT, clock.monotonic());
            clock.advance(step);
            match schedule.next(&clock, &mut next_look) {
                Due::Shut(nodes) => shut += nodes.len(),
                Due::Look => {
                    assert!(clock.monotonic() >= TICK && clock.monotonic() <= TICK + step);
                    assert!(shut > 0);
                    return;
                }
                Due::End => unreachable!("nobody ended it"),
            }
        }
        panic!("no look while files were shut {shut} times");
    }
}
