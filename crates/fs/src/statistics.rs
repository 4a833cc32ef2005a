//! How full the file system is, as statfs(2) tells it.

use vlinder_format::Uuid;
use vlinder_format::chunk::{BlockGroupFlags, Profile, STRIPE_LENGTH};
use vlinder_transaction::{DeviceReport, Engine, KindReport, SpaceReport};

use crate::Result;
use crate::directory::LONGEST;

/// What statfs(2) shows. Sizes are as of file data: where data have two copies, half of what the devices
/// hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Unit of the numbers of blocks, in bytes.
    pub block_size: u32,
    /// All blocks.
    pub blocks: u64,
    /// Blocks that nothing uses.
    pub free_blocks: u64,
    /// Blocks that data can be written to, as Linux reckons: what is free in groups of data, and all that no
    /// chunk has. None where metadata have no room left. A write may be refused before: what metadata may
    /// need is not subtracted.
    pub available_blocks: u64,
    /// Bytes of the longest name.
    pub longest_name: u32,
    /// The file system's UUID.
    pub uuid: Uuid,
}

impl Statistics {
    /// How full the file system is. Inodes are not counted: there is no bound to them but space.
    ///
    /// # Errors
    /// What reading the chunks and their groups met: a file system that is only read learns how full it is
    /// with the first call.
    pub(crate) fn of(engine: &Engine) -> Result<Self> {
        let report = engine.space()?;
        let superblock = engine.superblock();
        let block = u64::from(engine.sector_size());
        let fullness = Fullness::of(&report);
        let blocks = superblock.total_bytes / fullness.factor / block;
        let used = fullness.used_bytes / fullness.factor / block;
        let free = blocks.saturating_sub(used);
        Ok(Self {
            block_size: engine.sector_size(),
            blocks,
            free_blocks: free.saturating_sub(report.linux_reserve_bytes / block),
            available_blocks: fullness.available_bytes / block,
            longest_name: LONGEST,
            uuid: superblock.fsid,
        })
    }
}

/// Bytes at the start of each device that no chunk takes (Linux: `BTRFS_DEVICE_RANGE_RESERVED`).
const RESERVED_BYTES: u64 = 1 << 20;
/// So much less than what is free of metadata Linux sets against its reserve.
const THRESHOLD_BYTES: u64 = 4 << 20;

/// The sums of Linux's `btrfs_statfs`.
struct Fullness {
    /// How often each byte of data is on the devices.
    factor: u64,
    /// Bytes of devices that hold something; parity is not counted.
    used_bytes: u64,
    available_bytes: u64,
}

impl Fullness {
    fn of(report: &SpaceReport) -> Self {
        let sum = |of: &dyn Fn(&KindReport) -> u64| report.kinds.iter().map(of).fold(0, u64::saturating_add);
        let is_data = |kind: &KindReport| kind.flags.has(BlockGroupFlags::DATA);
        let is_metadata = |kind: &KindReport| kind.flags.has(BlockGroupFlags::METADATA);
        let on_devices = |kind: &KindReport, bytes: u64| bytes.saturating_mul(kind.flags.copies());
        let data = || report.kinds.iter().filter(|kind| is_data(kind));
        // Of several profiles, Linux takes the last in the order of its table.
        let is_of = |kind: &KindReport, profile: Profile| kind.flags.profile() == profile.flags();
        let last = Profile::ALL.into_iter().rev().find(|one| data().any(|kind| is_of(kind, *one)));
        let factor = last.map_or(1, |profile| u64::from(profile.copies()));
        let reserve = report.linux_reserve_bytes;
        let profiles = data().fold(0, |bits, kind| bits | profile_bit(kind.flags));
        let makes_mirrored = is_mirrored(profile_of_new_chunks(profiles, present(&report.devices).count()));
        let is_frozen = |kind: &KindReport| makes_mirrored && is_unmirrored(kind.flags);
        let is_free_data = |kind: &KindReport| is_data(kind) && !is_frozen(kind);
        // Groups on devices of a seed are read-only as well (`btrfs_chunk_writeable`, fs/btrfs/volumes.c),
        // and `btrfs_account_ro_block_groups_free_space` takes what is free in such groups of data off.
        let writable = |kind: &KindReport| kind.free_bytes().saturating_sub(kind.seed_free_bytes);
        let free_data = sum(&|kind| if is_free_data(kind) { on_devices(kind, writable(kind)) } else { 0 });
        let unallocated = unallocated_for_data(&report.devices, profiles);
        let free_metadata =
            sum(&|kind| if is_metadata(kind) { on_devices(kind, kind.free_bytes()) } else { 0 });
        let is_mixed = report.kinds.iter().any(|kind| is_data(kind) && is_metadata(kind));
        let lacks_metadata =
            !is_mixed && !report.can_make_metadata && free_metadata < reserve.saturating_add(THRESHOLD_BYTES);
        let available_bytes =
            if lacks_metadata { 0 } else { (free_data / factor).saturating_add(unallocated / factor) };
        Self { factor, used_bytes: sum(&|kind| on_devices(kind, kind.occupied_bytes())), available_bytes }
    }
}

