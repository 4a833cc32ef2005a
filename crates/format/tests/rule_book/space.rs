//! Rules of chunks, devices, block groups, free space and checksums.

use vlinder_format::block_group::{BlockGroupFault, BlockGroupItem};
use vlinder_format::checksum_item::{ChecksumGeometry, ChecksumItemFault};
use vlinder_format::chunk::{BlockGroupFlags, CHUNK_LENGTH_LIMIT, Chunk, ChunkFault, STRIPE_LENGTH, Stripe};
use vlinder_format::device::{DeviceExtent, DeviceFault, DeviceItem};
use vlinder_format::features::IncompatFeatures;
use vlinder_format::free_space::{FreeSpaceFault, FreeSpaceInfo, bitmap_key, extent_key};
use vlinder_format::raid_stripe::RaidStripeFault;
use vlinder_format::{DeviceId, ItemType, Key, Logical, ObjectId, Physical, RootId, Uuid};

use crate::book::{Book, Leaf};

const START: u64 = 1 << 30;
const LENGTH: u64 = 8 << 20;
/// The last sector of all.
const LAST: u64 = u64::MAX - 4095;

pub fn prove(book: &mut Book) {
    chunks(book);
    chunk_types(book);
    block_groups(book);
    devices(book);
    device_extents(book);
    checksums(book);
    free_space(book);
    free_space_ranges(book);
    raid_stripes(book);
}

fn chunk(flags: BlockGroupFlags, stripes: u64, sub_stripes: u16) -> Chunk {
    let stripe = |number: u64| Stripe {
        device: DeviceId(1),
        physical: Physical(number << 24),
        device_uuid: Uuid([3; 16]),
    };
    Chunk {
        length: LENGTH,
        owner: RootId::EXTENT_TREE,
        stripe_length: STRIPE_LENGTH,
        flags,
        io_align: 65536,
        io_width: 65536,
        sector_size: 4096,
        sub_stripes,
        stripes: (1..=stripes).map(stripe).collect(),
    }
}

const METADATA_DUP: BlockGroupFlags = BlockGroupFlags::METADATA.with(BlockGroupFlags::DUP);

fn chunk_leaf(chunk: &Chunk) -> Leaf {
    let key = Key::new(ObjectId::FIRST_CHUNK_TREE, ItemType::CHUNK_ITEM, START);
    Leaf::new(RootId::CHUNK_TREE, vec![(key, chunk.encode())])
}

/// Where the fields of a chunk lie.
const STRIPE_LENGTH_AT: usize = 16;
const FLAGS_AT: usize = 24;
const SECTOR_SIZE_AT: usize = 40;
const STRIPE_COUNT_AT: usize = 44;
const SECOND_PHYSICAL_AT: usize = 48 + 32 + 8;

fn chunks(book: &mut Book) {
    let sound = chunk_leaf(&chunk(METADATA_DUP, 2, 1));
    let fault = ChunkFault::KeyObject { found: ObjectId(255) };
    book.leaf("C1", &sound, 0, fault, |leaf| leaf.items[0].0.objectid = ObjectId(255));
    for found in [47, 111, 113] {
        let stripe_count = if found == 47 { 1 } else { 2 };
        let fault = ChunkFault::Size { found, expected: Chunk::size(stripe_count), stripe_count };
        book.leaf("C2", &sound, 0, fault, |leaf| leaf.items[0].1.resize(found, 0));
    }
    let count = |found| ChunkFault::StripeCount { found, sub_stripes: 1, flags: METADATA_DUP };
    book.leaf("C3", &sound, 0, count(0), |leaf| {
        leaf.items[0].1[STRIPE_COUNT_AT] = 0;
        leaf.items[0].1.truncate(48);
    });
    book.leaf("C3", &sound, 0, count(1), |leaf| {
        leaf.items[0].1[STRIPE_COUNT_AT] = 1;
        leaf.items[0].1.truncate(80);
    });
    let fault = ChunkFault::Start { logical: Logical(START + 1), sector_size: 4096 };
    book.leaf("C4", &sound, 0, fault, |leaf| leaf.items[0].0.offset += 1);
    let fault = ChunkFault::SectorSize { found: 8192, expected: 4096 };
    book.leaf("C5", &sound, 0, fault, |leaf| leaf.set_u32(0, SECTOR_SIZE_AT, 8192));
    book.passes("C6", &sound, |leaf| leaf.set_u64(0, 0, CHUNK_LENGTH_LIMIT - 4096));
    for found in [0, LENGTH + 1, CHUNK_LENGTH_LIMIT] {
        book.leaf("C6", &sound, 0, ChunkFault::Length { found }, |leaf| leaf.set_u64(0, 0, found));
    }
    let fault = ChunkFault::End { logical: Logical(LAST), length: LENGTH };
    book.leaf("C7", &sound, 0, fault, |leaf| leaf.items[0].0.offset = LAST);
    for found in [0, STRIPE_LENGTH + 1, STRIPE_LENGTH * 2] {
        let fault = ChunkFault::StripeLength { found };
        book.leaf("C8", &sound, 0, fault, |leaf| leaf.set_u64(0, STRIPE_LENGTH_AT, found));
    }
    let fault = ChunkFault::StripeEnd { device: DeviceId(1), physical: Physical(LAST) };
    book.leaf("C11", &sound, 0, fault, |leaf| leaf.set_u64(0, SECOND_PHYSICAL_AT, LAST));
}

