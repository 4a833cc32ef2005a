//! What can go wrong in a transaction.

use core::fmt;

use vlinder_base::sync::Arc;
use vlinder_forest::ForestError;
use vlinder_format::{Damage, DeviceId, Logical, RootId};
use vlinder_tree::{LeaseRevoked, TreeError};
use vlinder_volume::VolumeError;

/// Why a file system cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadOnlyReason {
    /// It was opened so.
    Requested,
    /// A member device cannot be written.
    DeviceReadOnly,
    /// Features that vlinder can read and not write.
    Features(Vec<String>),
    /// An fsync log was left as it is.
    Log,
    /// An fsync log could not be replayed.
    LogReplay(String),
    /// More devices than one.
    SeveralDevices,
    /// Devices of it are missing.
    Degraded,
    /// A profile that vlinder can read and not write.
    Profile(String),
    /// Simple quotas are on; their accounts would go wrong, and no rescan could put them right.
    Quotas,
    /// A relocation of Linux (balance, shrinking, removal of a device) was interrupted and has trees of its
    /// own.
    UnfinishedRelocation,
    /// A device is being replaced.
    UnfinishedReplace,
    /// A chunk has no block group, so that the bytes in use are not known.
    MissingGroup(Logical),
    /// A device's item claims more bytes than the device has.
    DeviceSize {
        /// The device.
        device: DeviceId,
        /// In the item, in bytes.
        claimed: u64,
        /// Bytes of the device.
        found: u64,
    },
    /// The file system is a seed.
    Seed,
    /// The file system was built on a seed.
    Sprout,
    /// An error left it unsure what is on the devices.
    Error(String),
}

impl fmt::Display for ReadOnlyReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested => formatter.write_str("it was opened read-only"),
            Self::DeviceReadOnly => formatter.write_str("the device or image file cannot be written"),
            Self::Features(names) => {
                write!(formatter, "it has features that can only be read: {}", names.join(", "))
            }
            Self::Log => formatter.write_str(
                "it has an fsync log that is not replayed; open it for writing without rescue=nologreplay once",
            ),
            Self::LogReplay(error) => write!(
                formatter,
                "its fsync log cannot be replayed ({error}); shown is the state of the last commit. Have a copy before you try Linux, or give up what was fsynced last (btrfs rescue zero-log)"
            ),
            Self::Degraded => formatter.write_str("devices of it are missing"),
            Self::SeveralDevices => {
                formatter.write_str("it lies on several devices, which can only be read so far")
            }
            Self::Profile(name) => {
                write!(formatter, "it has chunks of profile {name}, which can only be read so far")
            }
            Self::Quotas => {
                formatter.write_str("simple quotas are on; turn them off with Linux (btrfs quota disable)")
            }
            Self::UnfinishedRelocation => formatter.write_str(
                "a balance was interrupted while it moved a chunk; mount it once with Linux, which finishes that",
            ),
            Self::UnfinishedReplace => {
                formatter.write_str("a device replacement was interrupted; finish it with Linux")
            }
            Self::MissingGroup(chunk) => {
                write!(formatter, "the chunk at {chunk} has no block group item; check it (vlinder check)")
            }
            Self::DeviceSize { device, claimed, found } => write!(
                formatter,
                "the item of device {device} claims {claimed} bytes, and there are {found}; check it (vlinder check)"
            ),
            Self::Seed => formatter.write_str("it is a seed (btrfstune -S 0 ends that)"),
            Self::Sprout => formatter.write_str("it was built on a seed, which can only be read so far"),
            Self::Error(error) => write!(formatter, "an error left it unsure what is on the device: {error}"),
        }
    }
}

/// What there was too little of, where tree blocks found no room.
pub const METADATA: &str = "metadata";

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A search or a change in a tree failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The devices failed.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Bytes on disk break a rule.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// A feature that vlinder cannot even read.
    #[error("the file system has features that this version does not know: {}; a newer version may", .names.join(", "))]
    UnknownFeatures {
        /// Their names or bits.
        names: Vec<String>,
    },
    /// There is no tree of this number.
    #[error("there is no tree {root}; check the file system, or the number given")]
    NoSuchTree {
        /// The number.
        root: RootId,
    },
    /// A committed state was read whose lease was taken back.
    #[error(transparent)]
    LeaseRevoked(#[from] LeaseRevoked),
    /// The file system cannot be changed.
    #[error("the file system is read-only: {reason}")]
    ReadOnly {
        /// Why.
        reason: ReadOnlyReason,
    },
    /// No space for what was to be done.
    #[error(
        "no space left on the file system ({needed_bytes} bytes of {kind} wanted); delete files or snapshots, or copy everything to a larger one"
    )]
    NoSpace {
        /// [`METADATA`], or what else there was too little of.
        kind: &'static str,
        /// Bytes that were wanted.
        needed_bytes: u64,
    },
    /// A commit waits for space on the host. What was done since the one before is in memory, and is tried
    /// again.
    #[error(
        "{device}: the host's file system, or a quota there, is full: what was written last waits in memory; free some space there"
    )]
    HostFull {
        /// The device's name, usually the image's path.
        device: Arc<str>,
    },
    /// Someone who takes part in commits could not put in what was delayed.
    #[error("what was written before could not be made durable: {0}")]
    Participant(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// No subvolume number is left.
    #[error(
        "no subvolume number is left (numbers are never used again); copy the content to a new file system"
    )]
    NoSubvolumeNumber,
}

impl From<ForestError> for EngineError {
    fn from(error: ForestError) -> Self {
        match error {
            ForestError::Tree(error) => error.into(),
            ForestError::Damage(damage) => damage.into(),
            ForestError::NoSuchTree { root } => Self::NoSuchTree { root },
        }
    }
}

impl EngineError {
    /// Whether the host has no space for the image: the same can be tried again.
    #[must_use]
    pub fn is_host_full(&self) -> bool {
        match self {
            Self::HostFull { .. } => true,
            Self::Volume(error) => error.full_host().is_some(),
            _ => false,
        }
    }

    /// Bytes of metadata for which there was no room; 0 if there was another reason.
    pub fn lacking_metadata_bytes(&self) -> u64 {
        match self {
            Self::NoSpace { kind: METADATA, needed_bytes } => *needed_bytes,
            Self::Tree(TreeError::NoSpace { needed_bytes, .. }) => *needed_bytes,
            _ => 0,
        }
    }

    /// Whether space was the reason.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::NoSpace { .. } | Self::Tree(TreeError::NoSpace { .. }))
    }
}
