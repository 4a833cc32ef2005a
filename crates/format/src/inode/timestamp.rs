//! Points in time as inodes and roots store them.

use zerocopy::little_endian::I64;

use crate::record::{Field, record};

impl Field for i64 {
    type Raw = I64;
    fn from_raw(raw: &I64) -> Self {
        raw.get()
    }
    fn to_raw(&self) -> I64 {
        I64::new(*self)
    }
}

record! {
    /// A point in time: 12 bytes (`struct btrfs_timespec`). Seconds may be negative; nanoseconds are kept as
    /// found, even when they are a second or more.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Timestamp in RawTimestamp, 12 bytes {
        /// Seconds since 1970-01-01 00:00 UTC; negative before.
        seconds: i64,
        /// Nanoseconds after that second.
        nanoseconds: u32,
    }
}

impl Timestamp {
    /// 1970-01-01 00:00 UTC.
    pub const EPOCH: Self = Self { seconds: 0, nanoseconds: 0 };
}
