//! Tree blocks, by themselves and by what their parents say.

use vlinder_check::FindingKind;
use vlinder_format::block::{BlockFault, ChildPointer};
use vlinder_format::{
    Damage as Faulty, DeviceId, Generation, ItemType as Type, Key, Level, Logical, ObjectId, Place, RootId,
};
use vlinder_testkit::mutator::Mutator;
use vlinder_testkit::require;

use crate::common::expected::{Expected, only};
use crate::damage::Damage;
use crate::damage::image::{FS, at_block, of, root_directory};

/// What follows where the top-level subvolume can't be read: its subvolumes have no names, and nobody uses
/// its extents.
const WITHOUT_FILES: [&str; 2] = ["root-name", "reference-extra"];
/// What follows where the extent tree can't be read.
const WITHOUT_EXTENTS: [&str; 4] =
    ["chunk-without-group", "superblock-bytes-used", "checksum-of-nothing", "extent-missing"];

/// Why each copy of a block is bad, if all are so for one reason; the slot is that of the fault.
pub fn unreadable(m: &Mutator, place: Place, fault: BlockFault) -> (FindingKind, Place) {
    let block = place.block.unwrap();
    let node_size = u64::from(m.superblock.node_size);
    let damage = Faulty::new(fault, place);
    let of_copy = |physical| format!("device 1 at {physical}: {damage}");
    let reasons: Vec<String> = m.copies(block, node_size).into_iter().map(of_copy).collect();
    (FindingKind::BlockUnreadable { reason: reasons.join("; ") }, Place { slot: None, ..place })
}

/// A block that can't be read.
fn only_unreadable(m: &Mutator, tree: RootId, block: Logical, fault: BlockFault) -> Expected {
    let (kind, place) = unreadable(m, at_block(tree, block), fault);
    only(kind, place)
}

/// The root of the top-level subvolume, changed.
fn bad_root(m: &Mutator, change: impl FnOnce(&mut [u8]), fault: BlockFault) -> Expected {
    let root = m.root(FS);
    m.change_bytes(root, change);
    only_unreadable(m, FS, root, fault).besides(WITHOUT_FILES)
}

