//! What the threads that read a source say to each other.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use vlinder_base::channel::{Receiver, Sender};
use vlinder_base::sync::Arc;

use super::directory::SourceDirectory;
use super::entry::Entry;
use super::error::SourceError;

/// What the listing thread says.
pub(super) enum Event {
    /// Entries of the present directory, being loaded.
    Part(Arc<SourceDirectory>, Receiver<Result<Vec<Entry>, SourceError>>),
    /// See [`Sink`](super::Sink) for these three.
    Listed,
    Enter(Vec<u8>, Option<Box<Entry>>),
    Leave,
    /// The listing ends here.
    Failed(SourceError),
}

/// What a loading thread does next.
pub(super) enum Job {
    Load {
        directory: Arc<SourceDirectory>,
        names: Vec<Vec<u8>>,
        reply: Sender<Result<Vec<Entry>, SourceError>>,
    },
    Piece {
        file: Arc<OwnedFd>,
        offset: u64,
        length: usize,
        reply: Sender<Result<Vec<u8>, Errno>>,
    },
}
