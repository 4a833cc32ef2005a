//! Rules of the superblock.

use vlinder_format::chunk::{BlockGroupFlags, Chunk, ChunkFault, STRIPE_LENGTH, Stripe};
use vlinder_format::features::{CompatReadOnlyFeatures, IncompatFeatures};
use vlinder_format::superblock::{
    MAGIC, SUPERBLOCK_FLAG_SEEDING, SUPERBLOCK_FLAG_WRITTEN, Superblock, SuperblockFault, SuperblockMirror,
    SystemArrayFault, SystemChunkArray,
};
use vlinder_format::{DeviceId, Generation, Key, Level, Logical, Physical, RootId, Uuid};

use crate::book::Book;

fn sound() -> Superblock {
    let chunk = Chunk {
        length: 4 << 20,
        owner: RootId::EXTENT_TREE,
        stripe_length: STRIPE_LENGTH,
        flags: BlockGroupFlags::SYSTEM,
        io_align: 65536,
        io_width: 65536,
        sector_size: 4096,
        sub_stripes: 1,
        stripes: vec![Stripe {
            device: DeviceId(1),
            physical: Physical(1 << 20),
            device_uuid: Uuid([2; 16]),
        }],
    };
    let mut superblock = Superblock::decode(&[0; 4096]).unwrap();
    let (array, size) = SystemChunkArray::of([(Logical(1 << 20), &chunk)]).unwrap();
    superblock.fsid = Uuid([7; 16]);
    superblock.location = SuperblockMirror::Primary.offset();
    superblock.flags = SUPERBLOCK_FLAG_WRITTEN;
    superblock.magic = MAGIC;
    superblock.generation = Generation(9);
    superblock.root = Logical(5 << 20);
    superblock.chunk_root = Logical(1 << 20);
    superblock.bytes_used = 6 * 16384;
    superblock.device_count = 1;
    superblock.sector_size = 4096;
    superblock.node_size = 16384;
    superblock.leaf_size = 16384;
    superblock.stripe_size = 4096;
    superblock.device_item.fsid = Uuid([7; 16]);
    superblock.system_chunk_array = array;
    superblock.system_array_size = size;
    superblock.incompat = IncompatFeatures::MIXED_BACKREF;
    superblock
}

type Change = fn(&mut Superblock);

/// Changes that keep the rules.
fn passes(change: Change) {
    let mut superblock = sound();
    change(&mut superblock);
    superblock.check_for_read(SuperblockMirror::Primary).unwrap();
}

/// A change that breaks one.
#[track_caller]
fn breaks(book: &mut Book, rule: &'static str, fault: impl Into<SuperblockFault>, change: Change) {
    let fault = fault.into();
    let mut superblock = sound();
    change(&mut superblock);
    assert_eq!(superblock.check_for_read(SuperblockMirror::Primary), Err(fault.clone()), "rule {rule}");
    assert_eq!(superblock.check_for_write(), Err(fault.clone()), "rule {rule}, to be written");
    book.note(rule, &fault.into());
}

pub fn prove(book: &mut Book) {
    passes(|_| {});
    sizes(book);
    roots(book);
    identity(book);
    system_array(book);
    sound().check_for_write().unwrap();
    let mut known = sound();
    known.incompat = known.incompat.with(IncompatFeatures::SIMPLE_QUOTA);
    known.check_for_read(SuperblockMirror::Primary).unwrap();
    let fault = SuperblockFault::WriteIncompat { unknown: IncompatFeatures::SIMPLE_QUOTA };
    assert_eq!(known.check_for_write(), Err(fault.clone()));
    book.note("S18", &fault.into());
}

fn sizes(book: &mut Book) {
    let fault = SuperblockFault::Size { found: 4095 };
    assert_eq!(Superblock::decode(&[0; 4095]), Err(fault.clone()));
    book.note("S1", &fault.into());
    passes(|s| (s.sector_size, s.system_chunk_array.0[17 + 41], s.root) = (8192, 0x20, Logical(8192)));
    breaks(book, "S6", SuperblockFault::SectorSize { found: 0 }, |s| s.sector_size = 0);
    breaks(book, "S6", SuperblockFault::SectorSize { found: 2048 }, |s| s.sector_size = 2048);
    breaks(book, "S6", SuperblockFault::SectorSize { found: 6144 }, |s| s.sector_size = 6144);
    breaks(book, "S6", SuperblockFault::SectorSize { found: 131_072 }, |s| s.sector_size = 131_072);
    passes(|s| (s.node_size, s.leaf_size) = (4096, 4096));
    passes(|s| (s.node_size, s.leaf_size, s.bytes_used) = (65536, 65536, 6 * 65536));
    let node_size = |found| SuperblockFault::NodeSize { found, sector_size: 4096 };
    breaks(book, "S7", node_size(2048), |s| s.node_size = 2048);
    breaks(book, "S7", node_size(12288), |s| s.node_size = 12288);
    breaks(book, "S7", node_size(131_072), |s| s.node_size = 131_072);
    let leaf_size = SuperblockFault::LeafSize { found: 4096, node_size: 16384 };
    breaks(book, "S8", leaf_size, |s| s.leaf_size = 4096);
    breaks(book, "S12", SuperblockFault::BytesUsed { found: 98303 }, |s| s.bytes_used = 98303);
    passes(|s| s.stripe_size = 65536);
    breaks(book, "S13", SuperblockFault::StripeSize { found: 0 }, |s| s.stripe_size = 0);
    breaks(book, "S13", SuperblockFault::StripeSize { found: 4097 }, |s| s.stripe_size = 4097);
}

