//! What direct writes brought to the devices of a file while no item refers to it
//! (see [`flush`](mod@crate::flush)).

use vlinder_transaction::ReservedData;

use crate::runs::Runs;
use crate::written_extent::WrittenExtent;

/// What is on the devices of a file while no item refers to it.
#[derive(Debug, Default)]
pub(crate) struct Ordered {
    /// The newest bytes.
    pub(crate) runs: Runs,
    /// As they were taken: a later one lies over an earlier one.
    pub(crate) stored: Vec<WrittenExtent>,
    /// Bytes that were taken, those that were written over since among them: their space is taken too.
    pub(crate) taken_bytes: u64,
    /// Space that is promised to all of it.
    pub(crate) promised: ReservedData,
    /// The file's size when the last of it was taken.
    pub(crate) size: u64,
    /// Compressing some of it was tried in vain.
    pub(crate) incompressible: bool,
}
