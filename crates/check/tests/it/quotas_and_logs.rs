//! What quota groups count, what the fsync log holds, and devices that are missing: on images that the kernel
//! made, whole and with one thing changed.

use std::path::PathBuf;
use std::process::Command;

use crate::common::expected::only;
use crate::common::{assert_found, findings, image, image_of_kernel, image_with_log, place, report};
use vlinder_base::sync::Arc;
use vlinder_check::{Finding, FindingKind, Options, check};
use vlinder_device::{Device, DeviceExt, FileDevice, OpenOptions};
use vlinder_format::block::{BlockFault, BlockRules};
use vlinder_format::chunk::{BlockGroupFlags, Chunk};
use vlinder_format::device::DeviceItem;
use vlinder_format::extent::{ExtentFlags, ExtentHeader, ExtentItem, Reference};
use vlinder_format::inode::{GroupId, InodeFlags, UserId};
use vlinder_format::quota::{QuotaGroupId, QuotaGroupInfo, QuotaStatus, QuotaStatusFlags};
use vlinder_format::superblock::{Superblock, SuperblockMirror};
use vlinder_format::{
    Block, Damage, DeviceId, Generation, ItemType as Type, Key, Logical, ObjectId, Physical, Place, RootId,
};
use vlinder_testkit::hostile::{self, FLOODS};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::{Scratch, require};

/// So that trees have several levels.
const SMALL_NODES: &[&str] = &["-n", "4096"];

/// Subvolumes that share extents and blocks, in groups of groups. One recount at the end: an assignment that
/// meets a recount of the kernel's leaves a group with less than it holds.
const QUOTAS: &str = r"
    btrfs quota enable .; btrfs quota rescan -w . > /dev/null; btrfs subvolume create s > /dev/null; btrfs subvolume create u > /dev/null
    dd if=/dev/urandom of=s/file bs=64k count=4 status=none; dd if=/dev/urandom of=u/own bs=4096 count=3 status=none
    i=0; while [ $i -lt 400 ]; do echo $i > s/name-$i; i=$((i+1)); done; sync -f .
    cp --reflink=always s/file u/clone; cp --reflink=always s/file s/twice
    btrfs subvolume snapshot s t > /dev/null; echo changed > t/name-7; dd if=/dev/zero of=t/file bs=4096 count=1 conv=notrunc status=none
    btrfs qgroup create 1/1 .; btrfs qgroup create 1/2 .; btrfs qgroup create 2/1 .
    assign() { btrfs qgroup assign --no-rescan $1 $2 . || true; }
    assign 0/256 1/1; assign 0/258 1/1; assign 0/257 1/2; assign 1/1 2/1; assign 1/2 2/1
    btrfs quota rescan -w . > /dev/null; sync -f .
";

/// Subvolumes with simple quotas, which btrfs-progs 6.2 can't turn on: extents from before, shared ones,
/// owners that are gone.
const SIMPLE_QUOTAS: &str = r#"
    btrfs subvolume create old > /dev/null; dd if=/dev/urandom of=old/before bs=4096 count=5 status=none; sync -f .
    python3 -c 'import fcntl, os, struct; fcntl.ioctl(os.open(".", 0), 0xc0109428, bytearray(struct.pack("QQ", 4, 0)))'
    sync -f .; for name in s u gone; do btrfs subvolume create $name > /dev/null; done
    dd if=/dev/urandom of=s/file bs=64k count=4 status=none; dd if=/dev/urandom of=gone/file bs=64k count=2 status=none
    i=0; while [ $i -lt 400 ]; do echo $i > s/name-$i; i=$((i+1)); done; sync -f .
    cp --reflink=always s/file u/clone; cp --reflink=always gone/file u/heir; btrfs subvolume snapshot s t > /dev/null
    echo changed > t/name-7; dd if=/dev/urandom of=t/file bs=4096 count=1 conv=notrunc status=none; rm old/before
    for group in 1/1 1/2 2/1 2/2; do btrfs qgroup create $group .; done
    assign() { btrfs qgroup assign --no-rescan $1 $2 . || true; }
    assign 0/257 1/1; assign 0/257 1/2; assign 1/1 2/1; assign 1/1 2/2; assign 1/2 2/2; sync -f .
    rm s/name-1*; dd if=/dev/urandom of=u/own bs=4096 count=3 status=none
    btrfs balance start --full-balance . > /dev/null; btrfs subvolume delete -c gone > /dev/null; btrfs subvolume sync .; sync -f .
