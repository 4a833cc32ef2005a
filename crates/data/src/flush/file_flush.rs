//! A file that is being flushed, and the contiguous ranges of its bytes.

use vlinder_base::sync::Arc;
use vlinder_extent_state::ByteRange;

use crate::file_node::FileNode;
use crate::runs::Runs;

/// The most bytes of a batch.
pub(crate) const MAX_BATCH_BYTES: u64 = 32 << 20;

/// A file that is being flushed. Its extents are locked meanwhile, but for the time that it is
/// [deferred](super::deferred).
pub(crate) struct FileFlush {
    pub(super) node: Arc<FileNode>,
    pub(super) runs: Arc<Runs>,
    /// The file's size when the runs were taken: nothing below it is unflushed once they are on disk.
    pub(super) size: u64,
    /// Compressing was tried in vain; the inode is marked so that it is not tried again.
    pub(super) incompressible: bool,
    /// Behind the last byte whose extents are in the tree.
    pub(super) done_to: u64,
    /// Bytes of new extents that are in the tree, which count as placed until the promise for them is
    /// settled.
    pub(super) placed_bytes: u64,
}

/// A contiguous part of a job's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct DirtyRange {
    pub(super) job: usize,
    pub(super) range: ByteRange,
    /// Nothing of the job comes after it.
    pub(super) last: bool,
}

/// The contiguous parts of all jobs in order, none larger than a batch.
pub(super) fn parts(jobs: &[FileFlush]) -> Vec<DirtyRange> {
    let mut parts: Vec<DirtyRange> = Vec::new();
    for (number, job) in jobs.iter().enumerate() {
        let first = parts.len();
        for (start, run) in job.runs.iter() {
            let Some(range) = ByteRange::with_length(start, run.len() as u64) else { continue };
            let before = parts[first..].last_mut().filter(|before| {
                before.range.end() == start
                    && before.range.length_bytes() + range.length_bytes() <= MAX_BATCH_BYTES
            });
            match before {
                Some(before) => {
                    before.range = ByteRange::new(before.range.start(), range.end()).unwrap_or(range);
                }
                None => parts.push(DirtyRange { job: number, range, last: false }),
            }
        }
        if let Some(last) = parts[first..].last_mut() {
            last.last = true;
        }
    }
    parts
}
