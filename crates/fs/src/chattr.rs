//! The flags of chattr(1) as Linux's ioctl(2) requests have them (`include/uapi/linux/fs.h`), and what
//! Linux's Btrfs makes of them.
//!
//! | request | Linux | value |
//! |---|---|---|
//! | get, set flags | `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS` | `FS_*_FL`, 4 bytes |
//! | get, set attributes | `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR` | `struct fsxattr`: `FS_XFLAG_*`, 4 bytes, then 24 others |

use vlinder_base::sync::Arc;

use crate::metadata::InodeAttributes;
use crate::{Caller, Filesystem, Inode, InodeFlags, Refusal, Result};

/// Bytes of `struct fsxattr`.
pub const ATTRIBUTES_BYTES: usize = 28;

const NOT_COMPRESSED: u32 = 0x400;
const NO_COPY_ON_WRITE: u32 = 0x80_0000;
const COMPRESSED: u32 = 0x4;
const SYNCHRONOUS_DIRECTORY: u32 = 0x1_0000;

/// Flags of an inode by `FS_*_FL` and `FS_XFLAG_*`, where they mean the same (`include/uapi/linux/fs.h`).
const SAME: [(InodeFlags, u32, u32); 5] = [
    (InodeFlags::SYNC, 0x8, 0x20),
    (InodeFlags::IMMUTABLE, 0x10, 0x8),
    (InodeFlags::APPEND, 0x20, 0x10),
    (InodeFlags::NODUMP, 0x40, 0x80),
    (InodeFlags::NOATIME, 0x80, 0x40),
];

fn shown_flags(flags: InodeFlags) -> u32 {
    let mut shown = 0;
    for (flag, bit, _) in SAME {
        shown |= if flags.has(flag) { bit } else { 0 };
    }
    let further = [(InodeFlags::DIRSYNC, SYNCHRONOUS_DIRECTORY), (InodeFlags::NODATACOW, NO_COPY_ON_WRITE)];
    for (flag, bit) in further {
        shown |= if flags.has(flag) { bit } else { 0 };
    }
    // Linux shows only that compression was tried in vain, although compression is still wanted.
    if flags.has(InodeFlags::NOCOMPRESS) {
        shown |= NOT_COMPRESSED;
    } else if flags.has(InodeFlags::COMPRESS) {
        shown |= COMPRESSED;
    }
    shown
}

fn shown_attributes(flags: InodeFlags) -> u32 {
    SAME.iter().fold(0, |shown, (flag, _, bit)| if flags.has(*flag) { shown | bit } else { shown })
}

/// What the flags become when `FS_*_FL` are set as given, as Linux has it.
fn with_flags(
    present: InodeFlags,
    given: u32,
    is_directory: bool,
    is_empty: bool,
) -> Result<InodeFlags, Refusal> {
    let all = SAME.iter().fold(0, |all, (_, bit, _)| all | bit);
    if given & !(all | SYNCHRONOUS_DIRECTORY | NO_COPY_ON_WRITE | NOT_COMPRESSED | COMPRESSED) != 0 {
        return Err(Refusal::NotSupported);
    }
    let has = |bit| given & bit != 0;
    if has(COMPRESSED) && (has(NOT_COMPRESSED) || has(NO_COPY_ON_WRITE)) {
        return Err(Refusal::InvalidArgument);
    }
    let mut wanted = present;
    let mut set = |flag: InodeFlags, on| wanted = if on { wanted.with(flag) } else { wanted.without(flag) };
    for (flag, bit, _) in SAME {
        set(flag, has(bit));
    }
    set(InodeFlags::DIRSYNC, is_directory && has(SYNCHRONOUS_DIRECTORY));
    set(InodeFlags::NOCOMPRESS, has(NOT_COMPRESSED));
    set(InodeFlags::COMPRESS, has(COMPRESSED));
    // A file that has data stays what it is, and the caller is not told.
    if (is_directory || is_empty) && has(NO_COPY_ON_WRITE) != present.has(InodeFlags::NODATACOW) {
        set(InodeFlags::NODATACOW, has(NO_COPY_ON_WRITE));
        if !is_directory {
            set(InodeFlags::NODATASUM, has(NO_COPY_ON_WRITE));
        }
    }
    Ok(wanted)
}

/// As [`with_flags`], for `FS_XFLAG_*`; the others stay.
fn with_attributes(present: InodeFlags, given: &[u8; ATTRIBUTES_BYTES]) -> Result<InodeFlags, Refusal> {
    let [a, b, c, d, rest @ ..] = *given;
    let given = u32::from_ne_bytes([a, b, c, d]);
    let all = SAME.iter().fold(0, |all, (_, _, bit)| all | bit);
    // Sizes of extents and projects are not Btrfs's.
    if given & !all != 0 || rest.iter().any(|byte| *byte != 0) {
        return Err(Refusal::NotSupported);
    }
    Ok(SAME.iter().fold(
        present,
        |flags, (flag, _, bit)| {
            if given & bit != 0 { flags.with(*flag) } else { flags.without(*flag) }
        },
    ))
}

