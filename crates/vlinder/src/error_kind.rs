//! What kind of error it is, and how the errors of the inner crates fall into kinds.

use rustix::io::Errno;
use vlinder_admin::mkfs::MkfsError;
use vlinder_check::CheckError;
use vlinder_device::{DeviceError, DeviceErrorKind};
use vlinder_format::superblock::SuperblockFault;
use vlinder_fs::data::{BytesError, DataFault};
use vlinder_fs::{FsError, OptionError, Refusal};
use vlinder_partitions::{PartitionError, PartitionErrorKind};
use vlinder_transaction::EngineError;
use vlinder_tree::TreeError;
use vlinder_volume::VolumeError;

/// What kind of [`Error`](crate::Error) it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such file, attribute, subvolume or image.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// A directory is needed, and something else is there.
    NotADirectory,
    /// A directory is there, and something else is needed.
    IsADirectory,
    /// The directory still has names.
    DirectoryNotEmpty,
    /// A flag of the file, or the host, does not allow it.
    PermissionDenied,
    /// The file system in the image is full, or a quota in it.
    NoSpace,
    /// The host's file system, which keeps the image, is full.
    HostFull,
    /// The file system or the subvolume takes no changes.
    ReadOnly,
    /// There is no Btrfs on the image.
    NotBtrfs,
    /// What is stored contradicts itself, or no copy of it is good.
    Damaged,
    /// This version, or this build of it, can't do it.
    Unsupported,
    /// Another process has the image, or something in it is in use.
    Busy,
    /// Arguments that make no sense.
    InvalidInput,
    /// A link or rename that crosses the border of a subvolume.
    CrossesSubvolumes,
    /// The device or the host failed.
    Io,
    /// None of the others.
    Other,
}

impl ErrorKind {
    pub(crate) fn of_filesystem(error: &FsError) -> Self {
        match error {
            FsError::Path { source, .. } => Self::of_filesystem(source),
            FsError::Device(error) => Self::of_device(error),
            FsError::Partition(error) => Self::of_partition(error),
            other => match other.refusal() {
                Some(refusal) => Self::of_refusal(refusal),
                None => Self::of_unrefused(other),
            },
        }
    }

    fn of_unrefused(error: &FsError) -> Self {
        match error {
            FsError::Engine(error) => Self::of_engine(error),
            FsError::Tree(error) => Self::of_tree(error),
            FsError::Volume(error) => Self::of_volume(error),
            FsError::Data(error) => Self::of_data(error),
            FsError::Option(OptionError::NoCodec { .. }) => Self::Unsupported,
            FsError::Option(_) => Self::InvalidInput,
            FsError::NoDefaultSubvolume { .. } => Self::NotFound,
            FsError::Damage(_) | FsError::SecondPlace { .. } | FsError::NoBackReference { .. } => {
                Self::Damaged
            }
            _ => Self::Other,
        }
    }

