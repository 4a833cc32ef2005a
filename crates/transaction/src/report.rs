//! How full the file system is.

use crate::EngineError;
use crate::engine::Engine;
use vlinder_space::{ChunkShare, SpaceReport};

impl Engine {
    /// How full the file system is, right now. A file system that is only read learns it with the first call.
    ///
    /// # Errors
    /// What reading the chunks and their groups met.
    pub fn space(&self) -> Result<SpaceReport, EngineError> {
        self.load_space()?;
        Ok(SpaceReport {
            kinds: self.space.kinds(),
            devices: self.chunks.device_reports(),
            unallocated_bytes: self.chunks.unallocated_bytes(),
            device_bytes: self.chunks.device_bytes(),
            global_reserve_bytes: self.space.global_reserve(),
            linux_reserve_bytes: self.reserve_sizing().linux_reserve(),
            can_make_metadata: self.chunks.can_make_metadata(),
            data_available_bytes: self.room_for_data(),
        })
    }

    /// What the chunks have on each device, in the order in which the chunks name them.
    ///
    /// # Errors
    /// What reading the chunks met.
    pub fn chunk_shares(&self) -> Result<Vec<ChunkShare>, EngineError> {
        self.load_space()?;
        Ok(self.chunks.shares())
    }
}
