//! What is here in place of a subvolume that a stream names.

use std::fmt;

use vlinder_format::{Generation, Uuid};
use vlinder_fs::SubvolumeInformation;

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
    pub(super) fn of(subvolume: &SubvolumeInformation) -> Self {
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

/// Why a subvolume can't stand for the one that a stream names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceChange {
    /// It is writable: what was changed, nobody knows.
    Writable,
    /// It was changed after it was received, in this transaction at last.
    SinceReceived(Generation),
}

impl fmt::Display for SourceChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Writable => write!(formatter, "it is writable"),
            Self::SinceReceived(transid) => {
                write!(formatter, "it was changed after it was received, last in transaction {transid}")
            }
        }
    }
}
