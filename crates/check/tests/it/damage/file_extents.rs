//! The extents of files.

use vlinder_check::FindingKind;
use vlinder_format::file_extent::{CompressionId, ExtentField, FileExtentFault};
use vlinder_format::{ItemType as Type, Logical, Place, RootId};
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::require;

use crate::common::expected::only;
use crate::damage::Damage;
use crate::damage::image::{FS, SECTOR, data_of, in_tree, of, place, range_of, user};

/// Offsets in an extent's item.
const GENERATION: usize = 0;
const RAM_BYTES: usize = 8;
const COMPRESSION: usize = 16;
const OTHER_ENCODING: usize = 18;
const TYPE: usize = 20;
/// Where the bytes of an inline extent begin.
const INLINE_BYTES: usize = 21;
const ADDRESS: usize = 21;
const DISK_BYTES: usize = 29;
const OFFSET: usize = 37;
const FILE_BYTES: usize = 45;

fn extent_of(m: &Mutator, name: &str) -> Found {
    of(m, name, Type::EXTENT_DATA)
}

/// The extent tree says that the file has the extent at an address, and the file does not.
fn extra(extent: Found, logical: Logical) -> (FindingKind, Place) {
    let (user, expected, found) = (user(FS, extent), 0, 1);
    (FindingKind::ReferenceExtra { logical, user, expected, found }, in_tree(RootId::EXTENT_TREE))
}

/// The file has an extent that the extent tree has not.
fn missing(extent: Found, logical: Logical, length: u64) -> (FindingKind, Place) {
    let user = user(FS, extent);
    (FindingKind::ExtentMissing { logical, length, user }, in_tree(RootId::EXTENT_TREE))
}

