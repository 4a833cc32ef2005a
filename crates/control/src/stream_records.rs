//! What is said of streams that are received.

use serde::{Deserialize, Serialize};

use crate::Name;
use crate::limits::as_printable;

/// A subvolume that was made of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedSubvolume {
    /// Its number.
    pub number: u64,
    /// Its name in the directory.
    pub name: Name,
    /// Every command of its stream was applied.
    pub is_whole: bool,
}

/// How streams are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveRequest {
    /// Receiving ends when this many commands could not be applied; with 0, never.
    pub max_errors: u64,
    /// The first end command ends all.
    pub ends_at_end_command: bool,
}

/// What was received in part of a subvolume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialRecord {
    /// The name that it is to have.
    pub name: Name,
    /// What the sender needs to go on; none where receiving had not begun.
    #[serde(deserialize_with = "as_printable::option", default)]
    pub token: Option<String>,
    /// Bytes of the stream that need not come again.
    pub received_bytes: u64,
}