"#;

/// What the kernel tells of it.
const SIMPLE_QUOTAS_LOG: &[&str] = &[
    "BTRFS info (device DEVICE): setting incompat feature flag for SIMPLE_QUOTA (0x10000)",
    "BTRFS info (device DEVICE): balance: *",
    "BTRFS info (device DEVICE): relocating block group *",
    "BTRFS info (device DEVICE): found *",
];

/// Files that are synced one by one after the last commit.
const LOGGED: &str = r"
    dd if=/dev/urandom of=old bs=4096 count=8 status=none; mkdir d; sync -f .
    dd if=/dev/urandom of=d/new bs=4096 count=2 status=none; sync d/new
    dd if=/dev/urandom of=old bs=4096 count=1 seek=2 conv=notrunc status=none; sync old
";

fn group_info(m: &Mutator, group: QuotaGroupId) -> (Found, QuotaGroupInfo) {
    let found = m.find(RootId::QUOTA_TREE, |key, _| key == QuotaGroupInfo::key(group));
    (found, QuotaGroupInfo::decode(m.block(found.leaf).data(found.slot)).unwrap())
}

#[test]
fn what_quota_groups_count_is_counted_again() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = image(SMALL_NODES, QUOTAS);
    let m = Mutator::new(&image);
    assert_eq!(report(&m).findings, [], "as the kernel counted");
    let level = |level: u64, number: u64| QuotaGroupId(level << 48 | number);
    let all =
        [level(0, 5), level(0, 256), level(0, 257), level(0, 258), level(1, 1), level(1, 2), level(2, 1)];
    assert!(all.iter().all(|group| group_info(&m, *group).1.referenced_bytes > 0));

    for group in all {
        let m = Mutator::new(&image);
        let (found, info) = group_info(&m, group);
        m.add_u64(found, 8, 4096);
        let (found_bytes, expected) = (info.referenced_bytes + 4096, info.referenced_bytes);
        let kind = FindingKind::QuotaUsage { group, what: "refers to", found: found_bytes, expected };
        assert_eq!(report(&m).findings, [Finding { kind, place: place(RootId::QUOTA_TREE, found) }]);

        let m = Mutator::new(&image);
        m.add_u64(found, 24, 8192);
        let (found_bytes, expected) = (info.exclusive_bytes + 8192, info.exclusive_bytes);
        let kind = FindingKind::QuotaUsage { group, what: "alone refers to", found: found_bytes, expected };
        assert_eq!(report(&m).findings, [Finding { kind, place: place(RootId::QUOTA_TREE, found) }]);
    }

    // Numbers that are said to be out of date may be wrong.
    let m = Mutator::new(&image);
    m.add_u64(group_info(&m, level(0, 256)).0, 8, 4096);
    let status = m.find(RootId::QUOTA_TREE, |key, _| key == QuotaStatus::KEY);
    m.change_item(status, |data| data[16] |= 4);
    assert_eq!(report(&m).findings, []);

    // And so may those of quotas that are off, or of simple ones of which nobody knows since when.
    let said = QuotaStatus::decode(m.block(status.leaf).data(status.slot)).unwrap();
    let off = QuotaStatus { flags: QuotaStatusFlags(said.flags.0 & !QuotaStatusFlags::ON.0 & !4), ..said };
    let simple = QuotaStatusFlags(QuotaStatusFlags::ON.0 | QuotaStatusFlags::SIMPLE.0);
    let simple = QuotaStatus { flags: simple, enable_generation: None, ..said };
    for said in [off, simple] {
        m.remove(status);
        m.insert(RootId::QUOTA_TREE, QuotaStatus::KEY, &said.encode());
        assert_eq!(report(&m).findings, [], "{said:?}");
    }

    // Groups of which nothing says whether they count.
    let m = Mutator::new(&image);
    let of_groups = [Type::QUOTA_GROUP_INFO, Type::QUOTA_GROUP_RELATION];
    let count = m.all(RootId::QUOTA_TREE, |key, _| of_groups.contains(&key.item_type)).len();
    m.remove(m.find(RootId::QUOTA_TREE, |key, _| key == QuotaStatus::KEY));
    let at = Place { tree: Some(RootId::QUOTA_TREE), ..Place::default() };
    assert_found(&m, FindingKind::QuotaStatusMissing { count }, at);
}

