//! Why a name means no bytes of a disk.

use vlinder_device::DeviceError;

use crate::partition::PartitionFault;

/// An image that can't be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The file or block device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Its partitions, or the range that was asked for.
    #[error(transparent)]
    Partition(#[from] PartitionError),
}

/// A part of a disk that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{device}: {kind}")]
pub struct PartitionError {
    /// The disk.
    pub device: String,
    /// Why.
    #[source]
    pub kind: PartitionErrorKind,
}

/// Why a part of a disk can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartitionErrorKind {
    /// A partition was asked for, and there is no table.
    #[error("partition {number} was asked for, and there is no partition table")]
    NoTable {
        /// The partition's number.
        number: u32,
    },
    /// A table that can't be used.
    #[error("the GPT is damaged, and so is its copy: {why}")]
    DamagedTable {
        /// What is wrong with it.
        why: &'static str,
    },
    /// The table does not name the partition that was asked for.
    #[error("there is no partition {number}; it has {table}")]
    NoSuchPartition {
        /// The partition's number.
        number: u32,
        /// The table, in words.
        table: String,
    },
    /// The partition's bytes are not its own.
    #[error("partition {number} can't be used: {fault}; it has {table}")]
    Unusable {
        /// The partition's number.
        number: u32,
        /// Why.
        fault: PartitionFault,
        /// The table, in words.
        table: String,
    },
    /// No partition holds a Btrfs, and neither does the whole disk.
    #[error("no Btrfs file system, neither on the whole of it nor in a partition; it has {table}")]
    NoBtrfs {
        /// The table, in words.
        table: String,
    },
    /// Several partitions hold a Btrfs.
    #[error("several partitions hold a Btrfs; it has {table}")]
    SeveralBtrfs {
        /// The number of the first one.
        first: u32,
        /// The table, in words.
        table: String,
    },
    /// The range does not lie on the disk.
    #[error(
        "{length_bytes} bytes at byte {start} were asked for, and it has {disk_bytes}: is the image truncated?"
    )]
    OutsideOfDisk {
        /// The first byte.
        start: u64,
        /// How many bytes.
        length_bytes: u64,
        /// How long the disk is.
        disk_bytes: u64,
    },
    /// The range is none that a partition could have.
    #[error(
        "a file system can't begin at byte {start} and have {length_bytes} bytes: both are multiples of 512, and some are needed"
    )]
    OddRange {
        /// The first byte.
        start: u64,
        /// How many bytes.
        length_bytes: u64,
    },
    /// Both a partition and a range were asked for.
    #[error("its name says which part of it is meant, and so do offset= and sizelimit=")]
    NamedTwice,
    /// A range was asked for, and there is nothing that could have one.
    #[error("there is no such file or block device, of which a part could be meant")]
    NotThere,
    /// A range was asked for, and there is a file of the name that says the same.
    #[error("there is a file of the name {name}, which would stand for that range")]
    NameIsTaken {
        /// That file.
        name: String,
    },
}

impl PartitionErrorKind {
    /// What to do about it.
    #[must_use]
    pub fn advice(&self) -> String {
        match self {
            Self::NoTable { .. } => {
                "leave the @ and the number out; \\@ stands for an @ of the file's own name".to_owned()
            }
            Self::DamagedTable { .. } => {
                "mend it with sgdisk or sfdisk, or say where the file system begins with -o offset=BYTES"
                    .to_owned()
            }
            Self::NoSuchPartition { .. } => "name one that there is".to_owned(),
            Self::Unusable { fault: PartitionFault::Extended, .. } => "name a logical partition".to_owned(),
            Self::Unusable { .. } => {
                "mend the table with sfdisk; to read all the same, say where the file system begins with \
                 -o ro,offset=BYTES"
                    .to_owned()
            }
            Self::NoBtrfs { .. } => {
                "check the path; name a partition as IMAGE@NUMBER, or a place as -o offset=BYTES".to_owned()
            }
            Self::SeveralBtrfs { first, .. } => format!("name the one that is meant: IMAGE@{first}"),
            Self::OutsideOfDisk { .. } => {
                "check offset= and sizelimit=, or the length of the file".to_owned()
            }
            Self::OddRange { .. } => "check offset= and sizelimit=".to_owned(),
            Self::NamedTwice => "leave one of them out".to_owned(),
            Self::NotThere => "check the path, or make the file first: truncate -s SIZE".to_owned(),
            Self::NameIsTaken { .. } => "rename that file, or name the partition as IMAGE@NUMBER".to_owned(),
        }
    }

    /// With the disk's name.
    pub(crate) fn at(self, device: &str) -> PartitionError {
        PartitionError { device: device.to_owned(), kind: self }
    }
}

impl PartitionError {
    /// The errno that a caller of the system would expect.
    #[must_use]
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        let errno = match self.kind {
            PartitionErrorKind::NoTable { .. } | PartitionErrorKind::NoSuchPartition { .. } => Errno::NXIO,
            PartitionErrorKind::DamagedTable { .. } => Errno::IO,
            PartitionErrorKind::NotThere => Errno::NOENT,
            _ => Errno::INVAL,
        };
        errno.raw_os_error()
    }
}
