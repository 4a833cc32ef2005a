//! How full the file system is.

use vlinder_format::DeviceId;

use crate::EngineError;
use crate::engine::Engine;
use vlinder_space::{ChunkShare, DeviceReport, SpaceReport};

impl Engine {
    /// How full the file system is, right now. A file system that is only read learns it with the first call.
    ///
    /// # Errors
    /// What reading the chunks and their groups met.
    pub fn space(&self) -> Result<SpaceReport, EngineError> {
        self.load_space()?;
        Ok(SpaceReport {
            kinds: self.space.kinds(),
            devices: self.devices(),
            unallocated_bytes: self.chunks.unallocated_bytes(),
            device_bytes: self.volume.members().total_bytes(),
            global_reserve_bytes: self.space.global_reserve(),
            linux_reserve_bytes: self.linux_reserve(),
            can_make_metadata: self.chunks.can_make_metadata(),
            data_available_bytes: self.room_for_data(),
        })
    }

    /// The devices that the chunk tree names; Linux counts none of those of a seed.
    fn devices(&self) -> Vec<DeviceReport> {
        let items = self.device_items.lock();
        let is_seed = |device: DeviceId| self.volume.member(device).is_some_and(|one| one.seed.is_some());
        let reports = items.iter().filter(|item| !is_seed(item.device)).map(|item| DeviceReport {
            number: item.device,
            total_bytes: item.total_bytes,
            allocated_bytes: item.bytes_used,
            is_missing: self.volume.member(item.device).is_none(),
        });
        reports.collect()
    }

    /// What the chunks have on each device, in the order in which the chunks name them.
    ///
    /// # Errors
    /// What reading the chunks met.
    pub fn chunk_shares(&self) -> Result<Vec<ChunkShare>, EngineError> {
        self.load_space()?;
        let mut shares: Vec<ChunkShare> = Vec::new();
        for chunk in self.volume.chunks().snapshot() {
            let (flags, stripe_count) = (chunk.chunk.flags, chunk.chunk.stripe_count());
            for stripe in &chunk.chunk.stripes {
                let device = stripe.device;
                let known = shares.iter_mut().find(|share| {
                    (share.flags, share.device, share.stripe_count) == (flags, device, stripe_count)
                });
                match known {
                    Some(share) => share.chunk_bytes = share.chunk_bytes.saturating_add(chunk.chunk.length),
                    None => {
                        shares.push(ChunkShare {
                            flags,
                            device,
                            stripe_count,
                            chunk_bytes: chunk.chunk.length,
                        });
                    }
                }
            }
        }
        Ok(shares)
    }
}
