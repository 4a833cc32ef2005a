//! What must hold of a root item (kernel: `check_root_item`, `check_root_key`).

use super::fault::RootItemFault;
use super::flags::RootFlags;
use super::item::RootItem;
use crate::key::Key;
use crate::record::is_aligned;
use crate::rules::{ItemContext, is_file_tree};
use crate::types::{Level, RootId};

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
