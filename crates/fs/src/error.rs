//! What can go wrong, in four worlds: devices, damage on disk, what is not supported, and what the caller
//! asked for.

use rustix::io::Errno;
use vlinder_data::{BytesError, DataError, DataRefusal, InodeId, SpaceFailure};
use vlinder_device::DeviceError;
use vlinder_extent_state::StateError;
use vlinder_forest::ForestError;
use vlinder_format::file_extent::FileExtentFault;
use vlinder_format::{Damage, Fault, RootId};
use vlinder_partitions::{OpenError, PartitionError};
use vlinder_transaction::EngineError;
use vlinder_tree::TreeError;
use vlinder_volume::VolumeError;

use crate::mount_option::OptionError;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $errno:ident, $text:literal;)*) => {
        /// Why a request is refused although the file system is sound: the caller's world. Each has its
        /// errno.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
        #[non_exhaustive]
        pub enum Refusal {
            $($(#[$doc])* #[error($text)] $name,)*
        }

        impl Refusal {
            /// What a system call returns for it.
            #[must_use]
            pub const fn errno(self) -> Errno {
                match self {
                    $(Self::$name => Errno::$errno,)*
                }
            }
        }
    };
}

refusals! {
    /// No such name, or the file behind it is gone.
    NotFound = NOENT, "no such file or directory";
    /// The name is taken.
    Exists = EXIST, "the name exists already";
    /// A directory is needed.
    NotADirectory = NOTDIR, "not a directory";
    /// A directory can't be used so.
    IsADirectory = ISDIR, "is a directory";
    /// The directory still has names.
    NotEmpty = NOTEMPTY, "the directory is not empty";
    /// Mode or ACL do not allow it.
    AccessDenied = ACCESS, "permission denied";
    /// Only the owner or a privileged user may do this, or a flag of the file forbids it.
    NotPermitted = PERM, "operation not permitted";
    /// The file system or the subvolume is read-only.
    ReadOnly = ROFS, "the file system or the subvolume is read-only (its property ro)";
    /// No space left.
    NoSpace = NOSPC, "no space left; delete files or snapshots, or copy everything to a larger file system";
    /// The host's file system has no space for the image, or a quota there is used up.
    HostFull = NOSPC, "the host's file system, or a quota there, is full; free some space there";
    /// An extended attribute, or those whose hashes collide, that no tree block of this file system can hold.
    AttributeTooLong = NOSPC, "the attribute does not fit into a tree block; make it shorter, or the file system with larger nodes (mkfs -n)";
    /// Above a quota.
    QuotaExceeded = DQUOT, "a quota is exceeded";
    /// A file can have no more names.
    TooManyLinks = MLINK, "the file has as many names as a file can have";
    /// A name of more than 255 bytes, or a link target that does not fit a block.
    NameTooLong = NAMETOOLONG, "the name, or what the link names, is too long";
    /// Symbolic links lead in a circle, or one was met where none is followed.
    SymbolicLinkLoop = LOOP, "too many levels of symbolic links";
    /// Arguments that make no sense.
    InvalidArgument = INVAL, "invalid argument";
    /// A link or rename that crosses the border of a subvolume.
    CrossesSubvolumes = XDEV, "the operation crosses the border of a subvolume";
    /// No such extended attribute.
    NoAttribute = NODATA, "no such extended attribute";
    /// A buffer is too small, or a value is out of its range.
    OutOfRange = RANGE, "the value does not fit";
    /// An extended attribute larger than any can be.
    TooLarge = TOOBIG, "the value is too large";
    /// Names whose hashes collide fill an item.
    Overflow = OVERFLOW, "too many names with the same hash in one directory";
    /// A name of the directory has the last index that there is.
    IndexUsedUp = OVERFLOW, "the directory takes no further names, for one of its names has the last index; move its files into a new directory";
    /// Past the end of what a file can hold.
    FileTooLarge = FBIG, "the file would be too large";
    /// The kind of file, or this file system, can't do it.
    NotSupported = OPNOTSUPP, "not supported";
    /// No data (or hole) from there on.
    NoSuchOffset = NXIO, "no such offset in the file";
    /// In use: the default subvolume, one that is being sent, a mount point.
    Busy = BUSY, "in use";
    /// A text file busy: a swap file or the like.
    TextBusy = TXTBSY, "the file is in use in a way that forbids this";
    /// A handle to a file that exists no more.
    Stale = STALE, "the file exists no more";
    /// The handle was not opened for this.
    BadHandle = BADF, "the file is not open for this";
}

/// An error of the file system.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// The request is refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Transactions, space, the state of the whole.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A tree could not be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Bytes on disk break a rule.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The volume could not be opened or read.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A device could not be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A part of a device that can't be used, or is not there.
    #[error("{0}; {advice}", advice = .0.kind.advice())]
    Partition(PartitionError),
    /// A mount option is unknown or has a bad value.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// Bytes of a file can't be read or written.
    #[error(transparent)]
    Data(#[from] Box<BytesError>),
    /// A defect of the map of unflushed data.
    #[error(transparent)]
    State(#[from] StateError),
    /// The thread that commits in the background can't be started.
    #[error("the system gives no more threads: {source}; raise the limit of processes (ulimit -u, pids.max)")]
    NoThreads {
        /// What the system said.
        source: std::io::Error,
    },
    /// A name leads to a directory that says that it lies elsewhere.
    #[error(
        "directory {found} is named in {directory}, and lies elsewhere by its own word; the file system is damaged: run a check"
    )]
    SecondPlace {
        /// Where the name is.
        directory: InodeId,
        /// What it leads to.
        found: InodeId,
    },
    /// The root tree names a default subvolume that is not there.
    #[error(
        "the default subvolume, {subvolume}, is not there; the top level can be had with the option subvolid=5"
    )]
    NoDefaultSubvolume {
        /// Its number.
        subvolume: RootId,
    },
    /// A subvolume that is to lose its name does not say where it lies.
    #[error(
        "subvolume {subvolume} has no reference back to the one that it lies in; the file system is damaged: copy what is in it, and \
         run a check"
    )]
    NoBackReference {
        /// The subvolume.
        subvolume: RootId,
    },
    /// An operation on a path, with that path (of the path interface).
    #[error("{path}: {source}")]
    Path {
        /// The path, with what is not UTF-8 escaped.
        path: String,
        /// What went wrong.
        source: Box<FsError>,
    },
}

