//! Rules at their edges: what belongs to nobody and is passed over, what may be missing while something is
//! being deleted, what is told once, and what follows from a part that can't be read.

use std::cell::Cell;
use std::process::Command;

use crate::common::items::{FILL, FS, change_root, data_of, entry, half, has, of, own, root_item, small};
use crate::common::{assert_found, findings, place, place_of};
use vlinder_base::sync::Arc;
use vlinder_check::{Finding, FindingKind, Options, check, check_leased};
use vlinder_device::{Device, DeviceExt, FileDevice, OpenOptions};
use vlinder_format::extent::{DataReference, ExtentFlags, ExtentItem, Reference};
use vlinder_format::file_extent::FileExtent;
use vlinder_format::free_space::FreeSpaceInfo;
use vlinder_format::inode::FileType;
use vlinder_format::quota::{QuotaGroupId, QuotaGroupInfo};
use vlinder_format::root_item::RootItem;
use vlinder_format::root_ref::RootReference;
use vlinder_format::superblock::SuperblockMirror;
use vlinder_format::uuid_item::UuidItemFault;
use vlinder_format::{
    Generation, ItemType as Type, Key, Level, Logical, ObjectId, Place, RootId, directory, orphan,
};
use vlinder_testkit::kernel::{KernelMount, LoopDevice, btrfs_check, unmount};
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::{Scratch, require};

#[test]
fn items_that_nobody_asks_for_are_found() {
    let m = own();
    assert_eq!(findings(&m), [], "the image without damage");
    let item_type = Type(253);
    let only_found = |m: &Mutator, tree: RootId, key: Key| {
        m.insert(tree, key, b"nobody's");
        let kind = FindingKind::ItemInWrongTree { item_type };
        assert_eq!(findings(m), [Finding { kind, place: place_of(m, tree, key) }], "in tree {tree}");
    };
    for tree in [RootId::BLOCK_GROUP_TREE, RootId::UUID_TREE, RootId::DEVICE_TREE] {
        only_found(&own(), tree, Key::new(ObjectId(1), item_type, 7));
    }
    require!(KernelBtrfs, Tool("btrfs"));
    assert_eq!(findings(&small()), [], "the image without damage");
    let trees = [RootId::CHECKSUM_TREE, RootId::EXTENT_TREE, RootId::FREE_SPACE_TREE, RootId::ROOT_TREE, FS];
    for tree in trees {
        only_found(&small(), tree, Key::new(ObjectId(u64::MAX - 100), item_type, 7));
    }
}

#[test]
fn a_subvolume_that_is_being_deleted_may_lack_anything() {
    require!(KernelBtrfs, Tool("btrfs"));
    let subvolume = RootId(256);
    let delete = |m: &Mutator| change_root(m, subvolume, |item| item.reference_count = 0);
    let m = small();
    delete(&m);
    let kind = FindingKind::RootOrphan { root: subvolume };
    assert_eq!(findings(&m), [Finding { kind, place: place(RootId::ROOT_TREE, root_item(&m, subvolume)) }]);

    let deleted = || {
        let m = small();
        delete(&m);
        m.insert(RootId::ROOT_TREE, orphan::key(subvolume.object_id()), &[]);
        m
    };
    assert_eq!(findings(&deleted()), []);
    // Without the inode's item nobody knows whether there should be checksums.
    let extent = of(&small(), subvolume, "file", Type::EXTENT_DATA);
    let item = FileExtent::decode(&data_of(&small(), extent)).unwrap().range().unwrap();
    // Which files' checksums share an item is the kernel's choice.
    let remove_checksums = |m: &Mutator| {
        let covers = |key: Key, data: &[u8]| {
            let end = key.offset + data.len() as u64 / 4 * 4096;
            key.item_type == Type::EXTENT_CHECKSUM && (key.offset..end).contains(&item.address.0)
        };
        m.remove(m.find(RootId::CHECKSUM_TREE, covers));
    };
    let is_missed = |found: &Finding| {
        matches!(found.kind, FindingKind::ChecksumMissing { .. }) && found.place == place(subvolume, extent)
    };
    let m = deleted();
    remove_checksums(&m);
    assert!(has(&m, is_missed), "{:#?}", findings(&m));
    let m = deleted();
    m.change_block(extent.leaf, |leaf| leaf.items_mut().remove(0, extent.slot));
    assert_eq!(findings(&m), []);
    remove_checksums(&m);
    assert!(!has(&m, |found| found.place.tree == Some(subvolume)), "{:#?}", findings(&m));
}

