//! The gate before write(2) under the writeback cache: a full file system says so before the kernel takes bytes.
//!
//! With its writeback cache the kernel takes bytes without asking the server, and a page that the server then refuses is
//! lost. But before it takes any byte of a write(2), the kernel makes sure that it knows the file's mode
//! (`fuse_cache_write_iter` in Linux's fs/fuse/file.c): where its attributes are marked invalid it sends a GETATTR with the
//! file's handle, and an error of that GETATTR is the error of write(2). So the server shuts the *gate* of a file by marking
//! its attributes invalid, and each write(2) asks. No other call asks with a handle while the attributes' time runs.
//!
//! While there is room the gate is open, and costs one atomic look for each request. It is shut for all files that are open
//! for writing *before* the kernel could hold more than there is room for.
//!
//! Invariants, and the function that keeps each:
//! 1. While the gate is open, the room is at least `dirty=` and what the kernel may hold, as of the last look; a look is due
//!    after half of what is above that was taken ([`Gate::note_taken`]), four times a second while files are open for writing (the
//!    keeper), and at an open when the last look is some time ago ([`MountService::note_opened`]).
//! 2. While the gate is shut, it is shut for every file that is open for writing: those that were open when it was shut
//!    ([`MountService::look`]), and those opened since ([`MountService::note_opened`]).
//! 3. No reply opens it again. A reply that the kernel compares with the attributes' version is sent after a notification that
//!    raised the version, and so is dropped ([`MountService::keep_shut`]). A reply that the kernel takes without comparing
//!    (SETATTR, CREATE, LINK) is followed by notifications ([`MountService::shut_after_reply`]).
//! 4. A write that asked is let in only if what the kernel holds has room beside it, or after the pages of its file were
//!    pushed out and there is room, or space of the file's own ([`MountService::admit`]).
//! 5. Nothing that can wait for the kernel is done by a thread that answers requests, nor with a lock held: pages are pushed
//!    by threads of their own ([`MountService::aside`](super::MountService)).
//! 6. A file's writer is told of bytes that found no room when it asks next, whatever came free since
//!    ([`Gate::take_refusal`]).

mod admission;
mod keeper;
mod page_cache;

use std::collections::HashSet;
use std::time::Duration;

use vlinder_base::metrics::{Counter, Registry, Unit};
use vlinder_base::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex, OnceLock};
use vlinder_fs::InodeId;

use self::keeper::Keeper;
use self::page_cache::PageCache;

/// Room that is kept beside what the kernel is known to hold: the kernel counts its pages for each processor apart, and writes
/// that were let in are under way.
const MARGIN_BYTES: u64 = 16 << 20;
/// More than programs can write into memory in a nanosecond.
const BYTES_PER_NANOSECOND: u64 = 64;
/// What was found out about the kernel's pages holds no longer than this.
const LONGEST_PASS: Duration = Duration::from_millis(10);

/// The gate's state.
pub(super) struct Gate {
    is_shut: AtomicBool,
    /// Bytes that may be taken before the next look.
    budget_bytes: AtomicI64,
    /// When the last look was, by the monotonic clock, in nanoseconds.
    last_look: AtomicU64,
    /// Until when writes are let in without another look at the kernel's pages, likewise.
    pass_until: AtomicU64,
    /// Held while it is decided whether the gate is to be shut.
    looking: Mutex<()>,
    /// Files of which bytes found no room since their writers asked last.
    refused: Mutex<HashSet<InodeId>>,
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
        }
    }
}

impl Gate {
    /// Open.
    pub(super) fn new(registry: &Registry) -> Self {
        Self {
            is_shut: AtomicBool::new(false),
            budget_bytes: AtomicI64::new(0),
            last_look: AtomicU64::new(0),
            pass_until: AtomicU64::new(0),
            looking: Mutex::default(),
            refused: Mutex::default(),
            page_cache: OnceLock::new(),
            keeper: Keeper::default(),
            metrics: GateMetrics::new(registry),
        }
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

    /// Bytes of a file that the kernel had taken found no room.
    fn note_refusal(&self, id: InodeId) {
        self.refused.lock().insert(id);
    }

    /// Whether bytes of a file found no room since this was asked last.
    fn take_refusal(&self, id: InodeId) -> bool {
        self.refused.lock().remove(&id)
    }
}