#[test]
fn what_simple_quotas_count_is_counted_again() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("python3"));
    let image = image_of_kernel(SMALL_NODES, SIMPLE_QUOTAS, SIMPLE_QUOTAS_LOG);
    let m = Mutator::new(&image);
    assert_eq!(report(&m).findings, [], "as the kernel counted");
    let level = |level: u64, number: u64| QuotaGroupId(level << 48 | number);
    let bytes = |group| group_info(&m, group).1.referenced_bytes;
    let all =
        [level(0, 5), level(0, 256), level(0, 257), level(0, 258), level(0, 260), level(1, 1), level(2, 1)];
    assert!(all.iter().all(|group| bytes(*group) > 0));
    assert!(bytes(level(0, 257)) > 256 << 10, "the data that it made, and others use too");
    for group in all {
        let m = Mutator::new(&image);
        let (found, info) = group_info(&m, group);
        m.add_u64(found, 8, 4096);
        let (found_bytes, expected) = (info.referenced_bytes + 4096, info.referenced_bytes);
        let kind = FindingKind::QuotaUsage { group, what: "refers to", found: found_bytes, expected };
        assert_eq!(report(&m).findings, [Finding { kind, place: place(RootId::QUOTA_TREE, found) }]);

        let m = Mutator::new(&image);
        m.add_u64(found, 24, 0u64.wrapping_sub(4096));
        let (found_bytes, expected) = (info.exclusive_bytes - 4096, info.exclusive_bytes);
        let kind = FindingKind::QuotaUsage { group, what: "alone refers to", found: found_bytes, expected };
        assert_eq!(report(&m).findings, [Finding { kind, place: place(RootId::QUOTA_TREE, found) }]);
    }
    // To 2/2 two ways lead from 0/257: what it counts depends on the order in which they were made.
    let m = Mutator::new(&image);
    m.add_u64(group_info(&m, level(2, 2)).0, 8, 4096);
    assert_eq!(report(&m).findings, []);

    // Where a part of a tree can't be read, nobody knows what is owned.
    let m = Mutator::new(&image);
    m.add_u64(group_info(&m, level(0, 256)).0, 8, 4096);
    let leaf = m.find(RootId(257), |key, _| key.objectid.0 > 400).leaf;
    [0, 1].into_iter().for_each(|mirror| m.flip_bit(leaf, mirror, 1000));
    let found = findings(&m);
    assert!(found.iter().any(|found| found.kind.id() == "block-unreadable"), "{found:?}");
    assert!(!found.iter().any(|found| found.kind.id() == "quota-usage"), "{found:?}");

    // An extent that another subvolume is said to own.
    let m = Mutator::new(&image);
    let owner = Reference::ExtentOwner { root: RootId(257) }.key(Logical(0)).item_type;
    let extent = m.find(RootId::EXTENT_TREE, |key, data| {
        key.item_type == Type::EXTENT_ITEM
            && data.get(24) == Some(&owner.0)
            && data[25..33] == 257u64.to_le_bytes()
    });
    m.set_u64(extent, 25, 258);
    for (group, sign) in [(level(0, 257), 1), (level(0, 258), -1i64)] {
        let (found, info) = group_info(&m, group);
        let found_bytes = info.referenced_bytes;
        let expected = found_bytes.wrapping_sub(extent.key.offset.wrapping_mul(sign.cast_unsigned()));
        let kind = FindingKind::QuotaUsage { group, what: "refers to", found: found_bytes, expected };
        assert_found(&m, kind, place(RootId::QUOTA_TREE, found));
    }
}