#[test]
fn what_a_half_deleted_subvolume_has_no_more_is_not_looked_for() {
    require!(KernelBtrfs, Tool("btrfs"));
    let m = half();
    assert_eq!(findings(&m), [], "the image without damage");
    let subvolume = RootId(256);
    let root = m.block(m.root(subvolume));
    assert_eq!(root.level(), Level(1));
    assert!(root.len() > 4, "{} leaves", root.len());
    // What quotas count of it is of no use meanwhile.
    let group = m.find(RootId::QUOTA_TREE, |key, _| key == QuotaGroupInfo::key(QuotaGroupId(subvolume.0)));
    let expected = QuotaGroupInfo::decode(&data_of(&m, group)).unwrap().referenced_bytes;
    m.add_u64(group, 8, 4096);
    let kind = FindingKind::QuotaUsage {
        group: QuotaGroupId(subvolume.0),
        what: "refers to",
        found: expected + 4096,
        expected,
    };
    assert_eq!(findings(&m), [Finding { kind, place: place(RootId::QUOTA_TREE, group) }]);
    change_root(&m, subvolume, |item| {
        item.reference_count = 0;
        item.drop_progress = root.key(2);
        item.drop_level = Level(1);
    });
    m.insert(RootId::ROOT_TREE, orphan::key(subvolume.object_id()), &[]);
    // Its first leaves were freed; here they were not, so that their extents are of no use.
    let mut freed: Vec<Logical> = (0..2).map(|slot| root.child(slot).logical).collect();
    freed.sort_unstable();
    let user = format!("tree {subvolume}");
    let expected = freed.into_iter().map(|logical| Finding {
        kind: FindingKind::ReferenceExtra { logical, user: user.clone(), expected: 0, found: 1 },
        place: Place { tree: Some(RootId::EXTENT_TREE), block: Some(logical), ..Place::default() },
    });
    assert_eq!(findings(&m), expected.collect::<Vec<_>>());

    // Where the root itself is below the level that was dropped to, all of it is there.
    change_root(&m, subvolume, |item| item.drop_level = Level(2));
    assert_eq!(findings(&m), []);
}

#[test]
fn rules_of_roots() {
    require!(KernelBtrfs, Tool("btrfs"));
    let (one, two) = (RootId(256), RootId(257));
    let m = small();
    let reference =
        m.find(RootId::ROOT_TREE, |key, _| key.objectid.0 == 256 && key.item_type == Type::ROOT_BACKREF);
    let data = data_of(&m, reference);
    RootReference::decode(&data).unwrap();
    m.insert(RootId::ROOT_TREE, Key::new(one.object_id(), Type::ROOT_BACKREF, two.0), &data);
    m.insert(RootId::ROOT_TREE, Key::new(two.object_id(), Type::ROOT_REF, one.0), &data);
    let reason = "the subvolume has several names";
    assert_found(&m, FindingKind::Root { reason }, place(RootId::ROOT_TREE, root_item(&m, one)));
    let in_two = Place { tree: Some(two), ..Place::default() };
    assert_found(&m, FindingKind::RootName { parent: two, child: one }, in_two);

    let m = small();
    let root = m.root(two);
    assert!(m.block(root).is_leaf());
    m.change_block(root, |block| {
        let count = block.len();
        block.items_mut().remove(0, count);
    });
    assert_found(&m, FindingKind::RootDirectory {}, in_two);
    assert!(!has(&m, |found| found.place.tree == Some(two) && found.place != in_two));

    // The root block of a relocation tree is its own parent, and no other tree's.
    let m = small();
    let key = RootItem::key(RootId::TREE_RELOCATION, one.0);
    m.insert(RootId::ROOT_TREE, key, &data_of(&m, root_item(&m, one)));
    let root = m.root(one);
    let at = Place { tree: Some(RootId::TREE_RELOCATION), block: Some(root), ..Place::default() };
    assert_found(&m, FindingKind::BlockShared {}, at);
    let user = format!("node {root}");
    let kind = FindingKind::ReferenceMissing { logical: root, user, expected: 1, found: 0 };
    let at = Place { tree: Some(RootId::EXTENT_TREE), block: Some(root), ..Place::default() };
    assert_found(&m, kind, at);
}

