//! An item that breaks a rule is one finding: what it should say is not called missing as well.

mod common;

use common::items::{FS, change_root, data_of, entry, half, has, of, own, root_item, small};
use common::{findings, place};
use vlinder_check::{Finding, FindingKind};
use vlinder_format::extent::ExtentFlags;
use vlinder_format::quota::{QuotaGroupId, QuotaGroupInfo};
use vlinder_format::{ItemType as Type, Logical, ObjectId, RootId, orphan};
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::require;

/// Breaks a rule of an item: where it is, and how.
type Breaking = (&'static str, fn(&Mutator) -> (RootId, Found));

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

const BREAKINGS: &[Breaking] = &[
    ("inode item of a file", |m| broken(m, FS, of(m, FS, "file", Type::INODE_ITEM), of_no_generation)),
    ("inode item of a directory", |m| broken(m, FS, of(m, FS, "d", Type::INODE_ITEM), of_no_generation)),
    ("inode item of the root directory", |m| {
        broken(m, FS, m.find_of(ObjectId::FIRST_FREE, Type::INODE_ITEM), of_no_generation)
    }),
    ("reference of an inode", |m| broken(m, FS, of(m, FS, "in", Type::INODE_REF), |data| data[8] = 99)),
    ("entry by hash", |m| {
        let child = data_of(m, entry(m, FS, "in"));
        let found = m.find(FS, |key, data| key.item_type == Type::DIR_ITEM && data[..8] == child[..8]);
        broken(m, FS, found, |data| data[30] = b'X')
    }),
    ("entry of the index", |m| broken(m, FS, entry(m, FS, "in"), |data| data[29] = 99)),
    ("entry of a subvolume", |m| broken(m, FS, entry(m, FS, "empty"), |data| data[29] = 99)),
    ("extent of data", |m| {
        broken(m, RootId::EXTENT_TREE, extent(m, ExtentFlags::DATA), |data| of_no_generation(&mut data[8..]))
    }),
    ("extent of a block", |m| {
        let found = extent(m, ExtentFlags::TREE_BLOCK);
        broken(m, RootId::EXTENT_TREE, found, |data| of_no_generation(&mut data[8..]))
    }),
    ("block group", |m| {
        let found = first(m, RootId::EXTENT_TREE, Type::BLOCK_GROUP_ITEM);
        broken(m, RootId::EXTENT_TREE, found, |data| data[16..24].fill(0))
    }),
    ("checksums", |m| {
        let found = first(m, RootId::CHECKSUM_TREE, Type::EXTENT_CHECKSUM);
        let data = [data_of(m, found), vec![7]].concat();
        m.remove(found);
        m.insert(RootId::CHECKSUM_TREE, found.key, &data);
        (RootId::CHECKSUM_TREE, found)
    }),
    ("record of free space", |m| {
        let found = first(m, RootId::FREE_SPACE_TREE, Type::FREE_SPACE_INFO);
        broken(m, RootId::FREE_SPACE_TREE, found, |data| data[7] = 1)
    }),
    ("free space", |m| {
        let found = first(m, RootId::FREE_SPACE_TREE, Type::FREE_SPACE_EXTENT);
        m.remove(found);
        m.insert(RootId::FREE_SPACE_TREE, found.key, &[7]);
        (RootId::FREE_SPACE_TREE, found)
    }),
    ("root of a subvolume", |m| {
        broken(m, RootId::ROOT_TREE, root_item(m, RootId(256)), |data| data[211] = 1)
    }),
    ("root of the UUID tree", |m| {
        broken(m, RootId::ROOT_TREE, root_item(m, RootId::UUID_TREE), |data| data[211] = 1)
    }),
    ("name of a subvolume", |m| {
        broken(m, RootId::ROOT_TREE, first(m, RootId::ROOT_TREE, Type::ROOT_REF), |data| data[16] = 99)
    }),
    ("name of a subvolume, by itself", |m| {
        broken(m, RootId::ROOT_TREE, first(m, RootId::ROOT_TREE, Type::ROOT_BACKREF), |data| data[16] = 99)
    }),
    ("orphan", |m| {
        change_root(m, RootId(256), |item| item.reference_count = 0);
        let key = orphan::key(ObjectId(256));
        m.insert(RootId::ROOT_TREE, key, &[7]);
        (RootId::ROOT_TREE, m.find(RootId::ROOT_TREE, |other, _| other == key))
    }),
];

#[test]
fn what_a_broken_item_should_say_is_not_called_missing() {
    require!(KernelBtrfs, Tool("btrfs"));
    let mut wrong = Vec::new();
    for (name, damage) in BREAKINGS {
        let m = small();
        let (tree, found) = damage(&m);
        let at = place(tree, found);
        let others: Vec<String> = findings(&m)
            .into_iter()
            .filter(|finding| finding.kind.id() != "item" || finding.place != at)
            .map(|finding| finding.to_string())
            .collect();
        assert!(has(&m, |finding| finding.kind.id() == "item"), "{name}: {others:#?}");
        if !others.is_empty() {
            wrong.push((name, others));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");

    // What a tree says is missed, but not the tree.
    let m = small();
    broken(&m, RootId::ROOT_TREE, root_item(&m, RootId::DEVICE_TREE), |data| data[211] = 1);
    assert!(has(&m, |finding| finding.kind.id() == "stripe-without-device-extent"));
    assert!(!has(&m, |finding| finding.kind.id() == "tree-missing"));

    // What is right is still compared with what is not: the index says another place than the inode whose item is broken.
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
fn an_inode_that_begins_in_what_cannot_be_read_is_not_called_missing() {
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
