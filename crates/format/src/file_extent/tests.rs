use super::*;
use crate::inode::InodeItem;
use crate::key::Key;
use crate::types::{FileOffset, Generation, Logical, ObjectId};
use crate::validate::tests::{assert_fault, assert_sound, check_in_subvolume};
use proptest::prelude::*;

const INODE: ObjectId = ObjectId(257);
const NOW: Generation = Generation(7);

const fn key(offset: u64) -> Key {
    FileExtent::key(INODE, FileOffset(offset))
}

fn with(range: ExtentRange) -> FileExtent<'static> {
    FileExtent::whole(Logical(1 << 20), 8192, NOW).with_range(range)
}

const RANGE: ExtentRange =
    ExtentRange { address: Logical(1 << 20), disk_bytes: 8192, offset_bytes: 0, file_bytes: 8192 };

#[track_caller]
fn refused(extent: &FileExtent<'_>, fault: FileExtentFault) {
    assert_fault(&key(0), &extent.encode(), None, fault);
}

proptest! {
    #[test]
    fn decode_and_encode_are_inverse(bytes in any::<[u8; 32]>(), rest in any::<[u8; 21]>(), extent_type in 0u8..3) {
        let mut item = [&bytes[..], &rest[..]].concat();
        item[20] = extent_type;
        prop_assert_eq!(&FileExtent::decode(&item).unwrap().encode(), &item);
    }

    #[test]
    fn inline_data_are_kept(bytes in proptest::collection::vec(any::<u8>(), 21..300)) {
        let mut item = bytes;
        item[20] = 0;
        prop_assert_eq!(&FileExtent::decode(&item).unwrap().encode(), &item);
    }

    #[test]
    fn the_rules_never_panic(bytes in any::<[u8; 53]>(), before in any::<[u8; 53]>(), extent_type in 0u8..4, offset: u64) {
        let (mut item, mut previous) = (bytes, before);
        item[16..21].copy_from_slice(&[0, 0, 0, 0, extent_type]);
        previous[16..21].copy_from_slice(&[0, 0, 0, 0, extent_type]);
        let _ = check_in_subvolume(&key(offset & !4095), &item, Some((key(0), &previous)));
    }
}

#[test]
fn fields_lie_where_the_format_says() {
    let extent = FileExtent {
        compression: CompressionId::ZSTD,
        ram_bytes: 9,
        content: FileExtentContent::Preallocated(ExtentRange {
            address: Logical(1),
            disk_bytes: 2,
            offset_bytes: 3,
            file_bytes: 4,
        }),
        ..FileExtent::hole(0, NOW)
    };
    let bytes = extent.encode();
    let numbers =
        |from: usize| bytes[from..].as_chunks::<8>().0.iter().map(|chunk| u64::from_le_bytes(*chunk));
    assert_eq!(numbers(0).take(2).collect::<Vec<_>>(), [7, 9]);
    assert_eq!(bytes[16..21], [3, 0, 0, 0, 2]);
    assert_eq!(numbers(21).collect::<Vec<_>>(), [1, 2, 3, 4]);
}

#[test]
fn runs_as_linux_writes_them_pass() {
    let inode = Some((InodeItem::key(INODE), &[][..]));
    assert_sound(&key(0), &FileExtent::inline(b"hello", NOW).encode(), inode);
    let packed =
        FileExtent { compression: CompressionId::ZLIB, ram_bytes: 4096, ..FileExtent::inline(b"xyz", NOW) };
    assert_sound(&key(0), &packed.encode(), inode);
    let first = FileExtent::whole(Logical(1 << 20), 8192, NOW).encode();
    assert_sound(&key(0), &first, inode);
    assert_sound(&key(8192), &FileExtent::hole(1 << 40, NOW).encode(), Some((key(0), &first)));
    assert_sound(
        &key(8192),
        &FileExtent::preallocated(Logical(4096), 4096, NOW).encode(),
        Some((key(0), &first)),
    );
    assert!(
        FileExtent::hole(4096, NOW).is_hole()
            && !FileExtent::preallocated(Logical(4096), 4096, NOW).is_hole()
    );
}