fn chunk_types(book: &mut Book) {
    use BlockGroupFlags as Flags;
    let sound = chunk_leaf(&chunk(METADATA_DUP, 2, 1));
    let kinds = [0, 1 << 5, 0b11 << 3 | 1, 1 << 20 | 1, 0b11, 0b110, 0b101, 0b111];
    for found in kinds.map(Flags) {
        let fault = ChunkFault::Flags { found };
        book.leaf("C9", &sound, 0, fault, |leaf| leaf.set_u64(0, FLAGS_AT, found.0));
    }
    let mixed = Flags(0b101).with(Flags::DUP);
    book.passes("C9", &sound, |leaf| {
        leaf.set_u64(0, FLAGS_AT, mixed.0);
        leaf.rules.features.incompat = IncompatFeatures::MIXED_GROUPS;
    });
    // Each profile: a count of stripes that it allows, and one that it does not.
    let profiles: [(Flags, u64, u16, u64, u16); 9] = [
        (Flags(0), 1, 1, 2, 1),
        (Flags::DUP, 2, 1, 3, 1),
        (Flags::RAID0, 1, 1, 0, 1),
        (Flags::RAID1, 2, 1, 3, 1),
        (Flags::RAID1C3, 3, 1, 2, 1),
        (Flags::RAID1C4, 4, 1, 5, 1),
        (Flags::RAID10, 4, 2, 4, 1),
        (Flags::RAID5, 2, 1, 1, 1),
        (Flags::RAID6, 3, 1, 2, 1),
    ];
    for (profile, allowed, sub_stripes, forbidden, odd_sub_stripes) in profiles {
        let flags = Flags::DATA.with(profile);
        let sound = chunk_leaf(&chunk(flags, allowed, sub_stripes));
        let found = u16::try_from(forbidden).unwrap();
        let fault = ChunkFault::StripeCount { found, sub_stripes: odd_sub_stripes, flags };
        book.leaf("C10", &sound, 0, fault, |leaf| {
            leaf.items[0].1 = chunk(flags, forbidden, odd_sub_stripes).encode();
        });
    }
}

fn block_groups(book: &mut Book) {
    let item = BlockGroupItem::new(LENGTH, METADATA_DUP);
    let key = BlockGroupItem::key(Logical(START), LENGTH);
    let sound = Leaf::new(RootId::EXTENT_TREE, vec![(key, item.encode().to_vec())]);
    let fault = BlockGroupFault::Length { found: 0 };
    book.leaf("G1", &sound, 0, fault, |leaf| leaf.items[0].0.offset = 0);
    let fault = BlockGroupFault::Length { found: u64::MAX };
    book.leaf("G1", &sound, 0, fault, |leaf| leaf.items[0].0.offset = u64::MAX);
    for found in [23, 25] {
        let fault = BlockGroupFault::Size { found };
        book.leaf("G2", &sound, 0, fault, |leaf| leaf.items[0].1.resize(found, 0));
    }
    let fault = BlockGroupFault::ChunkObject { found: ObjectId(255) };
    book.leaf("G3", &sound, 0, fault, |leaf| leaf.set_u64(0, 8, 255));
    let fault = BlockGroupFault::Used { found: LENGTH + 1, length: LENGTH };
    book.leaf("G4", &sound, 0, fault, |leaf| leaf.set_u64(0, 0, LENGTH + 1));
    for found in [0, 0b11, 0b110, 0b111, 0b11 << 3 | 1].map(BlockGroupFlags) {
        let fault = BlockGroupFault::Flags { found };
        book.leaf("G5", &sound, 0, fault, |leaf| leaf.set_u64(0, 16, found.0));
    }
    book.passes("G5", &sound, |leaf| leaf.set_u64(0, 16, 0b101));
}

