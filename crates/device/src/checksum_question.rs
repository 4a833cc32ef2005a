//! The ioctl(2) by which a mount tells whether a file's data have checksums. Linux has none for that: flag C
//! of chattr(1) tells of files without copy-on-write, and what the mount option `nodatasum` made has no flag.

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Updater, ioctl, opcode};

const OPCODE: rustix::ioctl::Opcode = opcode::read::<u8>(0xC8, 2);
/// The command's number, which says that it gives one byte and takes none: 1 where the file's data have
/// checksums, 0 where they have none. No file system of Linux has it.
#[allow(
    clippy::cast_possible_truncation,
    clippy::unnecessary_cast,
    reason = "numbers of commands have 32 bits"
)]
pub const CHECKSUM_QUESTION_COMMAND: u32 = OPCODE as u32;

/// Asks the mount of an open regular file. This may wait for its server without end, as each system call on
/// it may.
///
/// # Errors
/// What the mount answers: `ENOTTY` where it does not tell.
pub fn ask_for_checksums(file: impl AsFd) -> io::Result<bool> {
    let mut answer = 0_u8;
    // SAFETY: the command's number has the size of the answer, and a kernel writes no more than that for it:
    // FUSE copies what the server answers up to this size (`fuse_do_ioctl`), and all others refuse the
    // command.
    unsafe { ioctl(file, Updater::<OPCODE, u8>::new(&mut answer)) }?;
    Ok(answer != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_file_systems_tell_of_no_checksums() {
        for path in ["/", "/proc", "/dev/null", "/tmp"] {
            let told = ask_for_checksums(std::fs::File::open(path).unwrap());
            assert!(told.is_err(), "{path}: {told:?}");
        }
    }
}
