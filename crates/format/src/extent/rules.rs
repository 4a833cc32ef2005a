//! The rules for items of the extent tree (kernel: `check_extent_item`, `check_simple_keyed_refs`,
//! `check_extent_data_ref`).

use super::encoding::InlineReferences;
use super::fault::ExtentFault;
use super::flags::ExtentFlags;
use super::item::ExtentItem;
use super::reference::Reference;
use crate::features::IncompatFeatures;
use crate::key::{ItemType, Key};
use crate::record::is_aligned;
use crate::rules::{ItemContext, is_file_tree};
use crate::types::{Level, Logical, ObjectId, RootId};

/// The rules for an EXTENT_ITEM or METADATA_ITEM of a leaf.
pub(crate) fn check(key: &Key, data: &[u8], context: &ItemContext<'_>) -> Result<(), ExtentFault> {
    let rules = context.rules;
    let metadata_item = key.item_type == ItemType::METADATA_ITEM;
    if metadata_item && !rules.features.incompat.has(IncompatFeatures::SKINNY_METADATA) {
        return Err(ExtentFault::SkinnyFeature);
    }
    if !is_aligned(key.objectid.0, rules.sector_size) {
        return Err(ExtentFault::Start { found: Logical(key.objectid.0) });
    }
    if metadata_item && key.offset >= 8 {
        return Err(ExtentFault::Level { found: key.offset });
    }
    let (header, tree_block, inline) = ExtentItem::split(key.item_type, data)?;
    let newest = rules.newest_generation();
    if header.generation > newest {
        return Err(ExtentFault::Generation { found: header.generation, newest });
    }
    let is_tree_block = header.flags.has(ExtentFlags::TREE_BLOCK);
    let is_data = header.flags.has(ExtentFlags::DATA);
    let full = header.flags.has(ExtentFlags::FULL_BACK_REFERENCE);
    if is_tree_block == is_data || is_data && (metadata_item || full) {
        return Err(ExtentFault::Flags { found: header.flags });
    }
    check_length(key, is_data, context)?;
    if let Some(info) = tree_block
        && info.level.index() >= Level::COUNT
    {
        return Err(ExtentFault::Level { found: u64::from(info.level.0) });
    }
    let total = check_inline(inline, is_data, rules.sector_size)?;
    if total > header.references {
        return Err(ExtentFault::Count { inline: total, total: header.references });
    }
    check_overlap(key, context)
}

fn check_length(key: &Key, is_data: bool, context: &ItemContext<'_>) -> Result<(), ExtentFault> {
    let node_size = u64::from(context.rules.node_size);
    if key.item_type == ItemType::METADATA_ITEM {
        let ends = key.objectid.0.checked_add(node_size).is_some();
        return if ends { Ok(()) } else { Err(ExtentFault::Length { found: node_size }) };
    }
    let possible = if is_data {
        key.offset != 0 && is_aligned(key.offset, context.rules.sector_size)
    } else {
        key.offset == node_size
    };
    if possible && key.objectid.0.checked_add(key.offset).is_some() {
        Ok(())
    } else {
        Err(ExtentFault::Length { found: key.offset })
    }
}

/// Gives the sum of the inline references' counts.
fn check_inline(bytes: &[u8], is_data: bool, sector_size: u32) -> Result<u64, ExtentFault> {
    let mut last = None;
    let mut total = 0u64;
    for reference in InlineReferences::new(bytes) {
        let reference = reference?;
        check_reference(&reference, sector_size)?;
        let found = reference.item_type();
        let to_data = !matches!(reference, Reference::TreeBlock { .. } | Reference::SharedBlock { .. });
        if to_data != is_data {
            return Err(ExtentFault::Kind { found });
        }
        let order = reference.order();
        if last.is_some_and(|last| last > order) {
            return Err(ExtentFault::Order { found });
        }
        last = Some(order);
        total = total.saturating_add(u64::from(reference.count()));
    }
    Ok(total)
}

/// The rules for one reference, wherever it is stored.
fn check_reference(reference: &Reference, sector_size: u32) -> Result<(), ExtentFault> {
    match reference {
        Reference::ExtentOwner { .. } | Reference::TreeBlock { .. } => Ok(()),
        Reference::SharedBlock { parent } => check_parent(*parent, sector_size),
        Reference::SharedData { parent, count } => {
            check_parent(*parent, sector_size)?;
            if *count == 0 { Err(ExtentFault::DataReference { found: reference.clone() }) } else { Ok(()) }
        }
        Reference::ExtentData(data) => {
            let inode = (ObjectId::FIRST_FREE..=ObjectId::LAST_FREE).contains(&data.inode);
            if holds_data(data.root) && inode && is_aligned(data.offset, sector_size) && data.count != 0 {
                Ok(())
            } else {
                Err(ExtentFault::DataReference { found: reference.clone() })
            }
        }
    }
}

/// Trees with file extents: subvolumes, the data relocation tree, and the root tree (v1 space cache).
const fn holds_data(root: RootId) -> bool {
    is_file_tree(root) || root.0 == RootId::ROOT_TREE.0 || root.0 == RootId::DATA_RELOCATION_TREE.0
}

const fn check_parent(parent: Logical, sector_size: u32) -> Result<(), ExtentFault> {
    if is_aligned(parent.0, sector_size) { Ok(()) } else { Err(ExtentFault::Parent { found: parent }) }
}

fn check_overlap(key: &Key, context: &ItemContext<'_>) -> Result<(), ExtentFault> {
    let Some((before, _)) = context.previous else { return Ok(()) };
    let length = match before.item_type {
        ItemType::EXTENT_ITEM => before.offset,
        ItemType::METADATA_ITEM => u64::from(context.rules.node_size),
        _ => return Ok(()),
    };
    let previous_end = Logical(before.objectid.0.saturating_add(length));
    let start = Logical(key.objectid.0);
    if previous_end > start { Err(ExtentFault::Overlap { start, previous_end }) } else { Ok(()) }
}

/// The rules for a reference that is an item of its own. Items of other types pass.
///
/// # Errors
/// The first rule broken.
pub fn check_key_reference(key: &Key, data: &[u8], sector_size: u32) -> Result<(), ExtentFault> {
    if !is_aligned(key.objectid.0, sector_size) {
        return Err(ExtentFault::Start { found: Logical(key.objectid.0) });
    }
    match Reference::decode_item(key, data) {
        Some(reference) => check_reference(&reference?, sector_size),
        None => Ok(()),
    }
}
