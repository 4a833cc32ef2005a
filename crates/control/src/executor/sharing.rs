//! Sharing of extents between files.

use rustix::io::Errno;
use vlinder_fs::FsError;

use super::kernel_notifier::with_room;
use super::served_mount::ServedMount;
use crate::ErrorBody;
use crate::peer::Peer;
use crate::protocol::{Answer, MAX_DEDUPE_BYTES, Name};

/// As FIDEDUPERANGE. What the kernel has cached of either file is not asked for: it is stored over what is
/// shared here, and no cached page becomes wrong, since no content changes.
pub(super) fn dedupe(
    mount: &ServedMount,
    peer: &Peer,
    (source, source_offset): (&Name, u64),
    (path, offset): (&Name, u64),
    length: u64,
) -> Result<Answer, ErrorBody> {
    if length > MAX_DEDUPE_BYTES {
        let text = format!("one request compares {MAX_DEDUPE_BYTES} bytes at most, not {length}");
        return Err(ErrorBody::new(Errno::INVAL, text).at(path.to_string()).hint("ask for less at a time"));
    }
    let caller = mount.caller(peer, 0);
    let (from, to) = (mount.resolve(&caller, source)?, mount.resolve(&caller, path)?);
    let at = |error: FsError| ErrorBody::from_fs(&error).at(path.to_string());
    let deduped = with_room(&*mount.notifier, || {
        let files = mount.filesystem.files();
        files.dedupe_range(&caller, (&from, source_offset), (&to, offset), length)
    });
    Ok(Answer::Deduped { is_same: deduped.map_err(at)? })
}