fn devices(book: &mut Book) {
    let item = DeviceItem { device: DeviceId(2), total_bytes: 100, bytes_used: 100, ..DeviceItem::default() };
    let key = DeviceItem::key(DeviceId(2));
    let sound = Leaf::new(RootId::CHUNK_TREE, vec![(key, item.encode().to_vec())]);
    let fault = DeviceFault::KeyObject { found: ObjectId(2) };
    book.leaf("V1", &sound, 0, fault, |leaf| leaf.items[0].0.objectid = ObjectId(2));
    for found in [97, 99] {
        let fault = DeviceFault::Size { found, expected: 98 };
        book.leaf("V2", &sound, 0, fault, |leaf| leaf.items[0].1.resize(found, 0));
    }
    let fault = DeviceFault::DeviceId { found: DeviceId(2), expected: DeviceId(3) };
    book.leaf("V3", &sound, 0, fault, |leaf| leaf.items[0].0.offset = 3);
    let fault = DeviceFault::BytesUsed { bytes_used: 101, total_bytes: 100 };
    book.leaf("V4", &sound, 0, fault, |leaf| leaf.set_u64(0, 16, 101));
}

fn device_extents(book: &mut Book) {
    let extent = DeviceExtent {
        chunk_tree: RootId::CHUNK_TREE,
        chunk_object: ObjectId::FIRST_CHUNK_TREE,
        chunk_offset: Logical(START),
        length: LENGTH,
        chunk_tree_uuid: Uuid::NIL,
    };
    let item = |at| (DeviceExtent::key(DeviceId(1), Physical(at)), extent.encode().to_vec());
    let sound = Leaf::new(RootId::DEVICE_TREE, vec![item(START), item(START + LENGTH)]);
    for found in [47, 49] {
        let fault = DeviceFault::Size { found, expected: 48 };
        book.leaf("V5", &sound, 0, fault, |leaf| leaf.items[0].1.resize(found, 0));
    }
    let fault = |tree, object| DeviceFault::ChunkTree { tree: RootId(tree), object: ObjectId(object) };
    book.leaf("V6", &sound, 0, fault(4, 256), |leaf| leaf.set_u64(0, 0, 4));
    book.leaf("V6", &sound, 0, fault(3, 257), |leaf| leaf.set_u64(0, 8, 257));
    let odd = |physical, length, chunk| DeviceFault::Alignment { physical, length, chunk: Logical(chunk) };
    book.leaf("V7", &sound, 0, odd(START, LENGTH, 1), |leaf| leaf.set_u64(0, 16, 1));
    book.leaf("V7", &sound, 0, odd(START, 1, START), |leaf| leaf.set_u64(0, 24, 1));
    book.leaf("V7", &sound, 0, odd(START, 0, START), |leaf| leaf.set_u64(0, 24, 0));
    book.leaf("V7", &sound, 0, odd(START + 1, LENGTH, START), |leaf| leaf.items[0].0.offset += 1);
    let fault = DeviceFault::Overlap { physical: START, next: START + LENGTH };
    book.leaf("V8", &sound, 1, fault, |leaf| leaf.set_u64(0, 24, LENGTH + 4096));
    let fault = DeviceFault::Overlap { physical: LAST, next: u64::MAX };
    book.leaf("V8", &sound, 1, fault, |leaf| leaf.items[1].0.offset = LAST);
    book.passes("V8", &sound, |leaf| {
        leaf.set_u64(0, 24, LENGTH + 4096);
        leaf.items[1].0.objectid = ObjectId(2);
    });
}

fn checksums(book: &mut Book) {
    let item = |start| (ChecksumGeometry::key(Logical(start)), vec![0; 8]);
    let sound = Leaf::new(RootId::CHECKSUM_TREE, vec![item(START), item(START + 8192)]);
    let fault = ChecksumItemFault::KeyObject { found: ObjectId(3) };
    book.leaf("K1", &sound, 0, fault, |leaf| leaf.items[0].0.objectid = ObjectId(3));
    let fault = ChecksumItemFault::Start { found: Logical(START + 1) };
    book.leaf("K2", &sound, 0, fault, |leaf| leaf.items[0].0.offset += 1);
    for found in [0, 7] {
        let fault = ChecksumItemFault::Size { found, checksum_size: 4 };
        book.leaf("K3", &sound, 0, fault, |leaf| leaf.items[0].1.truncate(found));
    }
    let fault = ChecksumItemFault::Overlap { start: Logical(START), limit: Logical(START + 8192) };
    book.leaf("K4", &sound, 1, fault, |leaf| leaf.items[0].1.resize(12, 0));
    let fault = ChecksumItemFault::Overlap { start: Logical(LAST), limit: Logical(u64::MAX) };
    book.leaf("K4", &sound, 1, fault, |leaf| leaf.items[1].0.offset = LAST);
}

