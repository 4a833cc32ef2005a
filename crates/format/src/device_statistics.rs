//! Error counters of a device (DEV_STATS): key (0, 249, device) in the device tree.

use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::record::record;
use crate::types::{DeviceId, ObjectId};

record! {
    /// Errors seen since the counters were last reset: 40 bytes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DeviceStatistics in RawDeviceStatistics, 40 bytes {
        /// Writes that failed.
        write_errors: u64,
        /// Reads that failed.
        read_errors: u64,
        /// Flushes that failed.
        flush_errors: u64,
        /// Blocks or sectors whose checksum was wrong.
        corruption_errors: u64,
        /// Blocks of another generation than expected.
        generation_errors: u64,
    }
}

/// How the counters can be broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceStatisticsFault {
    /// The size is not of whole counters.
    #[error("the device statistics have {found} bytes, not a multiple of 8")]
    Size {
        /// Bytes of the item.
        found: usize,
    },
}

impl DeviceStatistics {
    /// Where the counters of a device lie.
    pub const fn key(device: DeviceId) -> Key {
        Key::new(ObjectId::DEVICE_STATS, ItemType::PERSISTENT_ITEM, device.0)
    }

    /// Reads the item's data. Counters that the item is too short for are 0; what follows the five known ones
    /// is given back as it is, to be kept.
    ///
    /// # Errors
    /// [`DeviceStatisticsFault::Size`].
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), DeviceStatisticsFault> {
        if !bytes.len().is_multiple_of(8) {
            return Err(DeviceStatisticsFault::Size { found: bytes.len() });
        }
        if let Some(split) = Self::split_from(bytes) {
            return Ok(split);
        }
        let mut padded = bytes.to_vec();
        padded.resize(Self::SIZE, 0);
        Ok((Self::read_whole(&padded).unwrap_or_default(), &[]))
    }

    /// The item's data.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        self.to_array()
    }
}

/// The fields of the counters, and those that are not known.
pub(crate) fn lay_out(layout: &mut Layout<'_>) {
    layout.record::<DeviceStatistics>();
    layout.rest("DeviceStatistics", "further counters");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_items_are_understood() {
        let mut bytes = [0u8; 48];
        bytes[0] = 3;
        bytes[32] = 7;
        bytes[40] = 9;
        let (found, rest) = DeviceStatistics::decode(&bytes).unwrap();
        assert_eq!((found.write_errors, found.generation_errors, rest), (3, 7, &bytes[40..]));
        assert_eq!(found.encode(), bytes[..40]);
        let (short, rest) = DeviceStatistics::decode(&bytes[..16]).unwrap();
        assert_eq!((short.write_errors, short.generation_errors, rest.len()), (3, 0, 0));
        assert_eq!(DeviceStatistics::decode(&bytes[..7]), Err(DeviceStatisticsFault::Size { found: 7 }));
    }
}
