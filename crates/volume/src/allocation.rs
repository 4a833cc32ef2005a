//! Where a new chunk may lie, and how long it is: pure functions over what is allocated already.
//!
//! Sizes are Linux's (`init_alloc_chunk_ctl_policy_regular`, `decide_stripe_size_regular`):
//!
//! | content | longest chunk | longest stripe |
//! |---|---|---|
//! | data, mixed | 10 GiB | 1 GiB |
//! | metadata, file system up to 50 GiB | 256 MiB | 256 MiB |
//! | metadata, larger | 1 GiB | 1 GiB |
//! | system | 32 MiB | 32 MiB |
//!
//! and no chunk is longer than a tenth of the file system, rounded up to 16 MiB for each stripe.

use std::ops::Range;

use vlinder_format::chunk::{BlockGroupFlags, Profile, STRIPE_LENGTH};
use vlinder_format::superblock::SuperblockMirror;
use vlinder_format::{DeviceId, Physical};

use crate::error::VolumeError;

const MEBIBYTE: u64 = 1 << 20;
const GIBIBYTE: u64 = 1 << 30;
/// The start of each device is left to boot loaders and the primary superblock.
pub const DEVICE_RESERVED: u64 = MEBIBYTE;
/// Stripes that the tenth of a small file system limits are rounded up to this.
const STRIPE_ROUNDING: u64 = 16 * MEBIBYTE;

/// The longest chunk and stripe of some content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Logical bytes of a chunk.
    pub chunk: u64,
    /// Bytes of a stripe on its device.
    pub stripe: u64,
}

impl ChunkLimits {
    /// For chunks of this type on a file system of `total_bytes` writable bytes.
    pub fn of(flags: BlockGroupFlags, total_bytes: u64) -> Self {
        let chunk = if flags.has(BlockGroupFlags::DATA) {
            10 * GIBIBYTE
        } else if flags.has(BlockGroupFlags::SYSTEM) {
            32 * MEBIBYTE
        } else if total_bytes > 50 * GIBIBYTE {
            GIBIBYTE
        } else {
            256 * MEBIBYTE
        };
        Self { chunk: chunk.min(total_bytes.div_euclid(10)), stripe: chunk.min(GIBIBYTE) }
    }
}

/// A run of a device that no chunk has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// First byte.
    pub start: Physical,
    /// Number of bytes; 0 where there is no hole at all.
    pub length: u64,
}

impl Hole {
    fn between(start: u64, end: u64) -> Option<Self> {
        let length = end.checked_sub(start).filter(|length| *length > 0)?;
        Some(Self { start: Physical(start), length })
    }

    fn end(&self) -> u64 {
        self.start.0.saturating_add(self.length)
    }
}

/// What chunks leave of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSpace {
    /// The device.
    pub device: DeviceId,
    /// Behind the reserved start, by address; apart from each other.
    holes: Vec<Hole>,
}

impl DeviceSpace {
    /// A device of which the file system may use `total_bytes`, with these device extents, by start; that
    /// they are not apart from each other is no error.
    pub fn new(
        device: DeviceId,
        total_bytes: u64,
        allocated: impl IntoIterator<Item = Range<Physical>>,
    ) -> Self {
        let ends = allocated.into_iter().map(|extent| (extent.start.0, extent.end.0));
        let mut position = DEVICE_RESERVED;
        let holes = ends.chain(core::iter::once((total_bytes, u64::MAX))).filter_map(|(start, next)| {
            let hole = Hole::between(position, start.min(total_bytes));
            position = position.max(next);
            hole
        });
        Self { device, holes: holes.collect() }
    }

    /// A chunk has these bytes from now on.
    pub fn take(&mut self, start: Physical, length: u64) {
        if length == 0 {
            return;
        }
        let end = start.0.saturating_add(length);
        let first = self.holes.partition_point(|hole| hole.end() <= start.0);
        let behind = self.holes.partition_point(|hole| hole.start.0 < end).max(first);
        let rest: Vec<Hole> = self
            .holes
            .get(first..behind)
            .unwrap_or_default()
            .iter()
            .flat_map(|hole| {
                [
                    Hole::between(hole.start.0, start.0.min(hole.end())),
                    Hole::between(end.max(hole.start.0), hole.end()),
                ]
            })
            .flatten()
            .collect();
        self.holes.splice(first..behind, rest);
    }

