//! One thread waits for the kernel's next request, while the other threads rest.
//!
//! Linux wakes a sleeping reader of `/dev/fuse` for each request, and the program that sent the request pays
//! for that; on a virtual machine it costs more than most answers. So one thread *attends*: after an answer
//! it looks for the next request for a short while before it sleeps, unless it shares the processor of the
//! program. While it attends or works, the other threads are parked where the kernel does not see them. It
//! calls another thread to attend in three cases: (1) at the start of a request that takes long; (2) as soon
//! as a request has to wait for the disk, a commit or room ([`vlinder_base::waiting`] tells); (3) while
//! several programs keep it without a pause. So requests are answered side by side exactly when one of them
//! would hold up another.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vlinder_base::clock::{Clock, SystemClock};
use vlinder_base::metrics::{Counter, Registry, Unit};
use vlinder_base::sync::{Arc, Condvar, Mutex};
use vlinder_base::{thread, waiting};

/// How long a thread looks for the next request before it sleeps. Waking it takes about as long.
const PATIENCE: Duration = Duration::from_micros(50);
/// Another thread got the processor for so long meanwhile: it needs it more than the looking does.
const CROWDED: Duration = Duration::from_micros(200);
/// Another thread helps after so many requests in a row that were waiting already, each from another program
/// than the one before.
const CROWD: u32 = 4;

/// Reads and writes of more bytes than this are worth a processor of their own.
const LARGE_TRANSFER: usize = 128 << 10;

/// What a request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Less than waking another thread, unless it has to wait.
    Short,
    /// More: other requests had better be answered meanwhile.
    Long,
}

impl Work {
    /// Of a read or write of so many bytes.
    pub(super) fn of_transfer(length_bytes: usize) -> Self {
        if length_bytes > LARGE_TRANSFER { Self::Long } else { Self::Short }
    }
}

/// The threads that answer.
pub(super) struct Attendance {
    device: OwnedFd,
    clock: SystemClock,
    places: Arc<Places>,
}

struct Places {
    state: Mutex<State>,
    changed: Condvar,
    calls: Arc<Counter>,
}

#[derive(Default)]
struct State {
    /// Threads that wait for a request or were called to. A thread counts from its first request on: only
    /// then does its end wake those that rest, and a thread rests only while one attends whose end wakes it.
    attending: usize,
    /// Threads that rest.
    parked: usize,
    /// Those of them that were called and have not got up yet.
    called: usize,
    /// The connection is gone: no thread rests any more.
    ended: bool,
}

thread_local! {
    /// The threads that the running one is one of.
    static COLLEAGUES: RefCell<Option<Colleague>> = const { RefCell::new(None) };
    /// What it knows of the requests so far.
    static HISTORY: Cell<History> = const { Cell::new(History::NONE) };
}

#[derive(Clone, Copy)]
struct History {
    /// Whether looking for the next request has been worth it lately.
    looking_pays: bool,
    /// When the last answer was given.
    last_answer: Duration,
    /// The next request was there already then.
    had_next: bool,
    /// The thread that asked last.
    client: u32,
    /// How often that alternated without a pause, up to [`CROWD`].
    crowd: u32,
}

impl History {
    const NONE: Self =
        Self { looking_pays: true, last_answer: Duration::ZERO, had_next: false, client: 0, crowd: 0 };

    /// A request came, for an answer that its program waits for unless `client` is 0.
    fn note(&mut self, client: u32, now: Duration) {
        if !self.looking_pays {
            self.looking_pays = now.saturating_sub(self.last_answer) < PATIENCE;
        }
        if client != 0 {
            let alternates = self.had_next && client != self.client;
            self.crowd = if alternates { (self.crowd + 1).min(CROWD) } else { self.crowd.saturating_sub(1) };
            self.client = client;
        }
    }
}

/// Lets all others go when the running thread ends: threads end only when the connection has.
struct Colleague(Arc<Places>);

impl Drop for Colleague {
    fn drop(&mut self) {
        self.0.state.lock().ended = true;
        self.0.changed.notify_all();
    }
}

/// A request being answered; the next is waited for, or the thread rests, when it is dropped.
pub(super) struct Turn<'a> {
    attendance: &'a Attendance,
    shares: bool,
}

impl Attendance {
    /// Of all threads that will call [`Self::begin`].
    pub(super) fn new(device: OwnedFd, registry: &Registry) -> Self {
        let state = Mutex::new(State::default());
        let calls = registry.counter("fuse.threads_called", CALLS, Unit::Count);
        let places = Arc::new(Places { state, changed: Condvar::new(), calls });
        Self { device, clock: SystemClock::new(), places }
    }

