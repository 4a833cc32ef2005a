//! What a verb that failed says: which kind of failure, where, what happened, and what to do about it.

use std::fmt;
use std::process::ExitCode;

use rustix::io::Errno;
pub use vlinder_control::ErrorKind as Kind;
use vlinder_device::{DeviceError, DeviceErrorKind};
use vlinder_format::superblock::SuperblockFault;
use vlinder_partitions::{OpenError, PartitionError, PartitionErrorKind};
use vlinder_volume::{ChunkTreeFault, CopyFault, VolumeError};

use crate::foreign_mount;
use crate::text::{escaped, lines_escaped};

/// How a verb ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// All of it was done.
    Done,
    /// Nothing was done, or there are findings.
    Failed,
    /// The command line makes no sense.
    Usage,
    /// Some of several things were done.
    Partial,
}

impl ExitStatus {
    /// The number that the process ends with.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Partial => 3,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status.code())
    }
}

/// Why a verb failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which kind.
    pub kind: Kind,
    /// The image, path, tree, block … that it is about.
    pub place: Option<String>,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// What the process ends with.
    pub status: ExitStatus,
}

impl Failure {
    /// A failure that ends the process with 1.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        let status = if kind == Kind::Usage { ExitStatus::Usage } else { ExitStatus::Failed };
        Self { kind, place: None, message: message.into(), hint: None, status }
    }

    /// A command line that makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Features without which the trees mean something else.
    pub fn unknown_features(names: &[String]) -> Self {
        let text = format!("the file system has features that this version can't read: {}", names.join(", "));
        Self::new(Kind::Unsupported, text).hint("use a newer vlinder, or Linux itself")
    }

    /// With the place that it is about, unless it has one already.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.place.get_or_insert_with(|| place.to_string());
        self
    }

    /// With what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The system gives no more threads.
    pub fn no_threads(error: &std::io::Error) -> Self {
        let said = error.raw_os_error().map_or_else(|| error.to_string(), text_of);
        Self::new(Kind::Invalid, format!("the system gives no more threads: {said}"))
            .hint("raise the limit of processes (ulimit -u, pids.max), or end some")
    }

    /// What the host's file system said about a path.
    pub fn host(error: &std::io::Error, place: impl fmt::Display) -> Self {
        let (kind, text) = match error.raw_os_error() {
            Some(errno) => (Kind::of_errno(Errno::from_raw_os_error(errno)), text_of(errno)),
            None => (Kind::Device, error.to_string()),
        };
        let place = place.to_string();
        if kind == Kind::Permission
            && let Some(hint) = foreign_mount::owner_hint(std::path::Path::new(&place))
        {
            return Self::new(kind, text).at(place).hint(hint);
        }
        let failure = Self::new(kind, text).at(place);
        match error.raw_os_error().and_then(|errno| hint_of(Errno::from_raw_os_error(errno))) {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// What to do about an errno of the host, where that is always the same.
pub(crate) fn hint_of(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::FBIG => {
            "a file can't be so large here: raise the limit (ulimit -f), or take a file system that holds larger files"
        }
        Errno::NOENT => "check the path",
        Errno::NOTDIR => "check the path: a part of it that should be a directory is none",
        Errno::ISDIR => "name a file, or a path in an image (IMAGE:/PATH)",
        Errno::ACCESS | Errno::PERM => {
            "you may not do that: choose a path of your own, ask its owner, or become root"
        }
        Errno::ROFS => "the host's file system is read-only there: choose another path",
        Errno::DQUOT => "free some of your quota there, or choose another place",
        Errno::NOSPC => "free some space there and try again",
        _ => return None,
    })
}

/// The system's words for an errno, without Rust's number behind them.
pub fn text_of(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names of files and what other programs said may stand in each of them.
        if let Some(place) = &self.place {
            write!(formatter, "{}: ", escaped(place.as_bytes()))?;
        }
        formatter.write_str(&lines_escaped(&self.message))?;
        match &self.hint {
            Some(hint) => write!(formatter, "\n  {}", lines_escaped(hint)),
            None => Ok(()),
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        let place = error.device.to_string();
        let failure = match &error.kind {
            DeviceErrorKind::Io { errno } => {
                let known = Errno::from_raw_os_error(*errno);
                let failure = Self::new(Kind::of_errno(known), text_of(*errno));
                match hint_of(known) {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                }
            }
            DeviceErrorKind::OutOfRange { device_length } => Self::new(
                Kind::Device,
                format!("the file ends at byte {device_length}, before what was to be read"),
            )
            .hint("the image is truncated: restore it from a backup, or copy it again"),
            DeviceErrorKind::ReadOnly => Self::new(Kind::ReadOnly, "it can't be written").hint(
                "make the file writable (and the file system that it lies on), or use a verb that only reads",
            ),
            DeviceErrorKind::HostFull => Self::new(Kind::NoSpace, "the host's file system is full")
                .hint("free some space there and try again; what was not finished is not in the image"),
            DeviceErrorKind::Busy { holder } => {
                let by = holder.as_ref().map(|holder| format!(" by {holder}")).unwrap_or_default();
                Self::new(Kind::Busy, format!("in use{by}")).hint("wait for it to end, or stop it")
            }
            DeviceErrorKind::Mounted { mount } => {
                let place = mount.mountpoint.as_ref().map(|place| format!(" on {}", place.display()));
                let device = mount.device.display();
                let text = format!("it is mounted ({device}{})", place.unwrap_or_default());
                Self::new(Kind::Busy, text).hint("unmount it first: two drivers would destroy it")
            }
            other => Self::new(Kind::Device, other.to_string()),
        };
        failure.at(place)
    }
}

