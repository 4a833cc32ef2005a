//! The sector of the simulated device.

/// The unit of faults, and the smallest part that a torn write leaves whole.
pub const SECTOR_BYTES: u64 = 512;