    pub(crate) fn of_refusal(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound | Refusal::NoAttribute | Refusal::NoSuchOffset | Refusal::Stale => {
                Self::NotFound
            }
            Refusal::Exists => Self::AlreadyExists,
            Refusal::NotADirectory => Self::NotADirectory,
            Refusal::IsADirectory => Self::IsADirectory,
            Refusal::NotEmpty => Self::DirectoryNotEmpty,
            Refusal::AccessDenied | Refusal::NotPermitted => Self::PermissionDenied,
            Refusal::ReadOnly => Self::ReadOnly,
            Refusal::NoSpace | Refusal::QuotaExceeded => Self::NoSpace,
            Refusal::HostFull => Self::HostFull,
            Refusal::CrossesSubvolumes => Self::CrossesSubvolumes,
            Refusal::NotSupported => Self::Unsupported,
            Refusal::Busy | Refusal::TextBusy => Self::Busy,
            _ => Self::InvalidInput,
        }
    }

    fn of_engine(error: &EngineError) -> Self {
        match error {
            EngineError::Tree(error) => Self::of_tree(error),
            EngineError::Volume(error) => Self::of_volume(error),
            EngineError::Damage(_) => Self::Damaged,
            EngineError::UnknownFeatures { .. } => Self::Unsupported,
            EngineError::NoSuchTree { .. } => Self::NotFound,
            _ => Self::Other,
        }
    }

    fn of_tree(error: &TreeError) -> Self {
        match error {
            TreeError::Volume(error) => Self::of_volume(error),
            TreeError::NoSpace { .. } => Self::NoSpace,
            TreeError::TooLarge { .. } => Self::InvalidInput,
            TreeError::Conflict { .. } => Self::Other,
            _ => Self::Damaged,
        }
    }

    fn of_data(error: &BytesError) -> Self {
        match &error.fault {
            _ if error.lacks_codec() => Self::Unsupported,
            DataFault::Volume(error) => Self::of_volume(error),
            DataFault::UnknownCompression { .. } => Self::Unsupported,
            _ => Self::Damaged,
        }
    }

    pub(crate) fn of_volume(error: &VolumeError) -> Self {
        match error {
            error if error.full_host().is_some() => Self::HostFull,
            VolumeError::Device(error) => Self::of_device(error),
            VolumeError::Superblock { fault: SuperblockFault::Magic { .. }, usable_copy: None, .. } => {
                Self::NotBtrfs
            }
            VolumeError::UnsupportedProfile { .. } => Self::Unsupported,
            VolumeError::ReadOnly => Self::ReadOnly,
            VolumeError::WriteFailed { .. } => Self::Io,
            VolumeError::WrittenByAnother { .. } => Self::Busy,
            VolumeError::ForeignDevice { .. }
            | VolumeError::TwoHistories { .. }
            | VolumeError::NoSuchHistory { .. }
            | VolumeError::DuplicateDevice { .. }
            | VolumeError::RemovedDevices { .. }
            | VolumeError::DeviceCount { .. }
            | VolumeError::NoDevice
            | VolumeError::TooMuchKept { .. }
            | VolumeError::Request { .. } => Self::InvalidInput,
            _ => Self::Damaged,
        }
    }

    pub(crate) fn of_device(error: &DeviceError) -> Self {
        match &error.kind {
            DeviceErrorKind::Io { errno } => Self::of_errno(*errno),
            DeviceErrorKind::ReadOnly => Self::ReadOnly,
            DeviceErrorKind::HostFull => Self::HostFull,
            DeviceErrorKind::Busy { .. } | DeviceErrorKind::Mounted { .. } => Self::Busy,
            DeviceErrorKind::WrongType => Self::InvalidInput,
            DeviceErrorKind::Unsupported => Self::Unsupported,
            DeviceErrorKind::OutOfRange { .. }
            | DeviceErrorKind::CutShort { .. }
            | DeviceErrorKind::Removed
            | DeviceErrorKind::Abandoned => Self::Io,
        }
    }

    /// What the host said of one of its own files.
    pub(crate) fn of_errno(errno: i32) -> Self {
        match Errno::from_raw_os_error(errno) {
            Errno::NOENT => Self::NotFound,
            Errno::EXIST => Self::AlreadyExists,
            Errno::NOTDIR => Self::NotADirectory,
            Errno::ISDIR => Self::IsADirectory,
            Errno::ACCESS | Errno::PERM => Self::PermissionDenied,
            Errno::NOSPC | Errno::DQUOT => Self::HostFull,
            Errno::ROFS => Self::ReadOnly,
            Errno::INVAL => Self::InvalidInput,
            Errno::BUSY => Self::Busy,
            _ => Self::Io,
        }
    }

    pub(crate) fn of_partition(error: &PartitionError) -> Self {
        match error.kind {
            PartitionErrorKind::NoBtrfs { .. } => Self::NotBtrfs,
            PartitionErrorKind::DamagedTable { .. } => Self::Damaged,
            PartitionErrorKind::NoTable { .. }
            | PartitionErrorKind::NoSuchPartition { .. }
            | PartitionErrorKind::NotThere => Self::NotFound,
            _ => Self::InvalidInput,
        }
    }

    pub(crate) fn of_mkfs(error: &MkfsError) -> Self {
        match error {
            MkfsError::Device(error) => Self::of_device(error),
            MkfsError::Partition(error) => Self::of_partition(error),
            MkfsError::InUse { .. } => Self::AlreadyExists,
            MkfsError::NoTarget { .. } => Self::NotFound,
            MkfsError::Target { source, .. } | MkfsError::SourceDirectory { source, .. } => {
                source.raw_os_error().map_or(Self::Io, Self::of_errno)
            }
            MkfsError::Full { .. } => Self::NoSpace,
            MkfsError::Write { source, .. } | MkfsError::Filesystem(source) => Self::of_filesystem(source),
            MkfsError::Volume(error) => Self::of_volume(error),
            MkfsError::Source(_) => Self::Io,
            MkfsError::NoThreads { .. } | MkfsError::Interrupted => Self::Other,
            _ => Self::InvalidInput,
        }
    }

    pub(crate) fn of_check(error: &CheckError) -> Self {
        match error {
            CheckError::Open(error) => Self::of_volume(error),
            CheckError::UnknownFeatures { .. } | CheckError::NoCodec { .. } => Self::Unsupported,
            CheckError::Temporary(_) => Self::HostFull,
            _ => Self::Other,
        }
    }

    /// What a system call returns for an error of this kind that no system call had.
    pub(crate) fn errno(self) -> Errno {
        match self {
            Self::NotFound => Errno::NOENT,
            Self::AlreadyExists => Errno::EXIST,
            Self::NotADirectory => Errno::NOTDIR,
            Self::IsADirectory => Errno::ISDIR,
            Self::DirectoryNotEmpty => Errno::NOTEMPTY,
            Self::PermissionDenied => Errno::ACCESS,
            Self::NoSpace | Self::HostFull => Errno::NOSPC,
            Self::ReadOnly => Errno::ROFS,
            Self::Unsupported => Errno::OPNOTSUPP,
            Self::Busy => Errno::BUSY,
            Self::InvalidInput => Errno::INVAL,
            Self::CrossesSubvolumes => Errno::XDEV,
            Self::NotBtrfs | Self::Damaged | Self::Io | Self::Other => Errno::IO,
        }
    }
}