/// The log of the top-level subvolume: its root item, and its one leaf.
fn log(m: &Mutator) -> (Found, Logical) {
    let leaf = m.superblock.log_root;
    let block = m.block(leaf);
    let found = Found { leaf, slot: 0, key: block.key(0) };
    assert_eq!((found.key.item_type, found.key.offset, block.len()), (Type::ROOT_ITEM, 5, 1));
    let root = Logical(u64::from_le_bytes(block.data(0)[176..184].try_into().unwrap()));
    assert!(m.block(root).is_leaf());
    (found, root)
}

/// An item of a leaf.
fn item_of(m: &Mutator, leaf: Logical, is_it: impl Fn(Key, &[u8]) -> bool) -> Found {
    let block = m.block(leaf);
    let slot = (0..block.len()).find(|slot| is_it(block.key(*slot), block.data(*slot))).unwrap();
    Found { leaf, slot, key: block.key(slot) }
}

#[test]
fn rules_of_the_log() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = image_with_log(SMALL_NODES, LOGGED);
    let m = Mutator::new(&image);
    let (root, leaf) = log(&m);
    let found = report(&m);
    assert_eq!(found.findings, [], "as the kernel wrote it");
    assert!(m.superblock.has_log());

    let last = m.block(leaf).len() - 1;
    let found = Found { leaf, slot: last, key: m.block(leaf).key(last) };
    let key = Key { item_type: Type::PERSISTENT_ITEM, ..found.key };
    m.set_key(found, key);
    let kind = FindingKind::LogItem { item_type: key.item_type };
    assert_found(&m, kind, place(RootId::TREE_LOG, Found { key, ..found }));

    // The tree of logs holds the roots of logs and nothing else.
    for key in [
        Key { item_type: Type::PERSISTENT_ITEM, ..root.key },
        Key { objectid: RootId::FS_TREE.object_id(), ..root.key },
    ] {
        let m = Mutator::new(&image);
        m.set_key(root, key);
        let kind = FindingKind::LogItem { item_type: key.item_type };
        assert_found(&m, kind, place(RootId::TREE_LOG, Found { key, ..root }));
    }

    let m = Mutator::new(&image);
    m.add_u64(root, 160, 0u64.wrapping_sub(1));
    let newest = m.superblock.generation.0 + 1;
    let kind = FindingKind::LogGeneration { found: Generation(newest - 1), expected: Generation(newest) };
    assert_found(&m, kind, place(RootId::TREE_LOG, root));

    let m = Mutator::new(&image);
    let key = Key { offset: 6, ..root.key };
    m.set_key(root, key);
    let kind = FindingKind::LogSubvolume { subvolume: RootId(6), reason: "can have none" };
    assert_found(&m, kind, place(RootId::TREE_LOG, Found { key, ..root }));

    let m = Mutator::new(&image);
    let key = Key { offset: 300, ..root.key };
    m.set_key(root, key);
    let kind = FindingKind::LogLeftover { subvolume: RootId(300) };
    let expected = Finding { kind, place: place(RootId::TREE_LOG, Found { key, ..root }) };
    let found = report(&m);
    assert_eq!(found.findings, [expected]);
    assert!(found.is_clean(), "Linux passes it over");

    // The log's data lie inside of an extent that is another's.
    let m = Mutator::new(&image);
    let extent = m.find(RootId::EXTENT_TREE, |key, data| {
        key.item_type == Type::EXTENT_ITEM
            && key.offset >= 16384
            && data[16..24] == ExtentFlags::DATA.0.to_le_bytes()
    });
    let start = Logical(extent.key.objectid.0 + 4096);
    let logged = item_of(&m, leaf, |key, data| {
        key.item_type == Type::EXTENT_DATA
            && data.len() == 53
            && data[21..29] != extent.key.objectid.0.to_le_bytes()
    });
    let length = u64::from_le_bytes(m.block(leaf).data(logged.slot)[29..37].try_into().unwrap());
    m.set_u64(logged, 21, start.0);
    assert_found(&m, FindingKind::LogInUse { start, length }, place(RootId::TREE_LOG, logged));

    // A replay takes a file's extent over as it is.
    let m = Mutator::new(&image);
    let inode = logged.key.objectid;
    m.set_u64(logged, 0, newest);
    assert_eq!(findings(&m), [], "a log is one ahead of the superblock");
    m.set_u64(logged, 0, newest + 1);
    let kind = FindingKind::FileExtentGeneration { inode, generation: Generation(newest + 1) };
    assert_found(&m, kind, place(RootId::TREE_LOG, logged));
    let m = Mutator::new(&image);
    m.change_item(logged, |item| item[18] = 1);
    let kind = FindingKind::FileExtentForm { inode, reason: "has an encoding that nobody knows" };
    assert_found(&m, kind, place(RootId::TREE_LOG, logged));
    let m = Mutator::new(&image);
    let item = item_of(&m, leaf, |key, _| key.item_type == Type::INODE_ITEM && key.objectid == inode);
    m.set_u64(item, 64, InodeFlags::NODATASUM.0);
    m.change_item(logged, |item| item[16] = 1);
    let kind = FindingKind::FileExtentForm { inode, reason: "is compressed, in a file without checksums" };
    assert_found(&m, kind, place(RootId::TREE_LOG, logged));

    // The log's own block is called an extent of a tree.
    let m = Mutator::new(&image);
    let header = ExtentHeader { references: 1, generation: Generation(1), flags: ExtentFlags::TREE_BLOCK };
    let item =
        ExtentItem { header, tree_block: None, inline: vec![Reference::TreeBlock { root: RootId(5) }] };
    let key = Key::new(ObjectId(leaf.0), Type::METADATA_ITEM, 0);
    m.insert(RootId::EXTENT_TREE, key, &item.encode());
    let at = Place { tree: Some(RootId::TREE_LOG), block: Some(leaf), ..Place::default() };
    assert_found(&m, FindingKind::LogInUse { start: leaf, length: 4096 }, at);
}