fn roots(book: &mut Book) {
    passes(|s| (s.root_level, s.chunk_root_level, s.log_root_level) = (Level(7), Level(7), Level(7)));
    let changes: [(&str, Change, Change); 3] = [
        ("root tree", |s| s.root_level = Level(8), |s| s.root = Logical(1)),
        ("chunk tree", |s| s.chunk_root_level = Level(8), |s| s.chunk_root = Logical(1)),
        ("log tree", |s| s.log_root_level = Level(8), |s| s.log_root = Logical(1)),
    ];
    for (root, level, address) in changes {
        breaks(book, "S5", SuperblockFault::RootLevel { root, found: Level(8) }, level);
        breaks(book, "S9", SuperblockFault::RootAlignment { root, found: Logical(1) }, address);
    }
}

fn identity(book: &mut Book) {
    breaks(book, "S2", SuperblockFault::Magic { found: 1 }, |s| s.magic = 1);
    passes(|s| s.flags |= SUPERBLOCK_FLAG_SEEDING);
    breaks(book, "S3", SuperblockFault::Flags { unknown: 1 << 40 }, |s| s.flags |= 1 << 40);
    passes(|s| s.checksum_type = 3);
    breaks(book, "S4", SuperblockFault::ChecksumType { found: 4 }, |s| s.checksum_type = 4);
    let (ours, other) = (Uuid([7; 16]), Uuid([8; 16]));
    breaks(book, "S10", SuperblockFault::DeviceFsid { found: other, expected: ours }, |s| {
        s.device_item.fsid = Uuid([8; 16]);
    });
    // With a metadata UUID the device item carries that one.
    let metadata_uuid: Change = |s| {
        s.incompat = s.incompat.with(IncompatFeatures::METADATA_UUID);
        (s.metadata_uuid, s.device_item.fsid) = (Uuid([8; 16]), Uuid([8; 16]));
    };
    passes(metadata_uuid);
    breaks(book, "S10", SuperblockFault::DeviceFsid { found: ours, expected: other }, |s| {
        s.incompat = s.incompat.with(IncompatFeatures::METADATA_UUID);
        s.metadata_uuid = Uuid([8; 16]);
    });
    block_group_tree(book);
    breaks(book, "S14", SuperblockFault::DeviceCount, |s| s.device_count = 0);
    let elsewhere = SuperblockFault::Location { found: Physical(64 << 20), expected: Physical(64 << 10) };
    breaks(book, "S15", elsewhere, |s| s.location = Physical(64 << 20));
}

fn block_group_tree(book: &mut Book) {
    passes(|s| {
        s.compat_read_only = CompatReadOnlyFeatures(0b1011);
        s.incompat = s.incompat.with(IncompatFeatures::NO_HOLES);
    });
    breaks(book, "S11", SuperblockFault::BlockGroupTreeNeeds, |s| {
        s.compat_read_only = CompatReadOnlyFeatures(0b1011);
    });
    breaks(book, "S11", SuperblockFault::BlockGroupTreeNeeds, |s| {
        s.compat_read_only = CompatReadOnlyFeatures(0b1001);
        s.incompat = s.incompat.with(IncompatFeatures::NO_HOLES);
    });
}

fn system_array(book: &mut Book) {
    breaks(book, "S16", SystemArrayFault::Size { found: 96 }, |s| s.system_array_size = 96);
    breaks(book, "S16", SystemArrayFault::Size { found: 2049 }, |s| s.system_array_size = 2049);
    breaks(book, "S16", SystemArrayFault::CutOff { at: 97 }, |s| s.system_array_size = 98);
    breaks(book, "S16", SystemArrayFault::CutOff { at: 0 }, |s| s.system_chunk_array.0[17 + 44] = 2);
    let key = Key { item_type: vlinder_format::ItemType(1), ..key() };
    breaks(book, "S17", SystemArrayFault::Entry { found: key }, |s| s.system_chunk_array.0[8] = 1);
    let not_system = SystemArrayFault::NotSystem { logical: Logical(1 << 20) };
    breaks(book, "S17", not_system, |s| s.system_chunk_array.0[17 + 24] = 1);
    let source = ChunkFault::StripeLength { found: 65537 };
    let chunk = SystemArrayFault::Chunk { logical: Logical(1 << 20), source };
    breaks(book, "S17", chunk, |s| s.system_chunk_array.0[17 + 16] = 1);
}

fn key() -> Key {
    let objectid = vlinder_format::ObjectId::FIRST_CHUNK_TREE;
    Key::new(objectid, vlinder_format::ItemType::CHUNK_ITEM, 1 << 20)
}
