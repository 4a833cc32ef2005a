//! Root items, subvolumes and their names.

use vlinder_check::FindingKind;
use vlinder_format::block::BlockFault;
use vlinder_format::root_item::{RootFlags, RootItemFault};
use vlinder_format::{Generation, ItemType as Type, Key, Level, Logical, Place, RootId};
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::require;

use crate::common;
use crate::common::expected::only;
use crate::damage::Damage;
use crate::damage::blocks::unreadable;
use crate::damage::image::{
    FS, ROOT_DIRECTORY, SUBVOLUMES, at_block, at_key, in_tree, indexed, inside, place, range_of,
    root_directory, root_item, u64_at, user,
};
use crate::damage::names::name_of;

const ROOTS: RootId = RootId::ROOT_TREE;
const EXTENTS: RootId = RootId::EXTENT_TREE;
const SUBVOLUME: RootId = SUBVOLUMES[0];
/// Offsets in a root item.
const GENERATION: usize = 160;
const ROOT_DIRECTORY_OFFSET: usize = 168;
const ADDRESS: usize = 176;
const FLAGS: usize = 208;
const REFERENCES: usize = 216;
const LEVEL: usize = 238;

/// The root block of a tree, which is not reached any more.
fn unused_root(m: &Mutator, tree: RootId) -> (FindingKind, Place) {
    let (logical, user) = (m.root(tree), format!("tree {tree}"));
    (FindingKind::ReferenceExtra { logical, user, expected: 0, found: 1 }, at_block(EXTENTS, logical))
}

/// The one extent of the subvolume, which is not reached any more.
fn unused_data(m: &Mutator) -> (FindingKind, Place) {
    let extent = inside(m, SUBVOLUME);
    let (logical, user) = (range_of(m, extent).address, user(SUBVOLUME, extent));
    (FindingKind::ReferenceExtra { logical, user, expected: 0, found: 1 }, in_tree(EXTENTS))
}

/// A block is used as the subvolume's root that is none.
fn missing_root(m: &Mutator, logical: Logical) -> (FindingKind, Place) {
    let (length, user) = (u64::from(m.superblock.node_size), format!("tree {SUBVOLUME}"));
    (FindingKind::ExtentMissing { logical, length, user }, at_block(EXTENTS, logical))
}

/// The subvolume's item in the UUID tree, and which subvolume that names.
fn uuid_item(m: &Mutator, subvolume: RootId) -> Found {
    m.find(RootId::UUID_TREE, |key, data| {
        key.item_type == Type::UUID_SUBVOLUME && data[..8] == subvolume.0.to_le_bytes()
    })
}

