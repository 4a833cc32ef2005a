//! What is to be stored and said before a mount ends.

use std::time::Duration;

use rustix::io::Errno;
use vlinder_base::clock::{Clock as _, SystemClock};
use vlinder_base::thread;
use vlinder_transaction::ReadOnlyReason;

use super::served_mount::ServedMount;
use crate::ErrorBody;
use crate::peer::Peer;
use crate::protocol::Answer;

/// So long a file that was closed may still seem to be open: the kernel tells of the last close of a file
/// after close(2) has returned.
const LATE_CLOSE: Duration = Duration::from_millis(500);
const LATE_CLOSE_INTERVAL: Duration = Duration::from_millis(10);

/// Makes durable what can be, and tells whether that is all.
pub(super) fn prepare(mount: &ServedMount, peer: &Peer) -> Result<Answer, ErrorBody> {
    mount.require_privilege(peer)?;
    // A mount that an error made read-only must still come down; its end says what is lost.
    let says_so_at_the_end = || {
        let reason = mount.filesystem.engine().read_only_reason();
        matches!(reason, Some(ReadOnlyReason::Error(_)))
    };
    let mut is_durable = true;
    match store_what_is_wanted(mount) {
        // The kernel drops what it could not hand over, and tells it once: nobody else would hear of it.
        Err(error) if !says_so_at_the_end() => return Err(with_advice(mount, error)),
        Err(error) => {
            is_durable = false;
            tracing::warn!(%error, "not everything came before unmounting");
        }
        Ok(()) => {}
    }
    let is_known = says_so_at_the_end();
    match mount.sync() {
        // Until now nobody knew: what was not stored can still be read, and goes with the mount.
        Err(error) if !is_known => return Err(with_advice(mount, error)),
        Err(error) => {
            is_durable = false;
            tracing::warn!(%error, "the commit before unmounting failed");
        }
        Ok(_) => {}
    }
    Ok(Answer::Prepared { process: std::process::id(), is_durable })
}

/// Stores what the kernel had cached. Bytes that find no room may be those that a writer was told of when he
/// closed his file, and then they go with the file: so storing them is tried again for a moment. What the
/// kernel could not hand over it tells once, so that is never asked for again.
fn store_what_is_wanted(mount: &ServedMount) -> Result<(), ErrorBody> {
    mount.write_back()?;
    let clock = SystemClock::new();
    loop {
        match mount.store_the_rest() {
            Err(error) if error.errno == Errno::NOSPC.raw_os_error() && clock.monotonic() < LATE_CLOSE => {
                thread::sleep(LATE_CLOSE_INTERVAL);
            }
            ended => return ended,
        }
    }
}

/// What is to be done before unmounting is tried again, as far as it is known what was not stored.
fn with_advice(mount: &ServedMount, error: ErrorBody) -> ErrorBody {
    let condition = mount.condition();
    let held = condition.held_bytes;
    error.hint(if condition.is_host_full {
        "nothing is lost while the mount is there: free some space on the host, then unmount again".to_owned()
    } else if condition.lost_bytes > 0 {
        "files that were written last have lost bytes: free space, write them again, then unmount".to_owned()
    } else if held == 1 {
        "1 byte that was written last is in memory and found no room: free space, or copy its file to another place, then unmount again".to_owned()
    } else if held > 0 {
        format!("{held} bytes that were written last are in memory and found no room: free space, or copy them to another place, then unmount again")
    } else if condition.read_only.is_some() {
        "copy what was written last to another place, then unmount again".to_owned()
    } else {
        "all that reached the mount is stored; unmount again".to_owned()
    })
}