#[test]
fn sizes_and_types_are_those_of_an_extent() {
    let regular = FileExtent::whole(Logical(1 << 20), 8192, NOW).encode();
    assert_fault(&key(0), &regular[..20], None, FileExtentFault::Header { found: 20 });
    assert_fault(&key(0), &regular[..52], None, FileExtentFault::Size { found: 52 });
    let mut unknown = regular;
    unknown[20] = 3;
    assert_fault(&key(0), &unknown, None, FileExtentFault::Type { found: 3 });
    let found = CompressionId(4);
    refused(&FileExtent { compression: found, ..with(RANGE) }, FileExtentFault::Compression { found });
    refused(&FileExtent { encryption: 1, ..with(RANGE) }, FileExtentFault::Encryption { found: 1 });
}

#[test]
fn inline_extents_begin_the_file_and_have_their_size() {
    let inline = FileExtent::inline(b"hello", NOW);
    assert_fault(&key(4096), &inline.encode(), None, FileExtentFault::InlineOffset { found: 4096 });
    for expected in [4, 6, u64::MAX] {
        refused(
            &FileExtent { ram_bytes: expected, ..inline },
            FileExtentFault::InlineSize { found: 5, expected },
        );
    }
    let bomb = FileExtent { ram_bytes: 131_073, compression: CompressionId::ZSTD, ..inline };
    refused(&bomb, FileExtentFault::CompressedSize { ram_bytes: 131_073, disk_bytes: 5 });
}

#[test]
fn every_field_counts_whole_sectors() {
    let fault = |field, found| FileExtentFault::Alignment { field, found, sector_size: 4096 };
    let bytes = with(RANGE).encode();
    assert_fault(&key(512), &bytes, None, fault(ExtentField::FileOffset, 512));
    refused(&FileExtent { ram_bytes: 8191, ..with(RANGE) }, fault(ExtentField::RamBytes, 8191));
    let found = (1 << 20) + 1;
    refused(&with(ExtentRange { address: Logical(found), ..RANGE }), fault(ExtentField::Address, found));
    refused(&with(ExtentRange { disk_bytes: 1, ..RANGE }), fault(ExtentField::DiskBytes, 1));
    refused(&with(ExtentRange { offset_bytes: 2, ..RANGE }), fault(ExtentField::Offset, 2));
    refused(&with(ExtentRange { file_bytes: 3, ..RANGE }), fault(ExtentField::FileBytes, 3));
}

#[test]
fn every_range_has_an_end() {
    let last = u64::MAX - 4095;
    let fault = FileExtentFault::EndOfFile { offset: last, bytes: 8192 };
    assert_fault(&key(last), &with(RANGE).encode(), None, fault);
    for range in [
        ExtentRange { address: Logical(last), ..RANGE },
        ExtentRange { address: Logical(last), disk_bytes: 0, offset_bytes: 0, ..RANGE },
        ExtentRange { offset_bytes: last, ..RANGE },
        ExtentRange { disk_bytes: last, ..RANGE },
    ] {
        let ExtentRange { address, disk_bytes, offset_bytes, file_bytes } = range;
        refused(&with(range), FileExtentFault::EndOfExtent { address, disk_bytes, offset_bytes, file_bytes });
    }
}

#[test]
fn compressed_extents_are_bounded() {
    let packed = |ram_bytes, disk_bytes| FileExtent {
        compression: CompressionId::LZO,
        ram_bytes,
        ..with(ExtentRange { disk_bytes, ..RANGE })
    };
    assert_sound(&key(0), &packed(131_072, 131_072).encode(), None);
    for (ram_bytes, disk_bytes) in [(135_168, 4096), (131_072, 135_168)] {
        refused(&packed(ram_bytes, disk_bytes), FileExtentFault::CompressedSize { ram_bytes, disk_bytes });
    }
}

#[test]
fn runs_follow_their_inode_and_do_not_overlap() {
    let (bytes, other) = (with(RANGE).encode(), ObjectId(256));
    let previous = Some((InodeItem::key(other), &[][..]));
    assert_fault(&key(0), &bytes, previous, FileExtentFault::MissingInode { found: other });

    let fault = FileExtentFault::Overlap { found: 8192, offset: 4096 };
    assert_fault(&key(4096), &bytes, Some((key(0), &bytes)), fault);
    let inline = FileExtent { ram_bytes: 4097, ..FileExtent::inline(&[1; 4097], NOW) }.encode();
    let fault = FileExtentFault::Overlap { found: 8192, offset: 4096 };
    assert_fault(&key(4096), &bytes, Some((key(0), &inline)), fault);
    assert_sound(&key(8192), &bytes, Some((key(0), &inline)));
}
