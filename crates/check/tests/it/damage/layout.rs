//! Block groups, chunks and devices.

use vlinder_check::FindingKind;
use vlinder_format::chunk::ChunkFault;
use vlinder_format::device::DeviceFault;
use vlinder_format::{DeviceId, ItemType as Type, Logical, Physical, RootId};
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::require;

use crate::common::expected::only;
use crate::damage::Damage;
use crate::damage::image::{NOWHERE, SECTOR, beside, chunk_of, group_of, of, place, range_of, u64_at};

const CHUNKS: RootId = RootId::CHUNK_TREE;
const EXTENTS: RootId = RootId::EXTENT_TREE;
const DEVICES: RootId = RootId::DEVICE_TREE;
/// The one device.
const DEVICE: DeviceId = DeviceId(1);
/// Offsets in items.
const GROUP_USED: usize = 0;
const GROUP_FLAGS: usize = 16;
const CHUNK_LENGTH: usize = 0;
const CHUNK_STRIPE_LENGTH: usize = 16;
const CHUNK_PHYSICAL: usize = 56;
const CHUNK_DEVICE_UUID: usize = 64;
const DEVICE_UUID: usize = 66;
/// The file system's UUID in a device's item.
const DEVICE_FSID: usize = 82;
const DEVICE_BYTES: usize = 8;
const DEVICE_USED: usize = 16;
const DEVICE_EXTENT_CHUNK: usize = 16;
const DEVICE_EXTENT_LENGTH: usize = 24;

/// What follows where a chunk can't be used: nothing can be in it.
const WITHOUT_CHUNK: [&str; 7] = [
    "extent-place",
    "data-checksum",
    "group-without-chunk",
    "group-used",
    "superblock-bytes-used",
    "device-extent-without-stripe",
    "free-space",
];

/// Where the data of `file` lie.
fn data(m: &Mutator) -> Logical {
    range_of(m, of(m, "file", Type::EXTENT_DATA)).address
}

/// The chunk of data, which has one stripe, and where that begins.
fn chunk(m: &Mutator) -> (Found, Logical, Physical) {
    let chunk = chunk_of(m, data(m));
    (chunk, Logical(chunk.key.offset), Physical(u64_at(m, chunk, CHUNK_PHYSICAL)))
}

fn group(m: &Mutator) -> (Found, Logical) {
    let group = group_of(m, data(m));
    (group, Logical(group.key.objectid.0))
}

/// The device extent of that stripe.
fn device_extent(m: &Mutator) -> Found {
    let (.., physical) = chunk(m);
    m.find(DEVICES, |key, _| key.item_type == Type::DEVICE_EXTENT && key.offset == physical.0)
}

fn device_item(m: &Mutator) -> Found {
    m.find_type(CHUNKS, Type::DEVICE_ITEM)
}

/// The stripe of the chunk of data has no device extent at its place.
fn without_extent(logical: Logical, physical: Physical) -> FindingKind {
    FindingKind::StripeWithoutDeviceExtent { logical, device: DEVICE, physical }
}

fn without_stripe(logical: Logical, physical: Physical) -> FindingKind {
    FindingKind::DeviceExtentWithoutStripe { logical, device: DEVICE, physical }
}

