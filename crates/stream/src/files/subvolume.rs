//! One subvolume of an index.

use vlinder_format::{Generation, Uuid};

use super::tree::FileTree;

/// A subvolume that a stream makes.
#[derive(Debug)]
pub(super) struct StreamSubvolume {
    pub name: Vec<u8>,
    pub uuid: Uuid,
    pub transid: Generation,
    /// What it began as a snapshot of.
    pub parent: Option<(Uuid, Generation)>,
    pub tree: FileTree,
}
