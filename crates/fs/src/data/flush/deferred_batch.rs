//! What a flush may leave on its way to the devices (see [`super::deferred`]).

use vlinder_base::sync::Mutex;

use super::file_flush::Job;
use super::pipelined_batch::Step;

/// What may be under way of a file system.
#[derive(Default)]
pub(in crate::data) struct UnderWay(pub(super) Mutex<Option<Batch>>);

/// The files of a flush, with all but the last batch entered.
pub(in crate::data) struct Batch {
    /// In the order of their ids.
    pub(super) jobs: Vec<Job>,
    pub(super) step: Step,
}
