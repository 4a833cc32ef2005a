//! One damage at a time, in images that the kernel made: each is found, under its name.

mod common;

use common::image;
use vlinder_base::sync::Arc;
use vlinder_check::Options;
use vlinder_device::{DeviceExt, MemoryDevice};
use vlinder_format::extent::ExtentFlags;
use vlinder_format::{
    FileOffset, Generation, ItemType as Type, Key, ObjectId, RootId, file_extent::FileExtent,
};
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::require;

const FS: RootId = RootId::FS_TREE;

/// Files of every kind, hard links, clones, a nested subvolume and a snapshot, and enough names for a tree of two levels.
const FILL: &str = r"
    mkdir d; dd if=/dev/urandom of=d/file bs=4096 count=80 status=none; printf hello > d/small; ln d/file d/hard
    ln -s target link; mkfifo fifo; fallocate -l 1M prealloc; truncate -s 1M sparse
    dd if=/dev/urandom of=sparse bs=4096 count=2 seek=50 conv=notrunc status=none
    setfattr -n user.name -v value d/file; cp --reflink=always d/file clone
    mkdir packed; chattr +c packed; seq 200000 > packed/text; touch nosum; chattr +C nosum
    dd if=/dev/urandom of=nosum bs=4096 count=4 conv=notrunc status=none
    btrfs subvolume create s > /dev/null; cp d/file s/inside; sync -f .
    btrfs subvolume snapshot s t > /dev/null
    i=0; while [ $i -lt 700 ]; do echo $i > name-$i; i=$((i+1)); done
";

/// What is found in an image: identifiers, errors and warnings alike.
fn findings(device: Arc<MemoryDevice>) -> Vec<&'static str> {
    let options = Options { data_checksums: true, ..Options::default() };
    common::report_of(device, &options).findings.iter().map(|finding| finding.kind.id()).collect()
}

/// The inode of a name in the top-level directory of the top-level subvolume, or of one below.
fn inode(mutator: &Mutator, name: &str) -> ObjectId {
    let found = mutator.find(FS, |key, data| {
        key.item_type == Type::DIR_INDEX
            && data[30..].starts_with(name.as_bytes())
            && data.len() == 30 + name.len()
    });
    let block = mutator.block(found.leaf);
    ObjectId(u64::from_le_bytes(block.data(found.slot)[..8].try_into().unwrap()))
}

fn of(mutator: &Mutator, name: &str, item_type: Type) -> Found {
    mutator.find_of(inode(mutator, name), item_type)
}

/// The first extent item of data, or of blocks.
fn extent(mutator: &Mutator, flags: ExtentFlags) -> Found {
    mutator.find(RootId::EXTENT_TREE, |key, data| {
        matches!(key.item_type, Type::EXTENT_ITEM | Type::METADATA_ITEM)
            && data
                .get(16..24)
                .is_some_and(|bytes| ExtentFlags(u64::from_le_bytes(bytes.try_into().unwrap())).has(flags))
    })
}

/// A record of free space of the first data group.
fn free_space(mutator: &Mutator, item_type: Type) -> Found {
    let group = mutator.find_type(RootId::EXTENT_TREE, Type::BLOCK_GROUP_ITEM).key.objectid;
    mutator.find(RootId::FREE_SPACE_TREE, |key, _| key.item_type == item_type && key.objectid >= group)
}

fn root_item(mutator: &Mutator, root: u64) -> Found {
    mutator.find(RootId::ROOT_TREE, |key, _| key.objectid.0 == root && key.item_type == Type::ROOT_ITEM)
}

type Damage = fn(&Mutator);