#[test]
fn rules_of_inodes() {
    require!(KernelBtrfs, Tool("btrfs"));
    let m = small();
    let file = of(&m, FS, "small", Type::INODE_ITEM).key.objectid;
    let key = directory::index_key(file, directory::DirectoryIndex(2));
    m.insert(FS, key, &data_of(&m, entry(&m, FS, "in")));
    let kind = FindingKind::InodeOddItem { inode: file, file_type: FileType::Regular };
    assert_found(&m, kind, place_of(&m, FS, key));

    // It says that the extent has more bytes than lie on disk, and shows them, though nothing is compressed.
    let m = small();
    let extent = of(&m, FS, "file", Type::EXTENT_DATA);
    m.add_u64(extent, 8, 65536);
    m.add_u64(extent, 37, 4096);
    let kind = FindingKind::FileExtentSize { inode: extent.key.objectid, ram_bytes: 8 * 4096 + 65536 };
    assert_found(&m, kind, place(FS, extent));

    // The first item of all breaks a rule: what is left of it is no inode.
    let m = small();
    let first = m.find_of(ObjectId::FIRST_FREE, Type::INODE_ITEM);
    m.set_u64(first, 0, 1 << 40);
    let of_first = findings(&m).into_iter().filter(|found| found.place == place(FS, first));
    let of_first: Vec<&str> = of_first.map(|found| found.kind.id()).collect();
    assert_eq!(of_first, ["item"]);
    assert!(!has(&m, |found| found.kind == FindingKind::RootDirectory {}), "some of it could not be read");

    // Of an inode with bad items nothing is missed.
    let m = small();
    let item = of(&m, FS, "d", Type::INODE_ITEM);
    let inode = item.key.objectid;
    let is_missed = |found: &Finding| found.kind == FindingKind::InodeMissing { inode };
    m.remove(item);
    assert!(has(&m, is_missed));
    let name = entry(&m, FS, "file");
    assert_eq!(name.key.objectid, inode);
    m.change_item(name, |data| data[29] = 99);
    assert!(has(&m, |found| found.kind.id() == "item" && found.place == place(FS, name)));
    assert!(!has(&m, is_missed));
}

#[test]
fn what_is_wrong_with_a_name_is_told_once() {
    require!(KernelBtrfs, Tool("btrfs"));
    let m = small();
    let found = entry(&m, FS, "in");
    let data = data_of(&m, found);
    let directory = found.key.objectid;
    for index in [1000, 1001] {
        m.insert(FS, directory::index_key(directory, directory::DirectoryIndex(index)), &data);
    }
    let child = ObjectId(u64::from_le_bytes(data[..8].try_into().unwrap()));
    let names = findings(&m).into_iter().filter(|found| found.kind.id() == "name");
    let key = Key::new(directory, Type::DIR_ITEM, 0);
    let at = Place { tree: Some(FS), key: Some(key), ..Place::default() };
    let expected = [
        "is not in the inode as it is in the directory's index",
        "is not there by its hash as it is in the directory's index",
    ];
    let expected =
        expected.map(|reason| Finding { kind: FindingKind::Name { directory, child, reason }, place: at });
    assert_eq!(names.collect::<Vec<_>>(), expected);
}

