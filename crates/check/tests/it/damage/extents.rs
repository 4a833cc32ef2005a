//! The extent tree.

use vlinder_check::FindingKind;
use vlinder_format::extent::{ExtentFault, ExtentFlags};
use vlinder_format::free_space::FreeSpaceInfo;
use vlinder_format::{Generation, ItemType as Type, Key, Logical, ObjectId, RootId};
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::require;

use crate::common::expected::{Expected, only};
use crate::damage::Damage;
use crate::damage::image::{
    FS, NOWHERE, SECTOR, at_block, data_of, extent_item, free_range, free_space_info, group_of, in_tree, of,
    place, range_of, u64_at, user,
};

const TREE: RootId = RootId::EXTENT_TREE;
/// Offsets in an extent's which an inline reference follows.
const REFERENCES: usize = 0;
const GENERATION: usize = 8;
const FLAGS: usize = 16;
/// A bit of the flags.
const FULL_BACK_REFERENCE: u64 = 1 << 8;
const BLOCK_ROOT: usize = 25;
const DATA_INODE: usize = 33;
const DATA_OFFSET: usize = 41;

/// An extent of data that one file has, and the file's item.
fn data(m: &Mutator) -> (Found, Found) {
    let file = of(m, "prealloc", Type::EXTENT_DATA);
    (extent_item(m, range_of(m, file).address), file)
}

/// The extent of a block that one tree has, and the tree.
fn block(m: &Mutator) -> (Found, RootId) {
    (extent_item(m, m.root(RootId::CHUNK_TREE)), RootId::CHUNK_TREE)
}

fn start(found: Found) -> Logical {
    Logical(found.key.objectid.0)
}

/// A block that refers to its children by parent, though its tree has it.
fn left() -> FindingKind {
    FindingKind::BlockOwner { reason: "is said to be left by its owner, whose tree leads to it" }
}

/// An extent that its user is not recorded for.
fn missing(found: Found, user: String) -> FindingKind {
    FindingKind::ReferenceMissing { logical: start(found), user, expected: 1, found: 0 }
}

/// An extent that somebody is recorded for who does not use it.
fn extra(found: Found, user: String) -> FindingKind {
    FindingKind::ReferenceExtra { logical: start(found), user, expected: 0, found: 1 }
}

/// As many bytes more or less are in use by the extents than all that counts them says.
fn counted_otherwise(m: &Mutator, expected: Expected, at: Logical, by: i64) -> Expected {
    let group = group_of(m, at);
    let (of_group, of_all) = (u64_at(m, group, 0), m.superblock.bytes_used);
    let logical = start(group);
    let used = of_group.checked_add_signed(by).unwrap();
    let all = of_all.checked_add_signed(by).unwrap();
    let info = free_space_info(m, group);
    assert_eq!(info.key, FreeSpaceInfo::key(logical, group.key.offset));
    expected
        .and(FindingKind::GroupUsed { logical, found: of_group, expected: used }, place(TREE, group))
        .and(FindingKind::SuperblockBytesUsed { found: of_all, expected: all }, NOWHERE)
        .and(
            FindingKind::FreeSpace { group: logical, logical: at, called_free: by > 0 },
            place(RootId::FREE_SPACE_TREE, info),
        )
}

