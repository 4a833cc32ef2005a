use std::collections::BTreeSet;

use vlinder_codec::checksum::ChecksumKind;
use vlinder_format::Uuid;
use vlinder_format::inode::Timestamp;
use vlinder_format::superblock::Label;

use super::*;
use crate::mkfs::raw::{MkfsFeatures, MkfsUuids};

const MEBIBYTE: u64 = 1 << 20;
const DATA_LOGICAL: u64 = 64 << 30;

fn parameters(node_size: u32, data: Profile, metadata: Profile, mixed: bool) -> MkfsParameters {
    let nil = Uuid::NIL;
    MkfsParameters {
        label: Label::new(b"").unwrap(),
        uuids: MkfsUuids { fsid: nil, chunk_tree: nil, device: nil, top_level: nil },
        device_bytes: 0,
        sector_size: 4096,
        node_size,
        checksum_kind: ChecksumKind::Crc32c,
        data_profile: data,
        metadata_profile: metadata,
        features: MkfsFeatures { mixed_groups: mixed, ..MkfsFeatures::default() },
        time: Timestamp::default(),
    }
}

/// Groups of a gibibyte, one behind the other, the last with so many bytes of data.
fn groups(parameters: &MkfsParameters, whole: u64, last_bytes: u64) -> Vec<DataGroup> {
    let length = 1 << 30;
    let copies = u64::from(parameters.data_profile.copies());
    let count = whole + u64::from(last_bytes > 0);
    (0..count)
        .map(|number| {
            let logical = Logical(DATA_LOGICAL + number * length);
            let physical = Physical(MEBIBYTE + number * copies * length);
            let profile = parameters.data_profile;
            let chunk = chunk_at(parameters, BlockGroupFlags::DATA, profile, logical, physical, length);
            let used_bytes = if number < whole { length } else { last_bytes };
            DataGroup { chunk, used_bytes, holes: Vec::new(), end: Logical(logical.0 + used_bytes) }
        })
        .collect()
}

fn judge(parameters: &MkfsParameters, data: &[DataGroup], blocks: &Blocks) {
    let LeastLayout { layout, system_places, metadata_places } = least_layout(parameters, data, blocks);
    let node_bytes = u64::from(parameters.node_size);
    assert_eq!(u64::try_from(system_places.len()).unwrap(), blocks.system);
    assert_eq!(u64::try_from(metadata_places.len()).unwrap(), blocks.metadata);

    let apart = |mut ranges: Vec<(u64, u64)>| {
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{ranges:?}");
    };
    apart(layout.chunks.iter().map(|chunk| (chunk.logical.0, chunk.end().0)).collect());
    let stripes = layout.chunks.iter().flat_map(|chunk| {
        chunk.chunk.stripes.iter().map(|stripe| (stripe.physical.0, stripe.physical.0 + chunk.chunk.length))
    });
    let stripes: Vec<(u64, u64)> = stripes.collect();
    assert!(stripes.iter().all(|(start, end)| *start >= MEBIBYTE && *end <= layout.total_bytes));
    assert!(stripes.iter().any(|(_, end)| *end == layout.total_bytes), "nothing behind the last chunk");
    apart(stripes);
    for chunk in &layout.chunks {
        assert_eq!(chunk.chunk.length % STRIPE_LENGTH, 0);
        assert!(chunk.chunk.stripes.iter().all(|stripe| stripe.physical.0 % STRIPE_LENGTH == 0));
    }

    // Data are where they were, and none of them lies under a superblock copy that it did not avoid before.
    for group in data {
        let chunk = layout.chunks.iter().find(|chunk| chunk.logical == group.chunk.logical).unwrap();
        assert_eq!(chunk.chunk.stripes[0].physical, group.chunk.chunk.stripes[0].physical);
        assert!(group.end <= chunk.end());
        let before = group.chunk.superblock_ranges();
        let in_data = chunk.superblock_ranges().into_iter().filter(|range| range.start < group.end);
        for range in in_data {
            assert!(before.contains(&range), "{range:?} of a group that ends at {}", group.end);
        }
    }

    let mut taken = BTreeSet::new();
    for (places, content) in
        [(&system_places, BlockGroupFlags::SYSTEM), (&metadata_places, BlockGroupFlags::METADATA)]
    {
        for place in places {
            assert!(taken.insert(*place), "{place} twice");
            assert_eq!(place.0 % node_bytes, 0);
            let chunk = layout.chunks.iter().find(|chunk| chunk.contains(*place, node_bytes)).unwrap();
            assert!(chunk.chunk.flags.has(content));
            let excluded = chunk.superblock_ranges();
            assert!(
                !excluded.iter().any(|range| place.0 < range.end.0 && range.start.0 < place.0 + node_bytes)
            );
            assert!(data.iter().all(|group| group.chunk.logical != chunk.logical || group.end <= *place));
        }
    }
    let last = metadata_places.last().unwrap();
    let chunk = layout.chunks.iter().find(|chunk| chunk.contains(*last, 1)).unwrap();
    let free = chunk.end().0 - last.0 - node_bytes;
    assert!(free + node_bytes >= blocks.free_bytes, "{free} bytes stay free");
    assert!(free <= blocks.free_bytes + 8 * STRIPE_LENGTH, "{free} bytes stay free");
}

