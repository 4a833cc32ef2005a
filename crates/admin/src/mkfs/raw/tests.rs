use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;
use vlinder_codec::checksum::ChecksumKind;
use vlinder_device::{Device, DeviceExt, MemoryDevice};
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_format::inode::Timestamp;
use vlinder_format::superblock::{Label, Superblock, SuperblockMirror};
use vlinder_format::{Logical, Uuid};
use vlinder_volume::{Access, Profile, SuperblockChoice, Volume, superblock::valid_copies};

use super::*;

const MEBIBYTE: u64 = 1 << 20;
const GIBIBYTE: u64 = 1 << 30;

fn parameters(device_bytes: u64) -> MkfsParameters {
    MkfsParameters {
        label: Label::new(b"label").unwrap(),
        uuids: MkfsUuids {
            fsid: Uuid([1; 16]),
            chunk_tree: Uuid([2; 16]),
            device: Uuid([3; 16]),
            top_level: Uuid([4; 16]),
        },
        device_bytes,
        sector_size: 4096,
        node_size: 16384,
        checksum_kind: ChecksumKind::Crc32c,
        data_profile: Profile::Single,
        metadata_profile: Profile::Dup,
        features: MkfsFeatures::default(),
        time: Timestamp { seconds: 1_700_000_000, nanoseconds: 5 },
    }
}

/// Each chunk: type, logical MiB, length in stripes of 64 KiB, physical starts in bytes.
type Shape = (BlockGroupFlags, u64, u64, Vec<u64>);

fn shape(parameters: &MkfsParameters) -> Vec<Shape> {
    let chunks = layout::Layout::plan(parameters).unwrap().chunks;
    let one = |chunk: &vlinder_volume::MappedChunk| {
        let places = chunk.chunk.stripes.iter().map(|stripe| stripe.physical.0).collect();
        (chunk.chunk.flags, chunk.logical.0, chunk.chunk.length / 65536, places)
    };
    let mut shape: Vec<Shape> = chunks.iter().map(one).collect();
    shape.sort_by_key(|chunk| chunk.1);
    shape
}

const DATA: BlockGroupFlags = BlockGroupFlags::DATA;
const SYSTEM: BlockGroupFlags = BlockGroupFlags::SYSTEM;
const METADATA: BlockGroupFlags = BlockGroupFlags::METADATA;
const DUP: BlockGroupFlags = BlockGroupFlags::DUP;

#[test]
fn dup_metadata_lies_where_mkfs_btrfs_puts_it() {
    // (device, metadata length in 64 KiB, its second copy), read from images of mkfs.btrfs 6.2.
    let observed = [
        (109 * MEBIBYTE, 512, 72351744),
        (500 * MEBIBYTE, 512, 72351744),
        (GIBIBYTE, 819, 92471296),
        (2 * GIBIBYTE, 1638, 146145280),
        (3 * GIBIBYTE, 4096, 307232768),
        (50 * GIBIBYTE, 4096, 307232768),
        (51 * GIBIBYTE, 16384, 1112539136),
        (10240 * GIBIBYTE, 16384, 1112539136),
    ];
    for (device_bytes, length, second) in observed {
        let expected: Vec<Shape> = vec![
            (DATA, 13631488, 128, vec![13631488]),
            (SYSTEM.with(DUP), 22020096, 128, vec![22020096, 30408704]),
            (METADATA.with(DUP), 30408704, length, vec![38797312, second]),
        ];
        assert_eq!(shape(&parameters(device_bytes)), expected, "{device_bytes}");
    }
}

#[test]
fn single_metadata_lies_where_mkfs_btrfs_puts_it() {
    for device_bytes in [45 * MEBIBYTE, GIBIBYTE, 100 * GIBIBYTE] {
        let single = MkfsParameters { metadata_profile: Profile::Single, ..parameters(device_bytes) };
        let expected: Vec<Shape> = vec![
            (SYSTEM, 1048576, 64, vec![1048576]),
            (METADATA, 5242880, 128, vec![5242880]),
            (DATA, 13631488, 128, vec![13631488]),
        ];
        assert_eq!(shape(&single), expected);
    }
}

