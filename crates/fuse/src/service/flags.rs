//! The flags of chattr(1), which the kernel asks for and sets by ioctl(2) requests of its own.
//!
//! | request | Linux | data |
//! |---|---|---|
//! | get flags | `FS_IOC_GETFLAGS` | `FS_*_FL`, 4 bytes |
//! | set flags | `FS_IOC_SETFLAGS` | the same |
//! | get attributes | `FS_IOC_FSGETXATTR` | `struct fsxattr`: `FS_XFLAG_*`, 4 bytes, then 24 others |
//! | set attributes | `FS_IOC_FSSETXATTR` | the same |

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::{Caller, Inode, InodeFlags, Refusal};

use super::MountService;
use super::convert::errno;
use crate::transport::Reply;

const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const GET_ATTRIBUTES: u32 = 0x801c_581f;
const SET_ATTRIBUTES: u32 = 0x401c_5820;
/// Bytes of `struct fsxattr`.
const ATTRIBUTES_BYTES: usize = 28;

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
    // That compression was tried in vain does not take back that it is wanted, but this is what Linux shows.
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
    // A file that has data stays what it is, and nobody is told.
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

impl MountService {
    /// Answers an ioctl(2); those that are not about flags are not for this kind of file.
    pub(super) fn control_file(
        &self,
        caller: &Caller,
        inode: &Arc<Inode>,
        command: u32,
        data: &[u8],
    ) -> Reply<Vec<u8>> {
        // Linux's placeholders have no file operations that answer it.
        if inode.is_placeholder() {
            return Err(Errno::NOTTY);
        }
        let changed = match command {
            GET_FLAGS => return Ok(shown_flags(inode.flags()).to_ne_bytes().to_vec()),
            GET_ATTRIBUTES => {
                let mut answer = shown_attributes(inode.flags()).to_ne_bytes().to_vec();
                answer.resize(ATTRIBUTES_BYTES, 0);
                return Ok(answer);
            }
            SET_FLAGS => {
                let given = u32::from_ne_bytes(*data.first_chunk().ok_or(Errno::INVAL)?);
                let is_directory = inode.is_directory();
                self.filesystem.change_flags(caller, inode, |present, is_empty| {
                    with_flags(present, given, is_directory, is_empty)
                })
            }
            SET_ATTRIBUTES => {
                let given = data.first_chunk().ok_or(Errno::INVAL)?;
                self.filesystem.change_flags(caller, inode, |present, _| with_attributes(present, given))
            }
            _ => return Err(Errno::NOTTY),
        };
        changed.map_err(|error| errno(&error))?;
        self.note_change_time(inode);
        self.attributes_changed(inode.id());
        Ok(Vec::new())
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
            // What nobody can set stays.
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
