//! A committed state that stands still while others change the file system: what sending reads.

use vlinder_base::sync::Arc;
use vlinder_data::ContentSource;
use vlinder_forest::Forest;
use vlinder_format::superblock::Superblock;
use vlinder_transaction::Engine;
use vlinder_tree::{CommitLease, LeaseRevoked};

use crate::{Filesystem, FsError, Refusal, Result};

/// A committed state of an open file system. Its blocks and data stay on the devices as long as this lives,
/// unless their space is needed: [`confirm`](Self::confirm) says whether that was so.
pub struct LeasedState {
    engine: Arc<Engine>,
    lease: CommitLease,
    forest: Forest,
}

impl Filesystem {
    /// Commits, and leases the state that was published. A file system that is only read leases the state
    /// that it was opened in.
    ///
    /// # Errors
    /// What the commit met; that an error made the file system read-only.
    pub fn lease(&self) -> Result<LeasedState> {
        if !self.is_read_only() {
            self.sync()?;
        }
        let engine = Arc::clone(self.engine());
        let lease = engine.lease()?;
        let root_tree = lease.root_tree().ok_or(FsError::from(Refusal::NotFound))?;
        let forest = engine.forest().state_of(root_tree);
        Ok(LeasedState { engine, lease, forest })
    }
}

impl LeasedState {
    /// The trees of the state.
    #[must_use]
    pub fn forest(&self) -> &Forest {
        &self.forest
    }

    /// The superblocks of the state, by device number.
    #[must_use]
    pub fn superblocks(&self) -> &[Superblock] {
        self.lease.superblocks()
    }

    /// Where the bytes of files of the state are read.
    ///
    /// # Errors
    /// What opening the checksum tree met.
    pub fn content_source(&self) -> Result<ContentSource<'_>> {
        Ok(ContentSource {
            volume: self.engine.volume(),
            checksums: self.engine.reader().checksum_lookup_in(&self.forest)?,
            sector_bytes: self.engine.sector_size(),
        })
    }

    /// Whether all that was read until now is of this state.
    ///
    /// # Errors
    /// The file system needed the space.
    pub fn confirm(&self) -> core::result::Result<(), LeaseRevoked> {
        self.lease.confirm()
    }
}