#[test]
fn dup_data_lies_where_mkfs_btrfs_puts_them() {
    // (device, metadata length, its second copy, data's logical start, length, copies)
    let observed = [
        (300 * MEBIBYTE, 512, 72351744, 63963136, 1024, [105906176, 173015040]),
        (GIBIBYTE, 819, 92471296, 84082688, 1024, [146145280, 213254144]),
        (5 * GIBIBYTE, 4096, 307232768, 298844160, 4096, [575668224, 844103680]),
        (20 * GIBIBYTE, 4096, 307232768, 298844160, 16384, [575668224, 1649410048]),
        (60 * GIBIBYTE, 16384, 1112539136, 1104150528, 16384, [2186280960, 3260022784]),
    ];
    for (device_bytes, metadata, second, logical, length, copies) in observed {
        let both = MkfsParameters { data_profile: Profile::Dup, ..parameters(device_bytes) };
        let expected: Vec<Shape> = vec![
            (SYSTEM.with(DUP), 22020096, 128, vec![22020096, 30408704]),
            (METADATA.with(DUP), 30408704, metadata, vec![38797312, second]),
            (DATA.with(DUP), logical, length, copies.to_vec()),
        ];
        assert_eq!(shape(&both), expected, "{device_bytes}");
    }
    let alone = MkfsParameters {
        data_profile: Profile::Dup,
        metadata_profile: Profile::Single,
        ..parameters(20 * GIBIBYTE)
    };
    assert_eq!(shape(&alone)[2], (DATA.with(DUP), 22020096, 16384, vec![22020096, 1095761920]));
}

fn mixed(device_bytes: u64, profile: Profile) -> MkfsParameters {
    let features = MkfsFeatures { mixed_groups: true, ..MkfsFeatures::default() };
    MkfsParameters {
        features,
        node_size: 4096,
        data_profile: profile,
        metadata_profile: profile,
        ..parameters(device_bytes)
    }
}

#[test]
fn mixed_groups_lie_where_mkfs_btrfs_puts_them() {
    let both = DATA.with(METADATA);
    let expected: Vec<Shape> =
        vec![(SYSTEM, 1048576, 64, vec![1048576]), (both, 5242880, 128, vec![5242880])];
    assert_eq!(shape(&mixed(16 * MEBIBYTE, Profile::Single)), expected);
    let expected: Vec<Shape> = vec![
        (SYSTEM.with(DUP), 13631488, 128, vec![13631488, 22020096]),
        (both.with(DUP), 22020096, 4096, vec![30408704, 298844160]),
    ];
    assert_eq!(shape(&mixed(5 * GIBIBYTE, Profile::Dup)), expected);
}

#[test]
fn devices_that_are_too_small_are_refused_with_what_is_needed() {
    let (dup, single) = (Profile::Dup, Profile::Single);
    let with =
        |data_profile, metadata_profile| MkfsParameters { data_profile, metadata_profile, ..parameters(0) };
    // The first four are what mkfs.btrfs 6.2 demands; it has no demand that mixed DUP groups keep to.
    for (parameters, needed) in [
        (with(single, dup), 114294784),
        (with(dup, dup), 240123904),
        (with(dup, single), 173015040),
        (with(single, single), 45 * MEBIBYTE),
        (mixed(0, single), 16 * MEBIBYTE),
        (mixed(0, dup), 30408704 + 2 * 64 * MEBIBYTE),
    ] {
        assert_eq!(smallest_device(&parameters), Ok(needed));
        let short = MkfsParameters { device_bytes: needed - 1, ..parameters.clone() };
        let refused = make(&short).unwrap_err();
        let ParameterError::DeviceTooSmall { found, needed: said, smaller, .. } = &refused else {
            panic!("{refused}")
        };
        assert_eq!((*found, *said), (needed - 1, needed));
        assert!(smaller.iter().all(|(_, size)| *size < needed), "{refused}");
        let image = make(&MkfsParameters { device_bytes: needed, ..parameters }).unwrap();
        let end = image.blocks.iter().map(|(place, bytes)| place.0 + bytes.len() as u64).max().unwrap();
        assert!(end <= needed);
    }
}

#[test]
fn parameters_that_do_not_fit_together_are_refused() {
    let refused = |change: fn(&mut MkfsParameters)| {
        let mut parameters = parameters(GIBIBYTE);
        change(&mut parameters);
        make(&parameters).unwrap_err()
    };
    assert_eq!(refused(|p| p.sector_size = 512), ParameterError::SectorSize { found: 512 });
    assert_eq!(refused(|p| p.node_size = 2048), ParameterError::NodeSize { found: 2048, sector_size: 4096 });
    assert_eq!(
        refused(|p| p.node_size = 12288),
        ParameterError::NodeSize { found: 12288, sector_size: 4096 }
    );
    assert_eq!(
        refused(|p| p.node_size = 131072),
        ParameterError::NodeSize { found: 131072, sector_size: 4096 }
    );
    assert_eq!(
        refused(|p| p.data_profile = Profile::Raid1),
        ParameterError::Profile { found: Profile::Raid1 }
    );
    assert_eq!(refused(|p| p.features.no_holes = false), ParameterError::BlockGroupTreeNeeds);
    assert_eq!(refused(|p| p.features.free_space_tree = false), ParameterError::BlockGroupTreeNeeds);
    let profiles = ParameterError::MixedProfiles { data: Profile::Single, metadata: Profile::Dup };
    assert_eq!(refused(|p| p.features.mixed_groups = true), profiles);
    let one_profile = |p: &mut MkfsParameters| {
        p.features.mixed_groups = true;
        p.data_profile = Profile::Dup;
    };
    assert_eq!(refused(one_profile), ParameterError::MixedNodeSize { node_size: 16384, sector_size: 4096 });
}