pub const DAMAGES: &[Damage] = &[
    ("group's used bytes", |m| {
        let (group, logical) = group(m);
        let expected = u64_at(m, group, GROUP_USED);
        m.add_u64(group, GROUP_USED, SECTOR);
        let kind = FindingKind::GroupUsed { logical, found: expected + SECTOR, expected };
        only(kind, place(EXTENTS, group))
    }),
    ("group's type", |m| {
        let (group, logical) = group(m);
        m.set_u64(group, GROUP_FLAGS, 4);
        only(FindingKind::GroupWithoutChunk { logical }, place(EXTENTS, group))
    }),
    ("group gone", |m| {
        let ((group, _), (chunk, logical, _)) = (group(m), chunk(m));
        m.remove(group);
        only(FindingKind::ChunkWithoutGroup { logical }, place(CHUNKS, chunk))
    }),
    ("stripe elsewhere", |m| {
        let ((chunk, logical, physical), extent) = (chunk(m), device_extent(m));
        let chunk_end = logical.0 + u64_at(m, chunk, CHUNK_LENGTH);
        m.add_u64(chunk, CHUNK_PHYSICAL, 65536);
        let elsewhere = Physical(physical.0 + 65536);
        let expected = only(without_extent(logical, elsewhere), place(CHUNKS, chunk))
            .and(without_stripe(logical, physical), place(DEVICES, extent));
        // The first sector of each run with checksums.
        let sums = m.all(RootId::CHECKSUM_TREE, |key, _| {
            key.item_type == Type::EXTENT_CHECKSUM && (logical.0..chunk_end).contains(&key.offset)
        });
        assert!(!sums.is_empty());
        sums.into_iter().fold(expected, |expected, item| {
            let data = Logical(item.key.offset);
            let copy = format!("copy 0 (device 1, byte {})", data.0 - logical.0 + elsewhere.0);
            let fault = format!("block {data}: the checksum does not match the content");
            let reason = format!("no good copy of {SECTOR} bytes at {data}: {copy}: {fault}");
            let kind = FindingKind::DataChecksum { logical: data, reason };
            expected.and(kind, place(RootId::CHECKSUM_TREE, item))
        })
    }),
    ("chunk length", |m| {
        let (chunk, ..) = chunk(m);
        let length = u64_at(m, chunk, CHUNK_LENGTH);
        m.add_u64(chunk, CHUNK_LENGTH, 1);
        let fault = ChunkFault::Length { found: length + 1 };
        only(FindingKind::Item { fault: fault.into() }, place(CHUNKS, chunk)).besides(WITHOUT_CHUNK)
    }),
    ("stripe length", |m| {
        let (chunk, ..) = chunk(m);
        m.add_u64(chunk, CHUNK_STRIPE_LENGTH, 1);
        let fault = ChunkFault::StripeLength { found: 65537 };
        only(FindingKind::Item { fault: fault.into() }, place(CHUNKS, chunk)).besides(WITHOUT_CHUNK)
    }),
    ("device extent gone", |m| {
        let ((chunk, logical, physical), extent, device) = (chunk(m), device_extent(m), device_item(m));
        let found = u64_at(m, device, DEVICE_USED);
        let expected = found - u64_at(m, extent, DEVICE_EXTENT_LENGTH);
        m.remove(extent);
        only(without_extent(logical, physical), place(CHUNKS, chunk))
            .and(FindingKind::DeviceUsed { device: DEVICE, found, expected }, place(CHUNKS, device))
    }),
    ("device extent's chunk", |m| {
        let ((chunk, logical, physical), extent) = (chunk(m), device_extent(m));
        m.add_u64(extent, DEVICE_EXTENT_CHUNK, 65536);
        only(without_stripe(Logical(logical.0 + 65536), physical), place(DEVICES, extent))
            .and(without_extent(logical, physical), place(CHUNKS, chunk))
    }),
    ("device extent's length", |m| {
        let ((chunk, logical, physical), extent, device) = (chunk(m), device_extent(m), device_item(m));
        let length = u64_at(m, extent, DEVICE_EXTENT_LENGTH);
        let [next, last] = [1, 2].map(|slots| beside(m, extent, slots));
        let after = Logical(u64_at(m, next, DEVICE_EXTENT_CHUNK));
        let found = u64_at(m, device, DEVICE_USED);
        m.add_u64(extent, DEVICE_EXTENT_LENGTH, 1 << 40);
        let end = physical.0 + length + (1 << 40);
        let device_bytes = u64_at(m, device, DEVICE_BYTES);
        // The extent behind it lies in it, which is its fault, so that its stripe has none; so does the one
        // behind that.
        let overlap = DeviceFault::Overlap { physical: physical.0, next: next.key.offset };
        let expected = found + (1 << 40) - u64_at(m, next, DEVICE_EXTENT_LENGTH);
        only(FindingKind::DeviceExtentOutside { device: DEVICE, end, device_bytes }, place(DEVICES, extent))
            .and(FindingKind::Item { fault: overlap.into() }, place(DEVICES, next))
            .and(FindingKind::ExtentOverlap { previous_end: Logical(end) }, place(DEVICES, last))
            .and(without_extent(logical, physical), place(CHUNKS, chunk))
            .and(without_extent(after, Physical(next.key.offset)), place(CHUNKS, chunk_of(m, after)))
            .and(FindingKind::DeviceUsed { device: DEVICE, found, expected }, place(CHUNKS, device))
    }),
    ("device's used bytes", |m| {
        let device = device_item(m);
        let expected = u64_at(m, device, DEVICE_USED);
        m.add_u64(device, DEVICE_USED, SECTOR);
        let kind = FindingKind::DeviceUsed { device: DEVICE, found: expected + SECTOR, expected };
        only(kind, place(CHUNKS, device))
    }),
    ("device's size", |m| {
        let device = device_item(m);
        let total = u64_at(m, device, DEVICE_BYTES);
        m.add_u64(device, DEVICE_BYTES, 1);
        let sum = FindingKind::SuperblockTotalBytes { found: total, expected: total + 1 };
        let kind = |reason| FindingKind::DeviceSize { device: DEVICE, found: total + 1, reason };
        only(kind("which is no multiple of the sector size"), place(CHUNKS, device))
            .and(kind("another size than its superblock says"), place(CHUNKS, device))
            .and(sum, NOWHERE)
    }),
    ("device's file system in its item", |m| {
        let device = device_item(m);
        m.add_u64(device, DEVICE_FSID, 1);
        only(FindingKind::DeviceUuid { device: DEVICE }, place(CHUNKS, device))
    }),
    ("stripe's device UUID", |m| {
        let (chunk, logical, _) = chunk(m);
        m.add_u64(chunk, CHUNK_DEVICE_UUID, 1);
        only(FindingKind::StripeDeviceUuid { logical, device: DEVICE }, place(CHUNKS, chunk))
    }),
    ("device's UUID in its item", |m| {
        let device = device_item(m);
        m.add_u64(device, DEVICE_UUID, 1);
        only(FindingKind::DeviceUuid { device: DEVICE }, place(CHUNKS, device))
            .besides(["stripe-device-uuid"])
    }),
    ("device's UUID in the superblock", |m| {
        m.change_superblock(|s| s.device_item.uuid.0[5] ^= 1);
        only(FindingKind::DeviceUuid { device: DEVICE }, place(CHUNKS, device_item(m)))
    }),
    ("device item gone", |m| {
        m.remove(device_item(m));
        let found = m.superblock.total_bytes;
        only(FindingKind::DeviceMissing { device: DEVICE }, NOWHERE)
            .and(FindingKind::SuperblockTotalBytes { found, expected: 0 }, NOWHERE)
    }),
];

#[test]
fn damaged_groups_chunks_and_devices_are_found() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("setfattr"), Tool("chattr"));
    crate::damage::assert_each_is_found(DAMAGES);
}
