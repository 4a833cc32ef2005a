//! Which types of items a tree may hold. What an item says is judged elsewhere; an item that nobody looks for
//! in its tree is not judged at all, and Linux stumbles over some (an extent tree that ends in root items:
//! `btrfs_trim_block_group` and the allocator take the last item for an extent).
//!
//! Sources: for each tree the functions that write to it. In the tree of roots: `btrfs_insert_root`,
//! `btrfs_add_root_ref`, `btrfs_insert_orphan_item`, `insert_balance_item`, `btrfs_ioctl_default_subvol`, and
//! the inodes of the free-space cache, `__create_free_space_inode`. In the device tree:
//! `btrfs_alloc_dev_extent`, `update_dev_stat_item`, `btrfs_run_dev_replace`.

use vlinder_format::{ItemType, Key, ObjectId, RootId};

/// Heads of the free-space cache and of the inode cache have the type 0.
const UNTYPED: ItemType = ItemType(0);

const OF_ROOT_TREE: &[ItemType] = &[
    UNTYPED,
    ItemType::INODE_ITEM,
    ItemType::INODE_REF,
    ItemType::XATTR_ITEM,
    ItemType::ORPHAN_ITEM,
    ItemType::DIR_ITEM,
    ItemType::DIR_INDEX,
    ItemType::EXTENT_DATA,
    ItemType::ROOT_ITEM,
    ItemType::ROOT_BACKREF,
    ItemType::ROOT_REF,
    ItemType::TEMPORARY_ITEM,
];
const OF_EXTENT_TREE: &[ItemType] = &[
    ItemType::EXTENT_ITEM,
    ItemType::METADATA_ITEM,
    ItemType::TREE_BLOCK_REF,
    ItemType::EXTENT_DATA_REF,
    ItemType::SHARED_BLOCK_REF,
    ItemType::SHARED_DATA_REF,
    ItemType::BLOCK_GROUP_ITEM,
];
const OF_CHUNK_TREE: &[ItemType] = &[ItemType::DEVICE_ITEM, ItemType::CHUNK_ITEM];
const OF_DEVICE_TREE: &[ItemType] =
    &[ItemType::DEVICE_EXTENT, ItemType::PERSISTENT_ITEM, ItemType::DEVICE_REPLACE];
const OF_CHECKSUM_TREE: &[ItemType] = &[ItemType::EXTENT_CHECKSUM];
const OF_QUOTA_TREE: &[ItemType] = &[
    ItemType::QUOTA_GROUP_STATUS,
    ItemType::QUOTA_GROUP_INFO,
    ItemType::QUOTA_GROUP_LIMIT,
    ItemType::QUOTA_GROUP_RELATION,
];
const OF_UUID_TREE: &[ItemType] = &[ItemType::UUID_SUBVOLUME, ItemType::UUID_RECEIVED_SUBVOLUME];
const OF_FREE_SPACE_TREE: &[ItemType] =
    &[ItemType::FREE_SPACE_INFO, ItemType::FREE_SPACE_EXTENT, ItemType::FREE_SPACE_BITMAP];
const OF_BLOCK_GROUP_TREE: &[ItemType] = &[ItemType::BLOCK_GROUP_ITEM];
const OF_RAID_STRIPE_TREE: &[ItemType] = &[ItemType::RAID_STRIPE];
const OF_SUBVOLUMES: &[ItemType] = &[
    ItemType::INODE_ITEM,
    ItemType::INODE_REF,
    ItemType::INODE_EXTREF,
    ItemType::XATTR_ITEM,
    ItemType::VERITY_DESCRIPTOR_ITEM,
    ItemType::VERITY_MERKLE_ITEM,
    ItemType::ORPHAN_ITEM,
    ItemType::DIR_ITEM,
    ItemType::DIR_INDEX,
    ItemType::EXTENT_DATA,
];

/// What replaying knows (`btrfs_log_inode`, `log_csums`).
const OF_LOGS: &[ItemType] = &[
    ItemType::INODE_ITEM,
    ItemType::INODE_REF,
    ItemType::INODE_EXTREF,
    ItemType::XATTR_ITEM,
    ItemType::VERITY_DESCRIPTOR_ITEM,
    ItemType::VERITY_MERKLE_ITEM,
    ItemType::DIR_LOG_ITEM,
    ItemType::DIR_LOG_INDEX,
    ItemType::DIR_ITEM,
    ItemType::DIR_INDEX,
    ItemType::EXTENT_DATA,
    ItemType::EXTENT_CHECKSUM,
];

/// Whether the log of a subvolume may hold an item of this type.
pub(crate) fn log_may_hold(item_type: ItemType) -> bool {
    OF_LOGS.contains(&item_type)
}