pub const DAMAGES: &[Damage] = &[
    ("extent address", |m| {
        let at = extent_of(m, "file");
        let range = range_of(m, at);
        m.add_u64(at, ADDRESS, SECTOR);
        let start = Logical(range.address.0 + SECTOR);
        let ((extra, extents), (missing, _)) =
            (extra(at, range.address), missing(at, start, range.disk_bytes));
        let end = Logical(start.0 + range.disk_bytes);
        only(missing, extents)
            .and(extra, extents)
            .and(FindingKind::ChecksumMissing { start, end }, place(FS, at))
    }),
    ("extent address between sectors", |m| {
        let at = extent_of(m, "file");
        let range = range_of(m, at);
        m.add_u64(at, ADDRESS, 1);
        let found = range.address.0 + 1;
        let fault =
            FileExtentFault::Alignment { field: ExtentField::Address, found, sector_size: SECTOR as u32 };
        let ((extra, extents), (missing, _)) =
            (extra(at, range.address), missing(at, Logical(found), range.disk_bytes));
        only(FindingKind::Item { fault: fault.into() }, place(FS, at))
            .and(extra, extents)
            .and(missing, extents)
    }),
    ("extent of a generation to come", |m| {
        let at = extent_of(m, "file");
        let generation = m.superblock.generation.next();
        m.set_u64(at, GENERATION, generation.0);
        only(FindingKind::FileExtentGeneration { inode: at.key.objectid, generation }, place(FS, at))
    }),
    ("extent length on disk", |m| {
        let at = extent_of(m, "file");
        let range = range_of(m, at);
        m.add_u64(at, DISK_BYTES, SECTOR);
        let ((extra, extents), (missing, _)) =
            (extra(at, range.address), missing(at, range.address, range.disk_bytes + SECTOR));
        only(missing, extents).and(extra, extents)
    }),
    ("extent offset", |m| {
        let at = extent_of(m, "file");
        let range = range_of(m, at);
        m.add_u64(at, OFFSET, SECTOR);
        let inode = at.key.objectid;
        let start = Logical(range.address.0 + SECTOR);
        let end = Logical(start.0 + range.disk_bytes);
        // Its first byte would lie before the file's.
        let user = format!("inode {inode} of tree {FS} at offset {}", 0u64.wrapping_sub(SECTOR));
        let (logical, expected, found) = (range.address, 1, 0);
        let (extra, extents) = extra(at, logical);
        only(FindingKind::FileExtentSize { inode, ram_bytes: range.disk_bytes }, place(FS, at))
            .and(FindingKind::ChecksumMissing { start, end }, place(FS, at))
            .and(extra, extents)
            .and(FindingKind::ReferenceMissing { logical, user, expected, found }, extents)
    }),
    ("extent length", |m| {
        let at = extent_of(m, "file");
        let found = range_of(m, at).file_bytes;
        m.add_u64(at, FILE_BYTES, 0u64.wrapping_sub(SECTOR));
        let kind = FindingKind::InodeBytes { inode: at.key.objectid, found, expected: found - SECTOR };
        only(kind, place(FS, of(m, "file", Type::INODE_ITEM)))
    }),
    ("extent type", |m| {
        let at = extent_of(m, "file");
        let (extra, extents) = extra(at, range_of(m, at).address);
        m.change_item(at, |data| data[TYPE] = 7);
        only(FindingKind::Item { fault: FileExtentFault::Type { found: 7 }.into() }, place(FS, at))
            .and(extra, extents)
    }),
    ("extent compression", |m| {
        let at = extent_of(m, "file");
        m.change_item(at, |data| data[COMPRESSION] = 9);
        only(
            FindingKind::Item { fault: FileExtentFault::Compression { found: CompressionId(9) }.into() },
            place(FS, at),
        )
    }),
    ("compressed without checksums", |m| {
        let at = extent_of(m, "nosum");
        m.change_item(at, |data| data[COMPRESSION] = CompressionId::ZLIB.0);
        let (inode, offset) = (at.key.objectid, at.key.offset);
        let reason = "is compressed, in a file without checksums";
        let not_unpacked = "zlib data is damaged at byte 0: the stream is damaged; \
                            its extent cannot be read, restore it from a copy";
        only(FindingKind::FileExtentForm { inode, reason }, place(FS, at)).and(
            FindingKind::DataNotUnpacked { inode, offset, reason: not_unpacked.to_owned() },
            place(FS, at),
        )
    }),
    ("inline length", |m| {
        let at = extent_of(m, "small");
        m.add_u64(at, RAM_BYTES, 1);
        let found = "hello".len() as u64;
        only(
            FindingKind::Item { fault: FileExtentFault::InlineSize { found, expected: found + 1 }.into() },
            place(FS, at),
        )
    }),
    ("another encoding", |m| {
        let at = extent_of(m, "prealloc");
        m.change_item(at, |data| data[OTHER_ENCODING] = 1);
        let reason = "has an encoding that nobody knows";
        only(FindingKind::FileExtentForm { inode: at.key.objectid, reason }, place(FS, at))
    }),
    ("inline without bytes", |m| {
        let (at, inode) = (extent_of(m, "small"), of(m, "small", Type::INODE_ITEM));
        let head = data_of(m, at)[..INLINE_BYTES].to_vec();
        m.remove(at);
        m.insert(FS, at.key, &head);
        m.set_u64(at, RAM_BYTES, 0);
        let number = at.key.objectid;
        let reason = "is inline, and has no bytes";
        let bytes = FindingKind::InodeBytes { inode: number, found: "hello".len() as u64, expected: 0 };
        only(FindingKind::FileExtentForm { inode: number, reason }, place(FS, at))
            .and(bytes, place(FS, inode))
    }),
    ("extent gone", |m| {
        let at = extent_of(m, "file");
        let range = range_of(m, at);
        m.remove(at);
        let kind = FindingKind::InodeBytes { inode: at.key.objectid, found: range.file_bytes, expected: 0 };
        let (extra, extents) = extra(at, range.address);
        only(extra, extents).and(kind, place(FS, of(m, "file", Type::INODE_ITEM)))
    }),
    ("prealloc called written", |m| {
        let at = extent_of(m, "prealloc");
        let range = range_of(m, at);
        m.change_item(at, |data| data[TYPE] = 1);
        let (start, end) = (range.address, Logical(range.address.0 + range.disk_bytes));
        only(FindingKind::ChecksumMissing { start, end }, place(FS, at))
    }),
    ("checksummed file called without", |m| {
        let at = extent_of(m, "file");
        m.set_u64(of(m, "file", Type::INODE_ITEM), 64, 1);
        only(FindingKind::ChecksumOdd { start: range_of(m, at).address }, place(FS, at))
    }),
];

#[test]
fn damaged_extents_of_files_are_found() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("setfattr"), Tool("chattr"));
    crate::damage::assert_each_is_found(DAMAGES);
}