impl From<OpenError> for FsError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Device(error) => Self::Device(error),
            OpenError::Partition(error) => Self::Partition(error),
        }
    }
}

impl From<PartitionError> for FsError {
    fn from(error: PartitionError) -> Self {
        Self::Partition(error)
    }
}

impl FsError {
    /// What a system call returns for this error; EIO for damage and failing devices, EBUSY for one that
    /// another holds. EUCLEAN for items that are sound, but belong to no file of this type: there Linux finds
    /// the damage behind the rules of a leaf (`btrfs_get_extent`, fs/btrfs/inode.c).
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            Self::Refused(refusal) => refusal.errno(),
            Self::Engine(error) => crate::error::engine_errno(error),
            Self::Tree(TreeError::NoSpace { .. }) => Errno::NOSPC,
            Self::Option(OptionError::NoCodec { .. }) => Errno::OPNOTSUPP,
            Self::Option(_) => Errno::INVAL,
            Self::NoThreads { .. } => Errno::AGAIN,
            Self::NoDefaultSubvolume { .. } => Errno::NOENT,
            Self::Path { source, .. } => source.errno(),
            Self::Device(error) => Errno::from_raw_os_error(error.errno()),
            Self::Partition(error) => Errno::from_raw_os_error(error.errno()),
            Self::Volume(error) if error.full_host().is_some() => Errno::NOSPC,
            Self::Data(error) if error.lacks_codec() => Errno::OPNOTSUPP,
            Self::Damage(Damage { fault: Fault::FileExtent(FileExtentFault::LinkNotInline), .. }) => {
                Errno::UCLEAN
            }
            Self::Tree(_)
            | Self::Damage(_)
            | Self::Volume(_)
            | Self::Data(_)
            | Self::SecondPlace { .. }
            | Self::NoBackReference { .. }
            | Self::State(_) => Errno::IO,
        }
    }

    /// Whether the host has no space for the image: what was accepted stays in memory and is tried again.
    #[must_use]
    pub fn is_host_full(&self) -> bool {
        match self {
            Self::Engine(error) => error.is_host_full(),
            Self::Volume(error) => error.full_host().is_some(),
            Self::Refused(refusal) => *refusal == Refusal::HostFull,
            Self::Path { source, .. } => source.is_host_full(),
            _ => false,
        }
    }

    /// For what the engine calls: it tells its own errors to the caller that asked for the commit. Those of
    /// this crate are of its kinds but for refusals, which nothing that it calls can meet.
    pub(crate) fn into_engine(self) -> EngineError {
        match self {
            Self::Engine(error) => error,
            Self::Tree(error) => error.into(),
            Self::Damage(error) => error.into(),
            Self::Volume(error) => error.into(),
            other => EngineError::Participant(Box::new(other)),
        }
    }

    /// The refusal, if this is one (of the engine's lack of space, too).
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Refused(refusal) => Some(*refusal),
            Self::Path { source, .. } => source.refusal(),
            other if other.is_host_full() => Some(Refusal::HostFull),
            other if other.errno() == Errno::NOSPC => Some(Refusal::NoSpace),
            other if other.errno() == Errno::ROFS => Some(Refusal::ReadOnly),
            _ => None,
        }
    }
}