/// Name, damage, and the finding that must be among those made.
const DAMAGES: &[(&str, Damage, &str)] = &[
    // Superblock.
    ("bytes used", |m| m.change_superblock(|s| s.bytes_used += 4096), "superblock-bytes-used"),
    ("total bytes", |m| m.change_superblock(|s| s.total_bytes -= 4096), "superblock-total-bytes"),
    (
        "root generation",
        |m| m.change_superblock(|s| s.generation = Generation(s.generation.0 + 1)),
        "block-unreadable",
    ),
    ("root level", |m| m.change_superblock(|s| s.root_level.0 += 1), "block-unreadable"),
    (
        "chunk root generation",
        |m| m.change_superblock(|s| s.chunk_root_generation.0 -= 1),
        "block-unreadable",
    ),
    (
        "system chunk",
        |m| {
            m.remove(
                m.find(RootId::CHUNK_TREE, |key, data| {
                    key.item_type == Type::CHUNK_ITEM && data[24] & 2 != 0
                }),
            )
        },
        "system-chunk",
    ),
    (
        "second superblock",
        |m| m.device().write_at(vlinder_base::units::Physical(64 << 20), vec![0; 4096]).unwrap(),
        "superblock-copy",
    ),
    // Blocks.
    ("one copy of a block", |m| m.flip_bit(m.root(FS), 0, 5000), "copy-bad"),
    (
        "both copies of a block",
        |m| {
            m.flip_bit(m.root(FS), 0, 5000);
            m.flip_bit(m.root(FS), 1, 5000)
        },
        "block-unreadable",
    ),
    ("block address", |m| m.change_bytes(m.root(FS), |bytes| bytes[50] ^= 1), "block-unreadable"),
    (
        "block owner",
        |m| m.change_bytes(m.root(RootId::EXTENT_TREE), |bytes| bytes[88] = 9),
        "block-unreadable",
    ),
    ("block fsid", |m| m.change_bytes(m.root(FS), |bytes| bytes[33] ^= 1), "block-unreadable"),
    ("block level", |m| m.change_bytes(m.root(FS), |bytes| bytes[100] += 1), "block-unreadable"),
    ("written flag", |m| m.change_bytes(m.root(FS), |bytes| bytes[56] = 0), "block-unreadable"),
    (
        "number of items",
        |m| m.change_bytes(m.root(RootId::EXTENT_TREE), |bytes| bytes[96] = bytes[96].wrapping_add(1)),
        "block-unreadable",
    ),
    (
        "pointer generation",
        |m| m.change_bytes(m.root(FS), |bytes| bytes[101 + 33 + 25] -= 1),
        "block-unreadable",
    ),
    (
        "pointer to another child",
        |m| {
            m.change_block(m.root(FS), |block| {
                let first = block.child(0);
                let second = block.child(1);
                block.set_child(1, &vlinder_format::block::ChildPointer { logical: first.logical, ..second });
            })
        },
        "block-unreadable",
    ),
    (
        "key order",
        |m| {
            let found = of(m, "name-5", Type::INODE_ITEM);
            m.set_key(found, Key::new(ObjectId(257), Type::INODE_ITEM, 0))
        },
        "block-unreadable",
    ),
    // Inodes.
    ("link count", |m| m.add_u32(of(m, "name-5", Type::INODE_ITEM), 40, 1), "inode-links"),
    ("no links", |m| m.add_u32(of(m, "name-5", Type::INODE_ITEM), 40, u32::MAX), "inode-links"),
    ("bytes", |m| m.add_u64(of(m, "file", Type::INODE_ITEM), 24, 4096), "inode-bytes"),
    ("directory size", |m| m.add_u64(of(m, "d", Type::INODE_ITEM), 16, 2), "directory-size"),
    ("inode generation", |m| m.set_u64(of(m, "file", Type::INODE_ITEM), 0, 1 << 40), "item"),
    ("inode change", |m| m.set_u64(of(m, "file", Type::INODE_ITEM), 8, 1 << 40), "item"),
    ("inode mode", |m| m.add_u32(of(m, "file", Type::INODE_ITEM), 52, 1 << 20), "item"),
    (
        "inode type",
        |m| m.add_u32(of(m, "name-5", Type::INODE_ITEM), 52, 0o010_000u32.wrapping_sub(0o100_000)),
        "name",
    ),
    ("inode flags", |m| m.set_u64(of(m, "file", Type::INODE_ITEM), 64, 1 << 20), "item"),
    ("flags of a link", |m| m.set_u64(of(m, "link", Type::INODE_ITEM), 64, 1 << 6), "inode-flags"),
    ("no inode item", |m| m.remove(of(m, "name-5", Type::INODE_ITEM)), "inode-missing"),
    (
        "no links, no name and no orphan item",
        |m| {
            let child = inode(m, "name-5");
            m.add_u32(of(m, "name-5", Type::INODE_ITEM), 40, u32::MAX);
            m.remove(of(m, "name-5", Type::INODE_REF));
            for entry in [Type::DIR_ITEM, Type::DIR_INDEX] {
                m.remove(m.find(FS, |key, data| key.item_type == entry && data[..8] == child.0.to_le_bytes()))
            }
        },
        "inode-orphan",
    ),
    ("no inode reference", |m| m.remove(of(m, "name-5", Type::INODE_REF)), "name"),
    ("reference to another index", |m| m.add_u64(of(m, "name-5", Type::INODE_REF), 0, 5000), "name"),
    (
        "extents of a directory",
        |m| {
            let key = FileExtent::key(inode(m, "d"), FileOffset(0));
            m.remove(of(m, "name-699", Type::EXTENT_DATA));
            m.insert(FS, key, &FileExtent::hole(4096, Generation(5)).encode());
        },
        "inode-odd-item",
    ),
    // Names.
    (
        "no entry by hash",
        |m| {
            let child = inode(m, "name-5");
            m.remove(
                m.find(FS, |key, data| key.item_type == Type::DIR_ITEM && data[..8] == child.0.to_le_bytes()),
            )
        },
        "name",
    ),
    (
        "no entry in the index",
        |m| {
            let child = inode(m, "name-5");
            m.remove(
                m.find(FS, |key, data| {
                    key.item_type == Type::DIR_INDEX && data[..8] == child.0.to_le_bytes()
                }),
            )
        },
        "name",
    ),
    (
        "entry to another inode",
        |m| {
            let child = inode(m, "name-5");
            m.set_u64(
                m.find(FS, |key, data| {
                    key.item_type == Type::DIR_INDEX && data[..8] == child.0.to_le_bytes()
                }),
                0,
                child.0 + 1,
            )
        },
        "name",
    ),
    (
        "entry of another type",
        |m| {
            let child = inode(m, "name-5");
            m.change_item(
                m.find(FS, |key, data| {
                    key.item_type == Type::DIR_INDEX && data[..8] == child.0.to_le_bytes()
                }),
                |data| data[29] = 2,
            )
        },
        "name",
    ),
    (
        "entry of another name",
        |m| {
            let child = inode(m, "name-5");
            m.change_item(
                m.find(FS, |key, data| key.item_type == Type::DIR_ITEM && data[..8] == child.0.to_le_bytes()),
                |data| data[30] = b'X',
            )
        },
        "item",
    ),
    (
        "hash of an attribute",
        |m| {
            let found = of(m, "file", Type::XATTR_ITEM);
            m.set_key(found, Key { offset: found.key.offset + 1, ..found.key })
        },
        "item",
    ),
    // File extents.
    ("extent address", |m| m.add_u64(of(m, "file", Type::EXTENT_DATA), 21, 4096), "extent-missing"),
    ("extent address between sectors", |m| m.add_u64(of(m, "file", Type::EXTENT_DATA), 21, 1), "item"),
    ("extent length on disk", |m| m.add_u64(of(m, "file", Type::EXTENT_DATA), 29, 4096), "extent-missing"),
    ("extent offset", |m| m.add_u64(of(m, "file", Type::EXTENT_DATA), 37, 4096), "file-extent-size"),
    (
        "extent length",
        |m| m.add_u64(of(m, "file", Type::EXTENT_DATA), 45, 0u64.wrapping_sub(4096)),
        "inode-bytes",
    ),
    ("extent type", |m| m.change_item(of(m, "file", Type::EXTENT_DATA), |data| data[20] = 7), "item"),
    ("extent compression", |m| m.change_item(of(m, "file", Type::EXTENT_DATA), |data| data[16] = 9), "item"),
    ("inline length", |m| m.add_u64(of(m, "small", Type::EXTENT_DATA), 8, 1), "item"),
    ("extent gone", |m| m.remove(of(m, "file", Type::EXTENT_DATA)), "reference-extra"),
    (
        "prealloc called written",
        |m| m.change_item(of(m, "prealloc", Type::EXTENT_DATA), |data| data[20] = 1),
        "checksum-missing",
    ),
    (
        "checksummed file called without",
        |m| m.set_u64(of(m, "file", Type::INODE_ITEM), 64, 1),
        "checksum-odd",
    ),
    // Checksums.
    (
        "checksums gone",
        |m| m.remove(m.find_type(RootId::CHECKSUM_TREE, Type::EXTENT_CHECKSUM)),
        "checksum-missing",
    ),
    (
        "a checksum",
        |m| m.change_item(m.find_type(RootId::CHECKSUM_TREE, Type::EXTENT_CHECKSUM), |data| data[0] ^= 1),
        "data-checksum",
    ),
    (
        "checksums of other bytes",
        |m| {
            let free = free_space(m, Type::FREE_SPACE_EXTENT);
            let key = Key::new(ObjectId::EXTENT_CHECKSUM, Type::EXTENT_CHECKSUM, free.key.objectid.0);
            m.insert(RootId::CHECKSUM_TREE, key, &[0; 4]);
        },
        "checksum-of-nothing",
    ),
    // Extents.
    ("reference count", |m| m.add_u64(extent(m, ExtentFlags::DATA), 0, 1), "extent-count"),
    ("extent generation", |m| m.set_u64(extent(m, ExtentFlags::DATA), 8, 1 << 40), "item"),
    ("extent flags", |m| m.set_u64(extent(m, ExtentFlags::DATA), 16, 3), "item"),
    (
        "data reference to another inode",
        |m| m.add_u64(extent(m, ExtentFlags::DATA), 33, 1),
        "reference-missing",
    ),
    (
        "data reference to another offset",
        |m| m.add_u64(extent(m, ExtentFlags::DATA), 41, 4096),
        "reference-missing",
    ),
    (
        "block reference to another root",
        |m| m.set_u64(extent(m, ExtentFlags::TREE_BLOCK), 25, 600),
        "reference-missing",
    ),
    (
        "block level in its extent",
        |m| {
            let found = extent(m, ExtentFlags::TREE_BLOCK);
            m.set_key(found, Key { offset: found.key.offset + 1, ..found.key })
        },
        "extent-missing",
    ),
    ("data extent gone", |m| m.remove(extent(m, ExtentFlags::DATA)), "extent-missing"),
    ("block extent gone", |m| m.remove(extent(m, ExtentFlags::TREE_BLOCK)), "extent-missing"),
    (
        "full back references",
        |m| {
            let root = m.root(FS);
            let found = m.find(RootId::EXTENT_TREE, |key, _| key.objectid.0 == root.0);
            m.set_u64(found, 16, 2 | 1 << 8)
        },
        "reference-extra",
    ),
    (
        "extent of nothing",
        |m| {
            let free = free_space(m, Type::FREE_SPACE_EXTENT);
            let other = extent(m, ExtentFlags::DATA);
            let data = m.block(other.leaf).data(other.slot).to_vec();
            m.insert(RootId::EXTENT_TREE, Key::new(free.key.objectid, Type::EXTENT_ITEM, 4096), &data)
        },
        "reference-extra",
    ),
    // Groups, chunks, devices.
    (
        "group's used bytes",
        |m| m.add_u64(m.find_type(RootId::EXTENT_TREE, Type::BLOCK_GROUP_ITEM), 0, 4096),
        "group-used",
    ),
    (
        "group's type",
        |m| m.set_u64(m.find_type(RootId::EXTENT_TREE, Type::BLOCK_GROUP_ITEM), 16, 4),
        "group-without-chunk",
    ),
    (
        "group gone",
        |m| m.remove(m.find_type(RootId::EXTENT_TREE, Type::BLOCK_GROUP_ITEM)),
        "chunk-without-group",
    ),
    (
        "stripe elsewhere",
        |m| {
            let chunk =
                m.find(RootId::CHUNK_TREE, |key, data| key.item_type == Type::CHUNK_ITEM && data[24] == 1);
            m.add_u64(chunk, 56, 65536)
        },
        "stripe-without-device-extent",
    ),
    (
        "chunk length",
        |m| {
            let chunk =
                m.find(RootId::CHUNK_TREE, |key, data| key.item_type == Type::CHUNK_ITEM && data[24] == 1);
            m.add_u64(chunk, 0, 1)
        },
        "item",
    ),
    ("stripe length", |m| m.add_u64(m.find_type(RootId::CHUNK_TREE, Type::CHUNK_ITEM), 16, 1), "item"),
    (
        "device extent gone",
        |m| m.remove(m.find_type(RootId::DEVICE_TREE, Type::DEVICE_EXTENT)),
        "stripe-without-device-extent",
    ),
    (
        "device extent's chunk",
        |m| m.add_u64(m.find_type(RootId::DEVICE_TREE, Type::DEVICE_EXTENT), 16, 65536),
        "device-extent-without-stripe",
    ),
    (
        "device extent's length",
        |m| m.add_u64(m.find_type(RootId::DEVICE_TREE, Type::DEVICE_EXTENT), 24, 1 << 40),
        "device-extent-outside",
    ),
    (
        "device's used bytes",
        |m| m.add_u64(m.find_type(RootId::CHUNK_TREE, Type::DEVICE_ITEM), 16, 4096),
        "device-used",
    ),
    ("device's size", |m| m.add_u64(m.find_type(RootId::CHUNK_TREE, Type::DEVICE_ITEM), 8, 1), "device-size"),
    ("device item gone", |m| m.remove(m.find_type(RootId::CHUNK_TREE, Type::DEVICE_ITEM)), "device-missing"),
    // Free space.
    ("free range gone", |m| m.remove(free_space(m, Type::FREE_SPACE_EXTENT)), "free-space"),
    (
        "free range longer",
        |m| {
            let found = free_space(m, Type::FREE_SPACE_EXTENT);
            m.set_key(found, Key { offset: found.key.offset - 4096, ..found.key })
        },
        "free-space",
    ),
    ("count of free ranges", |m| m.add_u32(free_space(m, Type::FREE_SPACE_INFO), 0, 1), "free-space-count"),
    (
        "free space called bitmaps",
        |m| m.add_u32(free_space(m, Type::FREE_SPACE_INFO), 4, 1),
        "free-space-place",
    ),
    ("free space record gone", |m| m.remove(free_space(m, Type::FREE_SPACE_INFO)), "free-space-group"),
    // Roots.
    ("no root item", |m| m.remove(root_item(m, 7)), "tree-missing"),
    ("root block elsewhere", |m| m.set_u64(root_item(m, 256), 176, m.root(FS).0), "block-unreadable"),
    ("root level", |m| m.change_item(root_item(m, 256), |data| data[238] += 1), "block-unreadable"),
    ("root generation in its item", |m| m.add_u64(root_item(m, 256), 160, u64::MAX), "block-unreadable"),
    ("root flags", |m| m.set_u64(root_item(m, 256), 208, 1 << 20), "item"),
    ("root references", |m| m.add_u32(root_item(m, 256), 216, u32::MAX), "root-orphan"),
    (
        "forward reference gone",
        |m| m.remove(m.find_type(RootId::ROOT_TREE, Type::ROOT_REF)),
        "root-reference",
    ),
    (
        "backward reference gone",
        |m| m.remove(m.find_type(RootId::ROOT_TREE, Type::ROOT_BACKREF)),
        "root-without-reference",
    ),
    (
        "name of a subvolume gone",
        |m| m.remove(m.find(FS, |key, data| key.item_type == Type::DIR_INDEX && data[8] == 132)),
        "root-name",
    ),
    (
        "uuid of another subvolume",
        |m| m.change_item(m.find_type(RootId::UUID_TREE, Type::UUID_SUBVOLUME), |data| data[0] ^= 3),
        "uuid",
    ),
    (
        "first item of the first leaf gone",
        |m| {
            let found = m.find_of(ObjectId(256), Type::INODE_ITEM);
            m.remove(found)
        },
        "block-unreadable",
    ),
    (
        "no item of a root directory",
        |m| {
            m.change_block(m.root(RootId(256)), |leaf| {
                while leaf.key(0).objectid == ObjectId(256) {
                    leaf.remove_items(0, 1);
                }
            })
        },
        "root-directory",
    ),
];

#[test]
fn each_damage_is_found_by_its_name() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("setfattr"), Tool("chattr"));
    let image = image(&[], FILL);
    assert_eq!(findings(Arc::new(image.snapshot())), [""; 0], "the image without damage");
    let mut missed = Vec::new();
    for (name, damage, expected) in DAMAGES {
        let mutator = Mutator::new(&image);
        damage(&mutator);
        let found = findings(mutator.device());
        if !found.contains(expected) {
            missed.push(format!("{name}: {expected} expected, {found:?} found"));
        }
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
    assert!(DAMAGES.len() >= 60, "{}", DAMAGES.len());
    println!("{} kinds of damage are found", DAMAGES.len());
}

#[test]
fn a_missing_hole_is_found_where_holes_are_items() {
    require!(KernelBtrfs, Tool("btrfs"));
    let image = image(&["-O", "^no-holes"], FILL);
    let mutator = Mutator::new(&image);
    let hole = mutator.find(FS, |key, data| {
        key.item_type == Type::EXTENT_DATA && data.len() == 53 && data[21..29] == [0; 8] && key.offset == 0
    });
    mutator.remove(hole);
    assert!(findings(mutator.device()).contains(&"file-hole"));
}