pub const DAMAGES: &[Damage] = &[
    ("reference count", |m| {
        let (extent, _) = data(m);
        m.add_u64(extent, REFERENCES, 1);
        only(FindingKind::ExtentCount { found: 2, expected: 1 }, place(TREE, extent))
    }),
    ("extent generation", |m| {
        let (extent, _) = data(m);
        m.set_u64(extent, GENERATION, 1 << 40);
        let (found, newest) = (Generation(1 << 40), m.superblock.generation.next());
        only(
            FindingKind::Item { fault: ExtentFault::Generation { found, newest }.into() },
            place(TREE, extent),
        )
    }),
    ("a block said to be left by its owner", |m| {
        let (extent, tree) = block(m);
        m.add_u64(extent, FLAGS, FULL_BACK_REFERENCE);
        assert_eq!(tree, RootId::CHUNK_TREE);
        only(left(), at_block(TREE, start(extent)))
    }),
    ("generation of a block's extent", |m| {
        let (extent, _) = block(m);
        let expected = m.block(start(extent)).generation();
        m.set_u64(extent, GENERATION, 1);
        let kind = FindingKind::BlockGeneration { found: Generation(1), expected };
        only(kind, at_block(TREE, start(extent)))
    }),
    ("extent flags", |m| {
        let (extent, _) = data(m);
        m.set_u64(extent, FLAGS, 3);
        only(
            FindingKind::Item { fault: ExtentFault::Flags { found: ExtentFlags(3) }.into() },
            place(TREE, extent),
        )
    }),
    ("data reference to another inode", |m| {
        let (extent, file) = data(m);
        m.add_u64(extent, DATA_INODE, 1);
        let other = format!("inode {} of tree {FS} at offset 0", file.key.objectid.0 + 1);
        only(missing(extent, user(FS, file)), in_tree(TREE)).and(extra(extent, other), in_tree(TREE))
    }),
    ("data reference to another offset", |m| {
        let (extent, file) = data(m);
        m.add_u64(extent, DATA_OFFSET, SECTOR);
        let other = format!("inode {} of tree {FS} at offset {SECTOR}", file.key.objectid);
        only(missing(extent, user(FS, file)), in_tree(TREE)).and(extra(extent, other), in_tree(TREE))
    }),
    ("block reference to another root", |m| {
        let (extent, tree) = block(m);
        m.set_u64(extent, BLOCK_ROOT, 600);
        let at = at_block(TREE, start(extent));
        only(missing(extent, format!("tree {tree}")), at).and(extra(extent, "tree 600".to_owned()), at)
    }),
    ("block level in its extent", |m| {
        let (extent, tree) = block(m);
        m.set_key(extent, Key { offset: extent.key.offset + 1, ..extent.key });
        let (logical, length, user) =
            (start(extent), u64::from(m.superblock.node_size), format!("tree {tree}"));
        let at = at_block(TREE, logical);
        only(extra(extent, user.clone()), at).and(FindingKind::ExtentMissing { logical, length, user }, at)
    }),
    ("data extent gone", |m| {
        let (extent, file) = data(m);
        m.remove(extent);
        let (logical, length) = (start(extent), extent.key.offset);
        let kind = FindingKind::ExtentMissing { logical, length, user: user(FS, file) };
        counted_otherwise(m, only(kind, in_tree(TREE)), logical, -i64::try_from(length).unwrap())
    }),
    ("block extent gone", |m| {
        let (extent, tree) = block(m);
        m.remove(extent);
        let (logical, length) = (start(extent), u64::from(m.superblock.node_size));
        let kind = FindingKind::ExtentMissing { logical, length, user: format!("tree {tree}") };
        counted_otherwise(m, only(kind, at_block(TREE, logical)), logical, -i64::try_from(length).unwrap())
    }),
    ("full back references", |m| {
        let root = m.block(m.root(FS));
        m.set_u64(extent_item(m, root.logical()), FLAGS, 2 | 1 << 8);
        // Each child is recorded for the tree, and should be for the node.
        let children = root.children().flat_map(|child| {
            let extent = extent_item(m, child.logical);
            let node = format!("node {}", root.logical());
            [missing(extent, node), extra(extent, format!("tree {FS}"))].map(|kind| (kind, child.logical))
        });
        let all = children.map(|(kind, child)| (kind, at_block(TREE, child)));
        let first = only(left(), at_block(TREE, root.logical()));
        all.fold(first, |expected, (kind, place)| expected.and(kind, place))
    }),
    ("extent of nothing", |m| {
        let logical = Logical(free_range(m).key.objectid.0);
        let (like, file) = data(m);
        let key = Key::new(ObjectId(logical.0), Type::EXTENT_ITEM, SECTOR);
        m.insert(TREE, key, &data_of(m, like));
        let kind = extra(extent_item(m, logical), user(FS, file));
        counted_otherwise(m, only(kind, in_tree(TREE)), logical, i64::try_from(SECTOR).unwrap())
    }),
];

#[test]
fn damaged_extents_are_found() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("setfattr"), Tool("chattr"));
    crate::damage::assert_each_is_found(DAMAGES);
}
