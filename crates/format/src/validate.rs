//! The rules for every item of a leaf: walks a block and asks each item's family.
//!
//! The structure of the block itself was checked by [`Block::parse`]; here only the items' content counts.
//! The rules are those of Linux's tree checker (`check_leaf_item`) and some of our own that keep readers
//! safe, so that a leaf that passes can be read without further thought, and a leaf that does not would be
//! refused by Linux too or never be made.

use crate::block::Block;
use crate::fault::{Damage, Fault, Place};
use crate::key::{ItemType, Key};
use crate::rules::{Item, is_file_tree};
use crate::types::{Logical, ObjectId, RootId};
use crate::{
    balance, block_group, checksum_item, chunk, device, device_replace, device_statistics, directory, extent,
    file_extent, free_space, inode, inode_ref, log, orphan, quota, raid_stripe, root_item, root_ref,
    uuid_item, verity,
};

pub use crate::rules::{ItemContext, LeafRules};

/// An item of a leaf that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("item {slot} {key}: {fault}")]
pub struct ItemFault {
    /// Its slot.
    pub slot: u32,
    /// Its key.
    pub key: Key,
    /// What is wrong.
    pub fault: Fault,
}

impl ItemFault {
    /// With the place, for the reader that knows which tree it is in.
    #[must_use]
    pub fn into_damage(self, tree: Option<RootId>, block: Logical) -> Damage {
        let place = Place { tree, block: Some(block), slot: Some(self.slot), key: Some(self.key) };
        Damage::new(self.fault, place)
    }
}

/// Checks every item of a leaf; a node passes, having no items.
///
/// # Errors
/// The first item that breaks a rule of its family.
pub fn validate_leaf(block: &Block, rules: &LeafRules) -> Result<(), ItemFault> {
    if !block.is_leaf() {
        return Ok(());
    }
    let mut context = ItemContext { rules, owner: block.owner(), previous: None };
    for (slot, item) in block.items().enumerate() {
        check_of_slot(slot, item, &context)?;
        context.previous = Some(item);
    }
    Ok(())
}

/// Every item of a leaf that has to go so that the others keep the rules, by slot; none of a node.
///
/// What an item must not overlap are those that stay: what a faulty item says of its own end counts for
/// nothing. Of two that overlap it is the second, unless the first reaches over one more, which gets along
/// with the second, or is a run past the end of its extent: then that one goes, with the fault of the other.
/// That an inode's item comes before its others is asked of the leaf as it is: where the inode's item is
/// faulty, its others stay.
pub fn faulty_items(block: &Block, rules: &LeafRules) -> Vec<ItemFault> {
    let mut faults = Vec::new();
    if !block.is_leaf() {
        return faults;
    }
    let mut context = ItemContext { rules, owner: block.owner(), previous: None };
    // The slot of the last item that stays, and of the one after it, if that goes.
    let (mut kept, mut gone): (Option<usize>, Option<usize>) = (None, None);
    for slot in 0..block.len() {
        context.previous = before(block, slot, kept, gone).map(|slot| item_at(block, slot));
        let Err(found) = check_slot(block, slot, &context) else {
            (kept, gone) = (Some(slot), None);
            continue;
        };
        match kept.filter(|kept| is_too_long(block, *kept, slot, &context)) {
            Some(long) => {
                faults.push(ItemFault { slot: number_of(long), key: block.key(long), fault: found.fault });
                (kept, gone) = (Some(slot), None);
            }
            None => {
                faults.push(found);
                gone = Some(slot);
            }
        }
    }
    faults.sort_by_key(|fault| fault.slot);
    faults
}

/// The item that one is to be compared with, where the one right before it may have to go.
fn before(block: &Block, slot: usize, kept: Option<usize>, gone: Option<usize>) -> Option<usize> {
    let object = |slot: usize| block.key(slot).objectid;
    let is_of_another = is_file_tree(block.owner()) && kept.map(object) != Some(object(slot));
    match gone {
        // The inode's item is that one, or was before it; the inode has nothing else to be compared with.
        Some(gone) if is_of_another && object(gone) == object(slot) => None,
        Some(gone) if is_of_another => Some(gone),
        _ => kept,
    }
}

