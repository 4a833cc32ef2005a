//! Flushing: unflushed bytes become extents.
//!
//! Files are flushed in groups, each in batches of bounded size, so that many small files share what is
//! expensive: one allocation, one batch of writes, one change of each tree. A batch is *planned* (inline, in
//! place, or new extents, compressed where it pays), *stored* (space taken, bytes written, checksums worked
//! out meanwhile) and *entered* (items, references, checksums and inodes in one transaction). What fails goes
//! back to the files' dirty bytes, so that a later flush tries again: no error is ever followed by a false
//! success.
//!
//! While a batch is being entered, the next one is on its way to the devices already ([`steps`]).
//!
//! Direct writes stop after the second step, and their extents stay *ordered* for a while before they are
//! entered.

mod ahead;
mod batch;
mod deferred;
mod deferred_batch;
mod direct;
mod encoded;
mod enter;
mod file_flush;
mod files;
mod pipelined_batch;
mod plan;
mod run;
mod settled;
mod steps;
mod write_out;

pub use ahead::flush_ahead;
pub(super) use deferred_batch::DeferredBatch;
pub use direct::store_dirty;
pub use encoded::{EncodedBytes, write_encoded};
pub(super) use file_flush::MAX_BATCH_BYTES;
pub use files::{flush, flush_all, flush_replaced, flush_subvolume, flush_until_below_limit};
pub(crate) use files::{flush_idle, flush_locked};
pub use settled::lock_settled;