#[test]
fn rules_of_extents_and_groups() {
    require!(KernelBtrfs, Tool("btrfs"));
    let data_group = |m: &Mutator| {
        m.find(RootId::EXTENT_TREE, |key, data| key.item_type == Type::BLOCK_GROUP_ITEM && data[16] == 1)
    };
    let m = small();
    let group = data_group(&m);
    let key = Key { offset: group.key.offset + (1 << 20), ..group.key };
    m.set_key(group, key);
    let logical = Logical(key.objectid.0);
    let at = place(RootId::EXTENT_TREE, Found { key, ..group });
    assert_found(&m, FindingKind::GroupWithoutChunk { logical }, at);

    let data_extent = |m: &Mutator| {
        m.find(RootId::EXTENT_TREE, |key, data| {
            key.item_type == Type::EXTENT_ITEM && data[16..24] == ExtentFlags::DATA.0.to_le_bytes()
        })
    };
    let m = small();
    let group = data_group(&m).key;
    let logical = Logical(group.objectid.0 + group.offset - 4096);
    let key = ExtentItem::data_key(logical, 8192);
    m.insert(RootId::EXTENT_TREE, key, &data_of(&m, data_extent(&m)));
    assert_found(&m, FindingKind::ExtentPlace { logical }, place_of(&m, RootId::EXTENT_TREE, key));

    // A reference more is counted than there is; unless one that is there breaks a rule, which is told
    // instead.
    let m = small();
    let extent = data_extent(&m);
    m.add_u64(extent, 0, 1);
    let is_counted = |found: &Finding| {
        found.kind == FindingKind::ExtentCount { found: 2, expected: 1 }
            && found.place == place(RootId::EXTENT_TREE, extent)
    };
    assert!(has(&m, is_counted), "{:#?}", findings(&m));
    let none = DataReference { root: RootId(300), inode: ObjectId(257), offset: 0, count: 0 };
    let none = Reference::ExtentData(none);
    let key = none.key(Logical(extent.key.objectid.0));
    m.insert(RootId::EXTENT_TREE, key, &none.encode_item());
    let at = place_of(&m, RootId::EXTENT_TREE, key);
    assert!(has(&m, |found| found.kind.id() == "item" && found.place == at), "{:#?}", findings(&m));
    assert!(!has(&m, is_counted), "{:#?}", findings(&m));
}

#[test]
fn rules_of_free_space() {
    require!(KernelBtrfs, Tool("btrfs"));
    let m = small();
    let first = m.find(RootId::FREE_SPACE_TREE, |_, _| true);
    assert_eq!(first.key.item_type, Type::FREE_SPACE_INFO);
    m.remove(first);
    let range = m.find(RootId::FREE_SPACE_TREE, |_, _| true);
    assert_eq!(range.key.item_type, Type::FREE_SPACE_EXTENT);
    let kind = FindingKind::FreeSpacePlace { group: Logical(range.key.objectid.0) };
    assert_found(&m, kind, place(RootId::FREE_SPACE_TREE, range));

    // A group's record makes room for one of a part of it.
    let m = small();
    let group = m.find_type(RootId::EXTENT_TREE, Type::BLOCK_GROUP_ITEM).key;
    m.remove(m.find(RootId::FREE_SPACE_TREE, |key, _| key.objectid == group.objectid));
    let part = Logical(group.objectid.0 + 4096);
    let key = FreeSpaceInfo::key(part, 4096);
    let record = FreeSpaceInfo { extent_count: 0, flags: 0 };
    m.insert(RootId::FREE_SPACE_TREE, key, &record.encode());
    let at = place_of(&m, RootId::FREE_SPACE_TREE, key);
    assert_found(&m, FindingKind::FreeSpaceGroup { group: part }, at);

    // A range left of its record, which lies in the leaf before.
    let m = own();
    let group = m.find_type(RootId::BLOCK_GROUP_TREE, Type::BLOCK_GROUP_ITEM).key.objectid.0;
    let (right, left) = (Logical(group + (512 << 20)), group + (256 << 20));
    let mut items = vec![(FreeSpaceInfo::key(Logical(group), 4096), record.encode().to_vec())];
    let range = |start: u64| (Key::new(ObjectId(start), Type::FREE_SPACE_EXTENT, 4096), Vec::new());
    // As many as fill a leaf of 4 KiB.
    items.extend((1..158).map(|number| range(group + number * 8192)));
    items.push((FreeSpaceInfo::key(right, 4096), record.encode().to_vec()));
    items.push(range(left));
    m.plant(RootId::FREE_SPACE_TREE, &items);
    let root = m.block(m.root(RootId::FREE_SPACE_TREE));
    assert_eq!((root.level(), root.len()), (Level(1), 2));
    let found = Found { leaf: root.child(1).logical, slot: 0, key: range(left).0 };
    let at = place(RootId::FREE_SPACE_TREE, found);
    assert_found(&m, FindingKind::FreeSpacePlace { group: right }, at);
}

