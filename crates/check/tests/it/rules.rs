//! Rules of more than one block: each accepts a sound image that the kernel made, and names one change with
//! exactly its finding at exactly its place. (Many more kinds of damage: `damage`.)

use crate::common::{assert_found, findings, image, place, place_of};
use vlinder_check::{CheckError, Finding, FindingKind, Options, check};
use vlinder_device::DeviceExt;
use vlinder_format::block::BLOCK_FLAG_RELOCATION;
use vlinder_format::extent::{ExtentFlags, ExtentItem, Reference};
use vlinder_format::features::{CompatReadOnlyFeatures, IncompatFeatures};
use vlinder_format::file_extent::FileExtent;
use vlinder_format::inode::{GroupId, InodeItem, UserId};
use vlinder_format::inode_ref::{self, InodeReference};
use vlinder_format::quota::{QuotaGroupId, relation_key};
use vlinder_format::superblock::SuperblockMirror;
use vlinder_format::{
    DeviceId, FileOffset, Generation, ItemType as Type, Key, Logical, ObjectId, Physical, Place, RootId,
    directory,
};
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::require;

const FS: RootId = RootId::FS_TREE;

/// A directory that was moved into a younger one, bytes preallocated past the end, subvolumes in each other,
/// quota groups.
const SMALL: &str = r"
    mkdir x x/p y z; mv z y/z; mkdir younger; mv y younger/y
    dd if=/dev/urandom of=file bs=4096 count=8 status=none; fallocate -n -l 1M file; printf hello > small; ln -s target link
    btrfs subvolume create s > /dev/null; btrfs subvolume create s/inner > /dev/null; touch s/inside s/inner/inside
    btrfs quota enable .; btrfs quota rescan -w . > /dev/null
    btrfs qgroup create 1/0 .; btrfs qgroup assign 0/256 1/0 . 2> /dev/null || true; btrfs quota rescan -w . > /dev/null
    sync -f .
";

/// Many extents, in files and in the extent tree, so that these trees have several leaves.
const LARGE: &str = r"
    i=0; while [ $i -lt 300 ]; do
        dd if=/dev/urandom of=file bs=4096 count=1 seek=$((i*2)) conv=notrunc status=none; i=$((i+1))
    done; sync -f .
";

/// The inode of a name in the top-level subvolume.
fn inode(mutator: &Mutator, name: &str) -> ObjectId {
    let found = entry(mutator, name);
    let block = mutator.block(found.leaf);
    ObjectId(u64::from_le_bytes(block.data(found.slot)[..8].try_into().unwrap()))
}

/// A name's entry in the index.
fn entry(mutator: &Mutator, name: &str) -> Found {
    mutator.find(FS, |key, data| key.item_type == Type::DIR_INDEX && &data[30..] == name.as_bytes())
}

fn of(mutator: &Mutator, name: &str, item_type: Type) -> Found {
    mutator.find_of(inode(mutator, name), item_type)
}

/// An item under another key.
fn moved(mutator: &Mutator, tree: RootId, found: Found, key: Key) -> Place {
    mutator.set_key(found, key);
    place(tree, Found { key, ..found })
}

/// A subvolume of several leaves, and a snapshot of it that changed one of them.
const SNAPSHOT: &str = r"
    btrfs subvolume create s > /dev/null; i=0; while [ $i -lt 200 ]; do echo $i > s/name-$i; i=$((i+1)); done; sync -f .
    btrfs subvolume snapshot s t > /dev/null; echo changed > t/name-7; sync -f .
";