    /// A request came to the running thread. To be dropped after it is answered. `client` is the thread that
    /// asks, 0 if there is none or it is of another namespace; `shares` whether the program waits for this
    /// very processor.
    pub(super) fn begin(&self, client: u32, work: Work, shares: bool) -> Turn<'_> {
        let attended = COLLEAGUES.with_borrow_mut(|colleagues| {
            let attended = colleagues.is_some();
            colleagues.get_or_insert_with(|| Colleague(Arc::clone(&self.places)));
            attended
        });
        let mut history = HISTORY.get();
        history.note(client, self.clock.monotonic());
        HISTORY.set(history);
        if attended {
            self.places.state.lock().attending -= 1;
        }
        if work == Work::Long || history.crowd == CROWD {
            self.places.call();
        } else {
            waiting::announce_to(Some(call_another));
        }
        Turn { attendance: self, shares }
    }

    /// Looks for the next request, as long as that is likely to be worth it. Where the program shares the
    /// processor, looking keeps it from going on: between programs of different sessions (Linux's autogroups;
    /// a mount has a session of its own) sched_yield(2) mostly returns at once though the program is ready,
    /// and only sleeping lets it run. Nor is there anything to be found at once, since that program alone has
    /// asked lately: with the first request of another the thread is free.
    fn look(&self, shares: bool) {
        let (start, mut history) = (self.clock.monotonic(), HISTORY.get());
        (history.last_answer, history.had_next) = (start, false);
        if history.looking_pays && !shares {
            history.had_next = self.has_request();
            let (mut last, mut found) = (start, history.had_next);
            while history.looking_pays && !found {
                thread::yield_now();
                let now = self.clock.monotonic();
                history.looking_pays =
                    now.saturating_sub(start) < PATIENCE && now.saturating_sub(last) < CROWDED;
                last = now;
                found = self.has_request();
            }
        }
        HISTORY.set(history);
    }

    /// Whether reading would give a request at once; also where it would fail, which reading then says.
    fn has_request(&self) -> bool {
        let mut device = [PollFd::new(&self.device, PollFlags::IN)];
        poll(&mut device, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(0)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        waiting::announce_to(None);
        self.attendance.places.attend_or_rest();
        self.attendance.look(self.shares);
    }
}

impl Places {
    /// Lets a resting thread attend if none does.
    fn call(&self) {
        let mut state = self.state.lock();
        if state.attending == 0 && state.parked > state.called {
            state.attending += 1;
            state.called += 1;
            self.calls.increment();
            self.changed.notify_one();
        }
    }

    /// The running thread has nothing to do: returns when it is to attend.
    fn attend_or_rest(&self) {
        let mut state = self.state.lock();
        if state.attending == 0 {
            state.attending += 1;
            return;
        }
        state.parked += 1;
        while state.called == 0 && !state.ended {
            self.changed.wait(&mut state);
        }
        state.parked -= 1;
        if state.called > 0 {
            state.called -= 1;
        } else {
            state.attending += 1;
        }
    }
}

/// The running thread, which answers a request, is about to wait.
fn call_another() {
    COLLEAGUES.with_borrow(|colleagues| {
        if let Some(Colleague(places)) = colleagues {
            places.call();
        }
    });
}

const CALLS: &str = "threads called to answer requests while another was busy";

#[cfg(test)]
mod tests {
    use vlinder_base::metrics::Value;
    use vlinder_base::sync::atomic::{AtomicBool, Ordering};
    use vlinder_testkit::eventually;

    use super::*;

    /// Two threads, of which one takes and answers a request and so rests until it is called, and then ends.
    /// The test is the other. A test that waits for that thread's end waits with a bound first: a thread that
    /// is not called rests for ever.
    struct Pair {
        registry: Registry,
        attendance: Arc<Attendance>,
        attends: Arc<AtomicBool>,
        other: thread::JoinHandle<()>,
        /// Nothing is ever written here: no request is there to be found.
        _silence: OwnedFd,
    }