#[test]
fn every_tree_block_is_there_in_every_copy_and_the_volume_opens() {
    for node_size in [4096, 8192, 16384, 32768, 65536] {
        for profile in [Profile::Single, Profile::Dup] {
            let parameters =
                MkfsParameters { node_size, metadata_profile: profile, ..parameters(200 * MEBIBYTE + 100) };
            let image = make(&parameters).unwrap();
            let blocks = image.superblock.bytes_used / u64::from(node_size);
            assert_eq!(image.blocks.len() as u64, blocks * u64::from(profile.copies()));
            let expected = if node_size == 4096 { 12 } else { 10 };
            assert_eq!(blocks, expected, "a root tree of 4 KiB nodes with every feature has three blocks");
            let device = MemoryDevice::new(parameters.device_bytes);
            image.write_to(&device).unwrap();
            let device: Arc<dyn Device> = Arc::new(device);
            let generation = FIRST_GENERATION;
            let copies = [SuperblockMirror::Primary, SuperblockMirror::Second];
            assert_eq!(valid_copies(&*device), copies.map(|copy| (copy, generation)));
            let opened = Volume::open(vec![device], SuperblockChoice::Automatic, Access::ReadOnly).unwrap();
            let found = opened.superblock;
            assert_eq!(
                Superblock { checksum: image.superblock.checksum, ..found },
                image.superblock,
                "the superblock comes back"
            );
            assert_eq!(
                opened.volume.members().total_bytes(),
                200 * MEBIBYTE,
                "a part of a sector is left over"
            );
            assert!(opened.volume.chunks().get(image.superblock.chunk_root).is_some());
            assert!(opened.volume.chunks().get(Logical(0)).is_none());
        }
    }
}

#[test]
fn the_same_parameters_give_the_same_bytes() {
    let parameters = parameters(GIBIBYTE);
    let (first, second) = (make(&parameters).unwrap(), make(&parameters).unwrap());
    assert_eq!(first.blocks, second.blocks);
    assert_eq!(first.superblocks, second.superblocks);
}

#[test]
fn superblock_copies_behind_the_file_system_are_cleared() {
    let device = MemoryDevice::new(257 * GIBIBYTE);
    let third = SuperblockMirror::Third;
    make(&parameters(257 * GIBIBYTE)).unwrap().write_to(&device).unwrap();
    assert!(valid_copies(&device).iter().any(|(mirror, _)| *mirror == third));
    make(&parameters(128 * MEBIBYTE)).unwrap().write_to(&device).unwrap();
    assert_eq!(device.read_at(third.offset(), 4096).unwrap(), [0; 4096]);
    assert!(valid_copies(&device).iter().all(|(mirror, _)| *mirror != third));
}

#[test]
fn what_was_on_the_device_is_cleared_at_both_ends() {
    let device = MemoryDevice::from_bytes(&vec![0xaa; 128 << 20]);
    make(&parameters(128 * MEBIBYTE)).unwrap().write_to(&device).unwrap();
    let zeros = |start: u64, length: usize| {
        device.read_at(Physical(start), length).unwrap().iter().all(|byte| *byte == 0)
    };
    assert!(zeros(0, 65536) && zeros(65536 + 4096, (2 << 20) - 65536 - 4096));
    assert!(zeros(126 * MEBIBYTE, 2 << 20));
    assert!(!zeros(13 * MEBIBYTE, 4096), "data chunks are left as they are");
}

#[test]
fn a_size_that_is_too_small_is_told_with_what_would_do() {
    let (dup, single) = (Profile::Dup, Profile::Single);
    let told = |data_profile, metadata_profile, mebibytes: u64| {
        let parameters =
            MkfsParameters { data_profile, metadata_profile, ..parameters(mebibytes * MEBIBYTE) };
        make(&parameters).unwrap_err().to_string()
    };
    assert_eq!(
        told(single, dup, 60),
        "62914560 bytes are too few for data single, metadata DUP: 109 MiB are needed; give more, or -m single or --mixed"
    );
    assert!(told(single, dup, 20).ends_with("109 MiB are needed; give more, or --mixed"));
    assert!(
        told(single, dup, 10).ends_with("109 MiB are needed; give more (with --mixed, 16 MiB are enough)")
    );
    assert!(told(single, single, 20).ends_with("45 MiB are needed; give more, or --mixed"));
    assert!(
        told(dup, dup, 120)
            .ends_with("229 MiB are needed; give more, or -d single or -d single -m single or --mixed")
    );
    let least = MkfsParameters { device_bytes: 10 * MEBIBYTE, ..mixed(0, single) };
    assert!(make(&least).unwrap_err().to_string().ends_with("16 MiB are needed; give more"));
}