/// Linux loads the tree before it looks whether it is to be believed.
#[test]
fn a_free_space_tree_that_is_announced_is_there_believed_or_not() {
    require!(KernelBtrfs, Tool("btrfs"));
    let tree = RootId::FREE_SPACE_TREE;
    let features = |m: &Mutator, value: CompatReadOnlyFeatures| {
        m.change_superblock(|superblock| superblock.compat_read_only = value);
    };
    let m = Mutator::new(&image(&[], SMALL));
    features(&m, CompatReadOnlyFeatures::FREE_SPACE_TREE);
    assert_eq!(findings(&m), [], "the next writer makes it anew");
    let m = Mutator::new(&image(&["-R", "^free-space-tree"], SMALL));
    features(&m, CompatReadOnlyFeatures::FREE_SPACE_TREE);
    let place = Place { tree: Some(RootId::ROOT_TREE), ..Place::default() };
    assert_eq!(findings(&m), [Finding { kind: FindingKind::TreeMissing { tree }, place }]);
}

/// devices.md, X5: both modes of `btrfs check` call such an image clean, and the next writer frees what
/// others use.
#[test]
fn what_is_shared_is_no_newer_than_the_last_snapshot() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = image(&["-n", "4096"], SNAPSHOT);
    let (snapshot, last_snapshot_at) = (RootId(257), 200);
    assert_eq!(findings(&Mutator::new(&image)), [], "the image without damage");
    let m = Mutator::new(&image);
    let node = m.block(m.root(snapshot));
    let children: Vec<_> = node.children().enumerate().collect();
    let own = children.iter().filter(|(_, child)| child.generation == node.generation()).count();
    assert!(own > 0 && own < children.len(), "some are shared, some not");
    let root = m.find(RootId::ROOT_TREE, |key, _| {
        key.objectid == snapshot.object_id() && key.item_type == Type::ROOT_ITEM
    });
    m.set_u64(root, last_snapshot_at, 2);
    let found = findings(&m);
    assert_eq!(found.len(), children.len() - own);
    let (slot, child) = children.iter().find(|(_, child)| child.generation != node.generation()).unwrap();
    let (block, last_snapshot) = (child.logical, Generation(2));
    let kind = FindingKind::SharedNewer { block, found: child.generation, last_snapshot };
    let slot = u32::try_from(*slot).ok();
    let (tree, at) = (Some(snapshot), Some(node.logical()));
    assert_found(&m, kind, Place { tree, block: at, slot, key: Some(child.key) });
    // A relocation has put them there.
    for (_, child) in &children {
        m.change_block(child.logical, |block| block.set_flag(BLOCK_FLAG_RELOCATION, true));
    }
    let found = findings(&m);
    assert!(found.iter().all(|found| matches!(found.kind, FindingKind::BlockFlags { .. })), "{found:#?}");
}

#[test]
fn rules_of_files_and_directories() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = image(&[], SMALL);
    assert_eq!(findings(&Mutator::new(&image)), [], "the image without damage");

    let m = Mutator::new(&image);
    let directory = inode(&m, "x");
    let key = directory::index_key(directory, directory::DirectoryIndex(1));
    let place_of_entry = moved(&m, FS, entry(&m, "p"), key);
    assert_found(&m, FindingKind::DirectoryIndex { directory, index: 1 }, place_of_entry);

    let m = Mutator::new(&image);
    let link = of(&m, "link", Type::INODE_ITEM);
    m.add_u64(link, 16, 1);
    assert_found(
        &m,
        FindingKind::LinkSize { inode: link.key.objectid, found: 7, expected: 6 },
        place(FS, link),
    );

    let m = Mutator::new(&image);
    let extent = of(&m, "file", Type::EXTENT_DATA);
    m.set_u64(of(&m, "file", Type::INODE_ITEM), 16, 0);
    let past = FindingKind::FilePastEnd { inode: extent.key.objectid, size: 0 };
    assert_eq!(
        findings(&m),
        [Finding { kind: past, place: place(FS, extent) }],
        "a warning, and nothing else"
    );

    let m = Mutator::new(&image);
    let inline = of(&m, "small", Type::EXTENT_DATA);
    let key = FileExtent::key(inline.key.objectid, FileOffset(4096));
    m.insert(FS, key, &FileExtent::hole(4096, Generation(5)).encode());
    assert_eq!(findings(&m), [], "Linux makes and reads it");

    let m = Mutator::new(&image);
    let (directory, other) = (inode(&m, "x"), inode(&m, "younger"));
    let name = InodeReference { index: directory::DirectoryIndex(9), name: b"again" };
    m.insert(FS, inode_ref::key(directory, other), &name.encode());
    let item = m.find_of(directory, Type::INODE_ITEM);
    assert_found(&m, FindingKind::DirectoryLinks { inode: directory }, place(FS, item));
}