    impl Pair {
        fn new() -> Self {
            let (device, silence) = rustix::pipe::pipe().unwrap();
            let registry = Registry::new();
            let attendance = Arc::new(Attendance::new(device, &registry));
            drop(attendance.begin(2, Work::Short, false));
            let attends = Arc::new(AtomicBool::new(false));
            let other = {
                let (attendance, attends) = (Arc::clone(&attendance), Arc::clone(&attends));
                thread::spawn("fuse-other", move || {
                    drop(attendance.begin(1, Work::Short, false));
                    attends.store(true, Ordering::Release);
                })
            };
            eventually("the other thread rests", || attendance.places.state.lock().parked == 1);
            Self { registry, attendance, attends, other, _silence: silence }
        }

        fn calls(&self) -> Value {
            let samples = self.registry.snapshot();
            samples.into_iter().find(|sample| sample.name == "fuse.threads_called").unwrap().value
        }

        fn wait_for_the_other(&self) {
            eventually("the other thread attends", || self.attends.load(Ordering::Acquire));
        }
    }

    #[test]
    fn a_short_request_calls_nobody_unless_it_has_to_wait() {
        let pair = Pair::new();
        drop(pair.attendance.begin(2, Work::Short, false));
        assert_eq!((pair.attends.load(Ordering::Acquire), pair.calls()), (false, Value::Counter(0)));
        let turn = pair.attendance.begin(2, Work::Short, false);
        assert!(!pair.attends.load(Ordering::Acquire));
        let (lock, never) = (Mutex::new(()), Condvar::new());
        never.wait_for(&mut lock.lock(), Duration::from_millis(1));
        assert_eq!(pair.calls(), Value::Counter(1));
        pair.wait_for_the_other();
        pair.other.join().unwrap();
        drop(turn);
    }

    #[test]
    fn a_thread_that_shares_the_programs_processor_sleeps_at_once() {
        let pair = Pair::new();
        let looked_in_vain = |shares| {
            HISTORY.set(History::NONE);
            drop(pair.attendance.begin(2, Work::Short, shares));
            !HISTORY.get().looking_pays
        };
        assert!(looked_in_vain(false));
        assert!(!looked_in_vain(true));
        let turn = pair.attendance.begin(2, Work::Long, false);
        pair.wait_for_the_other();
        pair.other.join().unwrap();
        drop(turn);
    }

    #[test]
    fn a_long_request_calls_another_thread() {
        let pair = Pair::new();
        let turn = pair.attendance.begin(2, Work::Long, false);
        assert_eq!(pair.calls(), Value::Counter(1));
        pair.wait_for_the_other();
        pair.other.join().unwrap();
        drop(turn);
    }

    #[test]
    fn a_thread_that_ends_in_silence_lets_nobody_rest() {
        let (device, _silence) = rustix::pipe::pipe().unwrap();
        let attendance = Arc::new(Attendance::new(device, &Registry::new()));
        let returned = Arc::new(AtomicBool::new(false));
        // Any number of threads may wait for their first request beside this one.
        let first = {
            let (attendance, returned) = (Arc::clone(&attendance), Arc::clone(&returned));
            thread::spawn("fuse-first", move || {
                drop(attendance.begin(1, Work::Short, false));
                returned.store(true, Ordering::Release);
            })
        };
        eventually("the first thread attends", || returned.load(Ordering::Acquire));
        first.join().unwrap();
    }

    #[test]
    fn nobody_rests_after_the_connection_ended() {
        let pair = Pair::new();
        let attendance = Arc::clone(&pair.attendance);
        // In the place of the test's own thread.
        let ends =
            thread::spawn("fuse-ends", move || std::mem::forget(attendance.begin(3, Work::Short, false)));
        pair.wait_for_the_other();
        ends.join().unwrap();
        pair.other.join().unwrap();
    }

    #[test]
    fn several_programs_without_a_pause_are_a_crowd_and_one_is_not() {
        let mut history = History { had_next: true, ..History::NONE };
        (0..100).for_each(|number| history.note([5, 0][number % 2], Duration::ZERO));
        assert_eq!(history.crowd, 0);
        (0..CROWD).for_each(|number| history.note(6 + number % 2, Duration::ZERO));
        assert_eq!(history.crowd, CROWD);
        history.had_next = false;
        (0..CROWD).for_each(|number| history.note(6 + number % 2, Duration::ZERO));
        assert_eq!(history.crowd, 0);
    }

    #[test]
    fn looking_is_given_up_where_requests_are_far_apart() {
        let far = PATIENCE * 2;
        let mut history = History { looking_pays: false, last_answer: far, ..History::NONE };
        history.note(1, far * 2);
        assert!(!history.looking_pays);
        history.note(1, far + PATIENCE / 2);
        assert!(history.looking_pays);
    }
}
