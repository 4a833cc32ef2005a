//! What can be wrong with a root item.

use super::flags::RootFlags;
use super::raw::{LEGACY_SIZE, SIZE};
use crate::types::{Generation, Level, Logical, RootId};

/// How a root item can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RootItemFault {
    /// The item has the size of neither form.
    #[error("the root item has {found} bytes instead of {SIZE} or {LEGACY_SIZE}")]
    Size {
        /// Bytes of the item.
        found: usize,
    },
    /// No tree has the number 0.
    #[error("a root item of tree 0")]
    Number,
    /// A relocation tree of something else than a subvolume.
    #[error("a relocation tree of tree {found}, which is no subvolume")]
    Relocation {
        /// Offset of the key.
        found: RootId,
    },
    /// The root block is of a generation that has not been.
    #[error("generation {found}, but no generation after {most} has begun")]
    Generation {
        /// In the item.
        found: Generation,
        /// The superblock's + 1.
        most: Generation,
    },
    /// The extension is of a generation that has not been.
    #[error("second generation {found}, but no generation after {most} has begun")]
    ExtensionGeneration {
        /// In the item.
        found: Generation,
        /// The superblock's + 1.
        most: Generation,
    },
    /// The last snapshot is of a generation that has not been.
    #[error("a snapshot in generation {found}, but no generation after {most} has begun")]
    LastSnapshot {
        /// In the item.
        found: Generation,
        /// The superblock's + 1.
        most: Generation,
    },
    /// The root block lies between sectors.
    #[error("the root block at {found} is not at a multiple of {sector_size}")]
    Address {
        /// In the item.
        found: Logical,
        /// Bytes of a sector.
        sector_size: u32,
    },
    /// No tree is that high.
    #[error("root level {found} is above 7")]
    Level {
        /// In the item.
        found: Level,
    },
    /// No tree is that high.
    #[error("level {found} of the deletion's progress is above 7")]
    DropLevel {
        /// In the item.
        found: Level,
    },
    /// Flags that this version does not know.
    #[error("unknown root flags {:#x}", found.0)]
    Flags {
        /// The unknown ones.
        found: RootFlags,
    },
}