/// Sets the owner and the group of an inode item.
fn set_owner(m: &Mutator, item: Found, user: u32, group: u32) {
    m.change_item(item, |data| {
        let mut item = InodeItem::decode(data).unwrap();
        (item.user, item.group) = (UserId(user), GroupId(group));
        data.copy_from_slice(&item.encode());
    });
}

#[test]
fn owners_and_names_of_no_file() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = image(&[], SMALL);

    for (user, group) in [(u32::MAX, 0), (0, u32::MAX), (u32::MAX, u32::MAX)] {
        let m = Mutator::new(&image);
        let item = of(&m, "file", Type::INODE_ITEM);
        set_owner(&m, item, user, group);
        let (user, group) = (UserId(user), GroupId(group));
        let kind = FindingKind::InodeOwner { inode: item.key.objectid, user, group };
        assert_eq!(findings(&m), [Finding { kind, place: place(FS, item) }], "a warning, and nothing else");
    }
    let m = Mutator::new(&image);
    set_owner(&m, of(&m, "file", Type::INODE_ITEM), u32::MAX - 1, u32::MAX - 1);
    assert_eq!(findings(&m), [], "the largest ids are sound");

    for name in [&b"."[..], b"/", b"\0"] {
        let m = Mutator::new(&image);
        let (directory, child) = (inode(&m, "x"), inode(&m, "p"));
        let places = [
            m.find(FS, |key, _| key.objectid == directory && key.item_type == Type::DIR_ITEM),
            entry(&m, "p"),
            of(&m, "p", Type::INODE_REF),
        ];
        for found in places {
            m.change_item(found, |data| data.last_mut().into_iter().for_each(|byte| *byte = name[0]));
        }
        let hashed = m.find(FS, |key, _| key == places[0].key);
        m.set_key(hashed, directory::item_key(directory, name));
        let kind = || FindingKind::NameUnusable { directory, child, name: name.escape_ascii().to_string() };
        let mut found = findings(&m);
        found.sort_by_key(|finding| finding.place.key);
        let hashed = Found { key: directory::item_key(directory, name), ..hashed };
        let expected =
            [hashed, places[1], places[2]].map(|found| Finding { kind: kind(), place: place(FS, found) });
        assert_eq!(found, expected, "a warning for each place of the name, and nothing else");
    }
    let m = Mutator::new(&image);
    for item_type in [Type::ROOT_REF, Type::ROOT_BACKREF] {
        let found = m.find(RootId::ROOT_TREE, |key, data| {
            key.item_type == item_type && data.ends_with(b"s") && data.len() == 19
        });
        m.change_item(found, |data| data[18] = b'.');
        let (directory, child) = (ObjectId::FIRST_FREE, ObjectId(256));
        let kind = FindingKind::NameUnusable { directory, child, name: ".".to_owned() };
        assert_found(&m, kind, place(RootId::ROOT_TREE, found));
    }
}