/// Whether an item that is sound by itself is at fault beside `long` alone, and by what else is known that is
/// the one at fault.
fn is_too_long(block: &Block, long: usize, slot: usize, context: &ItemContext<'_>) -> bool {
    // Of items of several inodes, one may be missing the inode's own.
    let is_of_one =
        |slot: usize| !is_file_tree(context.owner) || block.key(slot).objectid == block.key(long).objectid;
    let is_sound = |slot, previous: Option<usize>| {
        let previous = previous.map(|slot| item_at(block, slot));
        check_slot(block, slot, &ItemContext { previous, ..*context }).is_ok()
    };
    let next = slot.saturating_add(1);
    let reaches_over_next =
        || next < block.len() && is_of_one(next) && is_sound(next, Some(slot)) && !is_sound(next, Some(long));
    let is_past_its_extent = || {
        block.key(long).item_type == ItemType::EXTENT_DATA
            && file_extent::is_past_its_extent(block.data(long))
    };
    is_of_one(slot) && is_sound(slot, None) && (is_past_its_extent() || reaches_over_next())
}

fn item_at(block: &Block, slot: usize) -> Item<'_> {
    (block.key(slot), block.data(slot))
}

fn number_of(slot: usize) -> u32 {
    u32::try_from(slot).unwrap_or(u32::MAX)
}

fn check_slot(block: &Block, slot: usize, context: &ItemContext<'_>) -> Result<(), ItemFault> {
    check_of_slot(slot, item_at(block, slot), context)
}

fn check_of_slot(slot: usize, (key, data): Item<'_>, context: &ItemContext<'_>) -> Result<(), ItemFault> {
    check_item(&key, data, context).map_err(|fault| ItemFault { slot: number_of(slot), key, fault })
}

/// Checks one item by the rules of its family. Item types that no family claims pass.
///
/// # Errors
/// The first rule that the item breaks.
pub fn check_item(key: &Key, data: &[u8], context: &ItemContext<'_>) -> Result<(), Fault> {
    match key.item_type {
        ItemType::INODE_ITEM => inode::check(key, data, context)?,
        ItemType::INODE_REF => inode_ref::check(key, data, context)?,
        ItemType::INODE_EXTREF => inode_ref::check_extended(key, data, context)?,
        ItemType::XATTR_ITEM | ItemType::DIR_ITEM | ItemType::DIR_INDEX => {
            directory::check(key, data, context)?
        }
        ItemType::EXTENT_DATA => file_extent::check(key, data, context)?,
        ItemType::ROOT_ITEM => root_item::check(key, data, context)?,
        ItemType::ROOT_REF | ItemType::ROOT_BACKREF => root_ref::check(key, data, context)?,
        ItemType::EXTENT_CHECKSUM => checksum_item::check(key, data, context)?,
        ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM => extent::check(key, data, context)?,
        ItemType::TREE_BLOCK_REF
        | ItemType::EXTENT_DATA_REF
        | ItemType::SHARED_BLOCK_REF
        | ItemType::SHARED_DATA_REF => extent::check_key_reference(key, data, context.rules.sector_size)?,
        ItemType::BLOCK_GROUP_ITEM => block_group::check(key, data, context)?,
        ItemType::FREE_SPACE_INFO | ItemType::FREE_SPACE_EXTENT | ItemType::FREE_SPACE_BITMAP => {
            free_space::check(key, data, context)?;
        }
        ItemType::DEVICE_EXTENT => device::check_extent(key, data, context)?,
        ItemType::DEVICE_ITEM => device::check_item(key, data, context)?,
        ItemType::CHUNK_ITEM => chunk::check(key, data, context)?,
        ItemType::RAID_STRIPE => raid_stripe::check(key, data, context)?,
        ItemType::ORPHAN_ITEM => orphan::check(key, data, context)?,
        ItemType::UUID_SUBVOLUME | ItemType::UUID_RECEIVED_SUBVOLUME => uuid_item::check(key, data, context)?,
        ItemType::QUOTA_GROUP_STATUS
        | ItemType::QUOTA_GROUP_INFO
        | ItemType::QUOTA_GROUP_LIMIT
        | ItemType::QUOTA_GROUP_RELATION => quota::check(key, data, context)?,
        ItemType::VERITY_DESCRIPTOR_ITEM | ItemType::VERITY_MERKLE_ITEM => verity::check(key, data, context)?,
        ItemType::DIR_LOG_ITEM | ItemType::DIR_LOG_INDEX => log::check(key, data, context)?,
        ItemType::TEMPORARY_ITEM if key.objectid == ObjectId::BALANCE => balance::check(key, data, context)?,
        ItemType::PERSISTENT_ITEM if key.objectid == ObjectId::DEVICE_STATS => {
            device_statistics::DeviceStatistics::decode(data).map(drop)?
        }
        ItemType::DEVICE_REPLACE => device_replace::DeviceReplace::decode(data).map(drop)?,
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