#[test]
fn chunks_and_places_stay_apart() {
    let mut state = 11_u64;
    let mut next = move |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let profiles = [Profile::Single, Profile::Dup];
    for _ in 0..3000 {
        let is_mixed = next(3) == 0;
        let node_size = if is_mixed { 4096 } else { [4096, 16384, 65536][usize::try_from(next(3)).unwrap()] };
        let metadata = profiles[usize::try_from(next(2)).unwrap()];
        let data = if is_mixed { metadata } else { profiles[usize::try_from(next(2)).unwrap()] };
        let parameters = parameters(node_size, data, metadata, is_mixed);
        // Around the copy at 64 MiB, and elsewhere.
        let last_bytes = match next(4) {
            0 => 0,
            1 => (20 + next(44)) * MEBIBYTE + next(256) * 4096,
            2 => next(16) * 4096,
            _ => next(1 << 18) * 4096,
        };
        let whole = if next(4) == 0 { next(3) } else { 0 };
        let groups = groups(&parameters, whole, last_bytes);
        let most = if next(3) == 0 { 4000 } else { 200 };
        let blocks = Blocks {
            system: 1 + next(4),
            metadata: 9 + next(most),
            free_bytes: (48 + next(600)) * u64::from(node_size),
            free_system_bytes: next(3) * 64 * 1024,
        };
        judge(&parameters, &groups, &blocks);
    }
}

#[test]
fn much_metadata_takes_several_chunks() {
    let parameters = parameters(65536, Profile::Single, Profile::Single, false);
    let groups = groups(&parameters, 1, 5 * MEBIBYTE);
    let blocks = Blocks { system: 2, metadata: 40_000, free_bytes: 64 << 16, free_system_bytes: 0 };
    judge(&parameters, &groups, &blocks);
    let layout = least_layout(&parameters, &groups, &blocks).layout;
    let metadata = layout.chunks.iter().filter(|chunk| chunk.chunk.flags.has(BlockGroupFlags::METADATA));
    assert_eq!(metadata.count(), 3);
}

/// A device ends where it ends: an image of a given size is never longer, also where its chunks reach a
/// superblock copy, which they have to leave out.
#[test]
fn an_image_is_as_long_as_it_was_asked_to_be() {
    let mut left_out = 0;
    for profile in [Profile::Single, Profile::Dup] {
        for mixed in [false, true] {
            let parameters = parameters(if mixed { 4096 } else { 16384 }, Profile::Single, profile, mixed);
            let blocks = Blocks { system: 1, metadata: 9, free_bytes: 48 << 14, free_system_bytes: 0 };
            for data in (52 * MEBIBYTE..64 * MEBIBYTE).step_by(60 << 10) {
                let groups = groups(&parameters, 0, data);
                let least = least_layout(&parameters, &groups, &blocks);
                for room in (0..20).map(|step| step * (40 << 10)) {
                    let total = least.layout.total_bytes + room;
                    let roomy = super::super::with_room(&blocks, &parameters, room);
                    let needed = least_layout(&parameters, &groups, &roomy).layout.total_bytes;
                    left_out += u32::from(needed > total);
                    let place =
                        super::super::layout_of_size(&parameters, &groups, &blocks, least.clone(), total);
                    assert_eq!(place.layout.total_bytes, total, "{data} and {room}");
                    assert!(place.layout.chunks.iter().all(|chunk| {
                        let ends = chunk.chunk.stripes.iter();
                        ends.map(|stripe| stripe.physical.0 + chunk.chunk.length).all(|end| end <= total)
                    }));
                }
            }
        }
    }
    assert!(left_out > 0, "no layout with room was too long");
}
