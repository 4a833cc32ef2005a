//! Text of keys and object ids.

use vlinder_format::quota::QuotaGroupId;
use vlinder_format::{ItemType, Key, ObjectId};
use vlinder_places::values::parse_number;

/// Object ids that have a name wherever they stand.
const NAMES: [(u64, &str); 23] = [
    (1, "ROOT_TREE"),
    (2, "EXTENT_TREE"),
    (3, "CHUNK_TREE"),
    (4, "DEV_TREE"),
    (5, "FS_TREE"),
    (6, "ROOT_TREE_DIR"),
    (7, "CSUM_TREE"),
    (8, "QUOTA_TREE"),
    (9, "UUID_TREE"),
    (10, "FREE_SPACE_TREE"),
    (11, "BLOCK_GROUP_TREE"),
    (12, "RAID_STRIPE_TREE"),
    (u64::MAX - 3, "BALANCE"),
    (u64::MAX - 4, "ORPHAN"),
    (u64::MAX - 5, "TREE_LOG"),
    (u64::MAX - 6, "LOG_FIXUP"),
    (u64::MAX - 7, "TREE_RELOC"),
    (u64::MAX - 8, "DATA_RELOC_TREE"),
    (u64::MAX - 9, "EXTENT_CSUM"),
    (u64::MAX - 10, "FREE_SPACE"),
    (u64::MAX - 11, "FREE_INO"),
    (u64::MAX - 254, "MULTIPLE"),
    (u64::MAX, "-1"),
];

/// An object id as it reads in the key of an item of this type (0: of no item).
pub fn object(id: ObjectId, item_type: ItemType) -> String {
    match item_type {
        ItemType::PERSISTENT_ITEM if id == ObjectId::DEVICE_STATS => return "DEV_STATS".to_owned(),
        ItemType::PERSISTENT_ITEM | ItemType::DEVICE_EXTENT => return id.to_string(),
        ItemType::QUOTA_GROUP_RELATION => return QuotaGroupId(id.0).to_string(),
        ItemType::UUID_SUBVOLUME | ItemType::UUID_RECEIVED_SUBVOLUME => return format!("0x{:016x}", id.0),
        ItemType::DEVICE_ITEM if id == ObjectId::DEVICE_ITEMS => return "DEV_ITEMS".to_owned(),
        ItemType::CHUNK_ITEM if id == ObjectId::FIRST_CHUNK_TREE => return "FIRST_CHUNK_TREE".to_owned(),
        _ => {}
    }
    match NAMES.iter().find(|(number, _)| *number == id.0) {
        Some((_, name)) => (*name).to_owned(),
        None => id.to_string(),
    }
}

/// `key (OBJECT TYPE OFFSET)`.
pub fn key(key: &Key) -> String {
    let objectid = object(key.objectid, key.item_type);
    let item_type = if key.item_type == ItemType(0) && key.objectid == ObjectId::FREE_SPACE {
        "UNTYPED".to_owned()
    } else {
        match key.item_type.name() {
            Some(name) => name.to_owned(),
            None => format!("UNKNOWN.{}", key.item_type.0),
        }
    };
    let offset = match key.item_type {
        ItemType::QUOTA_GROUP_RELATION | ItemType::QUOTA_GROUP_INFO | ItemType::QUOTA_GROUP_LIMIT => {
            QuotaGroupId(key.offset).to_string()
        }
        ItemType::UUID_SUBVOLUME | ItemType::UUID_RECEIVED_SUBVOLUME => format!("0x{:016x}", key.offset),
        // The offset of a relocation tree's root item is the subvolume that it relocates.
        ItemType::ROOT_ITEM if key.objectid.0 == u64::MAX - 7 => object(ObjectId(key.offset), ItemType(0)),
        ItemType::ROOT_ITEM => key.offset.to_string(),
        _ if key.offset == u64::MAX => "-1".to_owned(),
        _ => key.offset.to_string(),
    };
    format!("key ({objectid} {item_type} {offset})")
}

/// A tree by name (`fs`, `EXTENT_TREE`, `BTRFS_CSUM_TREE_OBJECTID`, either case) or number.
pub fn parse_tree(text: &str) -> Option<u64> {
    const TREES: [(&str, u64); 17] = [
        ("ROOT", 1),
        ("EXTENT", 2),
        ("CHUNK", 3),
        ("DEVICE", 4),
        ("DEV", 4),
        ("FS", 5),
        ("CSUM", 7),
        ("CHECKSUM", 7),
        ("QUOTA", 8),
        ("UUID", 9),
        ("FREE_SPACE", 10),
        ("TREE_LOG_FIXUP", u64::MAX - 6),
        ("TREE_LOG", u64::MAX - 5),
        ("TREE_RELOC", u64::MAX - 7),
        ("DATA_RELOC", u64::MAX - 8),
        ("BLOCK_GROUP", 11),
        ("RAID_STRIPE", 12),
    ];
    if let Some(number) = parse_number(text) {
        return (number != 0).then_some(number);
    }
    let upper = text.to_ascii_uppercase().replace('-', "_");
    let name = upper.strip_prefix("BTRFS_").unwrap_or(&upper);
    let name = name.strip_suffix("_OBJECTID").unwrap_or(name);
    let name = name.strip_suffix("_TREE").unwrap_or(name);
    TREES.iter().find(|(known, _)| *known == name).map(|(_, id)| *id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_go_by_many_names() {
        for (text, id) in [
            ("5", 5),
            ("fs", 5),
            ("FS_TREE", 5),
            ("BTRFS_CSUM_TREE_OBJECTID", 7),
            ("free-space", 10),
            ("device", 4),
            ("-9", u64::MAX - 8),
            ("0x100", 256),
        ] {
            assert_eq!(parse_tree(text), Some(id), "{text}");
        }
        assert_eq!(parse_tree("0"), None);
        assert_eq!(parse_tree("fsx"), None);
    }
}
