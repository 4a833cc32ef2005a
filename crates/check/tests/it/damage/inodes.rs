//! Inode items, and what an inode has besides.

use vlinder_check::FindingKind;
use vlinder_format::file_extent::FileExtent;
use vlinder_format::inode::{FileType, InodeFault, InodeFlags, Mode};
use vlinder_format::inode_ref::InodeReferenceFault;
use vlinder_format::{FileOffset, Generation, ItemType as Type};
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::require;

use crate::common::expected::only;
use crate::damage::Damage;
use crate::damage::image::{
    FS, at_key, beside, hashed, indexed, inode, of, place, place_of, root_directory, u32_at, u64_at,
};
use crate::damage::names::name_of;

/// Offsets in an inode item.
const GENERATION: usize = 0;
const TRANSACTION: usize = 8;
const SIZE: usize = 16;
const BYTES: usize = 24;
const LINKS: usize = 40;
const MODE: usize = 52;
const FLAGS: usize = 64;

const NOT_IN_INODE: &str = "is not in the inode as it is in the directory's index";
const NOT_IN_INDEX: &str = "is not in the directory's index as it is in the inode";

fn inode_of(m: &Mutator, name: &str) -> Found {
    of(m, name, Type::INODE_ITEM)
}

pub const DAMAGES: &[Damage] = &[
    ("link count", |m| {
        let found = inode_of(m, "name-5");
        m.add_u32(found, LINKS, 1);
        let kind = FindingKind::InodeLinks { inode: found.key.objectid, found: 2, expected: 1 };
        only(kind, place(FS, found))
    }),
    ("no links", |m| {
        let found = inode_of(m, "name-5");
        m.add_u32(found, LINKS, u32::MAX);
        let inode = found.key.objectid;
        only(FindingKind::InodeLinks { inode, found: 0, expected: 1 }, place(FS, found))
            .and(FindingKind::InodeOrphan { inode }, at_key(FS, found.key))
    }),
    ("bytes", |m| {
        let found = inode_of(m, "file");
        let expected = u64_at(m, found, BYTES);
        m.set_u64(found, BYTES, expected + 4096);
        let kind = FindingKind::InodeBytes { inode: found.key.objectid, found: expected + 4096, expected };
        only(kind, place(FS, found))
    }),
    ("directory size", |m| {
        let found = inode_of(m, "d");
        let expected = 2 * ["file", "small", "hard"].concat().len() as u64;
        m.add_u64(found, SIZE, 2);
        let kind = FindingKind::DirectorySize { inode: found.key.objectid, found: expected + 2, expected };
        only(kind, place(FS, found))
    }),
    ("inode generation", |m| {
        let at = inode_of(m, "file");
        m.set_u64(at, GENERATION, 1 << 40);
        let (found, most) = (Generation(1 << 40), m.superblock.generation.next());
        only(FindingKind::Item { fault: InodeFault::Generation { found, most }.into() }, place(FS, at))
    }),
    ("inode change", |m| {
        let at = inode_of(m, "file");
        m.set_u64(at, TRANSACTION, 1 << 40);
        let (found, most) = (Generation(1 << 40), m.superblock.generation.next());
        only(FindingKind::Item { fault: InodeFault::Transaction { found, most }.into() }, place(FS, at))
    }),
    ("inode mode", |m| {
        let at = inode_of(m, "file");
        let found = Mode(u32_at(m, at, MODE) | 1 << 20);
        m.add_u32(at, MODE, 1 << 20);
        only(FindingKind::Item { fault: InodeFault::ModeBits { found }.into() }, place(FS, at))
    }),
    ("inode type", |m| {
        let found = inode_of(m, "name-5");
        m.add_u32(found, MODE, 0o010_000u32.wrapping_sub(0o100_000));
        let inode = found.key.objectid;
        let ((in_index, names), (in_inode, _)) = (name_of(inode, NOT_IN_INODE), name_of(inode, NOT_IN_INDEX));
        only(
            FindingKind::InodeOddItem { inode, file_type: FileType::Fifo },
            place(FS, of(m, "name-5", Type::EXTENT_DATA)),
        )
        .and(in_index, names)
        .and(in_inode, names)
    }),
    ("inode flags", |m| {
        let at = inode_of(m, "file");
        m.set_u64(at, FLAGS, 1 << 20);
        only(
            FindingKind::Item { fault: InodeFault::IncompatibleFlags { found: InodeFlags(1 << 20) }.into() },
            place(FS, at),
        )
    }),
    ("flags of a link", |m| {
        let found = inode_of(m, "link");
        m.set_u64(found, FLAGS, 1 << 6);
        let (inode, flags) = (found.key.objectid, InodeFlags(1 << 6));
        only(FindingKind::InodeOddFlags { inode, flags }, place(FS, found))
    }),
    ("no inode item", |m| {
        let at = inode_of(m, "name-5");
        m.remove(at);
        let before = m.block(at.leaf).key(at.slot - 1).objectid;
        let [reference, extent] = [0, 1].map(|slots| beside(m, at, slots));
        only(
            FindingKind::Item { fault: InodeReferenceFault::MissingInode { found: before }.into() },
            place(FS, reference),
        )
        .and(FindingKind::InodeMissing { inode: at.key.objectid }, place(FS, extent))
    }),
    ("no links, no name and no orphan item", |m| {
        let (found, directory) = (inode_of(m, "name-5"), root_directory(m));
        m.add_u32(found, LINKS, u32::MAX);
        m.remove(of(m, "name-5", Type::INODE_REF));
        m.remove(hashed(m, "name-5"));
        m.remove(indexed(m, "name-5"));
        let size = u64_at(m, directory, SIZE);
        let expected = size - 2 * "name-5".len() as u64;
        let inode = directory.key.objectid;
        only(FindingKind::InodeOrphan { inode: found.key.objectid }, at_key(FS, found.key))
            .and(FindingKind::DirectorySize { inode, found: size, expected }, place(FS, directory))
    }),
    ("no inode reference", |m| {
        let found = inode_of(m, "name-5");
        m.remove(of(m, "name-5", Type::INODE_REF));
        let inode = found.key.objectid;
        let (in_index, names) = name_of(inode, NOT_IN_INODE);
        only(FindingKind::InodeLinks { inode, found: 1, expected: 0 }, place(FS, found)).and(in_index, names)
    }),
    ("reference to another index", |m| {
        m.add_u64(of(m, "name-5", Type::INODE_REF), 0, 5000);
        let inode = inode(m, "name-5");
        let ((in_index, names), (in_inode, _)) = (name_of(inode, NOT_IN_INODE), name_of(inode, NOT_IN_INDEX));
        only(in_index, names).and(in_inode, names)
    }),
    ("extents of a directory", |m| {
        let inode = inode(m, "d");
        let key = FileExtent::key(inode, FileOffset(0));
        m.insert(FS, key, &FileExtent::hole(4096, Generation(5)).encode());
        let kind = FindingKind::InodeOddItem { inode, file_type: FileType::Directory };
        only(kind, place_of(m, FS, key))
    }),
];

#[test]
fn damaged_inodes_are_found() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("setfattr"), Tool("chattr"));
    crate::damage::assert_each_is_found(DAMAGES);
}
