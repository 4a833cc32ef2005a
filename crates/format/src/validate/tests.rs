use super::*;
use crate::block::{BLOCK_FLAG_WRITTEN, BlockIdentity};
use crate::inode::{FileType, InodeFault, InodeItem, Mode};
use crate::types::{Level, Uuid};

/// A file system of 4 KiB sectors and 16 KiB nodes at generation 100, open for writing.
pub(crate) const RULES: LeafRules = LeafRules {
    sector_size: 4096,
    node_size: 16384,
    checksum_size: 4,
    generation: Generation(100),
    features: Features {
        compat: crate::features::CompatFeatures::NONE,
        compat_read_only: crate::features::CompatReadOnlyFeatures::NONE,
        incompat: crate::features::IncompatFeatures::NONE,
    },
    writable: true,
};

/// Checks an item of subvolume 256.
pub(crate) fn check_in_subvolume(
    key: &Key,
    data: &[u8],
    previous: Option<(Key, &[u8])>,
) -> Result<(), Fault> {
    check_item(key, data, &ItemContext { rules: &RULES, owner: RootId(256), previous })
}

#[track_caller]
pub(crate) fn assert_sound(key: &Key, data: &[u8], previous: Option<(Key, &[u8])>) {
    assert_eq!(check_in_subvolume(key, data, previous), Ok(()));
}

#[track_caller]
pub(crate) fn assert_fault(key: &Key, data: &[u8], previous: Option<(Key, &[u8])>, fault: impl Into<Fault>) {
    assert_eq!(check_in_subvolume(key, data, previous), Err(fault.into()));
}

fn leaf(items: &[(Key, &[u8])]) -> Block {
    let identity = BlockIdentity {
        logical: Logical(1 << 20),
        generation: Generation(7),
        owner: RootId(256),
        level: Level::LEAF,
        fsid: Uuid([1; 16]),
        chunk_tree_uuid: Uuid([2; 16]),
    };
    let mut block = Block::new(RULES.node_size, &identity);
    block.insert_items(0, items);
    block.set_flag(BLOCK_FLAG_WRITTEN, true);
    block
}

#[test]
fn the_damage_names_block_slot_and_key() {
    let inode =
        InodeItem { link_count: 1, mode: Mode::new(FileType::Regular, 0o600), ..InodeItem::default() };
    let (first, second) = (InodeItem::key(ObjectId(256)), InodeItem::key(ObjectId(257)));
    let sound = inode.encode();
    assert_eq!(validate_leaf(&leaf(&[(first, &sound), (second, &sound)]), &RULES), Ok(()));
    let found = validate_leaf(&leaf(&[(first, &sound), (second, &sound[1..])]), &RULES).unwrap_err();
    let damage = found.into_damage(Some(RootId(300)), Logical(1 << 20));
    assert_eq!(damage.fault, Fault::Inode(InodeFault::Size { found: 159 }));
    assert_eq!(
        *damage.place,
        Place { tree: Some(RootId(300)), block: Some(Logical(1 << 20)), slot: Some(1), key: Some(second) }
    );
}

#[test]
fn item_types_that_no_family_claims_pass() {
    assert_sound(&Key::new(ObjectId(1), ItemType(77), 3), b"anything", None);
}

#[test]
fn a_subvolume_number_leaves_the_quota_level_clear() {
    assert!(
        is_file_tree(RootId::FS_TREE) && is_file_tree(RootId(256)) && is_file_tree(RootId((1 << 48) - 1))
    );
    assert!(!is_file_tree(RootId(255)) && !is_file_tree(RootId(1 << 48)) && !is_file_tree(RootId::TREE_LOG));
}
