//! What direct writes brought to the devices of a file while no item refers to it
//! (see [`flush`](mod@super::flush)).

use vlinder_transaction::ReservedData;

use super::runs::Runs;
use super::written_extent::WrittenExtent;

/// What is on the devices of a file while no item refers to it.
#[derive(Debug, Default)]
pub(super) struct Ordered {
    /// The newest bytes.
    pub(super) runs: Runs,
    /// As they were taken: a later one lies over an earlier one.
    pub(super) stored: Vec<WrittenExtent>,
    /// Bytes that were taken, those that were written over since among them: their space is taken too.
    pub(super) taken_bytes: u64,
    /// Space that is promised to all of it.
    pub(super) promised: ReservedData,
    /// The file's size when the last of it was taken.
    pub(super) size: u64,
    /// Compressing some of it was tried in vain.
    pub(super) incompressible: bool,
}