    /// All holes behind the reserved start, by address.
    pub fn holes(&self) -> impl Iterator<Item = Hole> + '_ {
        self.holes.iter().copied()
    }

    /// What all holes have at or behind a byte of the device, by address, without the stripe lengths in
    /// which superblock copies lie. Holes before that byte are passed by in one step, and parts are cut
    /// last, so that no byte leads into the stripe length of a copy.
    pub fn holes_beside_superblocks_from(&self, start: Physical) -> impl Iterator<Item = Hole> + '_ {
        let first = self.holes.partition_point(|hole| hole.end() <= start.0);
        let holes = self.holes.get(first..).unwrap_or_default().iter().copied();
        let parts = holes.flat_map(|hole| {
            let mut position = hole.start.0;
            let copies = SuperblockMirror::ALL.map(|mirror| mirror.offset().0);
            let inside = copies.into_iter().filter(move |copy| (hole.start.0..hole.end()).contains(copy));
            inside.chain(core::iter::once(hole.end())).filter_map(move |end| {
                let part = Hole::between(position, end);
                position = end.saturating_add(STRIPE_LENGTH).min(hole.end());
                part
            })
        });
        parts.filter_map(move |part| Hole::between(part.start.0.max(start.0), part.end()))
    }

    /// The first hole of at least `wanted` bytes, else the longest (kernel: `find_free_dev_extent`).
    pub fn find_hole(&self, wanted: u64) -> Hole {
        let mut longest = Hole { start: Physical(DEVICE_RESERVED), length: 0 };
        for hole in self.holes() {
            if hole.length >= wanted {
                return hole;
            }
            if hole.length > longest.length {
                longest = hole;
            }
        }
        longest
    }

    /// Bytes of all holes.
    pub fn unallocated_bytes(&self) -> u64 {
        self.holes().map(|hole| hole.length).fold(0, u64::saturating_add)
    }

    /// Bytes of all holes that chunks with at most two stripes here can use: whole stripe lengths, without
    /// those that superblock copies take.
    pub fn usable_bytes(&self) -> u64 {
        let pair = STRIPE_LENGTH.saturating_mul(2);
        let usable = self.holes().map(|hole| {
            let end = hole.end();
            let copies = SuperblockMirror::ALL.into_iter().map(|mirror| mirror.offset().0);
            let inside = copies.filter(|copy| (hole.start.0..end).contains(copy)).map(|_| pair);
            let whole = hole.length.saturating_sub(hole.length.checked_rem(pair).unwrap_or(0));
            whole.saturating_sub(inside.fold(0, u64::saturating_add))
        });
        usable.fold(0, u64::saturating_add)
    }
}

/// Where a new chunk lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkPlan {
    /// Logical bytes.
    pub length: u64,
    /// Bytes of each stripe.
    pub stripe_bytes: u64,
    /// The stripes in their order.
    pub stripes: Vec<(DeviceId, Physical)>,
}

/// Plans a chunk of this type, as long as Linux would make it, but on its device no more than `most_bytes`;
/// none where that, or the room of every device, is less than the shortest takes.
///
/// # Errors
/// [`VolumeError::UnsupportedProfile`].
pub fn plan_chunk(
    flags: BlockGroupFlags,
    total_bytes: u64,
    devices: &[DeviceSpace],
    most_bytes: u64,
) -> Result<Option<ChunkPlan>, VolumeError> {
    let broken =
        VolumeError::UnsupportedProfile { profile: Profile::Single, operation: "this combination of bits" };
    let profile = Profile::of(flags).ok_or(broken)?;
    if !profile.is_writable() {
        return Err(VolumeError::UnsupportedProfile { profile, operation: "making chunks" });
    }
    let limits = ChunkLimits::of(flags, total_bytes);
    let on_device = u64::from(profile.facts().stripes_per_device);
    let wanted = limits.stripe.saturating_mul(on_device).min(most_bytes);
    let shortest = STRIPE_LENGTH.saturating_mul(on_device);
    let candidates = devices.iter().map(|space| (space, space.find_hole(wanted)));
    let best = candidates
        .filter(|(_, hole)| hole.length.min(wanted) >= shortest)
        .max_by_key(|(space, hole)| (hole.length.min(wanted), space.unallocated_bytes()));
    let Some((space, hole)) = best else { return Ok(None) };
    let available = hole.length.min(wanted).checked_div(on_device).unwrap_or(0);
    let stripe_bytes = stripe_size(available, limits);
    if stripe_bytes == 0 {
        return Ok(None);
    }
    let starts = (0..on_device).map(|number| hole.start.checked_add(number.saturating_mul(stripe_bytes)));
    let stripes: Option<Vec<_>> = starts.map(|start| start.map(|start| (space.device, start))).collect();
    Ok(stripes.map(|stripes| ChunkPlan { length: stripe_bytes, stripe_bytes, stripes }))
}

