//! The state of a device replacement (DEV_REPLACE): key (0, 250, 0) in the device tree.

use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::record::record;
use crate::types::{DeviceId, ObjectId};

record! {
    /// How far a replacement is: 72 bytes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DeviceReplace in RawDeviceReplace, 72 bytes {
        /// The device being replaced; the target's number is 0 until the end.
        source: DeviceId,
        /// Bytes of the source that are copied.
        cursor_left: u64,
        /// Bytes of the source that are being copied end here.
        cursor_right: u64,
        /// 1 if the source is read only where nothing else can be.
        read_mode: u64,
        /// 0 never started, 1 started, 2 finished, 3 cancelled, 4 suspended.
        state: u64,
        /// Seconds since 1970.
        time_started: u64,
        /// Seconds since 1970.
        time_stopped: u64,
        /// Writes to the target that failed.
        write_errors: u64,
        /// Reads that no mirror could serve.
        uncorrectable_read_errors: u64,
    }
}

/// How the state of a replacement can be broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceReplaceFault {
    /// The item has another size.
    #[error("the device replace item has {found} bytes instead of 72")]
    Size {
        /// Bytes of the item.
        found: usize,
    },
}

impl DeviceReplace {
    /// Where the state lies.
    pub const KEY: Key = Key::new(ObjectId(0), ItemType::DEVICE_REPLACE, 0);

    /// Reads the item's data.
    ///
    /// # Errors
    /// [`DeviceReplaceFault::Size`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DeviceReplaceFault> {
        Self::read_whole(bytes).ok_or(DeviceReplaceFault::Size { found: bytes.len() })
    }

    /// The item's data.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        self.to_array()
    }

    /// Whether a replacement is under way, running or suspended: then two devices carry the same data.
    pub const fn is_unfinished(&self) -> bool {
        matches!(self.state, 1 | 4)
    }
}

/// The fields of the state.
pub(crate) fn lay_out(layout: &mut Layout<'_>) {
    layout.record::<DeviceReplace>();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let bytes: [u8; 72] = core::array::from_fn(|at| at as u8);
        assert_eq!(DeviceReplace::decode(&bytes).unwrap().encode(), bytes);
        assert_eq!(DeviceReplace::decode(&bytes[1..]), Err(DeviceReplaceFault::Size { found: 71 }));
        let started = DeviceReplace { state: 1, ..DeviceReplace::default() };
        assert!(started.is_unfinished() && !DeviceReplace::default().is_unfinished());
    }
}
