//! What a flush may leave on its way to the devices (see [`super::deferred`]).

use vlinder_base::sync::Mutex;

use super::file_flush::FileFlush;
use super::pipelined_batch::PipelinedBatch;

/// What may be under way of a file system.
#[derive(Default)]
pub(crate) struct DeferredBatch(pub(super) Mutex<Option<DeferredFiles>>);

/// The files of a flush, with all but the last batch entered.
pub(crate) struct DeferredFiles {
    /// In the order of their ids.
    pub(super) jobs: Vec<FileFlush>,
    pub(super) step: PipelinedBatch,
}