fn engine_errno(error: &EngineError) -> Errno {
    match error {
        EngineError::NoSpace { .. } | EngineError::Tree(TreeError::NoSpace { .. }) => Errno::NOSPC,
        EngineError::ReadOnly { .. } => Errno::ROFS,
        error if error.is_host_full() => Errno::NOSPC,
        EngineError::NoSuchTree { .. } => Errno::NOENT,
        _ => Errno::IO,
    }
}

impl SpaceFailure for FsError {
    fn is_no_space(&self) -> bool {
        self.refusal() == Some(Refusal::NoSpace)
    }

    fn is_host_full(&self) -> bool {
        Self::is_host_full(self)
    }

    fn lacking_metadata_bytes(&self) -> u64 {
        match self {
            Self::Engine(error) => error.lacking_metadata_bytes(),
            Self::Tree(TreeError::NoSpace { needed_bytes, .. }) => *needed_bytes,
            Self::Path { source, .. } => source.lacking_metadata_bytes(),
            _ => 0,
        }
    }
}

impl From<DataRefusal> for Refusal {
    fn from(refusal: DataRefusal) -> Self {
        match refusal {
            DataRefusal::NoSpace => Self::NoSpace,
            DataRefusal::InvalidArgument => Self::InvalidArgument,
            DataRefusal::FileTooLarge => Self::FileTooLarge,
            DataRefusal::NotSupported => Self::NotSupported,
            DataRefusal::NoSuchOffset => Self::NoSuchOffset,
        }
    }
}

impl From<DataError> for FsError {
    fn from(error: DataError) -> Self {
        match error {
            DataError::Refused(refusal) => Self::Refused(refusal.into()),
            DataError::Engine(error) => Self::Engine(error),
            DataError::Tree(error) => Self::Tree(error),
            DataError::Damage(error) => Self::Damage(error),
            DataError::Volume(error) => Self::Volume(error),
            DataError::Bytes(error) => Self::Data(error),
            DataError::State(error) => Self::State(error),
        }
    }
}

impl From<BytesError> for FsError {
    fn from(error: BytesError) -> Self {
        Self::Data(Box::new(error))
    }
}

impl From<ForestError> for FsError {
    fn from(error: ForestError) -> Self {
        Self::Engine(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_data_says_the_same_as_that_of_the_file_system() {
        for refusal in [
            DataRefusal::NoSpace,
            DataRefusal::InvalidArgument,
            DataRefusal::FileTooLarge,
            DataRefusal::NotSupported,
            DataRefusal::NoSuchOffset,
        ] {
            assert_eq!(refusal.to_string(), Refusal::from(refusal).to_string());
        }
    }

    #[test]
    fn an_error_of_data_is_judged_as_the_error_that_it_becomes() {
        let root = RootId(5);
        let errors: [fn(RootId) -> DataError; 6] = [
            |_| DataRefusal::NoSpace.into(),
            |_| DataRefusal::InvalidArgument.into(),
            |_| EngineError::NoSpace { kind: "metadata", needed_bytes: 7 }.into(),
            |root| EngineError::Tree(TreeError::NoSpace { root, needed_bytes: 8 }).into(),
            |root| TreeError::NoSpace { root, needed_bytes: 9 }.into(),
            |_| EngineError::HostFull { device: "image".into() }.into(),
        ];
        for error in errors {
            let (below, above) = (error(root), FsError::from(error(root)));
            let judged = (below.is_no_space(), SpaceFailure::is_host_full(&below));
            assert_eq!(judged, (above.is_no_space(), above.is_host_full()), "{below}");
            assert_eq!(below.lacking_metadata_bytes(), above.lacking_metadata_bytes(), "{below}");
            assert_eq!(below.to_string(), above.to_string());
        }
    }

    #[test]
    fn no_space_hides_no_other_failure() {
        let ranked = || [Refusal::NoSpace, Refusal::HostFull, Refusal::Stale];
        for (low, lower) in ranked().into_iter().enumerate() {
            assert!(FsError::graver(Ok(()), Err(lower.into())).is_err());
            for (high, higher) in ranked().into_iter().enumerate() {
                let told = FsError::graver(Err(FsError::from(lower)), Err(higher.into())).unwrap_err();
                let expected = if high > low { higher } else { lower };
                assert!(matches!(told, FsError::Refused(told) if told == expected), "{lower:?} {higher:?}");
            }
        }
    }
}