/// Two nodes of a tree that shares nothing lead to one leaf.
#[test]
fn a_block_that_two_pointers_lead_to_is_found() {
    let m = own();
    let items: Vec<(Key, Vec<u8>)> =
        (1..400).map(|number| (Key::new(ObjectId(number), Type(253), 0), vec![0; 1500])).collect();
    m.plant(RootId::UUID_TREE, &items);
    let root = m.block(m.root(RootId::UUID_TREE));
    assert_eq!((root.level(), root.len()), (Level(2), 2));
    let [left, right] = [0, 1].map(|slot| m.block(root.child(slot).logical));
    let last = left.child(left.len() - 1);
    m.change_block(right.logical(), |block| block.children_mut().set(0, &last));
    m.change_block(root.logical(), |block| {
        let pointer = block.child(1);
        block.children_mut().set(1, &vlinder_format::block::ChildPointer { key: last.key, ..pointer });
    });
    let at = Place { tree: Some(RootId::UUID_TREE), block: Some(last.logical), ..Place::default() };
    assert_found(&m, FindingKind::BlockShared {}, at);
    let found = Found { leaf: left.logical(), slot: left.len() - 1, key: last.key };
    assert_found(&m, FindingKind::KeyRange { bound: last.key }, place(RootId::UUID_TREE, found));
}

