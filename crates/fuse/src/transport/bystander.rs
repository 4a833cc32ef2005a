//! A thread that keeps the second of two processors from sleeping while a program and the thread that answers
//! it take turns on the first.
//!
//! Where another processor idles, Linux moves a program there as soon as its answer wakes it, although the
//! thread that answers is about to sleep; each request then wakes one sleeping processor at least, which on a
//! virtual machine takes longer than most answers. No program is moved to a processor that is busy. So this
//! thread spins there, with the lowest priority, as long as requests follow one another closely, and it gives
//! up for a while wherever another thread wants the processor. Decision 8 has the measurements.

use std::time::Duration;

use vlinder_base::affinity::Affinity;
use vlinder_base::clock::{Clock, SystemClock};
use vlinder_base::metrics::{Counter, Registry, Unit};
use vlinder_base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use vlinder_base::sync::{Arc, Condvar, Mutex, OnceLock};
use vlinder_base::thread;

/// How long it goes on after the last request.
const LINGER: Duration = Duration::from_micros(150);
/// Another thread had the processor for so long meanwhile: it is not idle without us.
const CROWDED: Duration = Duration::from_micros(500);
/// How long it leaves a processor alone that another thread wanted.
const PAUSE: Duration = Duration::from_millis(2);

/// The thread, which starts when it is wanted first.
pub(super) struct Bystander {
    both: Affinity,
    shared: Arc<Shared>,
    thread: OnceLock<Option<thread::JoinHandle<()>>>,
}

struct Shared {
    /// The clock by which requests are noted: times of two clocks, which count from their beginnings, can't
    /// be compared.
    clock: SystemClock,
    /// Where the program is answered: not there.
    answers_on: AtomicUsize,
    /// Until when, in nanoseconds of the clock.
    until: AtomicU64,
    /// Not before then again.
    not_before: AtomicU64,
    is_resting: AtomicBool,
    has_ended: Mutex<bool>,
    changed: Condvar,
    starts: Arc<Counter>,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether the machine has two processors and both may be used: with more, Linux finds another that idles.
fn helps(allowed: u32, processors: Option<usize>) -> bool {
    allowed == 2 && processors == Some(2)
}

impl Bystander {
    /// Nothing unless it helps on a machine with so many processors. `clock` is that of the times given to
    /// [`note`](Self::note).
    pub(super) fn new(
        allowed: Option<&Affinity>,
        processors: Option<usize>,
        clock: SystemClock,
        registry: &Registry,
    ) -> Option<Self> {
        let starts = registry.counter("fuse.bystander_starts", STARTS, Unit::Count);
        let both = *allowed.filter(|allowed| helps(allowed.count(), processors))?;
        Some(Self::of(both, clock, starts))
    }

    fn of(both: Affinity, clock: SystemClock, starts: Arc<Counter>) -> Self {
        let shared = Shared {
            clock,
            answers_on: AtomicUsize::new(0),
            until: AtomicU64::new(0),
            not_before: AtomicU64::new(0),
            is_resting: AtomicBool::new(false),
            has_ended: Mutex::new(false),
            changed: Condvar::new(),
            starts,
        };
        Self { both, shared: Arc::new(shared), thread: OnceLock::new() }
    }

    /// A request came, as the next of many that followed one another closely, to a thread that takes turns
    /// with its program on this processor.
    pub(super) fn note(&self, processor: usize, now: Duration) {
        let shared = &self.shared;
        shared.answers_on.store(processor, Ordering::Relaxed);
        shared.until.store(nanoseconds(now + LINGER), Ordering::SeqCst);
        if self.thread.get().is_none() {
            self.start();
        } else if shared.is_resting.load(Ordering::SeqCst)
            && shared.not_before.load(Ordering::Relaxed) < nanoseconds(now)
        {
            // With the lock, so that the thread does not miss it between its look and its sleep.
            let _guard = shared.has_ended.lock();
            shared.changed.notify_one();
        }
    }

