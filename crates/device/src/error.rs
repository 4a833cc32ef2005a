//! The errors of a device: what was asked, of which device, where, and why it failed.

use std::fmt;

use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;

use crate::lock_holder::LockHolder;
use crate::mounted::KernelMount;

/// What a failed call was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Opening or creating the device.
    Open,
    /// Reading bytes.
    Read,
    /// Writing bytes, cached or durable.
    Write,
    /// Flushing the device's cache.
    Flush,
    /// Giving a range back.
    Discard,
    /// Changing the device's length.
    Resize,
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Operation::Open => "open",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
            Operation::Resize => "resize",
        })
    }
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceErrorKind {
    /// The system reported an errno that no other kind names.
    #[error("{}", std::io::Error::from_raw_os_error(*.errno))]
    Io {
        /// The errno.
        errno: i32,
    },
    /// The range does not lie within the device.
    #[error("the range ends past the device's end ({device_length} bytes); is the image truncated?")]
    OutOfRange {
        /// The device's length in bytes.
        device_length: u64,
    },
    /// The device was opened for reading only.
    #[error("the device is read-only; open it for writing")]
    ReadOnly,
    /// The file system or quota of the host that holds this (sparse) image has no space left.
    #[error("the host's file system is full; free some space there")]
    HostFull,
    /// Another process holds the device.
    #[error("in use{}; stop that first", .holder.as_ref().map(|holder| format!(" by {holder}")).unwrap_or_default())]
    Busy {
        /// The process that holds it, where the system says.
        holder: Option<Box<LockHolder>>,
    },
    /// The kernel has it mounted, itself or through a loop device.
    #[error("it is mounted ({}{}); unmount that first", .mount.device.display(), .mount.mountpoint.as_ref().map(|place| format!(" on {}", place.display())).unwrap_or_default())]
    Mounted {
        /// Through which device, and where.
        mount: Box<KernelMount>,
    },
    /// Neither a regular file nor a block device.
    #[error("neither a regular file nor a block device")]
    WrongType,
    /// The device can't do this at all (a discard on most hosts' odd file systems).
    #[error("not supported by this device")]
    Unsupported,
    /// Somebody cut the image while it was in use.
    #[error(
        "the image was cut to {found_bytes} of its {length_bytes} bytes while it was in use: what lay behind that is lost"
    )]
    CutShort {
        /// Bytes that the file has.
        found_bytes: u64,
        /// Bytes that it has to have.
        length_bytes: u64,
    },
    /// Somebody removed the image, or put another file in its place, while it was in use.
    #[error(
        "the image was removed while it was in use: its files are gone when the last process ends that has it open"
    )]
    Removed,
    /// The device went away with the request unanswered; whether the request took effect is unknown.
    #[error("the device was closed before the request was answered")]
    Abandoned,
}

/// A failed call on a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{device}: {operation} of {length_bytes} bytes at {offset} failed: {kind}")]
pub struct DeviceError {
    /// Why.
    #[source]
    pub kind: DeviceErrorKind,
    /// What was being done.
    pub operation: Operation,
    /// The device's name, usually its path.
    pub device: Arc<str>,
    /// First byte of the range (0 where the call has none).
    pub offset: Physical,
    /// Length of the range in bytes (0 where the call has none).
    pub length_bytes: u64,
}

impl DeviceError {
    /// An error over a range.
    pub fn new(
        kind: DeviceErrorKind,
        operation: Operation,
        device: &Arc<str>,
        offset: Physical,
        length_bytes: u64,
    ) -> Self {
        DeviceError { kind, operation, device: device.clone(), offset, length_bytes }
    }

    /// An error of a call that has no range (open, flush).
    pub fn whole(kind: DeviceErrorKind, operation: Operation, device: &Arc<str>) -> Self {
        Self::new(kind, operation, device, Physical(0), 0)
    }

    /// The errno that a caller of the system would expect.
    pub fn errno(&self) -> i32 {
        use rustix::io::Errno;
        match &self.kind {
            DeviceErrorKind::Io { errno } => *errno,
            DeviceErrorKind::OutOfRange { .. }
            | DeviceErrorKind::CutShort { .. }
            | DeviceErrorKind::Removed
            | DeviceErrorKind::Abandoned => Errno::IO.raw_os_error(),
            DeviceErrorKind::ReadOnly => Errno::ROFS.raw_os_error(),
            DeviceErrorKind::HostFull => Errno::NOSPC.raw_os_error(),
            DeviceErrorKind::Busy { .. } | DeviceErrorKind::Mounted { .. } => Errno::BUSY.raw_os_error(),
            DeviceErrorKind::WrongType => Errno::INVAL.raw_os_error(),
            DeviceErrorKind::Unsupported => Errno::OPNOTSUPP.raw_os_error(),
        }
    }
}

impl From<rustix::io::Errno> for DeviceErrorKind {
    fn from(errno: rustix::io::Errno) -> Self {
        use rustix::io::Errno;
        match errno {
            // A host's quota runs out as its disk does: the image can't grow, and nothing is wrong with it.
            Errno::NOSPC | Errno::DQUOT => DeviceErrorKind::HostFull,
            Errno::ROFS => DeviceErrorKind::ReadOnly,
            Errno::OPNOTSUPP => DeviceErrorKind::Unsupported,
            other => DeviceErrorKind::Io { errno: other.raw_os_error() },
        }
    }
}
