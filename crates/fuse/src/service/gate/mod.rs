//! The gate before write(2) under the writeback cache: a full file system says so before the kernel takes
//! bytes.
//!
//! With its writeback cache the kernel takes bytes without asking the server, and a page that the server then
//! refuses is lost. But before it takes any byte of a write(2), the kernel makes sure that it knows the
//! file's mode (`fuse_cache_write_iter` in Linux's fs/fuse/file.c): where its attributes are marked invalid
//! it sends a GETATTR with the file's handle, and an error of that GETATTR is the error of write(2). So the
//! server shuts the *gate* of a file by marking its attributes invalid, and each write(2) asks. No other call
//! asks with a handle while the attributes' time runs.
//!
//! While there is room the gate is open, and costs one atomic look for each request. It is shut for all files
//! that are open for writing *before* the kernel could hold more than there is room for.
//!
//! Invariants, and the function that keeps each:
//! 1. While the gate is open, the room is at least `dirty=` and what the kernel may hold, as of the last
//!    look; a look is due after half of what is above that was taken ([`Gate::note_taken`]), four times a
//!    second while files are open for writing (the keeper), and at an open when the last look is some time
//!    ago ([`MountService::note_opened`]). A caller that asks for a look gets one that began afterwards
//!    ([`looks`]).
//! 2. While the gate is shut, it is shut for every file that is open for writing: those that were open when
//!    it was shut ([`MountService::look`]), and those opened since ([`MountService::note_opened`]).
//! 3. No reply opens it again. A reply that the kernel compares with the attributes' version is sent after a
//!    notification that raised the version, and so is dropped ([`MountService::keep_shut`]). A reply that the
//!    kernel takes without comparing (SETATTR, CREATE, LINK) is followed by notifications
//!    ([`MountService::shut_after_reply`]).
//! 4. A write that asked is let in only if what the kernel holds has room beside it, or after the pages of
//!    its file were pushed out and there is room, or space of the file's own ([`MountService::admit`]).
//! 5. Nothing that can wait for the kernel is done by a thread that answers requests, nor with a lock held:
//!    pages are pushed by threads of their own ([`MountService::aside`](super::MountService)).
//! 6. Each open file's writer is told when it asks next of bytes that found no room and are not stored since
//!    ([`refusals`]).
//! 7. All this holds for kernels from 5.16 on (6.16 was read, 6.18 tried). One that does not ask is noticed
//!    by what it hands over ([`Gate::note_unasked`]). Where room is short, files are opened past such a
//!    kernel's cache, so that write(2) itself comes here ([`MountService::goes_past_the_cache`]).

mod admission;
mod keeper;
mod looks;
mod page_cache;
mod refusals;

use std::collections::HashMap;
use std::time::Duration;

use vlinder_base::metrics::{Counter, Registry, Unit};
use vlinder_base::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex, OnceLock};
use vlinder_fs::InodeId;

use self::keeper::Keeper;
use self::looks::Looks;
use self::page_cache::PageCache;
use self::refusals::Refusals;
pub(super) use self::refusals::Told;

/// Room that is kept beside what the kernel is known to hold: the kernel counts its pages for each processor
/// apart, and writes that were let in are under way.
const MARGIN_BYTES: u64 = 16 << 20;
/// More than programs can write into memory in a nanosecond.
const BYTES_PER_NANOSECOND: u64 = 64;
/// What was found out about the kernel's pages holds no longer than this.
const LONGEST_PASS: Duration = Duration::from_millis(10);

/// The most bytes of one write(2) (`MAX_RW_COUNT` in Linux's include/linux/fs.h).
const LONGEST_WRITE: u64 = (1 << 31) - 4096;

/// The gate's state.
pub(super) struct Gate {
    is_shut: AtomicBool,
    /// Bytes that may be taken before the next look.
    budget_bytes: AtomicI64,
    /// What the kernel may hold, as of the last look.
    limit_bytes: AtomicU64,
    /// When the last look was, by the monotonic clock, in nanoseconds.
    last_look: AtomicU64,
    /// Until when writes are let in without another look at the kernel's pages, likewise.
    pass_until: AtomicU64,
    looks: Looks,
    refusals: Refusals,
    /// Bytes behind the end of files that came while the gate was shut, since each file's writers asked last.
    unasked: Mutex<HashMap<InodeId, u64>>,
    /// The kernel does not ask.
    is_passed_by: AtomicBool,
    /// What found no room is being tried again.
    is_placing: AtomicBool,
    /// Known once there is a mount.
    page_cache: OnceLock<PageCache>,
    keeper: Keeper,
    metrics: GateMetrics,
}