#[test]
fn nothing_lies_in_itself() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = image(&[], SMALL);

    let m = Mutator::new(&image);
    let (directory, child) = (inode(&m, "x"), inode(&m, "p"));
    moved(&m, FS, m.find_of(directory, Type::INODE_REF), inode_ref::key(directory, child));
    let key = Key::new(directory, Type::INODE_ITEM, 0);
    let at = Place { tree: Some(FS), key: Some(key), ..Place::default() };
    assert_found(&m, FindingKind::DirectoryLoop { directory }, at);

    let m = Mutator::new(&image);
    let outer =
        m.find(RootId::ROOT_TREE, |key, _| key.objectid.0 == 256 && key.item_type == Type::ROOT_BACKREF);
    moved(&m, RootId::ROOT_TREE, outer, Key { offset: 257, ..outer.key });
    let item = m.find(RootId::ROOT_TREE, |key, _| key.objectid.0 == 256 && key.item_type == Type::ROOT_ITEM);
    assert_found(&m, FindingKind::RootLoop { root: RootId(256) }, place(RootId::ROOT_TREE, item));

    let m = Mutator::new(&image);
    let (member, group) = (QuotaGroupId(256), QuotaGroupId(1 << 48));
    let upward = relation_key(member, group);
    m.remove(m.find(RootId::QUOTA_TREE, |key, _| key == relation_key(group, member)));
    let reason = "is recorded in one direction alone";
    let kind = FindingKind::QuotaRelation { group: member, other: group, reason };
    assert_found(&m, kind, place_of(&m, RootId::QUOTA_TREE, upward));

    let m = Mutator::new(&image);
    let second = QuotaGroupId(257);
    for (group, other) in [(member, second), (second, member)] {
        m.insert(RootId::QUOTA_TREE, relation_key(group, other), &[]);
    }
    let reason = "is between groups of one level";
    for (group, other) in [(member, second), (second, member)] {
        let kind = FindingKind::QuotaRelation { group, other, reason };
        assert_found(&m, kind, place_of(&m, RootId::QUOTA_TREE, relation_key(group, other)));
    }
}

/// The first extent item of data.
fn data_extent(m: &Mutator) -> (Found, Vec<u8>) {
    let found = m.find(RootId::EXTENT_TREE, |key, data| {
        key.item_type == Type::EXTENT_ITEM && data[16..24] == ExtentFlags::DATA.0.to_le_bytes()
    });
    (found, m.block(found.leaf).data(found.slot).to_vec())
}

#[test]
fn rules_of_extents_and_references() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = image(&[], SMALL);

    let m = Mutator::new(&image);
    let (found, data) = data_extent(&m);
    let mut item = ExtentItem::decode(Type::EXTENT_ITEM, &data).unwrap();
    item.header.references += 1;
    let Reference::ExtentData(reference) = item.inline[0].clone() else { panic!("{item:?}") };
    item.inline.push(item.inline[0].clone());
    m.remove(found);
    m.insert(RootId::EXTENT_TREE, found.key, &item.encode());
    let kind = FindingKind::ReferenceExtra {
        logical: Logical(found.key.objectid.0),
        user: format!("inode {} of tree {} at offset {}", reference.inode, reference.root, reference.offset),
        expected: 1,
        found: 2,
    };
    assert_found(&m, kind, Place { tree: Some(RootId::EXTENT_TREE), ..Place::default() });

    let m = Mutator::new(&image);
    let key = Reference::TreeBlock { root: FS }.key(Logical(1 << 50));
    m.insert(RootId::EXTENT_TREE, key, &[]);
    assert_found(&m, FindingKind::ReferenceWithoutExtent {}, place_of(&m, RootId::EXTENT_TREE, key));

    let m = Mutator::new(&image);
    let (_, data) = data_extent(&m);
    let logical = Logical(1 << 50);
    let key = ExtentItem::data_key(logical, 4096);
    m.insert(RootId::EXTENT_TREE, key, &data);
    assert_found(&m, FindingKind::ExtentPlace { logical }, place_of(&m, RootId::EXTENT_TREE, key));

    let m = Mutator::new(&image);
    let root = |m: &Mutator, id| {
        m.find(RootId::ROOT_TREE, move |key, _| key.objectid.0 == id && key.item_type == Type::ROOT_ITEM)
    };
    let (one, two) = (root(&m, 256), root(&m, 257));
    let of_one = m.block(one.leaf).data(one.slot).to_vec();
    m.change_item(two, |data| {
        data[160..168].copy_from_slice(&of_one[160..168]);
        data[176..184].copy_from_slice(&of_one[176..184]);
    });
    let shared = Place { tree: Some(RootId(257)), block: Some(m.root(RootId(256))), ..Place::default() };
    assert_found(&m, FindingKind::BlockShared {}, shared);
    let reason = "the tree's root block is another tree's too";
    assert_found(&m, FindingKind::Root { reason }, place(RootId::ROOT_TREE, two));
}