/// The flags of one file.
#[derive(Clone, Copy)]
pub struct ChattrFlags<'a> {
    attributes: InodeAttributes<'a>,
    inode: &'a Arc<Inode>,
}

impl<'a> ChattrFlags<'a> {
    /// Those of a file of this file system.
    #[must_use]
    pub fn of(filesystem: &'a Filesystem, inode: &'a Arc<Inode>) -> Self {
        Self { attributes: filesystem.attributes(), inode }
    }

    /// Refuses to open the file for writing where its flags forbid that: an immutable file, or one that can
    /// only grow, unless it is opened for appending (`may_open` in Linux's fs/namei.c).
    ///
    /// # Errors
    /// [`Refusal::NotPermitted`].
    pub fn check_writing(self, appends: bool) -> Result<()> {
        let flags = self.inode.flags();
        if flags.has(InodeFlags::IMMUTABLE) || (flags.has(InodeFlags::APPEND) && !appends) {
            return Err(Refusal::NotPermitted.into());
        }
        Ok(())
    }

    /// `FS_*_FL` as `FS_IOC_GETFLAGS` shows them.
    #[must_use]
    pub fn flags(self) -> u32 {
        shown_flags(self.inode.flags())
    }

    /// Sets `FS_*_FL` as `FS_IOC_SETFLAGS` does.
    ///
    /// # Errors
    /// [`Refusal::NotSupported`] for a flag that Btrfs does not have; [`Refusal::InvalidArgument`] for flags
    /// that exclude each other; as [`InodeAttributes::set_flags`].
    pub fn set_flags(self, caller: &Caller, given: u32) -> Result<()> {
        let is_directory = self.inode.is_directory();
        let change = |present, is_empty| with_flags(present, given, is_directory, is_empty);
        self.attributes.change_flags(caller, self.inode, change)
    }

    /// `struct fsxattr` as `FS_IOC_FSGETXATTR` shows it.
    #[must_use]
    pub fn attributes(self) -> [u8; ATTRIBUTES_BYTES] {
        let mut attributes = [0; ATTRIBUTES_BYTES];
        let (flags, _) = attributes.split_at_mut(4);
        flags.copy_from_slice(&shown_attributes(self.inode.flags()).to_ne_bytes());
        attributes
    }

    /// Sets the flags of a `struct fsxattr` as `FS_IOC_FSSETXATTR` does.
    ///
    /// # Errors
    /// [`Refusal::NotSupported`] where more is given than flags that Btrfs has; as
    /// [`InodeAttributes::set_flags`].
    pub fn set_attributes(self, caller: &Caller, given: &[u8; ATTRIBUTES_BYTES]) -> Result<()> {
        self.attributes.change_flags(caller, self.inode, |present, _| with_attributes(present, given))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_set() {
        let directory = InodeFlags::DIRSYNC.with(InodeFlags::NODATACOW).with(InodeFlags::IMMUTABLE);
        let file = InodeFlags::NODATACOW.with(InodeFlags::NODATASUM).with(InodeFlags::PREALLOC);
        let compressed = InodeFlags::COMPRESS.with(InodeFlags::NOATIME).with(InodeFlags::NODUMP);
        for (flags, is_directory) in
            [(directory, true), (file, false), (compressed, false), (InodeFlags::NONE, false)]
        {
            assert_eq!(with_flags(flags, shown_flags(flags), is_directory, true), Ok(flags));
            // What no caller can set stays.
            let present = flags.without(flags).with(InodeFlags::PREALLOC);
            let set = with_flags(present, shown_flags(flags), is_directory, true);
            assert_eq!(set, Ok(flags.with(InodeFlags::PREALLOC)));
            let mut attributes = [0; ATTRIBUTES_BYTES];
            attributes[..4].copy_from_slice(&shown_attributes(flags).to_ne_bytes());
            assert_eq!(with_attributes(flags, &attributes), Ok(flags));
        }
    }

    #[test]
    fn what_linux_refuses_is_refused() {
        let none = InodeFlags::NONE;
        assert_eq!(with_flags(none, 0x8000, false, true), Err(Refusal::NotSupported), "+t");
        assert_eq!(
            with_flags(none, COMPRESSED | NO_COPY_ON_WRITE, false, true),
            Err(Refusal::InvalidArgument)
        );
        assert_eq!(with_flags(none, COMPRESSED | NOT_COMPRESSED, false, true), Err(Refusal::InvalidArgument));
        assert_eq!(with_flags(none, SYNCHRONOUS_DIRECTORY, false, true), Ok(none));
        assert_eq!(with_flags(none, NO_COPY_ON_WRITE, false, false), Ok(none), "it has data");
        let mut project = [0; ATTRIBUTES_BYTES];
        project[12] = 5;
        assert_eq!(with_attributes(none, &project), Err(Refusal::NotSupported));
    }
}
