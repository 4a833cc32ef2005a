//! The ioctl(2) by which a mount tells a name of its server's: a fixed number of bytes, the first of which
//! says how many of the others are the name.

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Updater, ioctl, opcode};

/// Bytes that the call gives: a length, and the longest name of a socket (`sun_path`, without the byte that
/// makes it abstract).
pub const MOUNT_NAME_BYTES: usize = 108;

type Answer = [u8; MOUNT_NAME_BYTES];

const OPCODE: rustix::ioctl::Opcode = opcode::read::<Answer>(0xC8, 1);
/// The command's number, which says that it gives [`MOUNT_NAME_BYTES`] bytes and takes none. No file system
/// of Linux has it.
#[allow(
    clippy::cast_possible_truncation,
    clippy::unnecessary_cast,
    reason = "numbers of commands have 32 bits"
)]
pub const MOUNT_NAME_COMMAND: u32 = OPCODE as u32;

/// Asks the mount of an open file or directory. This may wait for its server without end, as each system call
/// on it may.
///
/// # Errors
/// What the mount answers: `ENOTTY` where it tells no name; [`io::ErrorKind::InvalidData`] for what is none.
pub fn ask_mount_name(file: impl AsFd) -> io::Result<Vec<u8>> {
    // Zeros, since a server may answer with fewer bytes.
    let mut answer: Answer = [0; MOUNT_NAME_BYTES];
    // SAFETY: the command's number has the size of `Answer`, and a kernel writes no more than that for it:
    // FUSE copies what the server answers up to this size (`fuse_do_ioctl`), and all others refuse the
    // command.
    unsafe { ioctl(file, Updater::<OPCODE, Answer>::new(&mut answer)) }?;
    decode(&answer).map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// What a server answers that tells this name; none for one that is too long, or empty.
#[must_use]
pub fn encode_mount_name(name: &[u8]) -> Option<Vec<u8>> {
    let mut answer = vec![u8::try_from(name.len()).ok().filter(|length| *length > 0)?];
    answer.extend_from_slice(name);
    (answer.len() <= MOUNT_NAME_BYTES).then(|| {
        answer.resize(MOUNT_NAME_BYTES, 0);
        answer
    })
}

fn decode(answer: &Answer) -> Option<&[u8]> {
    let (length, name) = answer.split_first()?;
    name.get(..usize::from(*length)).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_what_is_none_does_not() {
        for length in [1, 20, MOUNT_NAME_BYTES - 1] {
            let name = vec![b'x'; length];
            let answer: Answer = encode_mount_name(&name).unwrap().try_into().unwrap();
            assert_eq!(decode(&answer), Some(&name[..]));
        }
        assert_eq!(encode_mount_name(b""), None);
        for length in [MOUNT_NAME_BYTES, 255, 256, 1000] {
            assert_eq!(encode_mount_name(&vec![b'x'; length]), None, "{length}");
        }
        let mut lying = [1; MOUNT_NAME_BYTES];
        for length in [0, 108, 255] {
            lying[0] = length;
            assert_eq!(decode(&lying), None, "{length}");
        }
    }

    #[test]
    fn other_file_systems_tell_no_name() {
        for path in ["/", "/proc", "/dev/null", "/tmp"] {
            let told = ask_mount_name(std::fs::File::open(path).unwrap());
            assert!(told.is_err(), "{path}: {told:?}");
        }
    }
}