    fn start(&self) {
        let (shared, both) = (Arc::clone(&self.shared), self.both);
        // Without the thread, answers are as right and only later.
        let spawned = thread::try_spawn("fuse-bystander", move || shared.stand_by(both)).ok();
        let _ = self.thread.set(spawned);
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.shared.until.store(0, Ordering::SeqCst);
        *self.shared.has_ended.lock() = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take().flatten() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn stand_by(&self, both: Affinity) {
        let clock = &self.clock;
        if thread::give_way_to_all().is_err() {
            return;
        }
        let is_wanted = |now: Duration| self.until.load(Ordering::SeqCst) > nanoseconds(now);
        loop {
            if is_wanted(clock.monotonic()) {
                self.starts.increment();
                self.spin(&both);
            }
            let mut has_ended = self.has_ended.lock();
            self.is_resting.store(true, Ordering::SeqCst);
            while !*has_ended && (self.is_pausing(clock.monotonic()) || !is_wanted(clock.monotonic())) {
                self.changed.wait(&mut has_ended);
            }
            self.is_resting.store(false, Ordering::SeqCst);
            if *has_ended {
                return;
            }
        }
    }

    fn is_pausing(&self, now: Duration) -> bool {
        self.not_before.load(Ordering::Relaxed) > nanoseconds(now)
    }

    /// Until it is not wanted any more, or another thread wants the processor.
    fn spin(&self, both: &Affinity) {
        let (clock, mut left_alone) = (&self.clock, None);
        let mut last = clock.monotonic();
        loop {
            let answers_on = self.answers_on.load(Ordering::Relaxed);
            if left_alone != Some(answers_on) {
                let place = both.other_than(answers_on);
                if !place.is_some_and(|place| both.narrow_to(place).unwrap_or(false)) {
                    return;
                }
                (left_alone, last) = (Some(answers_on), clock.monotonic());
            }
            std::hint::spin_loop();
            let now = clock.monotonic();
            if self.until.load(Ordering::SeqCst) <= nanoseconds(now) {
                return;
            }
            if now.saturating_sub(last) > CROWDED {
                self.not_before.store(nanoseconds(now + PAUSE), Ordering::Relaxed);
                return;
            }
            last = now;
        }
    }
}

const STARTS: &str =
    "times that the second of two processors was kept awake for a program that is answered on the first";

#[cfg(test)]
mod tests {
    use vlinder_testkit::eventually;

    use super::*;

    #[test]
    fn it_stands_by_while_requests_come_rests_afterwards_and_ends() {
        let clock = SystemClock::new();
        let both = Affinity::current().unwrap();
        let registry = Registry::new();
        let starts = registry.counter("starts", "", Unit::Count);
        let bystander = Bystander::of(both, clock, Arc::clone(&starts));
        let shared = Arc::clone(&bystander.shared);
        assert_eq!(starts.get(), 0);
        for round in 1..=3 {
            // A busy machine may keep the thread away until nobody wants it any more, or make it pause.
            eventually("it starts", || {
                bystander.note(0, clock.monotonic());
                starts.get() >= round
            });
            eventually("it rests", || shared.is_resting.load(Ordering::SeqCst));
        }
        drop(bystander);
        assert_eq!(Arc::strong_count(&shared), 1, "the thread is gone");
    }

    #[test]
    fn it_rests_soon_however_long_the_clock_ran_before_it() {
        let (clock, age) = (SystemClock::new(), Duration::from_secs(1));
        thread::sleep(age);
        let starts = Registry::new().counter("starts", "", Unit::Count);
        let bystander = Bystander::of(Affinity::current().unwrap(), clock, Arc::clone(&starts));
        eventually("it starts", || {
            bystander.note(0, clock.monotonic());
            starts.get() > 0
        });
        let last_request = clock.monotonic();
        eventually("it rests", || bystander.shared.is_resting.load(Ordering::SeqCst));
        assert!(clock.monotonic() - last_request < age / 2);
    }

    #[test]
    fn a_machine_of_other_than_two_processors_has_none() {
        let (registry, clock) = (Registry::new(), SystemClock::new());
        let allowed = Affinity::current().unwrap();
        for processors in [None, Some(1), Some(3), Some(64)] {
            assert!(!helps(2, processors), "{processors:?}");
            assert!(Bystander::new(Some(&allowed), processors, clock, &registry).is_none(), "{processors:?}");
        }
        assert!(!helps(1, Some(2)), "one of the two is another's");
        assert!(Bystander::new(None, Some(2), clock, &registry).is_none());
        assert!(helps(2, Some(2)));
        // Where this process may use two, it has one if the machine has no more.
        assert_eq!(Bystander::new(Some(&allowed), Some(2), clock, &registry).is_some(), allowed.count() == 2);
    }
}
