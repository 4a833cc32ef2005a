//! What must hold of a root item (kernel: `check_root_item`, `check_root_key`).

use super::{LEGACY_SIZE, RootFlags, RootItem, SIZE};
use crate::key::Key;
use crate::record::is_aligned;
use crate::types::{Generation, Level, Logical, RootId};
use crate::validate::{ItemContext, is_file_tree};

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

/// Checks a root item.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(key: &Key, data: &[u8], context: &ItemContext<'_>) -> Result<(), RootItemFault> {
    let root = RootId(key.objectid.0);
    if root == RootId(0) {
        return Err(RootItemFault::Number);
    }
    if root == RootId::TREE_RELOCATION && !is_file_tree(RootId(key.offset)) {
        return Err(RootItemFault::Relocation { found: RootId(key.offset) });
    }
    let item = RootItem::decode(data)?;
    let most = context.rules.newest_generation();
    if item.generation > most {
        return Err(RootItemFault::Generation { found: item.generation, most });
    }
    if let Some(extension) = &item.extension
        && extension.generation > most
    {
        return Err(RootItemFault::ExtensionGeneration { found: extension.generation, most });
    }
    if item.last_snapshot > most {
        return Err(RootItemFault::LastSnapshot { found: item.last_snapshot, most });
    }
    if !is_aligned(item.address.0, context.rules.sector_size) {
        return Err(RootItemFault::Address { found: item.address, sector_size: context.rules.sector_size });
    }
    if item.level.index() >= Level::COUNT {
        return Err(RootItemFault::Level { found: item.level });
    }
    if item.drop_level.index() >= Level::COUNT {
        return Err(RootItemFault::DropLevel { found: item.drop_level });
    }
    let found = item.flags.without(RootFlags::KNOWN);
    if found != RootFlags::NONE {
        return Err(RootItemFault::Flags { found });
    }
    Ok(())
}
