//! Values of the file system and of the transport, each as the other has them.

use rustix::io::Errno;
use vlinder_fs::{
    Attributes, Caller, Capabilities, DeviceNumber, FileType, FsError, GroupId, Timestamp, UserId,
};

use crate::transport::{NodeAttributes, Requester, Time};

/// What a system call returns for an error. An I/O error and damage go into the log as well.
pub(super) fn errno(error: &FsError) -> Errno {
    let errno = error.errno();
    if matches!(errno, Errno::IO | Errno::UCLEAN) {
        tracing::error!(%error, "a request failed");
    }
    errno
}

/// The requester as the file system sees it, after the kernel has judged modes, ACLs and owners
/// (`default_permissions`): what the kernel does not tell (further groups, capabilities) must not refuse
/// again what it allowed. The right to keep set-id bits and to see trusted attributes remains to root.
///
/// With `owners=root` the kernel judges nothing, and root may do everything.
pub(super) fn judged(requester: Requester, umask: u32) -> Caller {
    if requester.acts_as_root {
        return Caller { umask: umask & 0o777, ..Caller::superuser() };
    }
    let mut caller = Caller::user(UserId(requester.user), GroupId(requester.group));
    caller.umask = umask & 0o777;
    caller.capabilities = if requester.user == 0 {
        Capabilities::ALL
    } else {
        Capabilities::ALL.without(Capabilities::FSETID.with(Capabilities::SYS_ADMIN))
    };
    caller
}

/// As [`judged`] for the removal of directories: an empty subvolume goes with its name, whichever user
/// removes it.
pub(super) fn remover(requester: Requester) -> Caller {
    Caller { capabilities: Capabilities::ALL, ..judged(requester, 0) }
}

pub(super) fn time_of(time: Timestamp) -> Time {
    // More nanoseconds than a second has can stand on a damaged disk.
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds.min(999_999_999) }
}

pub(super) fn timestamp_of(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

pub(super) fn attributes_of(attributes: &Attributes, number: u64) -> NodeAttributes {
    NodeAttributes {
        number,
        mode: attributes.mode.0,
        links: attributes.link_count,
        user: attributes.user.0,
        group: attributes.group.0,
        device: encode_device(attributes.device_number),
        size_bytes: attributes.size_bytes,
        blocks: attributes.allocated_bytes / 512,
        block_size: attributes.block_size,
        access_time: time_of(attributes.access_time),
        modification_time: time_of(attributes.modification_time),
        change_time: time_of(attributes.change_time),
        // What is changed about a placeholder is forgotten when its last user is gone.
        is_volatile: attributes.id.absent.is_some(),
    }
}

/// A device number in 32 bits, as the kernel's requests have it (`new_encode_dev`).
fn encode_device(device: DeviceNumber) -> u32 {
    let (major, minor) = (device.major() as u32 & 0xfff, device.minor() as u32 & 0xf_ffff);
    minor & 0xff | major << 8 | (minor & !0xff) << 12
}

pub(super) fn decode_device(device: u32) -> DeviceNumber {
    DeviceNumber::new(device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00)
}

/// The type in a mode; none for what no file is.
pub(super) fn file_type_of(mode: u32) -> Option<FileType> {
    match mode & 0o170_000 {
        // mknod(2) without a type makes a regular file.
        0 | 0o100_000 => Some(FileType::Regular),
        0o040_000 => Some(FileType::Directory),
        0o120_000 => Some(FileType::SymbolicLink),
        0o060_000 => Some(FileType::BlockDevice),
        0o020_000 => Some(FileType::CharacterDevice),
        0o010_000 => Some(FileType::Fifo),
        0o140_000 => Some(FileType::Socket),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_keep_all_their_bits() {
        for (major, minor) in [(0, 0), (8, 1), (4095, 255), (4095, 0xf_ffff), (1, 256)] {
            let device = DeviceNumber::new(major, minor);
            let back = decode_device(encode_device(device));
            assert_eq!((back.major(), back.minor()), (u64::from(major), u64::from(minor)));
        }
    }

    #[test]
    fn only_root_keeps_set_id_bits_and_sees_trusted_attributes() {
        let user = judged(Requester { user: 1000, group: 1000, process: 1, acts_as_root: false }, 0o7022);
        assert_eq!(user.umask, 0o022);
        assert!(user.has(Capabilities::DAC_OVERRIDE.with(Capabilities::FOWNER)));
        assert!(!user.has(Capabilities::FSETID) && !user.has(Capabilities::SYS_ADMIN));
        assert!(
            judged(Requester { user: 0, group: 0, process: 1, acts_as_root: false }, 0)
                .has(Capabilities::ALL)
        );
    }
}
