//! What is said of a mount: its server, and the devices of a committed state.

use serde::{Deserialize, Serialize};

use crate::Name;
use crate::limits::as_printable;

/// The process that serves a mount, and what it serves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountInformation {
    /// The process.
    pub process: u32,
    /// The version of the program.
    #[serde(deserialize_with = "as_printable::text")]
    pub version: String,
    /// The mounted files or block devices, as the server was told.
    pub devices: Vec<Name>,
    /// Where.
    pub mountpoint: Name,
    /// The subvolume that is shown as the root.
    pub root: u64,
    /// Why it takes no changes; none where it takes them.
    #[serde(deserialize_with = "as_printable::option", default)]
    pub read_only: Option<String>,
    /// The file system's UUID.
    #[serde(deserialize_with = "as_printable::text")]
    pub uuid: String,
    /// The options of the file system that it was mounted with, as they were given.
    #[serde(deserialize_with = "as_printable::list", default)]
    pub options: Vec<String>,
}

/// A device as a leased state has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeasedDevice {
    /// The file or block device, as the server was told.
    pub path: Name,
    /// The 4096 bytes of the state's primary superblock there.
    pub superblock: Name,
}
