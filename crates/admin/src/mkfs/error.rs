//! What can go wrong when a file system is made.

use vlinder_device::DeviceError;
use vlinder_format::superblock::LabelFault;
use vlinder_fs::FsError;
use vlinder_partitions::{OpenError, PartitionError};
use vlinder_volume::VolumeError;

use super::raw::ParameterError;
use super::source::{ArchiveFault, SourceError};

/// Why no file system was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MkfsError {
    /// Parameters that do not fit together.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    /// A label that can't be stored.
    #[error(transparent)]
    Label(#[from] LabelFault),
    /// The device; among these: in use, mounted, neither a file nor a block device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A partition that is not there, or can't be used.
    #[error("{0}; {advice}", advice = .0.kind.advice())]
    Partition(PartitionError),
    /// The target holds something.
    #[error("{target} seems to hold {name} (a mark at byte {offset}); use -f to overwrite it")]
    InUse {
        /// The file or device.
        target: String,
        /// What was found.
        name: &'static str,
        /// Where.
        offset: u64,
    },
    /// The target does not exist, and nothing says how long it should be.
    #[error("{target} does not exist; create it, or give its size with -b")]
    NoTarget {
        /// The file.
        target: String,
    },
    /// The target can't be looked at or made.
    #[error("{target}: {source}")]
    Target {
        /// The file or device.
        target: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The source can't be read without threads.
    #[error("the system gives no more threads: {source}; raise the limit of processes (ulimit -u, pids.max)")]
    NoThreads {
        /// What the system said.
        source: std::io::Error,
    },
    /// A block device shorter than the size that was asked for.
    #[error("{target} has {found} bytes, fewer than the {wanted} asked for; leave -b out or make it smaller")]
    TargetTooShort {
        /// The device.
        target: String,
        /// Its length.
        found: u64,
        /// The size asked for.
        wanted: u64,
    },
    /// A directory that can't become a subvolume.
    #[error("--subvol {path}: {what}")]
    Subvolume {
        /// As given.
        path: String,
        /// Why not.
        what: &'static str,
    },
    /// A file that can't have the flags that were asked for.
    #[error("--inode-flags {path}: {what}")]
    InodeFlags {
        /// As given.
        path: String,
        /// Why not.
        what: &'static str,
    },
    /// More than one default subvolume.
    #[error("--subvol: only one subvolume can be the default")]
    SecondDefault,
    /// A line of the table of owners that says nothing that can be done.
    #[error("{table}: line {line}: {what}")]
    OwnerTable {
        /// The table.
        table: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// An archive that can't be taken for a source.
    #[error("{archive}: {fault} (at byte {byte} of what it unpacks to)")]
    Archive {
        /// The archive.
        archive: String,
        /// How far it was read.
        byte: u64,
        /// What is wrong.
        #[source]
        fault: ArchiveFault,
    },
    /// The archive is the image's file.
    #[error("{archive} is the image, too, which would be overwritten; put the image elsewhere")]
    TargetIsSource {
        /// The archive.
        archive: String,
    },
    /// The source directory can't be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The image would be copied into itself.
    #[error("the image {path} lies in the source directory; put it elsewhere")]
    TargetInSource {
        /// Where, below the source directory.
        path: String,
    },
    /// The source directory itself can't be opened.
    #[error("{path}: {source}; give a directory that can be read")]
    SourceDirectory {
        /// As given.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// [`MkfsOptions::interrupted`](super::MkfsOptions::interrupted) was set.
    #[error("interrupted; the target holds no file system")]
    Interrupted,
    /// The new file system took too little.
    #[error("{path} can't be written to the new file system: {source}")]
    Write {
        /// Path below the source directory.
        path: String,
        /// Why.
        source: FsError,
    },
    /// The source does not fit.
    #[error(
        "{path}: the new file system is full at {size} bytes; give a larger size with -b, or a larger device"
    )]
    Full {
        /// Path below the source directory.
        path: String,
        /// Size of the file system.
        size: u64,
    },
    /// The new file system as a whole.
    #[error(transparent)]
    Filesystem(#[from] FsError),
    /// Its blocks, when it was shrunk.
    #[error(transparent)]
    Volume(#[from] VolumeError),
}

impl From<OpenError> for MkfsError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Device(error) => Self::Device(error),
            OpenError::Partition(error) => Self::Partition(error),
        }
    }
}
