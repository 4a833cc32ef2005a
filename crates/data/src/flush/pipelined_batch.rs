//! A batch on its way to the devices.

use vlinder_transaction::{Engine, Handle};
use vlinder_volume::PendingWrites;

use super::file_flush::DirtyRange;
use crate::Result;
use crate::written_extent::{WrittenExtent, release};

/// A batch on its way to the devices.
pub(super) struct PipelinedBatch {
    pub(super) batch: Vec<DirtyRange>,
    pub(super) storing: WritesInFlight,
}

/// Pieces on their way to the devices.
#[must_use = "what is not waited for is written to space that nobody gives back"]
pub(super) struct WritesInFlight {
    pub(super) stored: Vec<WrittenExtent>,
    pub(super) pending: Option<PendingWrites>,
}

impl WritesInFlight {
    /// Waits until everything is on the devices. On an error the space that was taken is given back.
    pub(super) fn finish(self, engine: &Engine) -> Result<Vec<WrittenExtent>> {
        self.finish_holding(engine, None)
    }

    /// As [`finish`](Self::finish), with a handle that stays open until everything is written.
    pub(super) fn finish_holding(
        self,
        engine: &Engine,
        held: Option<Handle<'_>>,
    ) -> Result<Vec<WrittenExtent>> {
        let Self { stored, pending } = self;
        let written = pending.map_or(Ok(()), PendingWrites::wait);
        // Giving back takes a handle of its own.
        drop(held);
        match written {
            Ok(()) => Ok(stored),
            Err(error) => {
                release(engine, &stored);
                Err(engine.troubles().or_host_full(error.into()).into())
            }
        }
    }

    /// Gives the space back. Only once nothing is written to it any more: the next owner's bytes would be
    /// lost.
    pub(super) fn abandon(self, engine: &Engine) {
        match self.finish(engine) {
            Ok(stored) => release(engine, &stored),
            Err(error) => tracing::debug!(%error, "what could not be written was not to be kept"),
        }
    }
}
