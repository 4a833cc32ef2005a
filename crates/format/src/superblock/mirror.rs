//! Where the copies of a superblock lie.

use crate::types::Physical;

/// Which copy of a device's superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SuperblockMirror {
    /// At 64 KiB, the one that counts.
    Primary,
    /// At 64 MiB.
    Second,
    /// At 256 GiB.
    Third,
}

impl SuperblockMirror {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Primary, Self::Second, Self::Third];

    /// First byte on the device.
    pub const fn offset(self) -> Physical {
        match self {
            Self::Primary => Physical(64 << 10),
            Self::Second => Physical(64 << 20),
            Self::Third => Physical(256 << 30),
        }
    }

    /// Whether a device of this many bytes has this copy. Linux wants at least one byte behind it.
    pub const fn fits(self, device_bytes: u64) -> bool {
        self.offset().0.saturating_add(4096) < device_bytes
    }
}
