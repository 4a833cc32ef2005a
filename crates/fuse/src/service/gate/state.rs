//! What is known of the gate: whether it is shut, how much may be taken until the next look, what was
//! refused, and what came without a question.

use std::collections::HashMap;
use std::time::Duration;

use vlinder_base::metrics::{Counter, Registry, Unit};
use vlinder_base::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_fs::InodeId;

use super::refusals::{Refusals, Told};

/// The most bytes of one write(2) (`MAX_RW_COUNT` in Linux's include/linux/fs.h).
const LONGEST_WRITE: u64 = (1 << 31) - 4096;

/// The gate's state. Invariants:
/// 1. The budget is that of the last look ([`GateState::end_look`]), less what was taken since
///    ([`GateState::note_taken`]).
/// 2. No write is let in unasked after a refusal that it was not let in after ([`GateState::note_refusal`],
///    [`GateState::let_pass`]).
/// 3. What is known of a file goes with its last writer, whether the gate is shut then or not
///    ([`GateState::forget`]).
/// 4. A kernel that was found not to ask stays so ([`GateState::note_unasked`]).
pub(super) struct GateState {
    is_shut: AtomicBool,
    /// Bytes that may be taken before the next look.
    budget_bytes: AtomicI64,
    /// What the kernel may hold, as of the last look.
    limit_bytes: AtomicU64,
    /// When the last look was, by the monotonic clock, in nanoseconds.
    last_look: AtomicU64,
    /// Until when writes are let in without another look at the kernel's pages, likewise.
    pass_until: AtomicU64,
    refusals: Refusals,
    /// Bytes behind the end of files that came while the gate was shut, since each file's writers asked last.
    unasked: Mutex<HashMap<InodeId, u64>>,
    /// The kernel does not ask.
    is_passed_by: AtomicBool,
    metrics: GateMetrics,
}

/// Counters of the gate.
pub(super) struct GateMetrics {
    pub(super) shut: Arc<Counter>,
    pub(super) asked: Arc<Counter>,
    pub(super) pushed: Arc<Counter>,
    pub(super) refused: Arc<Counter>,
    pub(super) unasked: Arc<Counter>,
}

impl GateMetrics {
    fn new(registry: &Registry) -> Self {
        let counter = |name, help| registry.counter(name, help, Unit::Count);
        Self {
            shut: counter("fuse.gate.shut", "times that the gate before writes was shut for lack of room"),
            asked: counter("fuse.gate.asked", "writes that asked at the shut gate"),
            pushed: counter(
                "fuse.gate.pushed",
                "writes among them that waited until their file's pages came",
            ),
            refused: counter("fuse.gate.refused", "writes among them that were refused"),
            unasked: counter(
                "fuse.gate.unasked",
                "writes from the kernel's cache that must have passed the shut gate by",
            ),
        }
    }
}