/// Counters of the gate.
struct GateMetrics {
    shut: Arc<Counter>,
    asked: Arc<Counter>,
    pushed: Arc<Counter>,
    refused: Arc<Counter>,
    unasked: Arc<Counter>,
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

impl Gate {
    /// Open.
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            is_shut: AtomicBool::new(false),
            budget_bytes: AtomicI64::new(0),
            limit_bytes: AtomicU64::new(u64::MAX),
            last_look: AtomicU64::new(0),
            pass_until: AtomicU64::new(0),
            looks: Looks::default(),
            refusals: Refusals::default(),
            unasked: Mutex::default(),
            is_passed_by: AtomicBool::new(false),
            is_placing: AtomicBool::new(false),
            page_cache: OnceLock::new(),
            keeper: Keeper::default(),
            metrics: GateMetrics::new(registry),
        }
    }

    /// Whether the kernel was found not to ask.
    pub(super) fn is_passed_by(&self) -> bool {
        self.is_passed_by.load(Ordering::Relaxed)
    }

    /// Whether writes ask.
    pub(super) fn is_shut(&self) -> bool {
        self.is_shut.load(Ordering::Relaxed)
    }

    /// Bytes were taken; whether a look is due.
    fn note_taken(&self, bytes: u64) -> bool {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.budget_bytes.fetch_sub(bytes, Ordering::Relaxed) <= bytes
    }

    /// Bytes of a file that the kernel had taken found no room, and are kept or lost. What lets writes in
    /// unasked ends.
    fn note_refusal(&self, id: InodeId, is_kept: bool) {
        self.refusals.note(id, is_kept, || self.pass_until.store(0, Ordering::Relaxed));
    }

    /// A file has no writer any more. The gate may have opened since something was refused or came unasked.
    fn forget(&self, id: InodeId) {
        self.refusals.forget(id);
        self.note_asked(id);
    }

    /// A file's writer asks, or there is none any more.
    fn note_asked(&self, id: InodeId) {
        self.unasked.lock().remove(&id);
    }

    /// Bytes behind the end of a file came from the kernel's cache while the gate was shut. A write that was
    /// let in may bring [`LONGEST_WRITE`], and the kernel may have held `held_bytes` when the gate was shut;
    /// where more comes without a question, the kernel does not ask. Whether that is found now.
    fn note_unasked(&self, id: InodeId, bytes: u64, held_bytes: u64) -> bool {
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

#[cfg(test)]
mod tests {
    use vlinder_fs::{ObjectId, RootId};
    use vlinder_testkit::metrics_page;

    use super::*;

    const FILE: InodeId = InodeId::new(RootId(5), ObjectId(257));

    #[test]
    fn the_page_lists_what_is_counted() {
        let registry = Registry::new();
        let _ = Gate::new(&registry);
        let expected: Vec<String> = registry.snapshot().iter().map(metrics_page::row_of).collect();
        assert_eq!(metrics_page::rows("Writes on a nearly full mount"), expected);
    }

    #[test]
    fn a_look_is_due_when_the_budget_is_taken() {
        let gate = Gate::new(&Registry::new());
        gate.budget_bytes.store(100, Ordering::Relaxed);
        assert!(!gate.note_taken(60));
        assert!(gate.note_taken(40));
        assert!(gate.note_taken(1));
    }

    #[test]
    fn nothing_is_known_of_a_file_without_writers_though_the_gate_is_open() {
        let gate = Gate::new(&Registry::new());
        assert!(!gate.is_shut());
        gate.note_refusal(FILE, false);
        gate.note_unasked(FILE, 4096, 0);
        gate.forget(FILE);
        assert!(gate.refusals.is_empty() && gate.unasked.lock().is_empty());
    }

    #[test]
    fn a_refusal_ends_what_lets_writes_in_unasked() {
        let gate = Gate::new(&Registry::new());
        gate.pass_until.store(u64::MAX, Ordering::Relaxed);
        gate.note_refusal(FILE, true);
        assert_eq!(gate.pass_until.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_kernel_that_does_not_ask_is_found_out() {
        let gate = Gate::new(&Registry::new());
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
