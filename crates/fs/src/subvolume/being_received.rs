//! Subvolumes that are being made of a stream.

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::Ordering;

use super::Subvolume;

/// As long as this lives, a subvolume is [being received](Subvolume::is_being_received).
pub struct BeingReceived {
    subvolume: Arc<Subvolume>,
}

impl BeingReceived {
    pub(super) fn new(subvolume: Arc<Subvolume>) -> Self {
        subvolume.is_being_received.store(true, Ordering::Release);
        Self { subvolume }
    }
}

impl Drop for BeingReceived {
    fn drop(&mut self) {
        self.subvolume.is_being_received.store(false, Ordering::Release);
    }
}
