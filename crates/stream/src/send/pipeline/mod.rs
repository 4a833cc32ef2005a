//! From pieces of files to commands, on all processors and in order.
//!
//! The walk of the trees gives commands that are complete, and [`Piece`]s whose bytes have to be read. Both
//! are gathered in a `Batch`; workers read, verify, decompress and encode whole batches; [`Output`] writes
//! them in the order in which the walk gave them. How commands are cut depends on the pieces alone, so the
//! stream is the same whatever a batch holds, and whichever thread works at it.
//!
//! Reading path: [`Piece`], `Batch`, `work` (a batch becomes bytes),
//! `crew` (threads), [`Output`] (order and bounds).

mod batch;
mod crew;
mod output;
mod piece;
mod work;

pub(super) use crew::Crew;
pub(super) use output::Output;
pub(super) use piece::{Form, Piece, RawBytes};
pub(super) use work::{MAX_COMPRESSED_BYTES, max_write_bytes};
