//! The subvolumes of the receiver that a stream names by UUID.

use vlinder_format::{Generation, RootId, Uuid};
use vlinder_fs::{Filesystem, SubvolumeInformation};

use super::ReceiveError;
use super::candidate::{Candidate, SourceChange};

/// The most candidates that an error tells.
const MAX_TOLD: usize = 4;

/// The subvolume that was received from `uuid`, or that has that UUID itself.
///
/// Its transaction is compared only to choose among several. The stream of a sender that has a received copy
/// itself names the UUID of what was received with the transaction of that copy, which means nothing here
/// (Linux: `send_subvol_begin`). What is found is unchanged if it is read-only and, received, has not changed
/// since.
///
/// # Errors
/// There is none, or only one that was changed.
pub(super) fn find(filesystem: &Filesystem, uuid: Uuid, transid: Generation) -> Result<RootId, ReceiveError> {
    let all = filesystem.subvolumes().all()?;
    let is_it = |subvolume: &&SubvolumeInformation| {
        let has_uuid = subvolume.received_uuid == uuid || subvolume.uuid == uuid;
        has_uuid && !uuid.is_nil() && !subvolume.is_deleted
    };
    let mut matching: Vec<&SubvolumeInformation> = all.iter().filter(is_it).collect();
    // Those of the very transaction first, then the last that was made.
    matching.reverse();
    matching.sort_by_key(|subvolume| Candidate::of(subvolume).transid != transid);
    let mut changed = None;
    for subvolume in matching {
        let change = if !subvolume.is_read_only {
            SourceChange::Writable
        } else if filesystem.subvolumes().was_changed_since_received(subvolume.id)? {
            SourceChange::SinceReceived(subvolume.change_transaction)
        } else {
            return Ok(subvolume.id);
        };
        changed.get_or_insert((subvolume, change));
    }
    Err(match changed {
        Some((subvolume, change)) => {
            ReceiveError::ChangedSource { uuid, change, candidate: Box::new(Candidate::of(subvolume)) }
        }
        None => ReceiveError::MissingSource { uuid, transid, present: relatives(&all, uuid) },
    })
}

/// Snapshots of a subvolume, and those that were received, the last first.
fn relatives(all: &[SubvolumeInformation], uuid: Uuid) -> Vec<Candidate> {
    let is_snapshot_of =
        |subvolume: &&SubvolumeInformation| !subvolume.is_deleted && subvolume.parent_uuid == uuid;
    let is_received =
        |subvolume: &&SubvolumeInformation| !subvolume.is_deleted && !subvolume.received_uuid.is_nil();
    let snapshots = all.iter().filter(is_snapshot_of).rev();
    let received = all.iter().filter(is_received).rev().filter(|subvolume| subvolume.parent_uuid != uuid);
    snapshots.chain(received).take(MAX_TOLD).map(Candidate::of).collect()
}
