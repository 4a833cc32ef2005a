//! How full the file system is.

use crate::EngineError;
use crate::engine::Engine;
use crate::space::SpaceReport;

impl Engine {
    /// How full the file system is, right now. A file system that is only read learns it with the first call.
    ///
    /// # Errors
    /// What reading the chunks and their groups met.
    pub fn space(&self) -> Result<SpaceReport, EngineError> {
        self.load_space()?;
        Ok(SpaceReport {
            kinds: self.space.kinds(),
            unallocated_bytes: self.unallocated_bytes(),
            device_bytes: self.volume.total_bytes(),
            global_reserve_bytes: self.space.global_reserve(),
            linux_reserve_bytes: self.linux_reserve(),
            can_make_metadata: self.can_make_metadata(),
            data_available_bytes: self.room_for_data(),
        })
    }
}
