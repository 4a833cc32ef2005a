//! Free space given back to the host.

use std::time::Duration;

use rustix::io::Errno;
use vlinder_base::clock::{Clock, SystemClock};
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_transaction::Trimmed;

use super::served_mount::ServedMount;
use crate::ErrorBody;
use crate::peer::Peer;
use crate::protocol::{Answer, TrimPlace, TrimRecord};

/// How long pieces are given back for one request: a client that is gone, or that the user interrupted, asks
/// for no more.
const ROUND: Duration = Duration::from_millis(200);

/// Gives back some of what is free. As Linux's FITRIM (`btrfs_ioctl_fitrim`, fs/btrfs/ioctl.c) this is for
/// the administrator, and does not push out the kernel's dirty pages: what they need is not allocated yet.
pub(super) fn trim(
    mount: &ServedMount,
    peer: &Peer,
    stopping: &AtomicBool,
    from: Option<TrimPlace>,
) -> Result<Answer, ErrorBody> {
    mount.require_privilege(peer)?;
    let (engine, clock) = (mount.filesystem.engine(), SystemClock::new());
    let (mut trimmed, mut position) = (Trimmed::default(), from.map(Into::into));
    loop {
        if stopping.load(Ordering::Relaxed) {
            let body = ErrorBody::new(Errno::INTR, "the mount ends; not all free space was given back");
            return Err(body.hint("give the image to vlinder fstrim, or mount it again"));
        }
        let (piece, next) = engine.trimmer().piece(position).map_err(vlinder_fs::FsError::from)?;
        trimmed.add(piece);
        if next.is_none() || clock.monotonic() >= ROUND {
            return Ok(Answer::Trimmed(TrimRecord::new(trimmed, next)));
        }
        position = next;
    }
}