#[test]
fn checksums_of_the_log() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = image_with_log(SMALL_NODES, LOGGED);
    let m = Mutator::new(&image);
    let (_, leaf) = log(&m);
    assert_eq!(report(&m).findings, [], "as the kernel wrote it");
    let new = item_of(&m, leaf, |key, data| key.item_type == Type::EXTENT_DATA && data[21..29] != [0; 8]);
    // The bytes that the file shows of an extent.
    let shown = |extent: &[u8]| {
        let at = |at: usize| u64::from_le_bytes(extent[at..at + 8].try_into().unwrap());
        let start = at(21) + at(37);
        (Logical(start), Logical(start + at(45)))
    };
    let (start, _) = shown(m.block(leaf).data(new.slot));
    let inode =
        item_of(&m, leaf, |key, _| key.item_type == Type::INODE_ITEM && key.objectid == new.key.objectid);

    // The inode says that its data have none.
    let m = Mutator::new(&image);
    m.change_item(inode, |item| item[64] |= 1);
    assert_found(&m, FindingKind::ChecksumOdd { start }, place(RootId::TREE_LOG, new));

    // The checksums are of other data.
    let m = Mutator::new(&image);
    let last = m.block(leaf).len() - 1;
    let sums = Found { leaf, slot: last, key: m.block(leaf).key(last) };
    assert_eq!(sums.key.item_type, Type::EXTENT_CHECKSUM);
    m.set_key(sums, Key { offset: sums.key.offset + (1 << 20), ..sums.key });
    let covered = sums.key.offset..sums.key.offset + m.block(leaf).data_len(last) as u64 / 4 * 4096;
    let is_covered = |data: &[u8]| covered.contains(&shown(data).0.0);
    let uncovered = item_of(&m, leaf, |key, data| key.item_type == Type::EXTENT_DATA && is_covered(data));
    let (start, end) = shown(m.block(leaf).data(uncovered.slot));
    assert_found(&m, FindingKind::ChecksumMissing { start, end }, place(RootId::TREE_LOG, uncovered));
}