/// Whether an item with this key may be in this tree, which is no log. Of a tree that is not known nothing is
/// said.
pub(crate) fn may_hold(tree: RootId, key: &Key) -> bool {
    let types = match tree {
        RootId::ROOT_TREE => OF_ROOT_TREE,
        RootId::EXTENT_TREE => OF_EXTENT_TREE,
        RootId::CHUNK_TREE => OF_CHUNK_TREE,
        RootId::DEVICE_TREE => OF_DEVICE_TREE,
        RootId::CHECKSUM_TREE => OF_CHECKSUM_TREE,
        RootId::QUOTA_TREE => OF_QUOTA_TREE,
        RootId::UUID_TREE => OF_UUID_TREE,
        RootId::FREE_SPACE_TREE => OF_FREE_SPACE_TREE,
        RootId::BLOCK_GROUP_TREE => OF_BLOCK_GROUP_TREE,
        RootId::RAID_STRIPE_TREE => OF_RAID_STRIPE_TREE,
        // What the inode cache left is the head of its inode; the cache is gone since Linux 5.11.
        _ if tree.is_shareable() && key.objectid == ObjectId::FREE_INODE => return true,
        _ if tree.is_shareable() => OF_SUBVOLUMES,
        _ => return true,
    };
    types.contains(&key.item_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREES: [RootId; 13] = [
        RootId::ROOT_TREE,
        RootId::EXTENT_TREE,
        RootId::CHUNK_TREE,
        RootId::DEVICE_TREE,
        RootId::FS_TREE,
        RootId::CHECKSUM_TREE,
        RootId::QUOTA_TREE,
        RootId::UUID_TREE,
        RootId::FREE_SPACE_TREE,
        RootId::BLOCK_GROUP_TREE,
        RootId::RAID_STRIPE_TREE,
        RootId::DATA_RELOCATION_TREE,
        RootId(256),
    ];

    fn key(item_type: ItemType) -> Key {
        Key::new(ObjectId(257), item_type, 0)
    }

    #[test]
    fn each_named_type_has_a_tree_but_those_of_logs() {
        let homeless: Vec<ItemType> = ItemType::NAMED
            .iter()
            .copied()
            .filter(|item_type| !TREES.iter().any(|tree| may_hold(*tree, &key(*item_type))))
            .collect();
        let expected = [
            ItemType::DIR_LOG_ITEM,
            ItemType::DIR_LOG_INDEX,
            ItemType::EXTENT_OWNER_REF,
            ItemType::STRING_ITEM,
        ];
        assert_eq!(homeless, expected);
    }

    #[test]
    fn a_log_holds_what_its_subvolume_does_but_orphans() {
        let only_in_logs: Vec<ItemType> = OF_LOGS
            .iter()
            .copied()
            .filter(|item_type| !may_hold(RootId::FS_TREE, &key(*item_type)))
            .collect();
        let expected = [ItemType::DIR_LOG_ITEM, ItemType::DIR_LOG_INDEX, ItemType::EXTENT_CHECKSUM];
        assert_eq!(only_in_logs, expected);
        assert!(OF_SUBVOLUMES.iter().all(|one| log_may_hold(*one) != (*one == ItemType::ORPHAN_ITEM)));
    }

    #[test]
    fn no_tree_that_is_known_holds_a_type_without_a_name() {
        for number in (1..=u8::MAX).map(ItemType).filter(|item_type| item_type.name().is_none()) {
            assert!(TREES.iter().all(|tree| !may_hold(*tree, &key(number))), "{number}");
        }
    }

    #[test]
    fn remnants_of_the_inode_cache_are_in_subvolumes_alone() {
        let remnant = Key::new(ObjectId::FREE_INODE, UNTYPED, 0);
        assert!(may_hold(RootId::FS_TREE, &remnant) && may_hold(RootId(256), &remnant));
        assert!(!may_hold(RootId::EXTENT_TREE, &remnant));
        assert!(!may_hold(RootId::FS_TREE, &key(UNTYPED)));
    }

    #[test]
    fn the_top_level_has_no_roots_and_the_extent_tree_no_inodes() {
        assert!(!may_hold(RootId::FS_TREE, &key(ItemType::ROOT_ITEM)));
        assert!(!may_hold(RootId::EXTENT_TREE, &key(ItemType::INODE_ITEM)));
        assert!(!may_hold(RootId::EXTENT_TREE, &key(ItemType::ROOT_ITEM)));
        assert!(may_hold(RootId(7777 << 20), &key(ItemType::INODE_ITEM)));
    }
}