pub const DAMAGES: &[Damage] = &[
    ("top subvolume deleted", |m| {
        let at = root_item(m, FS);
        m.add_u32(at, REFERENCES, u32::MAX);
        only(FindingKind::RootOrphan { root: FS }, place(ROOTS, at))
    }),
    ("no root item", |m| {
        let tree = RootId::CHECKSUM_TREE;
        let (unused, at) = unused_root(m, tree);
        m.remove(root_item(m, tree));
        only(FindingKind::TreeMissing { tree }, in_tree(ROOTS)).and(unused, at).besides(["checksum-missing"])
    }),
    ("root block elsewhere", |m| {
        let (root, at, other) = (m.root(SUBVOLUME), root_item(m, SUBVOLUME), m.block(m.root(FS)));
        let ((root_unused, at_root), (data_unused, at_data)) = (unused_root(m, SUBVOLUME), unused_data(m));
        m.set_u64(at, ADDRESS, other.logical().0);
        let (found, expected) = (other.generation(), m.block(root).generation());
        assert_ne!(found, expected);
        let ((kind, place_of_block), (missing, at_missing)) = (
            unreadable(m, at_block(SUBVOLUME, other.logical()), BlockFault::Generation { found, expected }),
            missing_root(m, other.logical()),
        );
        let reason = "the tree's root block is another tree's too";
        only(kind, place_of_block)
            .and(FindingKind::Root { reason }, place(ROOTS, at))
            .and(root_unused, at_root)
            .and(data_unused, at_data)
            .and(missing, at_missing)
    }),
    ("root level in its item", |m| {
        let ((unused, at_root), (data_unused, at_data)) = (unused_root(m, SUBVOLUME), unused_data(m));
        let root = m.block(m.root(SUBVOLUME));
        m.change_item(root_item(m, SUBVOLUME), |data| data[LEVEL] += 1);
        let fault = BlockFault::Level { found: root.level(), expected: Level(root.level().0 + 1) };
        let (kind, place) = unreadable(m, at_block(SUBVOLUME, root.logical()), fault);
        let (missing, _) = missing_root(m, root.logical());
        only(kind, place).and(unused, at_root).and(missing, at_root).and(data_unused, at_data)
    }),
    ("root generation in its item", |m| {
        let (data_unused, at_data) = unused_data(m);
        let root = m.block(m.root(SUBVOLUME));
        m.add_u64(root_item(m, SUBVOLUME), GENERATION, u64::MAX);
        let found = root.generation();
        let fault = BlockFault::Generation { found, expected: Generation(found.0 - 1) };
        let (kind, at_root) = unreadable(m, at_block(SUBVOLUME, root.logical()), fault);
        // What is behind the item's old part, its UUID too, was written by a kernel that did not know it.
        let uuid = place(RootId::UUID_TREE, uuid_item(m, SUBVOLUME));
        only(kind, at_root).and(data_unused, at_data).and(FindingKind::UuidEntry { root: SUBVOLUME }, uuid)
    }),
    ("root flags", |m| {
        let at = root_item(m, SUBVOLUME);
        m.set_u64(at, FLAGS, 1 << 20);
        only(
            FindingKind::Item { fault: RootItemFault::Flags { found: RootFlags(1 << 20) }.into() },
            place(ROOTS, at),
        )
    }),
    // What is left of a relocation, in the reports of those whose file systems went read-only by it.
    ("root items in the extent tree", |m| {
        let key = Key::new(RootId::TREE_LOG.object_id(), Type::ROOT_ITEM, 256);
        let root = root_item(m, FS);
        let item = m.block(root.leaf).data(root.slot).to_vec();
        m.insert(EXTENTS, key, &item);
        let kind = FindingKind::ItemInWrongTree { item_type: Type::ROOT_ITEM };
        only(kind, common::place_of(m, EXTENTS, key))
    }),
    ("an inode in the checksum tree", |m| {
        let inode = root_directory(m);
        let item = m.block(inode.leaf).data(inode.slot).to_vec();
        m.insert(RootId::CHECKSUM_TREE, inode.key, &item);
        let kind = FindingKind::ItemInWrongTree { item_type: Type::INODE_ITEM };
        only(kind, common::place_of(m, RootId::CHECKSUM_TREE, inode.key))
    }),
    ("a type that is not known", |m| {
        let key = Key::new(ROOT_DIRECTORY, Type(111), 0);
        m.insert(FS, key, b"?");
        let kind = FindingKind::ItemInWrongTree { item_type: Type(111) };
        only(kind, common::place_of(m, FS, key))
    }),
    ("root directory in a root item", |m| {
        let at = root_item(m, SUBVOLUME);
        m.add_u64(at, ROOT_DIRECTORY_OFFSET, 1);
        let reason = "the subvolume's root directory is said not to be inode 256";
        only(FindingKind::Root { reason }, place(ROOTS, at))
    }),
    ("key of a tree's root item", |m| {
        let at = root_item(m, RootId::CHECKSUM_TREE);
        let key = Key { offset: 1, ..at.key };
        m.set_key(at, key);
        let reason = "the tree's root item is not where it is looked for: the offset of its key is not 0";
        only(FindingKind::Root { reason }, place(ROOTS, Found { key, ..at }))
    }),
    ("a snapshot of what is to come", |m| {
        let at = root_item(m, SUBVOLUME);
        let key = Key { offset: m.superblock.generation.0 + 1, ..at.key };
        m.set_key(at, key);
        let reason = "the subvolume is said to be a snapshot of a transaction that came after its root block";
        only(FindingKind::Root { reason }, place(ROOTS, Found { key, ..at }))
    }),
    ("root references", |m| {
        let at = root_item(m, SUBVOLUME);
        m.add_u32(at, REFERENCES, u32::MAX);
        only(FindingKind::RootOrphan { root: SUBVOLUME }, place(ROOTS, at))
    }),
    ("forward reference gone", |m| {
        let found = m.find_type(ROOTS, Type::ROOT_REF);
        m.remove(found);
        let (parent, child) = (RootId(found.key.objectid.0), RootId(found.key.offset));
        only(FindingKind::RootReference { parent, child }, in_tree(ROOTS))
    }),
    ("backward reference gone", |m| {
        let found = m.find_type(ROOTS, Type::ROOT_BACKREF);
        m.remove(found);
        let (child, parent) = (RootId(found.key.objectid.0), RootId(found.key.offset));
        only(FindingKind::RootReference { parent, child }, in_tree(ROOTS))
            .and(FindingKind::RootWithoutReference { root: child }, place(ROOTS, root_item(m, child)))
    }),
    ("name of a subvolume gone", |m| {
        let (entry, directory) = (indexed(m, "s"), root_directory(m));
        m.remove(entry);
        let found = u64_at(m, directory, 16);
        let size = FindingKind::DirectorySize { inode: ROOT_DIRECTORY, found, expected: found - 1 };
        let (name, names) =
            name_of(SUBVOLUME.object_id(), "is not in the directory's index as it is by its hash");
        only(FindingKind::RootName { parent: FS, child: SUBVOLUME }, in_tree(FS))
            .and(name, names)
            .and(size, place(FS, directory))
    }),
    ("uuid of another subvolume", |m| {
        let found = m.find_type(RootId::UUID_TREE, Type::UUID_SUBVOLUME);
        m.change_item(found, |data| data[0] ^= 3);
        let root = RootId(u64_at(m, found, 0));
        only(FindingKind::UuidEntry { root }, place(RootId::UUID_TREE, found))
    }),
    ("no item of a root directory", |m| {
        let child = inside(m, SUBVOLUME).key.objectid;
        m.change_block(m.root(SUBVOLUME), |leaf| {
            while leaf.key(0).objectid == ROOT_DIRECTORY {
                leaf.items_mut().remove(0, 1);
            }
        });
        let reason = "is not in the directory's index as it is in the inode";
        let name = FindingKind::Name { directory: ROOT_DIRECTORY, child, reason };
        let names = at_key(SUBVOLUME, Key::new(ROOT_DIRECTORY, Type::DIR_ITEM, 0));
        only(FindingKind::RootDirectory {}, in_tree(SUBVOLUME)).and(name, names)
    }),
];

#[test]
fn damaged_roots_are_found() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("setfattr"), Tool("chattr"));
    crate::damage::assert_each_is_found(DAMAGES);
}
