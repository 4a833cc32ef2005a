//! The subvolumes of the receiver that a stream names by UUID.

use vlinder_format::{Generation, RootId, Uuid};
use vlinder_fs::Filesystem;

use super::ReceiveError;

/// The subvolume that was received from `uuid`, or that has that UUID itself, as the stream's sender had it
/// at `transid`.
///
/// # Errors
/// There is none, or only one that was changed since.
pub(super) fn find(filesystem: &Filesystem, uuid: Uuid, transid: Generation) -> Result<RootId, ReceiveError> {
    let mut changed = None;
    for subvolume in filesystem.subvolumes().all()? {
        let is_received = subvolume.received_uuid == uuid;
        if uuid.is_nil() || subvolume.is_deleted || !is_received && subvolume.uuid != uuid {
            continue;
        }
        // Of a received one, the change of its own that came after everything of the stream shows.
        let found = match is_received {
            true if subvolume.change_transaction > subvolume.receive_transaction => {
                subvolume.change_transaction
            }
            true => subvolume.send_transaction,
            false => subvolume.change_transaction,
        };
        if found == transid && (!is_received || subvolume.is_read_only) {
            return Ok(subvolume.id);
        }
        changed = Some(found);
    }
    Err(match changed {
        Some(found) => ReceiveError::ChangedSource { uuid, expected: transid, found },
        None => ReceiveError::MissingSource { uuid, transid },
    })
}