/// Linux, `btrfs check` and every other verb refuse what the trees may mean something else by.
#[test]
fn unknown_incompatible_features_are_refused() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = image(&[], "echo hello > file");
    let unknown = [(IncompatFeatures(1 << 44), "incompat_bit_44"), (IncompatFeatures::ZONED, "zoned")];
    for (feature, name) in unknown {
        let m = Mutator::new(&image);
        m.change_superblock(|superblock| superblock.incompat = superblock.incompat.with(feature));
        let refused = check(vec![m.device()], &Options::default());
        assert!(
            matches!(&refused, Err(CheckError::UnknownFeatures { names }) if *names == [name]),
            "{refused:?}"
        );
    }
    // These matter to who writes alone.
    let m = Mutator::new(&image);
    m.change_superblock(|superblock| {
        superblock.compat_read_only = superblock.compat_read_only.with(CompatReadOnlyFeatures(1 << 44));
    });
    assert_eq!(findings(&m), []);
}

#[test]
fn rules_of_places() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = image(&[], SMALL);

    let m = Mutator::new(&image);
    let stale = vlinder_format::superblock::Superblock {
        generation: Generation(m.superblock.generation.0 - 1),
        ..m.superblock.clone()
    };
    let bytes = stale.encode_with_checksum(SuperblockMirror::Second, |covered| {
        *vlinder_codec::checksum::checksum(vlinder_codec::checksum::ChecksumKind::Crc32c, covered).as_field()
    });
    m.device().write_at(SuperblockMirror::Second.offset(), bytes.to_vec()).unwrap();
    let kind = FindingKind::SuperblockStale {
        device: "memory".to_owned(),
        offset: SuperblockMirror::Second.offset(),
        found: stale.generation,
        expected: m.superblock.generation,
    };
    assert_eq!(findings(&m), [Finding { kind, place: Place::default() }]);

    // A stripe behind the end of its device.
    let m = Mutator::new(&image);
    let chunk = m.find(RootId::CHUNK_TREE, |key, data| key.item_type == Type::CHUNK_ITEM && data[24] == 1);
    m.set_u64(chunk, 56, 1 << 40);
    let (logical, physical) = (Logical(chunk.key.offset), Physical(1 << 40));
    let length = u64::from_le_bytes(m.block(chunk.leaf).data(chunk.slot)[..8].try_into().unwrap());
    let needed = format!("byte {physical} and {length} more of device 1");
    let reason = format!("the chunk at {logical} needs {needed}, which has no such bytes");
    assert_found(&m, FindingKind::Chunk { logical, reason }, place(RootId::CHUNK_TREE, chunk));
    let device = DeviceId(1);
    let missing = FindingKind::StripeWithoutDeviceExtent { logical, device, physical };
    assert_found(&m, missing, place(RootId::CHUNK_TREE, chunk));
}

/// Writes the tree of UUIDs, whose root is a leaf, anew at an address.
fn move_tree(m: &Mutator, to: Logical) {
    let leaf = m.block(m.root(RootId::UUID_TREE));
    let items: Vec<(Key, Vec<u8>)> =
        (0..leaf.len()).map(|slot| (leaf.key(slot), leaf.data(slot).to_vec())).collect();
    m.plant_at(RootId::UUID_TREE, [to], &items);
}

