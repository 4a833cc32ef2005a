//! The runs of one file: what it shows, what it has alone, what it shares.
//!
//! A run is shared as Linux's fiemap says it (`btrfs_is_data_extent_shared`, fs/btrfs/backref.c): if its leaf
//! is shared, or if the extent has references beside those of this file with the same *origin* (file offset
//! less offset into the extent) from leaves that are not shared. An extent that a file shows at two origins
//! is shared by that, though nothing else has it.
//!
//! Most extents have one reference, and are the file's alone at once. The others wait until no further run of
//! the same origin can come.

use super::counts::ReferenceCounts;
use super::error::{ExtentKind, UsageError};
use super::extent_items::FileRun;

/// No extent is longer, so runs of one origin lie no further apart.
const MAX_EXTENT_BYTES: u64 = 256 << 20;
/// Runs that wait before those that are complete are looked for.
const MAX_WAITING: usize = 1 << 16;

/// Bytes of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ShownBytes {
    /// Of all runs.
    pub total: u64,
    /// Of those that are not shared.
    pub exclusive: u64,
}

impl ShownBytes {
    /// Takes in those of other files.
    pub(super) fn add(&mut self, other: Self) {
        self.total = self.total.saturating_add(other.total);
        self.exclusive = self.exclusive.saturating_add(other.exclusive);
    }
}

/// A run whose extent has several references.
#[derive(Clone, Copy)]
struct WaitingRun {
    run: FileRun,
    references: u64,
}

/// The runs of a file, in order.
#[derive(Default)]
pub(super) struct FileRuns {
    shown: ShownBytes,
    waiting: Vec<WaitingRun>,
}

impl FileRuns {
    /// Takes in a run. `share` is told the shown bytes of those that are shared.
    pub(super) fn add(
        &mut self,
        counts: &mut ReferenceCounts<'_>,
        (run, leaf_is_shared): (FileRun, bool),
        share: &mut dyn FnMut((u64, u64)),
    ) -> Result<(), UsageError> {
        self.shown.total = self.shown.total.saturating_add(run.file_bytes);
        if leaf_is_shared {
            share(run.shown());
            return Ok(());
        }
        let references = counts.look_up(run.extent, ExtentKind::Data)?.references;
        if references == 1 {
            self.shown.exclusive = self.shown.exclusive.saturating_add(run.file_bytes);
            return Ok(());
        }
        self.waiting.push(WaitingRun { run, references });
        if self.waiting.len() >= MAX_WAITING {
            let complete = |waiting: &WaitingRun| {
                waiting.run.origin().saturating_add(MAX_EXTENT_BYTES) <= run.file_offset
            };
            let (ready, mut rest): (Vec<_>, Vec<_>) = self.waiting.drain(..).partition(complete);
            self.judge(ready, share);
            if rest.len() >= MAX_WAITING {
                // No sound file has so many runs so near to each other.
                self.judge(std::mem::take(&mut rest), share);
            }
            self.waiting = rest;
        }
        Ok(())
    }

    /// The end of the file.
    pub(super) fn finish(mut self, share: &mut dyn FnMut((u64, u64))) -> ShownBytes {
        let waiting = std::mem::take(&mut self.waiting);
        self.judge(waiting, share);
        self.shown
    }

    /// Tells runs whose extents are the file's alone from others.
    fn judge(&mut self, mut runs: Vec<WaitingRun>, share: &mut dyn FnMut((u64, u64))) {
        runs.sort_unstable_by_key(|waiting| (waiting.run.extent, waiting.run.origin()));
        let same = |one: &WaitingRun, other: &WaitingRun| {
            (one.run.extent, one.run.origin()) == (other.run.extent, other.run.origin())
        };
        for group in runs.chunk_by(same) {
            let met = u64::try_from(group.len()).unwrap_or(u64::MAX);
            for waiting in group {
                if waiting.references == met {
                    self.shown.exclusive = self.shown.exclusive.saturating_add(waiting.run.file_bytes);
                } else {
                    share(waiting.run.shown());
                }
            }
        }
    }
}