impl From<PartitionError> for Failure {
    fn from(error: PartitionError) -> Self {
        let kind = match error.kind {
            PartitionErrorKind::DamagedTable { .. } => Kind::Corruption,
            PartitionErrorKind::NamedTwice => Kind::Usage,
            PartitionErrorKind::NotThere => Kind::NotFound,
            _ => Kind::Invalid,
        };
        Self::new(kind, error.kind.to_string()).hint(error.kind.advice()).at(error.device)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Device(error) => error.into(),
            OpenError::Partition(error) => error.into(),
        }
    }
}

impl From<VolumeError> for Failure {
    fn from(error: VolumeError) -> Self {
        if let Some(limit) = host_limit(&error) {
            return limit.clone().into();
        }
        match error {
            VolumeError::Device(error) => error.into(),
            VolumeError::ChunkTree(ChunkTreeFault::Volume(error)) => (*error).into(),
            VolumeError::Superblock { device, fault, usable_copy } => {
                superblock(&fault, usable_copy.is_some()).at(device)
            }
            VolumeError::DeviceTooShort { device, found, expected } => {
                let text = format!("the device has {found} bytes, its superblock says {expected}");
                Self::new(Kind::Device, text)
                    .hint("the image is truncated: restore it from a backup, or copy it again")
                    .at(device)
            }
            VolumeError::ForeignDevice { device, found, expected } => Self::new(
                Kind::Usage,
                format!("it belongs to file system {found}, the first device to {expected}"),
            )
            .hint("give the devices of one file system")
            .at(device),
            error @ (VolumeError::DuplicateDevice { .. } | VolumeError::RemovedDevices { .. }) => {
                Self::usage(error.to_string())
            }
            VolumeError::DeviceCount { found, expected } => {
                let text = format!("the file system has {expected} devices, {found} given");
                Self::new(Kind::Device, text)
                    .hint("give all its devices: further ones with -D DEVICE, or behind the first; -o ro,degraded reads what there is")
            }
            error @ VolumeError::UnsupportedProfile { .. } => Self::new(Kind::Unsupported, error.to_string()),
            error @ VolumeError::ReadOnly => Self::new(Kind::ReadOnly, error.to_string()),
            other => Self::new(Kind::Corruption, other.to_string())
                .hint("keep the image as it is, and look at it with inspect-internal"),
        }
    }
}

/// The failure of the host that explains failing writes, if that is it: no space, or a limit.
fn host_limit(error: &VolumeError) -> Option<&DeviceError> {
    let VolumeError::WriteFailed { failures } = error else { return None };
    let is_limit = |kind: &DeviceErrorKind| match kind {
        DeviceErrorKind::HostFull => true,
        DeviceErrorKind::Io { errno } => {
            [Errno::FBIG, Errno::DQUOT].iter().any(|limit| limit.raw_os_error() == *errno)
        }
        _ => false,
    };
    failures.iter().find_map(|failure| match &failure.fault {
        CopyFault::Device(error) if is_limit(&error.kind) => Some(error),
        _ => None,
    })
}

fn superblock(fault: &SuperblockFault, has_copy: bool) -> Failure {
    let failure = match fault {
        SuperblockFault::Magic { .. } | SuperblockFault::Size { .. } => {
            Failure::new(Kind::Invalid, "no Btrfs file system: there is no superblock at byte 65536")
                .hint("make one with vlinder mkfs, or check the path; in a partition it is named by IMAGE@NUMBER or -o offset=BYTES")
        }
        SuperblockFault::Flags { .. } | SuperblockFault::ChecksumType { .. } => {
            Failure::new(Kind::Unsupported, fault.to_string())
        }
        SuperblockFault::WriteIncompat { .. } => {
            Failure::new(Kind::Unsupported, fault.to_string()).hint("open it for reading only: -o ro")
        }
        other => Failure::new(Kind::Corruption, format!("the superblock is broken: {other}")),
    };
    if has_copy {
        return failure.hint("a copy of the superblock is sound: look with inspect-internal dump-super -a");
    }
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_where_what_and_what_to_do() {
        let failure =
            Failure::new(Kind::NotFound, "no such file").at("a.img:/b").hint("look with ls").at("other");
        assert_eq!(failure.to_string(), "a.img:/b: no such file\n  look with ls");
        assert_eq!(failure.status, ExitStatus::Failed);
        assert_eq!(Failure::usage("x").status, ExitStatus::Usage);
    }

    #[test]
    fn a_failure_writes_no_control_characters() {
        let failure = Failure::new(Kind::NotFound, "no\u{1b}[2J\nfile").at("a\n\u{1b}]0;x\u{7}").hint("\r");
        assert_eq!(failure.to_string(), "a\\012\\033]0;x\\007: no\\033[2J\nfile\n  \\015");
    }

    #[test]
    fn errnos_lose_their_number() {
        assert_eq!(text_of(2), "No such file or directory");
    }
}
