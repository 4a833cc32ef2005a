//! The subvolumes of the receiver that a stream names by UUID.

use std::fmt;

use vlinder_format::{Generation, RootId, Uuid};
use vlinder_fs::{Filesystem, SubvolumeInformation};

use super::ReceiveError;

/// The most candidates that an error tells.
const MAX_TOLD: usize = 4;

/// What is there in place of a subvolume that a stream names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its path from the top level.
    pub path: Vec<u8>,
    /// Its own UUID.
    pub uuid: Uuid,
    /// The UUID that it was received with; nil if it was not.
    pub received_uuid: Uuid,
    /// The transaction of the sender, if it was received; else that of its last change.
    pub transid: Generation,
    /// It takes changes.
    pub is_writable: bool,
}

impl Candidate {
    fn of(subvolume: &SubvolumeInformation) -> Self {
        let is_received = !subvolume.received_uuid.is_nil();
        Self {
            path: subvolume.path.clone(),
            uuid: subvolume.uuid,
            received_uuid: subvolume.received_uuid,
            transid: if is_received { subvolume.send_transaction } else { subvolume.change_transaction },
            is_writable: !subvolume.is_read_only,
        }
    }
}

/// Candidates as the end of a sentence.
pub(super) struct Told<'a>(pub &'a [Candidate]);

impl fmt::Display for Told<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return write!(formatter, "nothing here was received from it, or from what it is a snapshot of");
        }
        write!(formatter, "what is here instead: ")?;
        for (number, candidate) in self.0.iter().enumerate() {
            let before = if number > 0 { "; " } else { "" };
            let Candidate { path, uuid, received_uuid, transid, is_writable } = candidate;
            write!(formatter, "{before}{} (UUID {uuid}", path.escape_ascii())?;
            if received_uuid.is_nil() {
                write!(formatter, ", last changed in transaction {transid}")?;
            } else {
                write!(formatter, ", received from {received_uuid} at {transid}")?;
            }
            write!(formatter, "{})", if *is_writable { ", writable" } else { "" })?;
        }
        Ok(())
    }
}

/// The subvolume that was received from `uuid`, or that has that UUID itself, as the stream's sender had it
/// at `transid`.
///
/// # Errors
/// There is none, or only one that was changed since.
pub(super) fn find(filesystem: &Filesystem, uuid: Uuid, transid: Generation) -> Result<RootId, ReceiveError> {
    let all = filesystem.subvolumes().all()?;
    let mut changed = None;
    let is_it = |subvolume: &&SubvolumeInformation| {
        !uuid.is_nil()
            && !subvolume.is_deleted
            && (subvolume.received_uuid == uuid || subvolume.uuid == uuid)
    };
    for subvolume in all.iter().filter(is_it) {
        let is_received = subvolume.received_uuid == uuid;
        // Of a received one, the change of its own that came after everything of the stream shows.
        let found = match is_received {
            true if subvolume.change_transaction > subvolume.receive_transaction => {
                subvolume.change_transaction
            }
            true => subvolume.send_transaction,
            false => subvolume.change_transaction,
        };
        if found == transid && subvolume.is_read_only {
            return Ok(subvolume.id);
        }
        changed = Some((subvolume, found));
    }
    Err(match changed {
        Some((subvolume, found)) => ReceiveError::ChangedSource {
            uuid,
            expected: transid,
            found,
            candidate: Box::new(Candidate::of(subvolume)),
        },
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
