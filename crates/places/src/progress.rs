//! A bar for what takes longer than a second, on a terminal.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use vlinder_base::clock::{Clock, SystemClock};
use vlinder_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Condvar, Mutex};
use vlinder_base::thread::{self, JoinHandle};

use crate::session::Session;

/// How long a verb may take before it shows a bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a name is shown at least.
const MIN_SHOWN_MILLISECONDS: u64 = 100;

/// How a bar looks when the end is known.
const KNOWN: &str = "{prefix} [{wide_bar}] {percent}% {bytes}/{total_bytes} {bytes_per_sec} {eta}";

/// Counts bytes; shows them once the verb has taken a while.
pub struct Progress {
    bar: ProgressBar,
    clock: SystemClock,
    start: Duration,
    waits: AtomicBool,
    /// Milliseconds from the start to when it was said last what is being worked on.
    named: AtomicU64,
}

impl Progress {
    /// For a verb that moves `total_bytes`, or an unknown number. Nothing is ever shown with --quiet or
    /// --json, or where standard error is no terminal.
    pub fn new(session: &Session, what: &'static str, total_bytes: Option<u64>) -> Self {
        let clock = SystemClock::new();
        let template = match total_bytes {
            Some(_) => KNOWN,
            None => "{prefix} {spinner} {bytes} {bytes_per_sec} {wide_msg}",
        };
        let bar = match total_bytes {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::new_spinner(),
        };
        bar.set_draw_target(ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        let bar = bar.with_prefix(what);
        let waits = Self::is_wanted(session);
        Self { start: clock.monotonic(), bar, clock, waits: AtomicBool::new(waits), named: AtomicU64::new(0) }
    }

    /// Whether a bar may be shown.
    pub fn is_wanted(session: &Session) -> bool {
        !session.quiet && !session.json && std::io::stderr().is_terminal()
    }

    /// So many bytes more are done.
    pub fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
        if self.waits.load(Ordering::Relaxed)
            && self.clock.monotonic().saturating_sub(self.start) >= PATIENCE
            && self.waits.swap(false, Ordering::Relaxed)
        {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }

    /// It has turned out how many bytes there are in all, those before included.
    pub fn expect(&mut self, total_bytes: u64) {
        if self.bar.length() != Some(total_bytes) {
            self.bar.set_length(total_bytes);
            if let Ok(style) = ProgressStyle::with_template(KNOWN) {
                self.bar.set_style(style);
            }
        }
    }

    /// What is being worked on. The name is made only where it is shown, and not more often than it can be
    /// seen: deep in a tree it is long.
    pub fn name(&self, name: impl FnOnce() -> String) {
        if self.bar.is_hidden() {
            return;
        }
        let now = self.clock.monotonic().saturating_sub(self.start).as_millis();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        if now >= self.named.load(Ordering::Relaxed).saturating_add(MIN_SHOWN_MILLISECONDS) {
            self.named.store(now, Ordering::Relaxed);
            self.bar.set_message(name());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// How often a wait is drawn anew.
const TICK: Duration = Duration::from_millis(100);

/// Shows, once a verb has taken a while, that it waits for something that can't be counted; ends with a drop.
pub struct Waiting {
    shared: Arc<(Mutex<bool>, Condvar)>,
    drawing: Option<JoinHandle<()>>,
}

impl Waiting {
    /// For a verb that waits. Nothing is shown where [`Progress`] shows nothing.
    pub fn new(session: &Session, what: &'static str) -> Self {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let is_shown = !session.quiet && !session.json && std::io::stderr().is_terminal();
        let ended = Arc::clone(&shared);
        // Without a thread to spare, the wait is only not shown.
        let drawing =
            is_shown.then(|| thread::try_spawn("waiting", move || draw(what, &ended)).ok()).flatten();
        Self { shared, drawing }
    }
}

fn draw(what: &'static str, shared: &(Mutex<bool>, Condvar)) {
    let (ended, changed) = shared;
    let mut has_ended = ended.lock();
    changed.wait_for(&mut has_ended, PATIENCE);
    if *has_ended {
        return;
    }
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{prefix} {spinner} {elapsed}") {
        bar.set_style(style);
    }
    let bar = bar.with_prefix(what);
    while !*has_ended {
        bar.tick();
        changed.wait_for(&mut has_ended, TICK);
    }
    bar.finish_and_clear();
}

impl Drop for Waiting {
    fn drop(&mut self) {
        *self.shared.0.lock() = true;
        self.shared.1.notify_all();
        if let Some(drawing) = self.drawing.take() {
            // A bar that could not be drawn is no reason to fail.
            let _ = drawing.join();
        }
    }
}
