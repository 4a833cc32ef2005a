//! An item that breaks a rule is one finding: what it should say is not called missing as well.

use crate::common::expected::only;
use crate::common::items::{FS, change_root, data_of, entry, half, has, of, own, root_item, small};
use crate::common::{findings, place};
use vlinder_check::{Finding, FindingKind};
use vlinder_codec::name_hash::name_hash;
use vlinder_format::block_group::BlockGroupFault;
use vlinder_format::checksum_item::ChecksumItemFault;
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_format::directory::{DirectoryEntryType, DirectoryFault};
use vlinder_format::extent::{ExtentFault, ExtentFlags};
use vlinder_format::free_space::FreeSpaceFault;
use vlinder_format::inode::InodeFault;
use vlinder_format::inode_ref::InodeReferenceFault;
use vlinder_format::orphan::{self, OrphanFault};
use vlinder_format::quota::{QuotaGroupId, QuotaGroupInfo};
use vlinder_format::root_item::{RootFlags, RootItemFault};
use vlinder_format::root_ref::RootReferenceFault;
use vlinder_format::{Fault, Generation, ItemType as Type, Logical, ObjectId, RootId};
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::require;

/// An item that breaks a rule, and which.
type Broken = ((RootId, Found), Fault);
/// Breaks a rule of an item.
type Breaking = (&'static str, fn(&Mutator) -> Broken);

/// Changes an item, which stays under its key.
fn broken(m: &Mutator, tree: RootId, found: Found, change: impl FnOnce(&mut [u8])) -> (RootId, Found) {
    m.change_item(found, change);
    (tree, found)
}

/// No generation is as high.
fn of_no_generation(data: &mut [u8]) {
    data[5] = 1;
}

/// The first item of a type in a tree that is not this.
fn first(m: &Mutator, tree: RootId, item_type: Type) -> Found {
    m.find(tree, |key, _| key.item_type == item_type)
}

/// The first extent item of data, or of blocks.
fn extent(m: &Mutator, flags: ExtentFlags) -> Found {
    m.find(RootId::EXTENT_TREE, |key, data| {
        matches!(key.item_type, Type::EXTENT_ITEM | Type::METADATA_ITEM)
            && data[16..24] == flags.0.to_le_bytes()
    })
}

/// An inode of no generation.
fn unborn_inode(m: &Mutator, item: Found) -> Broken {
    let at = broken(m, FS, item, of_no_generation);
    let (found, most) = (generation(&data_of(m, item)), m.superblock.generation.next());
    (at, InodeFault::Generation { found, most }.into())
}

/// An extent of no generation.
fn unborn_extent(m: &Mutator, flags: ExtentFlags) -> Broken {
    let item = extent(m, flags);
    let at = broken(m, RootId::EXTENT_TREE, item, |data| of_no_generation(&mut data[8..]));
    let (found, newest) = (generation(&data_of(m, item)[8..]), m.superblock.generation.next());
    (at, ExtentFault::Generation { found, newest }.into())
}

fn generation(data: &[u8]) -> Generation {
    Generation(u64::from_le_bytes(data[..8].try_into().unwrap()))
}

/// An entry of the index of a type that there is not.
fn odd_entry(m: &Mutator, name: &str) -> Broken {
    let at = broken(m, FS, entry(m, FS, name), |data| data[29] = 99);
    (at, DirectoryFault::UnknownType { found: DirectoryEntryType(99) }.into())
}

/// A reference between subvolumes with a name that does not fill it.
fn odd_name(m: &Mutator, item_type: Type) -> Broken {
    let found = first(m, RootId::ROOT_TREE, item_type);
    let name_bytes = data_of(m, found).len() - 18;
    let at = broken(m, RootId::ROOT_TREE, found, |data| data[16] = 99);
    (at, RootReferenceFault::Name { found: name_bytes, expected: 99 }.into())
}

/// A root item with a flag that there is not.
fn odd_flags(m: &Mutator, root: RootId) -> Broken {
    let at = broken(m, RootId::ROOT_TREE, root_item(m, root), |data| data[211] = 1);
    (at, RootItemFault::Flags { found: RootFlags(1 << 24) }.into())
}

/// An item with other data.
fn replaced(m: &Mutator, tree: RootId, found: Found, data: &[u8]) -> (RootId, Found) {
    m.remove(found);
    m.insert(tree, found.key, data);
    (tree, found)
}

const BREAKINGS: &[Breaking] = &[
    ("inode item of a file", |m| unborn_inode(m, of(m, FS, "file", Type::INODE_ITEM))),
    ("inode item of a directory", |m| unborn_inode(m, of(m, FS, "d", Type::INODE_ITEM))),
    ("inode item of the root directory", |m| {
        unborn_inode(m, m.find_of(ObjectId::FIRST_FREE, Type::INODE_ITEM))
    }),
    ("reference of an inode", |m| {
        let at = broken(m, FS, of(m, FS, "in", Type::INODE_REF), |data| data[8] = 99);
        (at, InodeReferenceFault::Name { found: 99, available: "in".len() }.into())
    }),
    ("entry by hash", |m| {
        let child = data_of(m, entry(m, FS, "in"));
        let found = m.find(FS, |key, data| key.item_type == Type::DIR_ITEM && data[..8] == child[..8]);
        let at = broken(m, FS, found, |data| data[30] = b'X');
        (at, DirectoryFault::Hash { found: name_hash(b"Xn"), expected: name_hash(b"in") }.into())
    }),
    ("entry of the index", |m| odd_entry(m, "in")),
    ("entry of a subvolume", |m| odd_entry(m, "empty")),
    ("extent of data", |m| unborn_extent(m, ExtentFlags::DATA)),
    ("extent of a block", |m| unborn_extent(m, ExtentFlags::TREE_BLOCK)),
    ("block group", |m| {
        let found = first(m, RootId::EXTENT_TREE, Type::BLOCK_GROUP_ITEM);
        let at = broken(m, RootId::EXTENT_TREE, found, |data| data[16..24].fill(0));
        (at, BlockGroupFault::Flags { found: BlockGroupFlags(0) }.into())
    }),
    ("checksums", |m| {
        let found = first(m, RootId::CHECKSUM_TREE, Type::EXTENT_CHECKSUM);
        let data = [data_of(m, found), vec![7]].concat();
        let at = replaced(m, RootId::CHECKSUM_TREE, found, &data);
        (at, ChecksumItemFault::Size { found: data.len(), checksum_size: 4 }.into())
    }),
    ("record of free space", |m| {
        let found = first(m, RootId::FREE_SPACE_TREE, Type::FREE_SPACE_INFO);
        let at = broken(m, RootId::FREE_SPACE_TREE, found, |data| data[7] = 1);
        (at, FreeSpaceFault::Flags { found: 1 << 24 }.into())
    }),
    ("free space", |m| {
        let found = first(m, RootId::FREE_SPACE_TREE, Type::FREE_SPACE_EXTENT);
        let at = replaced(m, RootId::FREE_SPACE_TREE, found, &[7]);
        (at, FreeSpaceFault::Size { found: 1, expected: 0 }.into())
    }),
    ("root of a subvolume", |m| odd_flags(m, RootId(256))),
    ("root of the UUID tree", |m| odd_flags(m, RootId::UUID_TREE)),
    ("name of a subvolume", |m| odd_name(m, Type::ROOT_REF)),
    ("name of a subvolume, by itself", |m| odd_name(m, Type::ROOT_BACKREF)),
    ("orphan", |m| {
        change_root(m, RootId(256), |item| item.reference_count = 0);
        let key = orphan::key(ObjectId(256));
        m.insert(RootId::ROOT_TREE, key, &[7]);
        let at = (RootId::ROOT_TREE, m.find(RootId::ROOT_TREE, |other, _| other == key));
        (at, OrphanFault::Size { found: 1 }.into())
    }),
];

#[test]
fn what_a_broken_item_should_say_is_not_called_missing() {
    require!(KernelBtrfs, Tool("btrfs"));
    let mut wrong = Vec::new();
    for (name, damage) in BREAKINGS {
        let m = small();
        let ((tree, found), fault) = damage(&m);
        let expected = only(FindingKind::Item { fault }, place(tree, found));
        if let Err(difference) = expected.compare(&findings(&m)) {
            wrong.push(format!("{name}: {difference}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // What a tree says is missed, but not the tree.
    let m = small();
    broken(&m, RootId::ROOT_TREE, root_item(&m, RootId::DEVICE_TREE), |data| data[211] = 1);
    assert!(has(&m, |finding| finding.kind.id() == "stripe-without-device-extent"));
    assert!(!has(&m, |finding| finding.kind.id() == "tree-missing"));

    // What is right is still compared with what is not: the index says another place than the inode whose
    // item is broken.
    let m = small();
    let inode = broken(&m, FS, of(&m, FS, "in", Type::INODE_ITEM), of_no_generation).1.key.objectid;
    m.add_u64(m.find_of(inode, Type::INODE_REF), 0, 5000);
    let names = findings(&m).into_iter().filter(|found| found.kind.id() == "name").count();
    assert_eq!(names, 2, "{:#?}", findings(&m));
}

#[test]
fn quotas_are_compared_as_long_as_every_subvolume_is_known() {
    require!(KernelBtrfs, Tool("btrfs"));
    let wrong = || {
        let m = half();
        m.add_u64(
            m.find(RootId::QUOTA_TREE, |key, _| key == QuotaGroupInfo::key(QuotaGroupId(256))),
            8,
            4096,
        );
        m
    };
    let is_counted = |m: &Mutator| has(m, |finding| matches!(finding.kind, FindingKind::QuotaUsage { .. }));
    let m = wrong();
    broken(&m, RootId::ROOT_TREE, first(&m, RootId::ROOT_TREE, Type::ROOT_REF), |data| data[16] = 99);
    assert!(is_counted(&m), "{:#?}", findings(&m));
    broken(&m, RootId::ROOT_TREE, root_item(&m, RootId(256)), |data| data[211] = 1);
    assert!(!is_counted(&m), "{:#?}", findings(&m));
}

#[test]
fn an_inode_that_begins_in_an_unread_leaf_is_not_missing() {
    let m = own();
    let root = m.block(m.root(FS));
    let leaves: Vec<Logical> = match root.level().0 {
        1 => root.children().map(|child| child.logical).collect(),
        _ => root
            .children()
            .flat_map(|child| m.block(child.logical).children().map(|leaf| leaf.logical).collect::<Vec<_>>())
            .collect(),
    };
    let mut continued = 0;
    for pair in leaves.windows(2) {
        let (before, key) = (pair[0], m.block(pair[1]).key(0));
        let m = own();
        m.change_bytes(before, |bytes| bytes[50] ^= 1);
        let missing: Vec<Finding> =
            findings(&m).into_iter().filter(|finding| finding.kind.id() == "inode-missing").collect();
        assert_eq!(missing, [], "behind the leaf at {before}");
        continued += usize::from(key.item_type != Type::INODE_ITEM);
    }
    assert!(continued > 2, "{continued} leaves begin within an inode");
}
