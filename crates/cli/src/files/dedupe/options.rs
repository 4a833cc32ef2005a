//! How files are deduplicated.

use vlinder_control::protocol::MAX_DEDUPE_BYTES;

/// What a block may have at most; one operation shares no more either.
pub(super) const MAX_BLOCK_BYTES: u64 = MAX_DEDUPE_BYTES;

/// What is done, and told.
#[derive(Clone, Copy, Debug)]
pub(super) struct DedupeOptions {
    /// Nothing is changed.
    pub(super) dry_run: bool,
    /// A power of two; what is smaller than a sector stands for a sector.
    pub(super) block_size: u64,
    /// Each file that shares something is told.
    pub(super) verbose: bool,
}
