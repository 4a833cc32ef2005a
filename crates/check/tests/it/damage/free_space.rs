//! The free-space tree.

use vlinder_check::{Finding, FindingKind, Options, check};
use vlinder_format::free_space::FreeSpaceInfo;
use vlinder_format::{ItemType as Type, Key, Logical, RootId};
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::require;

use crate::common::expected::only;
use crate::damage::Damage;
use crate::damage::image::{
    self, SECTOR, at_key, free_range, free_space_info, group_of, place, place_of, u32_at,
};

const TREE: RootId = RootId::FREE_SPACE_TREE;

/// A free range, the record of its group, and the group.
fn range_and_group(m: &Mutator) -> (Found, Found, Logical) {
    let range = free_range(m);
    let info = free_space_info(m, group_of(m, Logical(range.key.objectid.0)));
    (range, info, Logical(info.key.objectid.0))
}

pub const DAMAGES: &[Damage] = &[
    ("free range gone", |m| {
        let (range, info, group) = range_and_group(m);
        m.remove(range);
        let logical = Logical(range.key.objectid.0);
        only(FindingKind::FreeSpace { group, logical, called_free: false }, place(TREE, info))
    }),
    ("free range shorter", |m| {
        let (range, info, group) = range_and_group(m);
        let length = range.key.offset - SECTOR;
        m.set_key(range, Key { offset: length, ..range.key });
        let logical = Logical(range.key.objectid.0 + length);
        only(FindingKind::FreeSpace { group, logical, called_free: false }, place(TREE, info))
    }),
    ("free range earlier", |m| {
        let (range, info, group) = range_and_group(m);
        let start = range.key.objectid.0 - SECTOR;
        m.set_key(
            range,
            Key::new(vlinder_format::ObjectId(start), range.key.item_type, range.key.offset + SECTOR),
        );
        only(FindingKind::FreeSpace { group, logical: Logical(start), called_free: true }, place(TREE, info))
    }),
    ("count of free ranges", |m| {
        let (_, info, group) = range_and_group(m);
        let expected = u64::from(u32_at(m, info, 0));
        m.add_u32(info, 0, 1);
        only(FindingKind::FreeSpaceCount { group, found: expected + 1, expected }, place(TREE, info))
    }),
    ("free space called bitmaps", |m| {
        let (range, info, group) = range_and_group(m);
        m.add_u32(info, 4, 1);
        let logical = Logical(range.key.objectid.0);
        only(FindingKind::FreeSpacePlace { group }, place(TREE, range))
            .and(FindingKind::FreeSpace { group, logical, called_free: false }, place(TREE, info))
    }),
    ("free space record gone", |m| {
        let (range, info, group) = range_and_group(m);
        // The range seems to be of the group whose record comes before.
        let before = (0..info.slot).rev().map(|slot| m.block(info.leaf).key(slot));
        let before = before.into_iter().find(|key| key.item_type == Type::FREE_SPACE_INFO).unwrap();
        m.remove(info);
        let elsewhere = FindingKind::FreeSpacePlace { group: Logical(before.objectid.0) };
        only(FindingKind::FreeSpaceGroup { group }, at_key(TREE, info.key))
            .and(elsewhere, place_of(m, TREE, range.key))
    }),
];

#[test]
fn damaged_free_space_is_found() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("setfattr"), Tool("chattr"));
    crate::damage::assert_each_is_found(DAMAGES);
}

/// What mkfs.btrfs before 6.3 leaves behind, and no other test looks at: a record of a group that is no more.
#[test]
fn records_of_a_group_that_is_no_more_are_found() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("setfattr"), Tool("chattr"));
    let m = Mutator::new(image::filled());
    let findings = || check(vec![m.device()], &Options::default()).unwrap().findings;
    let mut expected = findings();
    let group = Logical(1 << 40);
    let key = FreeSpaceInfo::key(group, 1 << 20);
    m.insert(TREE, key, &FreeSpaceInfo { extent_count: 0, flags: 0 }.encode());
    let kind = FindingKind::FreeSpaceLeftover { group };
    expected.push(Finding { kind, place: place_of(&m, TREE, key) });
    assert_eq!(findings(), expected);
}
