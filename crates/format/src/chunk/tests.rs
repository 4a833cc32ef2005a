use super::*;
use proptest::prelude::*;

fn chunk(flags: BlockGroupFlags, stripes: u64) -> Chunk {
    Chunk {
        length: 8 << 20,
        owner: RootId::EXTENT_TREE,
        stripe_length: STRIPE_LENGTH,
        flags,
        io_align: 65536,
        io_width: 65536,
        sector_size: 4096,
        sub_stripes: 1,
        stripes: (0..stripes)
            .map(|number| Stripe {
                device: DeviceId(1),
                physical: Physical((1 + number) << 24),
                device_uuid: Uuid([3; 16]),
            })
            .collect(),
    }
}

fn dup() -> Chunk {
    chunk(BlockGroupFlags::METADATA.with(BlockGroupFlags::DUP), 2)
}

#[test]
fn a_sound_chunk_passes_and_comes_back() {
    let sound = dup();
    sound.check(Logical(1 << 20), 4096, false).unwrap();
    assert_eq!(sound.encode().len(), 48 + 64);
    assert_eq!(Chunk::decode(&sound.encode()), Ok(sound));
}

#[test]
fn each_rule_has_its_fault() {
    let at = Logical(1 << 20);
    let broken = |change: fn(&mut Chunk)| {
        let mut chunk = dup();
        change(&mut chunk);
        chunk.check(at, 4096, false).unwrap_err()
    };
    assert_eq!(
        dup().check(Logical(100), 4096, false),
        Err(ChunkFault::Start { logical: Logical(100), sector_size: 4096 })
    );
    assert_eq!(broken(|c| c.sector_size = 512), ChunkFault::SectorSize { found: 512, expected: 4096 });
    assert_eq!(broken(|c| c.length = 0), ChunkFault::Length { found: 0 });
    assert_eq!(broken(|c| c.length = 5000), ChunkFault::Length { found: 5000 });
    assert_eq!(broken(|c| c.length = CHUNK_LENGTH_LIMIT), ChunkFault::Length { found: CHUNK_LENGTH_LIMIT });
    assert_eq!(CHUNK_LENGTH_LIMIT, 65536 * (u64::from(u32::MAX)));
    assert_eq!(broken(|c| c.stripe_length = 4096), ChunkFault::StripeLength { found: 4096 });
    let flags = BlockGroupFlags::METADATA.with(BlockGroupFlags::DUP);
    assert_eq!(
        broken(|c| c.stripes.truncate(1)),
        ChunkFault::StripeCount { found: 1, sub_stripes: 1, flags }
    );
    assert_eq!(broken(|c| c.stripes.clear()), ChunkFault::StripeCount { found: 0, sub_stripes: 1, flags });
    assert_eq!(
        broken(|c| c.stripes[1].physical = Physical(u64::MAX - 5)),
        ChunkFault::StripeEnd { device: DeviceId(1), physical: Physical(u64::MAX - 5) }
    );
    let last = Logical(u64::MAX - 4095);
    assert_eq!(dup().check(last, 4096, false), Err(ChunkFault::End { logical: last, length: 8 << 20 }));
}

#[test]
fn types_are_one_content_with_one_profile() {
    let at = Logical(1 << 20);
    let mixed = chunk(BlockGroupFlags(0b101), 1);
    assert_eq!(mixed.check(at, 4096, false), Err(ChunkFault::Flags { found: mixed.flags }));
    mixed.check(at, 4096, true).unwrap();
    for bits in [0, 0b11, 0b110, 1 << 5, 0b11 << 3 | 1, 1 << 20 | 1, 1 << 11 | 1, 1 << 48 | 1] {
        let odd = chunk(BlockGroupFlags(bits), 2);
        assert_eq!(odd.check(at, 4096, true), Err(ChunkFault::Flags { found: odd.flags }), "{bits:x}");
    }
}

#[test]
fn profiles_say_how_often_they_store_a_byte() {
    use BlockGroupFlags as Flags;
    let copies = |profile: Flags| Flags::DATA.with(profile).copies();
    let single = [Flags(0), Flags::RAID0, Flags::RAID5, Flags::RAID6];
    assert_eq!(single.map(copies), [1; 4]);
    assert_eq!([Flags::DUP, Flags::RAID1, Flags::RAID10].map(copies), [2; 3]);
    assert_eq!([Flags::RAID1C3, Flags::RAID1C4].map(copies), [3, 4]);
    assert_eq!(copies(Flags::DUP.with(Flags::RAID1C4)), 1, "more than one profile");
}