fn free_space_leaf() -> Leaf {
    let info = FreeSpaceInfo { extent_count: 2048, flags: 0 }.encode().to_vec();
    let items = vec![
        (FreeSpaceInfo::key(Logical(START), LENGTH), info),
        (extent_key(Logical(START), 4096), vec![]),
        (extent_key(Logical(START + 8192), 4096), vec![]),
    ];
    Leaf::new(RootId::FREE_SPACE_TREE, items)
}

fn free_space(book: &mut Book) {
    let sound = free_space_leaf();
    for found in [7, 9] {
        let fault = FreeSpaceFault::Size { found, expected: 8 };
        book.leaf("F1", &sound, 0, fault, |leaf| leaf.items[0].1.resize(found, 0));
    }
    let fault = FreeSpaceFault::Flags { found: 2 };
    book.leaf("F2", &sound, 0, fault, |leaf| leaf.set_u32(0, 4, 2));
    let fault = FreeSpaceFault::ExtentCount { found: 2049, sectors: 2048 };
    book.leaf("F3", &sound, 0, fault, |leaf| leaf.set_u32(0, 0, 2049));
    let fault = FreeSpaceFault::Size { found: 1, expected: 0 };
    book.leaf("F5", &sound, 1, fault, |leaf| leaf.items[1].1.push(0));
    let mut bitmaps = free_space_leaf();
    bitmaps.set_u32(0, 4, 1);
    bitmaps.items.truncate(1);
    bitmaps.items.push((bitmap_key(Logical(START), LENGTH), vec![0; 256]));
    for found in [255, 257] {
        let fault = FreeSpaceFault::Size { found, expected: 256 };
        book.leaf("F6", &bitmaps, 1, fault, |leaf| leaf.items[1].1.resize(found, 0));
    }
    let fault = FreeSpaceFault::BitmapLength { found: LENGTH + 4096 };
    book.leaf("F6", &bitmaps, 1, fault, |leaf| {
        leaf.items[0].0.offset = 2 * LENGTH;
        leaf.items[1].0.offset = LENGTH + 4096;
    });
}

fn free_space_ranges(book: &mut Book) {
    let sound = free_space_leaf();
    for (slot, start, length) in
        [(2, START + 8193, 4096), (2, START + 8192, 4097), (2, START + 8192, 0), (2, LAST, 4096)]
    {
        let fault = FreeSpaceFault::Range { start: Logical(start), length };
        book.leaf("F4", &sound, slot, fault, |leaf| leaf.items[slot].0 = extent_key(Logical(start), length));
    }
    let fault = FreeSpaceFault::Range { start: Logical(START), length: LENGTH + 1 };
    book.leaf("F4", &sound, 0, fault, |leaf| leaf.items[0].0.offset += 1);
    let (start, previous_end) = (Logical(START + 8192), Logical(START + 12288));
    let fault = FreeSpaceFault::Overlap { start, previous_end };
    book.leaf("F7", &sound, 2, fault, |leaf| leaf.items[1].0.offset = 12288);
}

fn raid_stripes(book: &mut Book) {
    let key = Key::new(ObjectId(START), ItemType::RAID_STRIPE, 4096);
    let mut sound = Leaf::new(RootId::RAID_STRIPE_TREE, vec![(key, vec![0; 32])]);
    sound.rules.features.incompat = IncompatFeatures::RAID_STRIPE_TREE;
    let fault = RaidStripeFault::Start { found: Logical(START + 1) };
    book.leaf("T1", &sound, 0, fault, |leaf| leaf.items[0].0.objectid.0 += 1);
    book.leaf("T2", &sound, 0, RaidStripeFault::Feature, |leaf| {
        leaf.rules.features.incompat = IncompatFeatures::NONE;
    });
    for found in [0, 31] {
        let fault = RaidStripeFault::Size { found };
        book.leaf("T3", &sound, 0, fault, |leaf| leaf.items[0].1.truncate(found));
    }
}
