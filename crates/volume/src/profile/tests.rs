use super::*;
use vlinder_format::chunk::{BlockGroupFlags, Chunk, STRIPE_LENGTH};
use vlinder_format::{Physical, RootId, Uuid};

/// A chunk at 1 MiB of 1 MiB, its stripes at the physical starts given, on devices 1, 2, …
fn chunk(profile: Profile, stripes: &[u64]) -> MappedChunk {
    let stripes = stripes
        .iter()
        .zip(1..)
        .map(|(physical, number)| Stripe {
            device: DeviceId(if profile == Profile::Dup { 1 } else { number }),
            physical: Physical(*physical),
            device_uuid: Uuid::NIL,
        })
        .collect();
    let chunk = Chunk {
        length: 1 << 20,
        owner: RootId::EXTENT_TREE,
        stripe_length: STRIPE_LENGTH,
        flags: BlockGroupFlags::DATA.with(profile.flags()),
        io_align: 65536,
        io_width: 65536,
        sector_size: 4096,
        sub_stripes: 1,
        stripes,
    };
    MappedChunk { logical: Logical(1 << 20), chunk, profile }
}

#[test]
fn every_range_of_single_and_dup_lies_right_in_each_copy() {
    for (profile, stripes) in [(Profile::Single, &[5 << 20][..]), (Profile::Dup, &[5 << 20, 9 << 20])] {
        let chunk = chunk(profile, stripes);
        for first in 0..256u64 {
            for last in first..256 {
                let (logical, length) = (Logical((1 << 20) + first * 4096), (last - first + 1) * 4096);
                let written = plan_write(&chunk, logical, length).unwrap();
                assert_eq!((written.writes.len(), written.tolerated_failures), (stripes.len(), 0));
                for (mirror, physical) in stripes.iter().enumerate() {
                    let expected = StripeRange {
                        mirror: mirror as u8,
                        device: DeviceId(1),
                        physical: Physical(physical + first * 4096),
                        start: 0,
                        length,
                    };
                    assert_eq!(plan_read(&chunk, logical, length, mirror as u8).unwrap(), [expected]);
                    let role = if mirror == 0 { WriteRole::Data } else { WriteRole::Copy };
                    assert_eq!(written.writes[mirror], PlannedWrite { place: expected, role });
                }
            }
        }
    }
}

#[test]
fn ranges_outside_and_copies_that_are_not_there_are_refused() {
    let chunk = chunk(Profile::Dup, &[5 << 20, 9 << 20]);
    for (logical, length) in
        [((1 << 20) - 1, 2), (1 << 20, (1 << 20) + 1), (2 << 20, 1), (u64::MAX, 2), (1 << 20, 0)]
    {
        let refused = VolumeError::Unmapped { logical: Logical(logical), length };
        assert_eq!(plan_read(&chunk, Logical(logical), length, 0), Err(refused.clone()));
        assert_eq!(plan_write(&chunk, Logical(logical), length), Err(refused));
    }
    let refused = VolumeError::Unmapped { logical: Logical(1 << 20), length: 1 };
    assert_eq!(plan_read(&chunk, Logical(1 << 20), 1, 2), Err(refused));
}

#[test]
fn other_profiles_are_not_written() {
    for profile in Profile::ALL.into_iter().filter(|profile| !profile.is_writable()) {
        let chunk = chunk(profile, &[5 << 20, 9 << 20, 13 << 20, 17 << 20]);
        let refused = VolumeError::UnsupportedProfile { profile, operation: "writing" };
        assert_eq!(plan_write(&chunk, Logical(1 << 20), 1), Err(refused.clone()));
        assert!(refused.to_string().contains(profile.name()));
    }
}

#[test]
fn superblocks_under_any_copy_are_left_out() {
    let mebibyte = 1u64 << 20;
    let none = chunk(Profile::Single, &[65 * mebibyte]);
    assert_eq!(none.superblock_ranges(), []);
    let at = |start: u64| Logical(mebibyte + start)..Logical(mebibyte + start + 65536);
    let first = chunk(Profile::Single, &[64 * mebibyte]);
    assert_eq!(first.superblock_ranges(), [at(0)]);
    let both = chunk(Profile::Dup, &[64 * mebibyte - 65536, 63 * mebibyte + 65536]);
    assert_eq!(both.superblock_ranges(), [at(65536), at(mebibyte - 65536)]);
    let twice = chunk(Profile::Dup, &[64 * mebibyte, 64 * mebibyte]);
    assert_eq!(twice.superblock_ranges(), [at(0)]);
}

/// Whether some way to each stripe of the chunk goes over devices that are there.
fn is_planned(chunk: &MappedChunk, is_there: impl Fn(DeviceId) -> bool) -> bool {
    let all_there = |parts: &[StripeRange]| parts.iter().all(|part| is_there(part.device));
    (0..chunk.chunk.length / STRIPE_LENGTH).all(|stripe| {
        let logical = Logical(chunk.logical.0 + stripe * STRIPE_LENGTH);
        (0..reconstructions(chunk)).any(|reconstruction| {
            match plan_rebuild(chunk, logical, 4096, reconstruction).unwrap() {
                Some(rebuilds) => rebuilds.iter().all(|rebuild| {
                    let parts: Vec<StripeRange> = rebuild.sources.iter().map(|(_, part)| *part).collect();
                    all_there(&parts)
                }),
                None => all_there(&plan_read(chunk, logical, 4096, reconstruction).unwrap()),
            }
        })
    })
}

#[test]
fn a_chunk_is_readable_where_every_stripe_has_a_way() {
    let mut judged = 0;
    for profile in Profile::ALL {
        let counts = match profile {
            Profile::Single => 1..=1,
            Profile::Dup | Profile::Raid1 => 2..=2,
            Profile::Raid1c3 => 3..=3,
            Profile::Raid1c4 => 4..=4,
            Profile::Raid0 => 1..=6,
            Profile::Raid10 | Profile::Raid5 => 2..=6,
            Profile::Raid6 => 3..=6,
        };
        for count in counts.filter(|count| profile != Profile::Raid10 || count % 2 == 0) {
            let places: Vec<u64> = (0..count).map(|number| (8 + number) << 20).collect();
            let chunk = chunk(profile, &places);
            for missing in 0..1u64 << count {
                let is_there = |device: DeviceId| missing >> (device.0 - 1) & 1 == 0;
                assert_eq!(
                    is_readable(&chunk, is_there),
                    is_planned(&chunk, is_there),
                    "{profile} of {count}, missing {missing:b}"
                );
                judged += 1;
            }
        }
    }
    assert_eq!(judged, 2 + 2 * 4 + 8 + 16 + 126 + (4 + 16 + 64) + 124 + 120);
}