/// The bit of a profile in a set of profiles; *single* has none in a chunk's type.
const SINGLE_BIT: u64 = 1 << 48;

fn profile_bit(flags: BlockGroupFlags) -> u64 {
    match flags.profile() {
        BlockGroupFlags(0) => SINGLE_BIT,
        profile => profile.0,
    }
}

/// Where new chunks are mirrored, Linux makes groups without a mirror read-only when it mounts, and what is
/// free in them does not count (`btrfs_read_block_groups`, fs/btrfs/block-group.c).
fn is_mirrored(profile: Profile) -> bool {
    !is_unmirrored(profile.flags())
}

fn is_unmirrored(flags: BlockGroupFlags) -> bool {
    flags.copies() == 1 && flags.parities() == 0
}

/// Which of several profiles new chunks get: the last of these that the devices suffice for
/// (`btrfs_reduce_alloc_profile`).
const BY_PREFERENCE: [Profile; 9] = [
    Profile::Single,
    Profile::Raid0,
    Profile::Dup,
    Profile::Raid1,
    Profile::Raid10,
    Profile::Raid5,
    Profile::Raid1c3,
    Profile::Raid6,
    Profile::Raid1c4,
];

/// That of new chunks of data, on so many devices, where there are chunks of these profiles.
fn profile_of_new_chunks(profiles: u64, devices: usize) -> Profile {
    let is_possible = |one: &Profile| {
        profiles & profile_bit(one.flags()) != 0 && usize::from(one.facts().min_devices) <= devices
    };
    BY_PREFERENCE.into_iter().rev().find(is_possible).unwrap_or(Profile::Single)
}

/// On how many of these devices at once `btrfs_calc_avail_data_space` takes room for a profile. It says 1 of
/// RAID5 and RAID6, too.
fn spread_of(profile: Profile, devices: usize) -> usize {
    match profile {
        Profile::Raid0 => devices,
        Profile::Raid10 => 4,
        Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4 => usize::from(profile.copies()),
        Profile::Single | Profile::Dup | Profile::Raid5 | Profile::Raid6 => 1,
    }
}

fn present(devices: &[DeviceReport]) -> impl Iterator<Item = &DeviceReport> {
    devices.iter().filter(|device| !device.is_missing)
}

/// Bytes of devices that new chunks of data may take, as Linux reckons them (`btrfs_calc_avail_data_space`):
/// from the device with the least room up, as much as it has is taken from it and from as many before it as a
/// chunk is spread over.
fn unallocated_for_data(devices: &[DeviceReport], profiles: u64) -> u64 {
    let profile = profile_of_new_chunks(profiles, present(devices).count());
    let least_bytes = u64::from(profile.facts().stripes_per_device) * STRIPE_LENGTH;
    let mut rooms: Vec<u64> = present(devices)
        .map(|device| {
            device.total_bytes.saturating_sub(device.allocated_bytes) / STRIPE_LENGTH * STRIPE_LENGTH
        })
        .filter(|bytes| *bytes > RESERVED_BYTES + least_bytes)
        .map(|bytes| bytes - RESERVED_BYTES)
        .collect();
    rooms.sort_unstable_by(|left, right| right.cmp(left));
    let mut spread = spread_of(profile, present(devices).count());
    let mut available = 0_u64;
    while rooms.len() >= usize::from(profile.facts().min_devices) {
        spread = spread.min(rooms.len());
        let Some(smallest) = rooms.last().copied() else { break };
        if smallest >= least_bytes {
            available = available.saturating_add(smallest.saturating_mul(spread as u64));
            let first = rooms.len() - spread;
            rooms.iter_mut().skip(first).for_each(|room| *room = room.saturating_sub(smallest));
        }
        rooms.pop();
    }
    available
}