impl GateState {
    /// Open.
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            is_shut: AtomicBool::new(false),
            budget_bytes: AtomicI64::new(0),
            limit_bytes: AtomicU64::new(u64::MAX),
            last_look: AtomicU64::new(0),
            pass_until: AtomicU64::new(0),
            refusals: Refusals::default(),
            unasked: Mutex::default(),
            is_passed_by: AtomicBool::new(false),
            metrics: GateMetrics::new(registry),
        }
    }

    /// The counters.
    pub(super) fn metrics(&self) -> &GateMetrics {
        &self.metrics
    }

    /// Whether the kernel was found not to ask.
    pub(super) fn is_passed_by(&self) -> bool {
        self.is_passed_by.load(Ordering::Relaxed)
    }

    /// The kernel is known not to ask.
    pub(super) fn pass_by(&self) {
        self.is_passed_by.store(true, Ordering::Relaxed);
    }

    /// Whether writes ask.
    pub(super) fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Relaxed)
    }

    /// What the kernel may hold, as of the last look.
    pub(super) fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// When the last look began.
    pub(super) fn last_look(&self) -> Duration {
        Duration::from_nanos(self.last_look.load(Ordering::Relaxed))
    }

    /// A look begins.
    pub(super) fn begin_look(&self, now: Duration) {
        self.last_look.store(nanoseconds(now), Ordering::Relaxed);
    }

    /// A look ends: what the kernel may hold, and how many bytes may be taken before the next look.
    pub(super) fn end_look(&self, is_shut: bool, limit_bytes: u64, budget_bytes: u64) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
        self.budget_bytes.store(i64::try_from(budget_bytes).unwrap_or(i64::MAX), Ordering::Relaxed);
        self.is_shut.store(is_shut, Ordering::SeqCst);
    }

    /// Bytes were taken; whether a look is due.
    pub(super) fn note_taken(&self, bytes: u64) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.budget_bytes.fetch_sub(bytes, Ordering::Relaxed) <= bytes
    }

    /// What was refused.
    pub(super) fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Bytes of a file that the kernel had taken found no room, and are kept or lost. What lets writes in
    /// unasked ends.
    pub(super) fn note_refusal(&self, id: InodeId, is_kept: bool) {
        self.refusals.note(id, is_kept, || self.pass_until.store(0, Ordering::Relaxed));
    }

    /// Whether writes are let in without another look at the kernel's pages.
    pub(super) fn lets_pass(&self, now: Duration) -> bool {
        nanoseconds(now) < self.pass_until.load(Ordering::Relaxed)
    }

    /// Lets writes in for so long without another look, unless there is a refusal newer than the given one;
    /// whether there is none.
    pub(super) fn let_pass(&self, now: Duration, pass: Duration, last_refusal: u64) -> bool {
        let until = nanoseconds(now.saturating_add(pass));
        self.refusals.do_unless_newer(last_refusal, || self.pass_until.store(until, Ordering::Relaxed))
    }

    /// What the writer of a file that is opened now was told.
    pub(super) fn told_at_opening(&self) -> Told {
        self.refusals.told_at_opening()
    }

    /// A file has no writer any more. The gate may have opened since something was refused or came unasked.
    pub(super) fn forget(&self, id: InodeId) {
        self.refusals.forget(id);
        self.note_asked(id);
    }

    /// A file's writer asks, or there is none any more.
    pub(super) fn note_asked(&self, id: InodeId) {
        self.unasked.lock().remove(&id);
    }

    /// Bytes behind the end of a file came from the kernel's cache while the gate was shut. A write that was
    /// let in may bring [`LONGEST_WRITE`], and the kernel may have held `held_bytes` when the gate was shut;
    /// where more comes without a question, the kernel does not ask. Returns whether that is found now.
    pub(super) fn note_unasked(&self, id: InodeId, bytes: u64, held_bytes: u64) -> bool {
        let mut unasked = self.unasked.lock();
        let sum = unasked.entry(id).or_default();
        *sum = sum.saturating_add(bytes);
        if *sum <= held_bytes.saturating_add(LONGEST_WRITE) {
            return false;
        }
        self.metrics.unasked.increment();
        !self.is_passed_by.swap(true, Ordering::Relaxed)
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use vlinder_fs::{ObjectId, RootId};
    use vlinder_testkit::metrics_page;

    use super::*;

    const FILE: InodeId = InodeId::new(RootId(5), ObjectId(257));

    #[test]
    fn the_page_lists_what_is_counted() {
        let registry = Registry::new();
        let _ = GateState::new(&registry);
        let expected: Vec<String> = registry.snapshot().iter().map(metrics_page::row_of).collect();
        assert_eq!(metrics_page::rows("Writes on a nearly full mount"), expected);
    }

    #[test]
    fn a_look_is_due_when_the_budget_is_taken() {
        let gate = GateState::new(&Registry::new());
        gate.budget_bytes.store(100, Ordering::Relaxed);
        assert!(!gate.note_taken(60));
        assert!(gate.note_taken(40));
        assert!(gate.note_taken(1));
    }

    #[test]
    fn nothing_is_known_of_a_file_without_writers() {
        let gate = GateState::new(&Registry::new());
        assert!(!gate.is_shut());
        gate.note_refusal(FILE, false);
        gate.note_unasked(FILE, 4096, 0);
        gate.forget(FILE);
        assert!(gate.refusals.is_empty() && gate.unasked.lock().is_empty());
    }

    #[test]
    fn a_refusal_ends_what_lets_writes_in_unasked() {
        let gate = GateState::new(&Registry::new());
        gate.pass_until.store(u64::MAX, Ordering::Relaxed);
        gate.note_refusal(FILE, true);
        assert_eq!(gate.pass_until.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_kernel_that_does_not_ask_is_found_out() {
        let gate = GateState::new(&Registry::new());
        let held = 48 << 20;
        for _ in 0..3 {
            // Writers that ask may bring as much each time.
            assert!(!gate.note_unasked(FILE, held + LONGEST_WRITE, held));
            gate.note_asked(FILE);
        }
        assert!(!gate.is_passed_by());
        assert!(!gate.note_unasked(FILE, held + LONGEST_WRITE, held));
        assert!(gate.note_unasked(FILE, 1, held));
        assert!(gate.is_passed_by());
        assert!(!gate.note_unasked(FILE, 1, held), "it is said once");
        assert_eq!(gate.metrics.unasked.get(), 2);
    }
}
