//! Text of items: one file for each family.

mod devices;
mod extents;
mod inodes;
mod names;
mod printed;
mod quotas;
mod roots;
mod space;

use vlinder_format::{ItemType, Key, ObjectId};

use super::text::{Context, line};
use printed::Printed;

pub use devices::chunk;

/// The lines below an item's key. An item that can't be decoded says why.
pub fn item(text: &mut Vec<u8>, key: &Key, data: &[u8], context: &Context) {
    let mark = text.len();
    if let Err(fault) = body(text, key, data, context) {
        text.truncate(mark);
        line!(text, "\t\tinvalid item: {fault}");
    }
}

fn body(text: &mut Vec<u8>, key: &Key, data: &[u8], context: &Context) -> Printed {
    match key.item_type {
        ItemType(0) if key.objectid == ObjectId::FREE_SPACE => space::cache_header(text, data),
        ItemType::INODE_ITEM => inodes::inode(text, data, context)?,
        ItemType::INODE_REF => names::references(text, data, context)?,
        ItemType::INODE_EXTREF => names::extended_references(text, data, context)?,
        ItemType::DIR_ITEM | ItemType::DIR_INDEX | ItemType::XATTR_ITEM => {
            names::entries(text, data, context)?
        }
        ItemType::DIR_LOG_ITEM | ItemType::DIR_LOG_INDEX => names::log_range(text, data)?,
        ItemType::ORPHAN_ITEM => line!(text, "\t\torphan item"),
        ItemType::EXTENT_DATA => inodes::file_extent(text, data)?,
        ItemType::ROOT_ITEM => roots::root(text, data, context)?,
        ItemType::ROOT_REF => roots::reference(text, "ref", data, context)?,
        ItemType::ROOT_BACKREF => roots::reference(text, "backref", data, context)?,
        ItemType::UUID_SUBVOLUME | ItemType::UUID_RECEIVED_SUBVOLUME => roots::by_uuid(text, data)?,
        ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM => extents::extent(text, key, data)?,
        ItemType::TREE_BLOCK_REF
        | ItemType::SHARED_BLOCK_REF
        | ItemType::EXTENT_DATA_REF
        | ItemType::SHARED_DATA_REF => extents::reference(text, key, data)?,
        ItemType::EXTENT_CHECKSUM => extents::checksums(text, key, data, context),
        ItemType::BLOCK_GROUP_ITEM => space::block_group(text, data)?,
        ItemType::FREE_SPACE_INFO => space::info(text, data)?,
        ItemType::FREE_SPACE_EXTENT => line!(text, "\t\tfree space extent"),
        ItemType::FREE_SPACE_BITMAP => line!(text, "\t\tfree space bitmap"),
        ItemType::CHUNK_ITEM => chunk(text, &vlinder_format::chunk::Chunk::decode(data)?),
        ItemType::DEVICE_ITEM => devices::device(text, data)?,
        ItemType::DEVICE_EXTENT => devices::extent(text, data)?,
        ItemType::DEVICE_REPLACE => devices::replace(text, data, context)?,
        ItemType::PERSISTENT_ITEM => devices::persistent(text, key, data)?,
        ItemType::TEMPORARY_ITEM => devices::temporary(text, key, data)?,
        ItemType::RAID_STRIPE => devices::raid_stripe(text, data)?,
        ItemType::QUOTA_GROUP_STATUS => quotas::status(text, data, context)?,
        ItemType::QUOTA_GROUP_INFO => quotas::info(text, data)?,
        ItemType::QUOTA_GROUP_LIMIT => quotas::limit(text, data)?,
        ItemType::STRING_ITEM => names::string(text, data, context),
        _ => {}
    }
    Ok(())
}
