//! The checksums of data.

use vlinder_check::{Finding, FindingKind};
use vlinder_format::{ItemType as Type, Key, Logical, ObjectId, RootId};
use vlinder_testkit::mutator::Mutator;
use vlinder_testkit::require;

use crate::common::expected::only;
use crate::damage::Damage;
use crate::damage::image::{
    FS, SECTOR, SUBVOLUMES, data_of, filled, free_range, in_tree, inside, of, place, place_of, range_of,
};

const TREE: RootId = RootId::CHECKSUM_TREE;
/// The offset of the method in an extent's item.
const COMPRESSION: usize = 16;

/// A sector of data whose one copy is bad.
fn bad_data(m: &Mutator, logical: Logical) -> FindingKind {
    let physical = m.copies(logical, SECTOR)[0];
    let fault = format!("block {logical}: the checksum does not match the content");
    let copy = format!("copy 0 (device 1, byte {physical}): {fault}");
    FindingKind::DataChecksum {
        logical,
        reason: format!("no good copy of {SECTOR} bytes at {logical}: {copy}"),
    }
}

/// Takes the checksums of these bytes out of the item that has them: which others stand there is the kernel's
/// choice.
fn remove_sums(m: &Mutator, start: Logical, end: Logical) {
    let covered = |key: Key, data: &[u8]| key.offset..key.offset + data.len() as u64 / 4 * SECTOR;
    let item = m.find(TREE, |key, data| covered(key, data).contains(&start.0));
    let (data, range) = (data_of(m, item), covered(item.key, &data_of(m, item)));
    assert!(end.0 <= range.end, "in one item");
    m.remove(item);
    for (from, to) in [(range.start, start.0), (end.0, range.end)].into_iter().filter(|(from, to)| from < to)
    {
        let at = |address: u64| usize::try_from((address - range.start) / SECTOR * 4).unwrap();
        m.insert(TREE, Key { offset: from, ..item.key }, &data[at(from)..at(to)]);
    }
}

pub const DAMAGES: &[Damage] = &[
    ("checksums gone", |m| {
        let range = range_of(m, of(m, "file", Type::EXTENT_DATA));
        let (start, end) = (range.address, Logical(range.address.0 + range.disk_bytes));
        remove_sums(m, start, end);
        // All that share these data miss them.
        let missing = || FindingKind::ChecksumMissing { start, end };
        let [one, two] = SUBVOLUMES.map(|subvolume| place(subvolume, inside(m, subvolume)));
        only(missing(), place(FS, of(m, "file", Type::EXTENT_DATA)))
            .and(missing(), place(FS, of(m, "clone", Type::EXTENT_DATA)))
            .and(missing(), one)
            .and(missing(), two)
    }),
    ("a checksum", |m| {
        let sums = m.find_type(TREE, Type::EXTENT_CHECKSUM);
        m.change_item(sums, |data| data[0] ^= 1);
        only(bad_data(m, Logical(sums.key.offset)), place(TREE, sums))
    }),
    ("checksums of other bytes", |m| {
        let start = Logical(free_range(m).key.objectid.0);
        let key = Key::new(ObjectId::EXTENT_CHECKSUM, Type::EXTENT_CHECKSUM, start.0);
        m.insert(TREE, key, &[0; 4]);
        let nothing = FindingKind::ChecksumOfNothing { start, end: Logical(start.0 + SECTOR) };
        only(nothing, in_tree(TREE)).and(bad_data(m, start), place_of(m, TREE, key))
    }),
];

#[test]
fn damaged_checksums_are_found() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("setfattr"), Tool("chattr"));
    crate::damage::assert_each_is_found(DAMAGES);
}

/// kdave/btrfs-progs#1135: extents that were called compressed and are not have the right checksums, and no
/// judge said a word.
#[test]
fn compressed_data_that_do_not_unpack_are_found() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("setfattr"), Tool("chattr"));
    let (zlib, zstd) = (1, 3);
    let m = Mutator::new(filled());
    let extent = of(&m, "text", Type::EXTENT_DATA);
    m.change_item(extent, |data| {
        assert_eq!(data[COMPRESSION], zlib);
        data[COMPRESSION] = zstd;
    });
    let found = crate::damage::findings(m.device());
    let [Finding { kind: FindingKind::DataNotUnpacked { inode, offset: 0, reason }, place: at }] = &*found
    else {
        panic!("{found:#?}");
    };
    assert_eq!((*inode, *at), (extent.key.objectid, place(FS, extent)));
    assert!(reason.contains("zstd"), "{reason}");
    // A check that reads no data can't know.
    assert_eq!(crate::common::findings(&m), []);
}