pub const DAMAGES: &[Damage] = &[
    ("one copy of a block", |m| {
        let root = m.root(FS);
        m.flip_bit(root, 0, 5000);
        let reason = Faulty::new(BlockFault::Checksum, at_block(FS, root)).to_string();
        let physical = m.copies(root, u64::from(m.superblock.node_size))[0];
        only(FindingKind::BadCopy { device: DeviceId(1), physical, reason }, at_block(FS, root))
    }),
    ("both copies of a block", |m| {
        let root = m.root(FS);
        [0, 1].into_iter().for_each(|mirror| m.flip_bit(root, mirror, 5000));
        only_unreadable(m, FS, root, BlockFault::Checksum).besides(WITHOUT_FILES)
    }),
    ("block address", |m| {
        let found = Logical(m.root(FS).0 ^ 1 << 16);
        bad_root(m, |bytes| bytes[48 + 2] ^= 1, BlockFault::Address { found })
    }),
    ("block owner", |m| {
        let tree = RootId::EXTENT_TREE;
        let root = m.root(tree);
        m.change_bytes(root, |bytes| bytes[88] = 9);
        let fault = BlockFault::Owner { found: RootId(9), tree };
        only_unreadable(m, tree, root, fault).besides(WITHOUT_EXTENTS)
    }),
    ("block fsid", |m| bad_root(m, |bytes| bytes[33] ^= 1, BlockFault::FileSystem)),
    ("block of a subvolume that has none such", |m| {
        let reason = "belongs to another tree, which does not lead to it";
        let (kind, root) = (FindingKind::BlockOwner { reason }, m.block(m.root(FS)));
        // A leaf without extents, whose owner nobody else has recorded.
        let leaf = root
            .children()
            .map(|child| m.block(child.logical))
            .find(|leaf| (0..leaf.len()).all(|slot| leaf.key(slot).item_type != Type::EXTENT_DATA));
        let leaf = leaf.expect("a leaf of names").logical();
        m.change_bytes(leaf, |bytes| bytes[88 + 2] = 255);
        only(kind, at_block(FS, leaf))
    }),
    ("block of the time before references by parent", |m| {
        let root = m.root(RootId::CHECKSUM_TREE);
        m.change_bytes(root, |bytes| bytes[63] = 0);
        only(FindingKind::BlockFlags { found: 1, revision: 0 }, at_block(RootId::CHECKSUM_TREE, root))
    }),
    ("block of a tree that is never relocated so", |m| {
        let root = m.root(RootId::CHECKSUM_TREE);
        m.change_bytes(root, |bytes| bytes[56] |= 2);
        only(FindingKind::BlockFlags { found: 3, revision: 1 }, at_block(RootId::CHECKSUM_TREE, root))
    }),
    ("block level", |m| {
        let expected = m.block(m.root(FS)).level();
        bad_root(m, |bytes| bytes[100] += 1, BlockFault::Level { found: Level(expected.0 + 1), expected })
    }),
    ("written flag", |m| bad_root(m, |bytes| bytes[56] = 0, BlockFault::NotWritten)),
    ("number of items", |m| {
        let root = m.root(RootId::EXTENT_TREE);
        let leaf = m.block(root);
        m.change_bytes(root, |bytes| bytes[96] = bytes[96].wrapping_add(1));
        // Behind the last header the kernel leaves zeros.
        let next = Key::new(ObjectId(0), Type(0), 0);
        let fault = BlockFault::KeyOrder { key: leaf.last_key().unwrap(), next };
        let slot = u32::try_from(leaf.len()).ok();
        let (kind, place) = unreadable(m, Place { slot, ..at_block(RootId::EXTENT_TREE, root) }, fault);
        only(kind, place).besides(WITHOUT_EXTENTS)
    }),
    ("pointer generation", |m| {
        let child = m.block(m.root(FS)).child(1);
        m.change_bytes(m.root(FS), |bytes| bytes[101 + 33 + 25] -= 1);
        let (found, expected) = (child.generation, Generation(child.generation.0 - 1));
        only_unreadable(m, FS, child.logical, BlockFault::Generation { found, expected }).besides(["name"])
    }),
    ("pointer to another child", |m| {
        let root = m.block(m.root(FS));
        let [first, second] = [0, 1].map(|slot| root.child(slot));
        let pointer = ChildPointer { logical: first.logical, ..second };
        m.change_block(root.logical(), |block| block.children_mut().set(1, &pointer));
        let user = format!("tree {FS}");
        let (expected, found) = (2, 1);
        let twice =
            FindingKind::ReferenceMissing { logical: first.logical, user: user.clone(), expected, found };
        let (expected, found) = (0, 1);
        let never = FindingKind::ReferenceExtra { logical: second.logical, user, expected, found };
        let fault = BlockFault::FirstKey { found: first.key, expected: second.key };
        only_unreadable(m, FS, first.logical, fault)
            .and(twice, at_block(RootId::EXTENT_TREE, first.logical))
            .and(never, at_block(RootId::EXTENT_TREE, second.logical))
            .besides(["name"])
    }),
    ("key order", |m| {
        let found = of(m, "name-5", Type::INODE_ITEM);
        let next = Key::new(ObjectId(257), Type::INODE_ITEM, 0);
        let key = m.block(found.leaf).key(found.slot - 1);
        m.set_key(found, next);
        let slot = u32::try_from(found.slot).ok();
        let place = Place { slot, ..at_block(FS, found.leaf) };
        let (kind, place) = unreadable(m, place, BlockFault::KeyOrder { key, next });
        only(kind, place).besides(["name", "reference-extra"])
    }),
    ("first item of the first leaf gone", |m| {
        let first = root_directory(m);
        assert_eq!(first.slot, 0);
        m.remove(first);
        let found = m.block(first.leaf).key(0);
        let fault = BlockFault::FirstKey { found, expected: first.key };
        only_unreadable(m, FS, first.leaf, fault).besides(["name"])
    }),
];

#[test]
fn damaged_blocks_are_found() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("setfattr"), Tool("chattr"));
    crate::damage::assert_each_is_found(DAMAGES);
}
