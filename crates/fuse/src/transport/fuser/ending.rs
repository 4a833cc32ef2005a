//! How a connection to the kernel ended: unmounted, or aborted.
//!
//! A read of `/dev/fuse` gives ENODEV after unmounting, and ECONNABORTED after an abort by a user that may
//! write to `/sys/fs/fuse/connections`. But a reader that has just been handed a request that no program
//! waits for (the release of a file), while unmounting shuts the connection, is given ECONNABORTED as well:
//! `fuse_dev_do_read` in Linux's fs/fuse/dev.c. Only another read tells the two apart.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use vlinder_base::thread;

use crate::transport::LARGEST_TRANSFER;

/// A read must offer room for the largest write and its two headers, or it is refused whatever became of the
/// connection.
const ROOM_BYTES: usize = LARGEST_TRANSFER as usize + 4096;

/// The connection is shut within microseconds of the first thread's noticing it.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);

/// What the loop that served `device` has ended with, `served`, means.
///
/// # Errors
/// The connection was aborted, or `served` is another error.
pub(super) fn judge(device: &OwnedFd, served: io::Result<()>) -> io::Result<()> {
    let aborted = |error: &io::Error| Errno::from_io_error(error) == Some(Errno::CONNABORTED);
    if !served.as_ref().is_err_and(aborted) {
        return served;
    }
    let mut room = vec![0; ROOM_BYTES];
    judge_by(served, || rustix::io::read(device, &mut *room))
}

fn judge_by(served: io::Result<()>, mut read: impl FnMut() -> Result<usize, Errno>) -> io::Result<()> {
    for _ in 0..ATTEMPTS {
        match read() {
            Err(Errno::NODEV) => return Ok(()),
            Err(Errno::CONNABORTED | Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
            // No thread is left to answer it.
            Ok(_) => break,
        }
        thread::sleep(PAUSE);
    }
    served
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aborted() -> io::Result<()> {
        Err(Errno::CONNABORTED.into())
    }

    #[test]
    fn an_unmounted_connection_has_ended_well() {
        let mut answers = [Errno::CONNABORTED, Errno::INTR, Errno::NODEV].into_iter();
        judge_by(aborted(), || Err(answers.next().unwrap())).unwrap();
    }

    #[test]
    fn an_aborted_connection_has_not() {
        let error = judge_by(aborted(), || Err(Errno::CONNABORTED)).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::CONNABORTED));
        judge_by(aborted(), || Ok(80)).unwrap_err();
        let error = judge_by(aborted(), || Err(Errno::BADF)).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::BADF));
    }
}