#[test]
fn stripe_counts_fit_profiles() {
    type Legal = fn(u64) -> bool;
    let legal: [(BlockGroupFlags, Legal); 9] = [
        (BlockGroupFlags(0), |n| n == 1),
        (BlockGroupFlags::DUP, |n| n == 2),
        (BlockGroupFlags::RAID0, |n| n >= 1),
        (BlockGroupFlags::RAID1, |n| n == 2),
        (BlockGroupFlags::RAID1C3, |n| n == 3),
        (BlockGroupFlags::RAID1C4, |n| n == 4),
        (BlockGroupFlags::RAID10, |n| n >= 2 && n % 2 == 0),
        (BlockGroupFlags::RAID5, |n| n >= 2),
        (BlockGroupFlags::RAID6, |n| n >= 3),
    ];
    for (profile, expected) in legal {
        for count in 0..8 {
            let mut odd = chunk(BlockGroupFlags::DATA.with(profile), count);
            odd.sub_stripes = if profile == BlockGroupFlags::RAID10 { 2 } else { 1 };
            assert_eq!(
                odd.check(Logical(1 << 20), 4096, false).is_ok(),
                expected(count),
                "{profile} {count}"
            );
        }
    }
}

#[test]
fn items_are_judged_with_their_key() {
    let mut rules = crate::validate::LeafRules {
        sector_size: 4096,
        node_size: 16384,
        checksum_size: 4,
        generation: crate::types::Generation(1),
        features: crate::features::Features::default(),
        writable: true,
    };
    let mixed = chunk(BlockGroupFlags(0b101), 1);
    let key = Key::new(ObjectId::FIRST_CHUNK_TREE, crate::key::ItemType::CHUNK_ITEM, 1 << 20);
    let judge = |rules: &crate::validate::LeafRules, key: Key| {
        check(&key, &mixed.encode(), &ItemContext { rules, owner: RootId::CHUNK_TREE, previous: None })
    };
    assert_eq!(judge(&rules, key), Err(ChunkFault::Flags { found: mixed.flags }));
    rules.features.incompat = IncompatFeatures::MIXED_GROUPS;
    judge(&rules, key).unwrap();
    let odd = Key { objectid: ObjectId(1), ..key };
    assert_eq!(judge(&rules, odd), Err(ChunkFault::KeyObject { found: ObjectId(1) }));
}

#[test]
fn types_are_shown_as_progs_do() {
    assert_eq!(BlockGroupFlags(1).to_string(), "DATA|single");
    assert_eq!(BlockGroupFlags(1 << 2 | 1 << 5).to_string(), "METADATA|DUP");
    assert_eq!(BlockGroupFlags(1 | 1 << 20).to_string(), "DATA|UNKNOWN 0x100000|single");
}

proptest! {
    #[test]
    fn bytes_come_back(mut bytes in proptest::collection::vec(any::<u8>(), 48 + 5 * 32), count in 0u16..6) {
        bytes[44..46].copy_from_slice(&count.to_le_bytes());
        bytes.truncate(Chunk::size(count));
        prop_assert_eq!(Chunk::decode(&bytes).unwrap().encode(), bytes);
    }

    #[test]
    fn other_lengths_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        match Chunk::decode(&bytes) {
            Ok(chunk) => prop_assert_eq!(chunk.encode(), bytes),
            Err(ChunkFault::Size { found, expected, .. }) => prop_assert!(found == bytes.len() && found != expected),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}

#[test]
fn sub_stripes_tell_chunks_apart_in_raid10_alone() {
    for (flags, stripes, is_same) in [
        (BlockGroupFlags::SYSTEM.with(BlockGroupFlags::DUP), 2, true),
        (BlockGroupFlags::DATA, 1, true),
        (BlockGroupFlags::DATA.with(BlockGroupFlags::RAID10), 4, false),
    ] {
        let one = chunk(flags, stripes);
        let other = Chunk { sub_stripes: one.sub_stripes ^ 1, ..one.clone() };
        assert_eq!(one.is_same_as(&other), is_same, "{flags:?}");
        assert!(
            one.is_same_as(&one.clone()) && !one.is_same_as(&Chunk { length: one.length * 2, ..one.clone() })
        );
    }
}