/// The stripe of a chunk with one data stripe.
fn stripe_size(available: u64, limits: ChunkLimits) -> u64 {
    let mut size = available;
    if size > limits.chunk {
        size = size.min(limits.chunk.next_multiple_of(STRIPE_ROUNDING));
    }
    let size = size.min(GIBIBYTE);
    size.saturating_sub(size.checked_rem(STRIPE_LENGTH).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(total_bytes: u64, allocated: &[(u64, u64)]) -> DeviceSpace {
        let allocated =
            allocated.iter().map(|(start, end)| Physical(*start * MEBIBYTE)..Physical(*end * MEBIBYTE));
        DeviceSpace::new(DeviceId(1), total_bytes, allocated)
    }

    #[test]
    fn what_no_chunk_has_spares_superblock_copies() {
        let beside = |allocated: &[(u64, u64)]| -> Vec<(u64, u64)> {
            let space = space(100 * MEBIBYTE, allocated);
            space.holes_beside_superblocks_from(Physical(0)).map(|hole| (hole.start.0, hole.end())).collect()
        };
        let (copy, end) = (64 * MEBIBYTE, 100 * MEBIBYTE);
        let behind = (copy + STRIPE_LENGTH, end);
        let first = (2 * MEBIBYTE, 5 * MEBIBYTE);
        assert_eq!(beside(&[(0, 2), (5, 60)]), [first, (60 * MEBIBYTE, copy), behind]);
        assert_eq!(beside(&[(0, 64)]), [behind]);
        assert_eq!(beside(&[(0, 2), (5, 65)]), [first, (65 * MEBIBYTE, end)]);
        assert_eq!(beside(&[(0, 2), (5, 60), (64, 100)]), [first, (60 * MEBIBYTE, copy)]);
        assert_eq!(beside(&[(0, 100)]), []);
        let space = space(100 * MEBIBYTE, &[(0, 2), (5, 60)]);
        let from = |start: u64| -> Vec<(u64, u64)> {
            let holes = space.holes_beside_superblocks_from(Physical(start));
            holes.map(|hole| (hole.start.0, hole.end())).collect()
        };
        for inside in [copy, copy + 1, copy + 4096, copy + STRIPE_LENGTH - 1, copy + STRIPE_LENGTH] {
            assert_eq!(from(inside), [behind], "{inside}");
        }
        assert_eq!(from(copy - 1), [(copy - 1, copy), behind]);
        assert_eq!(from(5 * MEBIBYTE), [(60 * MEBIBYTE, copy), behind]);
        assert_eq!(from(end - 1), [(end - 1, end)]);
        assert_eq!(from(end), []);
    }

    #[test]
    fn holes_are_what_extents_leave() {
        let space = space(100 * MEBIBYTE, &[(0, 2), (5, 10), (8, 20), (90, 200)]);
        let holes: Vec<_> =
            space.holes().map(|hole| (hole.start.0 / MEBIBYTE, hole.length / MEBIBYTE)).collect();
        assert_eq!(holes, [(2, 3), (20, 70)]);
        assert_eq!(space.find_hole(3 * MEBIBYTE).start.0, 2 * MEBIBYTE);
        assert_eq!(space.find_hole(4 * MEBIBYTE).start.0, 20 * MEBIBYTE);
        assert_eq!(space.find_hole(1 << 40).length, 70 * MEBIBYTE);
        assert_eq!(space.unallocated_bytes(), 73 * MEBIBYTE);
    }

    #[test]
    fn what_is_taken_one_by_one_leaves_the_same_holes() {
        let mut state = 5u64;
        let mut next = move |below: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        for _ in 0..2000 {
            let mut taken: Vec<(u64, u64)> = Vec::new();
            let mut by_one = space(64 * MEBIBYTE, &[]);
            for _ in 0..next(12) {
                let (start, length) = (next(70), next(20));
                by_one.take(Physical(start * MEBIBYTE), length * MEBIBYTE);
                taken.push((start, start + length));
            }
            taken.retain(|(start, end)| start < end);
            taken.sort_unstable();
            assert_eq!(by_one, space(64 * MEBIBYTE, &taken), "{taken:?}");
        }
    }

    #[test]
    fn a_tiny_device_has_no_hole() {
        assert_eq!(space(MEBIBYTE, &[]).holes().count(), 0);
        assert_eq!(plan_chunk(BlockGroupFlags::DATA, MEBIBYTE, &[space(MEBIBYTE, &[])], u64::MAX), Ok(None));
    }

    #[test]
    fn sizes_are_linuxs() {
        let length = |flags: BlockGroupFlags, gibibytes: u64| {
            let total = gibibytes * GIBIBYTE;
            plan_chunk(flags, total, &[space(total, &[])], u64::MAX).unwrap().unwrap().length / MEBIBYTE
        };
        let (data, metadata, system) =
            (BlockGroupFlags::DATA, BlockGroupFlags::METADATA, BlockGroupFlags::SYSTEM);
        assert_eq!(length(data, 100), 1024);
        assert_eq!(length(data, 5), 512);
        assert_eq!(length(data, 1), 112, "a tenth, 102.4 MiB, rounded up to 16 MiB");
        assert_eq!(length(metadata, 50), 256);
        assert_eq!(length(metadata, 51), 1024);
        assert_eq!(length(metadata.with(BlockGroupFlags::DUP), 1), 112);
        assert_eq!(length(system, 1), 32);
        assert_eq!(length(BlockGroupFlags(0b101), 100), 1024, "mixed groups count as data");
    }

    #[test]
    fn dup_takes_both_stripes_from_one_hole() {
        let flags = BlockGroupFlags::METADATA.with(BlockGroupFlags::DUP);
        let total = GIBIBYTE;
        let plan = plan_chunk(flags, total, &[space(total, &[(0, 900)])], u64::MAX).unwrap().unwrap();
        assert_eq!((plan.length, plan.stripe_bytes), (62 * MEBIBYTE, 62 * MEBIBYTE));
        let starts = [Physical(900 * MEBIBYTE), Physical(962 * MEBIBYTE)];
        assert_eq!(plan.stripes, starts.map(|start| (DeviceId(1), start)));
    }

    #[test]
    fn a_chunk_takes_no_more_than_it_may() {
        let flags = BlockGroupFlags::METADATA.with(BlockGroupFlags::DUP);
        let total = GIBIBYTE;
        let spaces = [space(total, &[(0, 900)])];
        let planned = |most| plan_chunk(flags, total, &spaces, most).unwrap().map(|plan| plan.length);
        assert_eq!(planned(20 * MEBIBYTE + 1), Some(10 * MEBIBYTE));
        assert_eq!(planned(2 * STRIPE_LENGTH), Some(STRIPE_LENGTH));
        assert_eq!(planned(2 * STRIPE_LENGTH - 1), None);
    }

    #[test]
    fn what_chunks_cant_use_of_holes_does_not_count() {
        let pair = 2 * STRIPE_LENGTH;
        let of = |total_bytes| space(total_bytes, &[(0, 2), (40, 60)]);
        assert_eq!(of(100 * MEBIBYTE).usable_bytes(), 78 * MEBIBYTE - pair, "the superblock at 64 MiB");
        let space = of(100 * MEBIBYTE + pair - 1);
        assert_eq!(space.usable_bytes(), 78 * MEBIBYTE - pair);
        assert_eq!(space.unallocated_bytes(), 78 * MEBIBYTE + pair - 1);
    }

    #[test]
    fn the_device_with_the_longest_hole_wins() {
        let total = 4 * GIBIBYTE;
        let second = DeviceSpace { device: DeviceId(2), ..space(total / 2, &[]) };
        let plan =
            plan_chunk(BlockGroupFlags::DATA, total, &[space(total / 2, &[(0, 1900)]), second], u64::MAX)
                .unwrap();
        assert_eq!(plan.unwrap().stripes, [(DeviceId(2), Physical(MEBIBYTE))]);
    }

    #[test]
    fn other_profiles_are_refused_by_name() {
        let flags = BlockGroupFlags::DATA.with(BlockGroupFlags::RAID5);
        let refused = VolumeError::UnsupportedProfile { profile: Profile::Raid5, operation: "making chunks" };
        assert_eq!(plan_chunk(flags, GIBIBYTE, &[], u64::MAX), Err(refused));
    }
}