#[test]
fn what_is_wrong_with_uuids_is_told_where_it_stands() {
    require!(KernelBtrfs, Tool("btrfs"));
    let m = small();
    let item = |objectid, item_type, data: &[u8]| (Key::new(ObjectId(objectid), item_type, 0), data.to_vec());
    let leaves = [
        item(1, Type::UUID_SUBVOLUME, &301u64.to_le_bytes()),
        item(2, Type(253), &[0; 12_000]),
        item(3, Type(253), &[0; 5_000]),
        item(4, Type::UUID_SUBVOLUME, &[0; 7]),
        item(5, Type::UUID_RECEIVED_SUBVOLUME, &[300u64, 256].map(u64::to_le_bytes).concat()),
    ];
    m.plant(RootId::UUID_TREE, &leaves);
    assert_eq!(m.block(m.root(RootId::UUID_TREE)).len(), 2, "two leaves");
    // Two items only make the first leaf full.
    let is_filler = |found: &Finding| matches!(found.kind, FindingKind::ItemInWrongTree { .. });
    let found = findings(&m).into_iter().filter(|found| found.place.tree == Some(RootId::UUID_TREE));
    let found = found.filter(|found| !is_filler(found));
    let odd = |root| FindingKind::UuidEntry { root: RootId(root) };
    let fault = UuidItemFault::Size { found: 7 }.into();
    let expected = [(0, odd(301)), (3, FindingKind::Item { fault }), (4, odd(300)), (4, odd(256))];
    let expected = expected.map(|(number, kind): (usize, FindingKind)| Finding {
        kind,
        place: place_of(&m, RootId::UUID_TREE, leaves[number].0),
    });
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn without_subvolumes_no_group_uses_anything() {
    require!(KernelBtrfs, Tool("btrfs"));
    let m = half();
    let groups = [5, 256].map(|number| {
        let found = m.find(RootId::QUOTA_TREE, |key, _| key == QuotaGroupInfo::key(QuotaGroupId(number)));
        (number, found, QuotaGroupInfo::decode(&data_of(&m, found)).unwrap().referenced_bytes)
    });
    [FS, RootId(256)].into_iter().for_each(|root| m.remove(root_item(&m, root)));
    for (number, at, found) in groups {
        let group = QuotaGroupId(number);
        let kind = FindingKind::QuotaUsage { group, what: "refers to", found, expected: 0 };
        assert_found(&m, kind, place(RootId::QUOTA_TREE, at));
    }
}

#[test]
fn progress_comes_to_what_was_expected() {
    let m = own();
    let (sum, last) = (Cell::new(0), Cell::new(None));
    let progress = |bytes: u64, expected: Option<u64>| {
        sum.set(sum.get() + bytes);
        last.set(expected);
    };
    let options = Options { progress: Some(&progress), ..Options::default() };
    let report = check(vec![m.device()], &options).unwrap();
    assert!(report.is_clean());
    assert_eq!((sum.get(), last.get()), (report.blocks * 4096, Some(report.blocks * 4096)));
}

#[test]
fn a_state_that_others_leave_behind_is_checked() {
    let m = own();
    let leased = |m: &Mutator| {
        check_leased(vec![m.device()], vec![m.superblock.clone()], &Options::default()).unwrap().findings
    };
    assert_eq!(leased(&m), []);
    // A commit since.
    m.change_superblock(|superblock| superblock.generation = superblock.generation.next());
    assert_eq!(leased(&m), []);
    // A later one is no older one.
    let m = own();
    m.change_superblock(|superblock| superblock.generation = Generation(superblock.generation.0 - 1));
    let older = Generation(m.superblock.generation.0 - 1);
    let copies = SuperblockMirror::ALL.into_iter().filter(|mirror| mirror.fits(m.device().length()));
    let stale = copies.map(|mirror| FindingKind::SuperblockStale {
        device: "memory".to_owned(),
        offset: mirror.offset(),
        found: older,
        expected: m.superblock.generation,
    });
    let stale: Vec<_> = stale.map(|kind| Finding { kind, place: Place::default() }).collect();
    assert_eq!((leased(&m), stale.len()), (stale, 2));
    // A copy that stays bad however often it is read.
    let m = own();
    m.device().write_at(SuperblockMirror::Second.offset(), vec![0; 4096]).unwrap();
    let reason = "memory: no Btrfs: the magic number is 0x0000000000000000".to_owned();
    let offset = SuperblockMirror::Second.offset();
    let kind = FindingKind::SuperblockCopy { device: "memory".to_owned(), offset, reason };
    assert_eq!(leased(&m), [Finding { kind, place: Place::default() }]);
}

#[test]
fn the_blocks_of_a_seed_are_as_good_as_its_sprouts_own() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("btrfstune"));
    let scratch = Scratch::in_memory("check-seed");
    let tool = |command: &mut Command| {
        let ran = command.output().unwrap();
        assert!(ran.status.success(), "{command:?}: {ran:?}");
    };
    let [seed, sprout] = ["seed", "sprout"].map(|name| scratch.join(name));
    for image in [&seed, &sprout] {
        std::fs::File::create(image).unwrap().set_len(256 << 20).unwrap();
    }
    tool(Command::new("mkfs.btrfs").arg("-q").arg(&seed));
    let mount = KernelMount::new(&seed, "").unwrap();
    tool(Command::new("sh").args(["-ec", FILL]).current_dir(mount.path()));
    mount.unmount().unwrap();
    btrfs_check(&seed).unwrap();
    tool(Command::new("btrfstune").args(["-f", "-S", "1"]).arg(&seed));
    let devices = [&seed, &sprout].map(|image| LoopDevice::attach(image).unwrap());
    let directory = Scratch::new("check-seed-mount");
    tool(Command::new("mount").args(["-t", "btrfs"]).arg(devices[0].node()).arg(directory.path()));
    tool(Command::new("btrfs").args(["device", "add", "-f"]).arg(devices[1].node()).arg(directory.path()));
    tool(Command::new("mount").args(["-o", "remount,rw"]).arg(directory.path()));
    tool(Command::new("sh").args(["-ec", "seq 5000 > new; sync -f ."]).current_dir(directory.path()));
    unmount(directory.path()).unwrap();
    for device in &devices {
        tool(Command::new("btrfs").args(["device", "scan", "--forget"]).arg(device.node()));
    }
    drop(devices);
    let open = |path: &std::path::PathBuf| -> Arc<dyn Device> {
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        Arc::new(FileDevice::open(path, &options).unwrap())
    };
    let options = Options { data_checksums: true, ..Options::default() };
    let report = check(vec![open(&sprout), open(&seed)], &options).unwrap();
    let others = report.findings.iter().filter(|found| found.kind.id() != "free-space-leftover");
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&Finding>::new());
    assert!(report.data_bytes >= 12 * 4096, "{report:?}");
}
