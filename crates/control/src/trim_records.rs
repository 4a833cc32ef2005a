//! What is said of free space that is given back.

use serde::{Deserialize, Serialize};
use vlinder_base::units::Physical;
use vlinder_format::{DeviceId, Logical};
use vlinder_transaction::{TrimPosition, Trimmed};

/// Where trimming goes on. Each place is greater than the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrimPlace {
    /// In the block groups.
    Groups {
        /// At or behind this logical address, in bytes.
        logical_bytes: u64,
    },
    /// In what no chunk has.
    Unallocated {
        /// The device's number.
        device: u64,
        /// At or behind this byte of the device.
        offset_bytes: u64,
    },
}

impl From<TrimPlace> for TrimPosition {
    fn from(place: TrimPlace) -> Self {
        match place {
            TrimPlace::Groups { logical_bytes } => Self::Groups(Logical(logical_bytes)),
            TrimPlace::Unallocated { device, offset_bytes } => {
                Self::Unallocated(DeviceId(device), Physical(offset_bytes))
            }
        }
    }
}

impl From<TrimPosition> for TrimPlace {
    fn from(position: TrimPosition) -> Self {
        match position {
            TrimPosition::Groups(logical) => Self::Groups { logical_bytes: logical.0 },
            TrimPosition::Unallocated(device, offset) => {
                Self::Unallocated { device: device.0, offset_bytes: offset.0 }
            }
        }
    }
}

/// What was given back since the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrimRecord {
    /// Bytes of the devices in block groups.
    pub group_bytes: u64,
    /// Bytes of the devices that no chunk has.
    pub unallocated_bytes: u64,
    /// Free bytes of devices that can't give back any.
    pub refused_bytes: u64,
    /// From where to ask for more; none where there is no more.
    pub next: Option<TrimPlace>,
}

impl TrimRecord {
    /// What was given back up to a position.
    pub(crate) fn new(trimmed: Trimmed, next: Option<TrimPosition>) -> Self {
        Self {
            group_bytes: trimmed.group_bytes,
            unallocated_bytes: trimmed.unallocated_bytes,
            refused_bytes: trimmed.refused_bytes,
            next: next.map(TrimPlace::from),
        }
    }
}
