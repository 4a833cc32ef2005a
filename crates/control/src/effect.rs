//! What a request does to the file system, so that read-only is asked for in one place.

use crate::protocol::Request;

/// What a request does to the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It tells, waits, or makes durable what was written before: a read-only mount does it, too.
    Keeps,
    /// It changes what the file system holds, or its devices. Linux refuses the ioctl(2) or setxattr(2) that
    /// does the same where the mount is read-only (`mnt_want_write_file`, fs/btrfs/ioctl.c), but for FITRIM.
    Changes,
}

impl Request {
    /// What the request does. There is no arm for all others: a new verb has to say it here.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::SubvolumeCreate { .. }
            | Self::SubvolumeSnapshot { .. }
            | Self::SubvolumeDelete { .. }
            | Self::SubvolumeSetDefault { .. }
            | Self::LabelSet { .. }
            | Self::FileDedupe { .. }
            | Self::Fstrim { .. }
            | Self::Receive { .. }
            | Self::ReceiveDiscard { .. }
            | Self::PropertySet { .. } => Effect::Changes,
            Self::ByCall { request } => request.effect(),
            Self::Mount
            | Self::CallOutcome
            | Self::SubvolumeList
            | Self::SubvolumeShow { .. }
            | Self::SubvolumeGetDefault
            | Self::SubvolumeSync { .. }
            | Self::FilesystemSync
            | Self::Remounted { .. }
            | Self::FilesystemDf
            | Self::FilesystemUsage
            | Self::LabelGet
            | Self::PropertyGet { .. }
            | Self::RootId { .. }
            | Self::InodeResolve { .. }
            | Self::FileMap { .. }
            | Self::Statistics
            | Self::Lease
            | Self::LeaseConfirm
            | Self::ReceiveParts { .. }
            | Self::Unmount => Effect::Keeps,
        }
    }
}