#[test]
fn no_block_crosses_a_stripe() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = image(&[], SMALL);
    let m = Mutator::new(&image);
    let free = m.free_places();
    // A stripe has 64 KiB, a block 16 KiB; a block may begin at any sector.
    let border = free.iter().find(|place| place.0 % 65536 == 0 && free.contains(&Logical(place.0 - 16384)));
    let border = *border.expect("free space on both sides of a stripe's end");
    let crosses = |m: &Mutator| {
        let found = findings(m).into_iter();
        found.filter(|finding| finding.kind == FindingKind::BlockCrossesStripe {}).collect::<Vec<_>>()
    };
    for before in [16384, 0] {
        let m = Mutator::new(&image);
        move_tree(&m, Logical(border.0 - before));
        assert_eq!(crosses(&m), [], "a block that ends or begins there");
    }
    for before in [12288, 4096] {
        let m = Mutator::new(&image);
        let to = Logical(border.0 - before);
        move_tree(&m, to);
        let place = Place { tree: Some(RootId::UUID_TREE), block: Some(to), ..Place::default() };
        assert_eq!(crosses(&m), [Finding { kind: FindingKind::BlockCrossesStripe {}, place }]);
    }
}

/// Two leaves beside each other, as (last item of the left, first of the right).
fn borders(m: &Mutator, tree: RootId) -> Vec<(Found, Found)> {
    let root = m.block(m.root(tree));
    assert!(!root.is_leaf(), "one leaf has no border");
    let leaves: Vec<Logical> = if root.level().0 == 1 {
        root.children().map(|child| child.logical).collect()
    } else {
        let nodes = root.children().map(|child| m.block(child.logical));
        nodes.flat_map(|node| node.children().map(|child| child.logical).collect::<Vec<_>>()).collect()
    };
    let found = |leaf: Logical, slot: usize| Found { leaf, slot, key: m.block(leaf).key(slot) };
    let border = |pair: &[Logical]| (found(pair[0], m.block(pair[0]).len() - 1), found(pair[1], 0));
    leaves.windows(2).map(border).collect()
}

#[test]
fn rules_across_leaves() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = image(&["-n", "4096", "-m", "single"], LARGE);
    assert_eq!(findings(&Mutator::new(&image)), [], "the image without damage");

    let m = Mutator::new(&image);
    let (left, right) = borders(&m, RootId::EXTENT_TREE)
        .into_iter()
        .find(|(left, right)| {
            left.key.item_type == Type::EXTENT_ITEM
                && right.key.item_type == Type::EXTENT_ITEM
                && left.key.objectid.0 + left.key.offset == right.key.objectid.0
        })
        .expect("two leaves that begin and end with extents of data");
    m.set_key(left, Key { offset: left.key.offset + 4096, ..left.key });
    let previous_end = Logical(right.key.objectid.0 + 4096);
    assert_found(&m, FindingKind::ExtentOverlap { previous_end }, place(RootId::EXTENT_TREE, right));

    let is_extent = |found: &Found| found.key.item_type == Type::EXTENT_DATA;
    let border = |m: &Mutator| {
        let mut all = borders(m, FS).into_iter();
        all.find(|(left, right)| is_extent(left) && is_extent(right)).expect("a file in two leaves")
    };
    let m = Mutator::new(&image);
    let (left, right) = border(&m);
    m.add_u64(left, 45, 16384);
    let previous_end = left.key.offset + 4096 + 16384;
    let kind = FindingKind::FileExtentOverlap { inode: left.key.objectid, previous_end };
    assert_found(&m, kind, place(FS, right));

    let m = Mutator::new(&image);
    let (left, right) = border(&m);
    let key = Key { offset: right.key.offset + 4096, ..left.key };
    let at = moved(&m, FS, left, key);
    assert_found(&m, FindingKind::KeyRange { bound: right.key }, at);
}