#[test]
fn inodes_of_the_log() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = image_with_log(SMALL_NODES, &format!("{LOGGED}\ntouch d/more; sync d"));
    let m = Mutator::new(&image);
    assert_eq!(report(&m).findings, [], "as the kernel wrote it");
    let (_, leaf) = log(&m);
    let mode_of = |item: Found| u32::from_le_bytes(m.block(leaf).data(item.slot)[52..56].try_into().unwrap());
    let of_type = |item_type: Type| item_of(&m, leaf, move |key, _| key.item_type == item_type);
    let assert_inode = |m: &Mutator, inode, reason, found| {
        assert_found(m, FindingKind::LogInode { inode, reason }, place(RootId::TREE_LOG, found));
    };

    // `old` is in the subvolume, too, and a file: the log makes a directory of it.
    let data = of_type(Type::EXTENT_DATA);
    let old =
        item_of(&m, leaf, |key, _| key.item_type == Type::INODE_ITEM && key.objectid == data.key.objectid);
    assert_eq!(mode_of(old) >> 12, 8, "a regular file");
    let m = Mutator::new(&image);
    m.change_item(old, |item| item[53] = item[53] & 0x0f | 0x40);
    assert_inode(&m, old.key.objectid, "is of another type than in the subvolume", old);
    assert_inode(&m, old.key.objectid, "has data and is no file", data);

    // Items of an inode that is nowhere.
    let m = Mutator::new(&image);
    let block = m.block(leaf);
    let is_of_inode = |slot: &usize| block.key(*slot).item_type != Type::EXTENT_CHECKSUM;
    let slot = (0..block.len()).rfind(is_of_inode).unwrap();
    let last = Found { leaf, slot, key: block.key(slot) };
    assert_ne!(last.key.item_type, Type::INODE_ITEM);
    let missing = ObjectId(last.key.objectid.0 + 1000);
    let key = Key { objectid: missing, ..last.key };
    m.set_key(last, key);
    assert_inode(&m, missing, "is neither in the log nor in the subvolume", Found { key, ..last });

    // A name that lies in a file.
    let m = Mutator::new(&image);
    let name = item_of(&m, leaf, |key, _| key.item_type == Type::INODE_REF);
    let key = Key { offset: old.key.objectid.0, ..name.key };
    m.set_key(name, key);
    let at = Found { key, ..name };
    assert_inode(&m, old.key.objectid, "has a name in it and is no directory", at);

    // The place of a name in its directory's index: the first that names have is the third.
    let m = Mutator::new(&image);
    m.set_u64(name, 0, 2);
    assert!(!findings(&m).iter().any(|found| found.kind.id() == "directory-index"));
    m.set_u64(name, 0, 1);
    let directory = ObjectId(name.key.offset);
    let kind = FindingKind::DirectoryIndex { directory, index: 1 };
    assert_found(&m, kind, place(RootId::TREE_LOG, name));

    // An owner that is no id.
    let m = Mutator::new(&image);
    m.set_u64(old, 44, u64::MAX);
    let (user, group) = (UserId(u32::MAX), GroupId(u32::MAX));
    let kind = FindingKind::InodeOwner { inode: old.key.objectid, user, group };
    assert_found(&m, kind, place(RootId::TREE_LOG, old));

    // A name in a directory that says of a file that it is a directory.
    let entry = item_of(&m, leaf, |key, _| key.item_type == Type::DIR_INDEX);
    let m = Mutator::new(&image);
    let child = ObjectId(u64::from_le_bytes(m.block(leaf).data(entry.slot)[..8].try_into().unwrap()));
    m.change_item(entry, |item| item[29] = 2);
    assert_inode(&m, child, "is of another type than its name says", entry);

    // The directory is a file.
    let m = Mutator::new(&image);
    let parent =
        item_of(&m, leaf, |key, _| key.item_type == Type::INODE_ITEM && key.objectid == entry.key.objectid);
    assert_eq!(mode_of(parent) >> 12, 4, "a directory");
    m.change_item(parent, |item| item[53] = item[53] & 0x0f | 0x80);
    assert_inode(&m, parent.key.objectid, "is of another type than in the subvolume", parent);
    assert_inode(&m, parent.key.objectid, "has names in it and is no directory", entry);

    // A name of a subvolume is of no inode.
    let m = Mutator::new(&image);
    m.change_item(entry, |item| {
        item[8] = Type::ROOT_ITEM.0;
        item[9..17].fill(0xff);
        item[29] = 2;
    });
    let found = findings(&m);
    assert!(!found.iter().any(|found| found.place == place(RootId::TREE_LOG, entry)), "{found:?}");

    // What the subvolume has of them can't be read: nobody knows.
    let m = Mutator::new(&image);
    assert!(m.block(m.root(RootId::FS_TREE)).is_leaf());
    [0, 1].into_iter().for_each(|mirror| m.flip_bit(m.root(RootId::FS_TREE), mirror, 1000));
    let found = findings(&m);
    assert!(found.iter().any(|found| found.kind.id() == "block-unreadable"), "{found:?}");
    assert!(!found.iter().any(|found| found.kind.id() == "log-inode"), "{found:?}");
}

