//! The rules for items of the extent tree (kernel: `check_extent_item`, `check_simple_keyed_refs`,
//! `check_extent_data_ref`).

use super::{ExtentFlags, ExtentItem, InlineReferences, Reference};
use crate::features::IncompatFeatures;
use crate::key::{ItemType, Key};
use crate::record::is_aligned;
use crate::types::{Generation, Level, Logical, ObjectId, RootId};
use crate::validate::{ItemContext, is_file_tree};

/// How an extent item or a reference can be broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExtentFault {
    /// Too few bytes for what the item must have, or not the size of a reference's item.
    #[error("the extent item or reference has the impossible size {found}")]
    Size {
        /// Bytes of the item.
        found: usize,
    },
    /// An extent item of 4 bytes, as file systems before 2009 had.
    #[error("an extent item of the format before 2009, which no current program reads")]
    Ancient,
    /// An inline reference is cut off by the end of the item, or bytes are left over.
    #[error("the last {left} bytes of the extent item are no inline reference")]
    CutOff {
        /// Bytes from the start of the reference to the end of the item.
        left: usize,
    },
    /// An inline reference of a type that is none.
    #[error("the extent item has an inline reference of type {found}")]
    UnknownReference {
        /// Its type.
        found: ItemType,
    },
    /// A metadata item without feature skinny-metadata.
    #[error("a metadata item without feature skinny-metadata")]
    SkinnyFeature,
    /// The extent starts between sectors.
    #[error("the extent starts at {found}, which is no multiple of the sector size")]
    Start {
        /// Object id of the key.
        found: Logical,
    },
    /// No tree is that high.
    #[error("a tree block of level {found}")]
    Level {
        /// In the key or the item.
        found: u64,
    },
    /// Newer than the newest possible transaction.
    #[error("the extent is of generation {found}, newer than {newest}")]
    Generation {
        /// In the item.
        found: Generation,
        /// The newest possible.
        newest: Generation,
    },
    /// Neither data nor tree block, or both, or data with full back references, or a data extent as metadata item.
    #[error("the extent has the impossible flags 0x{:x}", .found.0)]
    Flags {
        /// In the item.
        found: ExtentFlags,
    },
    /// The length is not that of a tree block, not of whole sectors, or the end is past the last address.
    #[error("the extent has the impossible length {found}")]
    Length {
        /// Offset of the key.
        found: u64,
    },
    /// A reference's parent lies between sectors.
    #[error("a reference by parent {found}, which is no multiple of the sector size")]
    Parent {
        /// In the reference.
        found: Logical,
    },
    /// A data reference whose root has no data, whose inode is no inode, whose offset lies between sectors or whose
    /// count is 0.
    #[error("an impossible data reference: {found:?}")]
    DataReference {
        /// The reference.
        found: Reference,
    },
    /// An inline reference is of the other kind than the extent: to data in a tree block, or the reverse.
    #[error("a reference of type {found} to an extent of the other kind")]
    Kind {
        /// Its type.
        found: ItemType,
    },
    /// Inline references are not sorted.
    #[error("an inline reference of type {found} out of order")]
    Order {
        /// Its type.
        found: ItemType,
    },
    /// More references inline than in all.
    #[error("{inline} references are inline, but only {total} in all")]
    Count {
        /// Sum of the inline references.
        inline: u64,
        /// In the header.
        total: u64,
    },
    /// The extent before ends past the start.
    #[error("the extent at {start} begins before {previous_end}, where the one before it ends")]
    Overlap {
        /// Object id of the key.
        start: Logical,
        /// End of the extent before.
        previous_end: Logical,
    },
    /// A file or a parent block names the extent with another length, or takes it for another kind, than the extent tree
    /// or someone else who refers to it.
    #[error("the extent is referred to as one of another length or kind than it has; check the file system")]
    Disagreement,
    /// A reference to be dropped is not there, or counts less.
    #[error("there is no such reference to drop: {wanted:?}")]
    NoSuchReference {
        /// What was to be dropped.
        wanted: Reference,
    },
    /// The count of references can't grow by what is to be added.
    #[error("the extent counts {found} references, and can't have one more; check the file system")]
    TooManyReferences {
        /// In the item.
        found: u64,
    },
}

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
