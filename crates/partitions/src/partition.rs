//! A partition, and why it can't be used.

use std::fmt;

use crate::PartitionKind;
use crate::bytes::shown;

/// A partition as its table has it: nothing is known of it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawPartition {
    pub number: u32,
    /// First byte.
    pub start: u64,
    /// First byte behind it; may be before `start`.
    pub end: u64,
    pub kind: PartitionKind,
}

/// A partition that a table names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// As Linux numbers it: in an MBR, logical ones begin with 5.
    pub number: u32,
    /// Its first byte on the disk.
    pub start: u64,
    /// How long it is, in bytes.
    pub length_bytes: u64,
    /// What the table says that it holds.
    pub kind: PartitionKind,
    /// A superblock of Btrfs lies where one would.
    pub has_btrfs: bool,
    /// Why it can't be used.
    pub fault: Option<PartitionFault>,
}

/// Why a partition can't be used: its bytes are not its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PartitionFault {
    /// It has no bytes.
    #[error("it is empty, or ends before it begins")]
    Empty,
    /// It ends behind the disk.
    #[error("it ends at byte {end}, and the disk has {disk_bytes}: is the image truncated?")]
    OutsideOfDisk {
        /// The first byte behind it.
        end: u64,
        /// How long the disk is.
        disk_bytes: u64,
    },
    /// It has bytes in common with another one.
    #[error("it overlaps partition {with}")]
    Overlaps {
        /// The other one's number.
        with: u32,
    },
    /// The partition table lies in it.
    #[error("the partition table itself lies in it")]
    InTable,
    /// It is the room of logical partitions.
    #[error("it is an extended partition: the logical ones in it have numbers from 5 on")]
    Extended,
}

impl Partition {
    /// The first byte behind it.
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.length_bytes)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = shown(self.length_bytes);
        write!(formatter, "{} ", self.number)?;
        if self.has_btrfs {
            formatter.write_str("Btrfs")?;
        } else {
            self.kind.fmt(formatter)?;
        }
        write!(formatter, " at {}, {size}", self.start)?;
        match self.fault {
            Some(fault) if fault != PartitionFault::Extended => write!(formatter, " ({fault})"),
            _ => Ok(()),
        }
    }
}