#[test]
fn a_log_of_several_leaves() {
    require!(KernelBtrfs, Tool("btrfs"));
    const MANY: &str = r"
        i=0; while [ $i -lt 150 ]; do
            dd if=/dev/urandom of=many bs=4096 count=1 seek=$((i*2)) conv=notrunc status=none; i=$((i+1))
        done; sync many";
    let image = image_with_log(SMALL_NODES, &format!("{LOGGED}\n{MANY}"));
    let m = Mutator::new(&image);
    let block = m.block(m.superblock.log_root);
    let root = Logical(u64::from_le_bytes(block.data(0)[176..184].try_into().unwrap()));
    assert!(!m.block(root).is_leaf());
    assert_eq!(report(&m).findings, [], "as the kernel wrote it");
    let leaf = m.block(root).child(1).logical;
    [0, 1].into_iter().for_each(|mirror| m.flip_bit(leaf, mirror, 1000));
    let at = Place { tree: Some(RootId::TREE_LOG), block: Some(leaf), ..Place::default() };
    let damage = Damage::new(BlockFault::Checksum, at);
    let copies = m.copies(leaf, 4096).into_iter();
    let reasons: Vec<String> = copies.map(|physical| format!("device 1 at {physical}: {damage}")).collect();
    assert_found(&m, FindingKind::BlockUnreadable { reason: reasons.join("; ") }, at);
}

/// The superblock of the first device, and the leaf that is the chunk tree.
fn chunk_leaf(path: &PathBuf) -> (Superblock, Block) {
    let device = open(path);
    let read = |from: Physical, length| device.read_at(from, length).unwrap();
    let superblock = Superblock::decode(&read(SuperblockMirror::Primary.offset(), 4096)).unwrap();
    let (start, chunk) = superblock.system_chunks().next().unwrap().unwrap();
    let stripe = chunk.stripes.iter().find(|stripe| stripe.device == DeviceId(1)).unwrap();
    let physical = Physical(stripe.physical.0 + (superblock.chunk_root.0 - start.0));
    let bytes = read(physical, superblock.node_size as usize).into_boxed_slice();
    let rules = BlockRules { node_size: superblock.node_size, sector_size: superblock.sector_size };
    let block = Block::parse(bytes, &rules).unwrap();
    assert!(block.is_leaf());
    (superblock, block)
}

/// That a device is absent is found at its item.
fn absent(leaf: &Block, device: DeviceId) -> (FindingKind, Place) {
    let key = DeviceItem::key(device);
    let slot = leaf.search(&key).unwrap();
    let found = Found { leaf: leaf.logical(), slot, key };
    (FindingKind::DeviceAbsent { device }, place(RootId::CHUNK_TREE, found))
}

/// The images of two devices, filled by the kernel.
fn two_devices(scratch: &Scratch, arguments: &[&str]) -> [PathBuf; 2] {
    let paths = ["one", "two"].map(|name| scratch.join(name));
    for path in &paths {
        std::fs::File::create(path).unwrap().set_len(512 << 20).unwrap();
    }
    let made = Command::new("mkfs.btrfs").arg("-q").args(arguments).args(&paths).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let mount = KernelMount::of(&paths, "", &[]).unwrap();
    let script = "i=0; while [ $i -lt 300 ]; do echo $i > name-$i; i=$((i+1)); done; dd if=/dev/urandom of=file bs=1M count=200 status=none";
    let filled = Command::new("sh").args(["-ec", script]).current_dir(mount.path()).output().unwrap();
    assert!(filled.status.success(), "{filled:?}");
    mount.unmount().unwrap();
    paths
}

