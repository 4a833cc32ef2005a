//! Every field that the decoders read, with its place: for what goes through all of them, as tests with lies
//! do.
//!
//! Which bytes of an item belong to which structure is said beside the item's decoder; here each is asked.

use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::types::ObjectId;
use crate::{
    balance, block_group, checksum_item, chunk, device, device_replace, device_statistics, directory, extent,
    file_extent, free_space, inode, inode_ref, log, quota, raid_stripe, root_item, root_ref, uuid_item,
    verity,
};

pub use crate::layout::PlacedField;

/// Types of items without data, and those that nobody decodes: they have no fields.
pub const WITHOUT_DATA: [ItemType; 7] = [
    ItemType::ORPHAN_ITEM,
    ItemType::EXTENT_OWNER_REF,
    ItemType::TREE_BLOCK_REF,
    ItemType::SHARED_BLOCK_REF,
    ItemType::FREE_SPACE_EXTENT,
    ItemType::QUOTA_GROUP_RELATION,
    ItemType::STRING_ITEM,
];

/// The fields of an item's data, in order. Items that have no data have none, nor have those that no family
/// claims.
#[must_use]
pub fn of_item(key: &Key, data: &[u8], checksum_size: u32) -> Vec<PlacedField> {
    let mut layout = Layout::new(data);
    let to = &mut layout;
    match key.item_type {
        ItemType::INODE_ITEM => inode::lay_out(to),
        ItemType::INODE_REF => inode_ref::lay_out(to),
        ItemType::INODE_EXTREF => inode_ref::lay_out_extended(to),
        ItemType::XATTR_ITEM | ItemType::DIR_ITEM | ItemType::DIR_INDEX => directory::lay_out(to),
        ItemType::VERITY_DESCRIPTOR_ITEM => verity::lay_out_descriptor(key, to),
        ItemType::VERITY_MERKLE_ITEM => verity::lay_out_merkle(to),
        ItemType::DIR_LOG_ITEM | ItemType::DIR_LOG_INDEX => log::lay_out(to),
        ItemType::EXTENT_DATA => file_extent::lay_out(to),
        ItemType::EXTENT_CHECKSUM => checksum_item::lay_out(to, checksum_size),
        ItemType::ROOT_ITEM => root_item::lay_out(to),
        ItemType::ROOT_REF | ItemType::ROOT_BACKREF => root_ref::lay_out(to),
        ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM => extent::lay_out(key, to),
        ItemType::EXTENT_DATA_REF | ItemType::SHARED_DATA_REF => extent::lay_out_reference(key, to),
        ItemType::BLOCK_GROUP_ITEM => block_group::lay_out(to),
        ItemType::FREE_SPACE_INFO => free_space::lay_out_info(to),
        ItemType::FREE_SPACE_BITMAP => free_space::lay_out_bitmap(to),
        ItemType::DEVICE_EXTENT => device::lay_out_extent(to),
        ItemType::DEVICE_ITEM => device::lay_out_item(to),
        ItemType::CHUNK_ITEM => chunk::lay_out_chunk(to),
        ItemType::RAID_STRIPE => raid_stripe::lay_out(to),
        ItemType::QUOTA_GROUP_STATUS => quota::lay_out_status(to),
        ItemType::QUOTA_GROUP_INFO => quota::lay_out_info(to),
        ItemType::QUOTA_GROUP_LIMIT => quota::lay_out_limit(to),
        ItemType::TEMPORARY_ITEM if key.objectid == ObjectId::BALANCE => balance::lay_out(to),
        ItemType::PERSISTENT_ITEM if key.objectid == ObjectId::DEVICE_STATS => device_statistics::lay_out(to),
        ItemType::DEVICE_REPLACE => device_replace::lay_out(to),
        ItemType::UUID_SUBVOLUME | ItemType::UUID_RECEIVED_SUBVOLUME => uuid_item::lay_out(to),
        _ => {}
    }
    layout.into_fields()
}

#[cfg(test)]
mod tests;
