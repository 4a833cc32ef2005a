//! What the last attempt to make room left behind.

use vlinder_base::sync::Mutex;

use crate::drops::Drops;

/// What the last attempt to make room left behind.
#[derive(Default)]
pub(crate) struct Attempts {
    left: Mutex<Option<Signs>>,
    drops: Drops,
}

/// Amounts that differ whenever another attempt could succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Signs {
    pub(crate) unflushed_bytes: u64,
    pub(crate) pinned_bytes: u64,
    pub(crate) room_bytes: u64,
    pub(crate) drops: u64,
}

impl Attempts {
    pub(crate) fn is_vain(&self, signs: Signs) -> bool {
        *self.left.lock() == Some(signs)
    }

    /// The counter of what is dropped.
    pub(crate) fn drops(&self) -> &Drops {
        &self.drops
    }

    pub(crate) fn note(&self, signs: Signs) {
        *self.left.lock() = Some(signs);
    }
}