fn open(path: &PathBuf) -> Arc<dyn Device> {
    Arc::new(FileDevice::open(path, &OpenOptions { read_only: true, ..OpenOptions::default() }).unwrap())
}

#[test]
fn what_the_other_devices_have_is_checked() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("degraded");
    let paths = two_devices(&scratch, &["-d", "raid1", "-m", "raid1"]);
    let options = Options { data_checksums: true, degraded: true, ..Options::default() };
    let both = check(paths.iter().map(open).collect(), &options).unwrap();
    assert!(
        both.findings.iter().all(|found| found.kind.id() == "free-space-leftover"),
        "{:?}",
        both.findings
    );
    let (_, leaf) = chunk_leaf(&paths[0]);
    for (given, missing) in [(0, DeviceId(2)), (1, DeviceId(1))] {
        assert!(check(vec![open(&paths[given])], &Options::default()).is_err(), "only if asked for");
        let found = check(vec![open(&paths[given])], &options).unwrap();
        assert!(found.is_clean(), "{:?}", found.findings);
        assert_eq!((found.blocks, found.data_bytes), (both.blocks, both.data_bytes));
        let (kind, place) = absent(&leaf, missing);
        only(kind, place).compare(&but_for_leftovers(found.findings)).unwrap();
    }
}

#[test]
fn what_lies_on_a_missing_device_alone_is_named() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("degraded");
    let paths = two_devices(&scratch, &["-d", "raid0", "-m", "raid1"]);
    let options = Options { data_checksums: true, degraded: true, ..Options::default() };
    let found = check(vec![open(&paths[0])], &options).unwrap();
    assert!(!found.is_clean());
    let (superblock, leaf) = chunk_leaf(&paths[0]);
    let (kind, place) = absent(&leaf, DeviceId(2));
    let mut expected = only(kind, place).besides(["data-checksum"]);
    let chunks = (0..leaf.len()).filter(|slot| leaf.key(*slot).item_type == Type::CHUNK_ITEM);
    for slot in
        chunks.filter(|slot| Chunk::decode(leaf.data(*slot)).unwrap().flags.has(BlockGroupFlags::RAID0))
    {
        let logical = Logical(leaf.key(slot).offset);
        expected = expected.and(FindingKind::ChunkUnreadable { logical }, Place::default());
    }
    assert!(superblock.bytes_used > 200 << 20, "data on both devices");
    expected.compare(&but_for_leftovers(found.findings)).unwrap();
}

/// What is found, but for what mkfs.btrfs 6.2 leaves behind.
fn but_for_leftovers(findings: Vec<Finding>) -> Vec<Finding> {
    findings.into_iter().filter(|finding| finding.kind.id() != "free-space-leftover").collect()
}

/// More groups, members or ways than are counted: a warning says so, and what is wrong with the relations is
/// found.
#[test]
fn quota_groups_without_end_are_not_counted() {
    // Of more leaves than are read at once.
    let sound = hostile::sound(1_300);
    let m = Mutator::new(&sound);
    let root = m.block(m.root(RootId::FS_TREE));
    let leaves: usize = root.children().map(|child| m.block(child.logical)).map(|node| node.len()).sum();
    assert!(root.level().0 == 2 && leaves > 150, "{leaves} leaves");
    let found = |name: &str| {
        let flood = FLOODS.iter().find(|flood| flood.name.contains(name)).unwrap();
        findings(&Mutator::new(&(flood.make)(&sound)))
    };
    let has = |found: &[Finding], id: &str| found.iter().any(|finding| finding.kind.id() == id);
    let chain = found("in a chain");
    assert!(has(&chain, "quota-not-counted") && !has(&chain, "quota-relation"), "{chain:?}");
    let pair = found("each other");
    assert!(has(&pair, "quota-relation") && !has(&pair, "quota-not-counted"), "{pair:?}");
    // Few members on many ways are counted: the top level's group and nobody's.
    let ways = found("ways lead up");
    assert!(!has(&ways, "quota-relation") && !has(&ways, "quota-not-counted"), "{ways:?}");
}
