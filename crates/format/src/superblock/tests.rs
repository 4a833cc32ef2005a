use super::*;
use crate::chunk::{BlockGroupFlags, Chunk, ChunkFault, STRIPE_LENGTH, Stripe};
use crate::features::{CompatReadOnlyFeatures, IncompatFeatures};
use crate::types::{DeviceId, Generation, Level, Logical, Physical, RootId, Uuid};
use proptest::prelude::*;

fn system_chunk() -> Chunk {
    Chunk {
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
    }
}

fn sound() -> Superblock {
    let mut superblock = Superblock::decode(&[0; 4096]).unwrap();
    let (array, size) = SystemChunkArray::of([(Logical(1 << 20), &system_chunk())]).unwrap();
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

/// The fault of a sound superblock after one change.
fn broken(change: impl FnOnce(&mut Superblock)) -> SuperblockFault {
    let mut superblock = sound();
    change(&mut superblock);
    superblock.check_for_read(SuperblockMirror::Primary).unwrap_err()
}

#[test]
fn fields_lie_where_the_format_says() {
    let mut superblock = sound();
    superblock.label = Label::new(b"name").unwrap();
    superblock.generation = Generation(0x1122_3344);
    superblock.checksum_type = 2;
    superblock.global_root_count = 5;
    superblock.backup_roots[3].bytes_used = 0x99;
    let bytes = superblock.encode();
    assert_eq!(&bytes[64..72], b"_BHRfS_M");
    assert_eq!(&bytes[72..76], &[0x44, 0x33, 0x22, 0x11]);
    assert_eq!((bytes[196], bytes[587]), (2, 5));
    assert_eq!(&bytes[299..304], b"name\0");
    assert_eq!(bytes[811 + 8], 228, "the system array begins with a chunk's key");
    assert_eq!(bytes[2859 + 3 * 168 + 104], 0x99);
    assert_eq!(Superblock::decode(&bytes), Ok(superblock));
}

#[test]
fn a_sound_superblock_passes() {
    sound().check_for_read(SuperblockMirror::Primary).unwrap();
    sound().check_for_write().unwrap();
}

#[test]
fn sizes_keep_their_rules() {
    assert_eq!(Superblock::decode(&[0; 4095]), Err(SuperblockFault::Size { found: 4095 }));
    for found in [0, 512, 2048, 4097, 131072] {
        assert_eq!(broken(|s| s.sector_size = found), SuperblockFault::SectorSize { found });
    }
    for found in [0, 2048, 12288, 131072] {
        assert_eq!(broken(|s| s.node_size = found), SuperblockFault::NodeSize { found, sector_size: 4096 });
    }
    assert_eq!(broken(|s| s.leaf_size = 4096), SuperblockFault::LeafSize { found: 4096, node_size: 16384 });
    assert_eq!(broken(|s| s.stripe_size = 0), SuperblockFault::StripeSize { found: 0 });
    assert_eq!(broken(|s| s.bytes_used = 6 * 16384 - 1), SuperblockFault::BytesUsed { found: 6 * 16384 - 1 });
}

#[test]
fn roots_keep_their_rules() {
    assert_eq!(
        broken(|s| s.root_level = Level(8)),
        SuperblockFault::RootLevel { root: "root tree", found: Level(8) }
    );
    assert_eq!(
        broken(|s| s.chunk_root_level = Level(9)),
        SuperblockFault::RootLevel { root: "chunk tree", found: Level(9) }
    );
    assert_eq!(
        broken(|s| s.log_root_level = Level(8)),
        SuperblockFault::RootLevel { root: "log tree", found: Level(8) }
    );
    for (root, change) in [
        ("root tree", (|s| s.root = Logical(1)) as fn(&mut Superblock)),
        ("chunk tree", |s| s.chunk_root = Logical(1)),
        ("log tree", |s| s.log_root = Logical(1)),
    ] {
        assert_eq!(broken(change), SuperblockFault::RootAlignment { root, found: Logical(1) });
    }
}

#[test]
fn identity_keeps_its_rules() {
    assert_eq!(broken(|s| s.magic = 1), SuperblockFault::Magic { found: 1 });
    assert_eq!(broken(|s| s.flags |= 1 << 40), SuperblockFault::Flags { unknown: 1 << 40 });
    assert_eq!(broken(|s| s.checksum_type = 4), SuperblockFault::ChecksumType { found: 4 });
    assert_eq!(broken(|s| s.device_count = 0), SuperblockFault::DeviceCount);
    let (found, expected) = (Uuid([8; 16]), Uuid([7; 16]));
    assert_eq!(broken(|s| s.device_item.fsid = found), SuperblockFault::DeviceFsid { found, expected });
    let changed = |s: &mut Superblock| {
        s.incompat = s.incompat.with(IncompatFeatures::METADATA_UUID);
        s.metadata_uuid = found;
    };
    assert_eq!(broken(changed), SuperblockFault::DeviceFsid { found: expected, expected: found });
    assert_eq!(
        sound().check_for_read(SuperblockMirror::Second),
        Err(SuperblockFault::Location { found: Physical(65536), expected: Physical(64 << 20) })
    );
    let tree = CompatReadOnlyFeatures::BLOCK_GROUP_TREE;
    assert_eq!(broken(|s| s.compat_read_only = tree), SuperblockFault::BlockGroupTreeNeeds);
    let mut with_needs = sound();
    with_needs.compat_read_only = CompatReadOnlyFeatures(0b1011);
    assert_eq!(
        with_needs.check_for_read(SuperblockMirror::Primary),
        Err(SuperblockFault::BlockGroupTreeNeeds)
    );
    with_needs.incompat = with_needs.incompat.with(IncompatFeatures::NO_HOLES);
    with_needs.check_for_read(SuperblockMirror::Primary).unwrap();
}

#[test]
fn the_system_array_keeps_its_rules() {
    for found in [0, 96, 2049, u32::MAX] {
        assert_eq!(broken(|s| s.system_array_size = found), SystemArrayFault::Size { found }.into());
    }
    assert_eq!(broken(|s| s.system_array_size += 1), SystemArrayFault::CutOff { at: 97 }.into());
    assert_eq!(broken(|s| s.system_chunk_array.0[17 + 44] = 2), SystemArrayFault::CutOff { at: 0 }.into());
    let entry = broken(|s| s.system_chunk_array.0[8] = 1);
    assert!(
        matches!(entry, SuperblockFault::SystemArray(SystemArrayFault::Entry { found }) if found.item_type.0 == 1)
    );
    let entry = broken(|s| s.system_chunk_array.0[0] = 1);
    assert!(
        matches!(entry, SuperblockFault::SystemArray(SystemArrayFault::Entry { found }) if found.objectid.0 == 257)
    );
    let data = broken(|s| s.system_chunk_array.0[17 + 24] = 1);
    assert_eq!(data, SystemArrayFault::NotSystem { logical: Logical(1 << 20) }.into());
    let chunk = broken(|s| s.system_chunk_array.0[17 + 16] = 1);
    let source = ChunkFault::StripeLength { found: 65537 };
    assert_eq!(chunk, SystemArrayFault::Chunk { logical: Logical(1 << 20), source }.into());
}

#[test]
fn the_system_array_gives_back_what_it_took_until_it_is_full() {
    let chunk = system_chunk();
    let chunks = |count: u64| (0..count).map(|number| (Logical(number << 20), &chunk)).collect::<Vec<_>>();
    let (array, size) = SystemChunkArray::of(chunks(21)).unwrap();
    assert_eq!(size, 21 * 97);
    let found: Vec<_> = array.iterate(size).map(Result::unwrap).collect();
    assert_eq!(found, (0..21).map(|number| (Logical(number << 20), chunk.clone())).collect::<Vec<_>>());
    assert_eq!(SystemChunkArray::of(chunks(22)), Err(SystemArrayFault::Full { found: 22 * 97 }));
}

#[test]
fn what_may_be_read_may_not_always_be_written() {
    let mut superblock = sound();
    superblock.incompat = superblock.incompat.with(IncompatFeatures::SIMPLE_QUOTA);
    superblock.check_for_read(SuperblockMirror::Primary).unwrap();
    let unknown = IncompatFeatures::SIMPLE_QUOTA;
    assert_eq!(superblock.check_for_write(), Err(SuperblockFault::WriteIncompat { unknown }));
}

#[test]
fn a_mirror_carries_its_own_location_and_checksum() {
    let bytes = sound().encode_with_checksum(SuperblockMirror::Second, |covered| {
        assert_eq!(covered.len(), 4064);
        [covered[16]; 32]
    });
    let copy = Superblock::decode(&bytes).unwrap();
    assert_eq!(copy.checksum, [0; 32], "byte 48 of the location 64 MiB is 0");
    assert_eq!(copy.location, Physical(64 << 20));
    copy.check_for_read(SuperblockMirror::Second).unwrap();
}

#[test]
fn mirrors_need_room_behind_them() {
    assert!(!SuperblockMirror::Second.fits((64 << 20) + 4096));
    assert!(SuperblockMirror::Second.fits((64 << 20) + 4097));
}

#[test]
fn labels_have_bounds() {
    assert_eq!(Label::new(&[b'x'; 255]).unwrap().as_bytes().len(), 255);
    assert_eq!(Label::new(&[b'x'; 256]), Err(LabelFault::Length { found: 256 }));
    assert_eq!(Label::new(b"a\nb"), Err(LabelFault::Byte { found: b'\n' }));
    assert_eq!(Label([b'y'; 256]).as_bytes().len(), 256, "a label on disk may lack its end");
}

proptest! {
    #[test]
    fn bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 4096)) {
        let superblock = Superblock::decode(&bytes).unwrap();
        prop_assert_eq!(&superblock.encode()[..], &bytes[..]);
        for entry in superblock.system_chunks().take(100) {
            let _ = entry;
        }
        prop_assert!(superblock.check_for_read(SuperblockMirror::Primary).is_err());
    }
}
