//! RAID profiles as pure plans: where the bytes of a range of one chunk lie, without any I/O.
//!
//! | profile | stripes | ways to get each byte | planned for | in |
//! |---|---|---|---|---|
//! | single, DUP | 1; 2 on one device | 1; 2 | reading, writing | [`mirrored`] |
//! | RAID1, RAID1C3, RAID1C4 | 2, 3, 4 | as many | reading | [`mirrored`] |
//! | RAID0, RAID10 | any; pairs | 1; 2 | reading | [`striped`] |
//! | RAID5, RAID6 | with 1, 2 of parity | 2; 3, and one more for each further stripe of data | reading | [`parity`] |

mod galois;
mod mirrored;
mod parity;
mod striped;

use std::ops::Range;

pub use parity::{Column, Rebuild};
use vlinder_format::chunk::{BlockGroupFlags, STRIPE_LENGTH, Stripe};
use vlinder_format::superblock::SuperblockMirror;
use vlinder_format::{DeviceId, Logical, Physical};

use crate::chunk_map::MappedChunk;
use crate::error::VolumeError;

/// How a chunk is replicated or striped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// One copy.
    Single,
    /// Two copies on one device.
    Dup,
    /// Striped, no redundancy.
    Raid0,
    /// Two copies on two devices.
    Raid1,
    /// Three copies.
    Raid1c3,
    /// Four copies.
    Raid1c4,
    /// Striped over mirrored pairs.
    Raid10,
    /// Striped with one parity.
    Raid5,
    /// Striped with two parities.
    Raid6,
}

/// A part of a request, at its place on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeRange {
    /// Which copy it belongs to, from 0.
    pub mirror: u8,
    /// The device.
    pub device: DeviceId,
    /// First byte on the device.
    pub physical: Physical,
    /// First byte in the request.
    pub start: u64,
    /// Number of bytes.
    pub length: u64,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Single,
        Self::Dup,
        Self::Raid0,
        Self::Raid1,
        Self::Raid1c3,
        Self::Raid1c4,
        Self::Raid10,
        Self::Raid5,
        Self::Raid6,
    ];

    /// The profile of a chunk's type; none where more than one is set.
    pub const fn of(flags: BlockGroupFlags) -> Option<Self> {
        Some(match flags.profile() {
            BlockGroupFlags(0) => Self::Single,
            BlockGroupFlags::DUP => Self::Dup,
            BlockGroupFlags::RAID0 => Self::Raid0,
            BlockGroupFlags::RAID1 => Self::Raid1,
            BlockGroupFlags::RAID1C3 => Self::Raid1c3,
            BlockGroupFlags::RAID1C4 => Self::Raid1c4,
            BlockGroupFlags::RAID10 => Self::Raid10,
            BlockGroupFlags::RAID5 => Self::Raid5,
            BlockGroupFlags::RAID6 => Self::Raid6,
            _ => return None,
        })
    }

    /// Its bit in a chunk's type; none set for single.
    pub const fn flags(self) -> BlockGroupFlags {
        match self {
            Self::Single => BlockGroupFlags(0),
            Self::Dup => BlockGroupFlags::DUP,
            Self::Raid0 => BlockGroupFlags::RAID0,
            Self::Raid1 => BlockGroupFlags::RAID1,
            Self::Raid1c3 => BlockGroupFlags::RAID1C3,
            Self::Raid1c4 => BlockGroupFlags::RAID1C4,
            Self::Raid10 => BlockGroupFlags::RAID10,
            Self::Raid5 => BlockGroupFlags::RAID5,
            Self::Raid6 => BlockGroupFlags::RAID6,
        }
    }

    /// Its name, as options and listings have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Dup => "DUP",
            Self::Raid0 => "RAID0",
            Self::Raid1 => "RAID1",
            Self::Raid1c3 => "RAID1C3",
            Self::Raid1c4 => "RAID1C4",
            Self::Raid10 => "RAID10",
            Self::Raid5 => "RAID5",
            Self::Raid6 => "RAID6",
        }
    }

    /// The profile of a name in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name().eq_ignore_ascii_case(name))
    }

    /// How many copies of each byte can be read; parity counts as one more way to get it.
    pub const fn copies(self) -> u8 {
        match self {
            Self::Single | Self::Raid0 => 1,
            Self::Dup | Self::Raid1 | Self::Raid10 | Self::Raid5 => 2,
            Self::Raid1c3 | Self::Raid6 => 3,
            Self::Raid1c4 => 4,
        }
    }

    /// Stripes that one device takes of a new chunk.
    pub const fn stripes_on_device(self) -> u64 {
        match self {
            Self::Dup => 2,
            _ => 1,
        }
    }

    /// Whether chunks of this profile can be written; all can be read.
    pub const fn is_writable(self) -> bool {
        matches!(self, Self::Single | Self::Dup)
    }

    /// See [`MappedChunk::superblock_ranges`].
    pub(crate) fn superblock_ranges(self, chunk: &MappedChunk) -> Vec<Range<Logical>> {
        match self {
            Self::Single | Self::Dup => mirrored::superblock_ranges(chunk),
            // Nothing is allocated in chunks of profiles that can't be written.
            _ => Vec::new(),
        }
    }
}

impl core::fmt::Display for Profile {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.pad(self.name())
    }
}

/// Where one copy of a range is read: parts in the order of the request, which together are the request.
///
/// # Errors
/// [`VolumeError::Unmapped`] where the range leaves the chunk or there is no such copy,
/// [`VolumeError::UnsupportedProfile`].
pub fn plan_read(
    chunk: &MappedChunk,
    logical: Logical,
    length: u64,
    mirror: u8,
) -> Result<Vec<StripeRange>, VolumeError> {
    let parts = match chunk.profile {
        Profile::Raid0 => striped::places(chunk, logical, length, mirror, 1),
        Profile::Raid10 => striped::places(chunk, logical, length, mirror, 2),
        Profile::Raid5 | Profile::Raid6 if mirror == 0 => parity::places(chunk, logical, length),
        Profile::Raid5 | Profile::Raid6 => None,
        _ => mirrored::place(chunk, logical, length, mirror).map(|part| vec![part]),
    };
    parts.ok_or(VolumeError::Unmapped { logical, length })
}

/// In how many ways each byte of a chunk can be had. The first is read directly; with RAID5 and RAID6 the others are worked
/// out ([`plan_rebuild`]), else they are copies.
pub fn ways(chunk: &MappedChunk) -> u8 {
    match chunk.profile {
        Profile::Raid5 | Profile::Raid6 => parity::ways(chunk),
        profile => profile.copies(),
    }
}

/// What is read to work a range out of parity, in one of the ways after the first; none where that way is a copy.
///
/// # Errors
/// [`VolumeError::Unmapped`] where the range leaves the chunk or there is no such way.
pub fn plan_rebuild(
    chunk: &MappedChunk,
    logical: Logical,
    length: u64,
    way: u8,
) -> Result<Option<Vec<Rebuild>>, VolumeError> {
    let has_parity = matches!(chunk.profile, Profile::Raid5 | Profile::Raid6);
    if !has_parity || way == 0 {
        return Ok(None);
    }
    parity::rebuilds(chunk, logical, length, way).map(Some).ok_or(VolumeError::Unmapped { logical, length })
}

/// Whether all bytes of a chunk can be had while only these devices are there.
pub fn is_readable(chunk: &MappedChunk, is_there: impl Fn(DeviceId) -> bool) -> bool {
    let stripes = &chunk.chunk.stripes;
    let any = |stripes: &[Stripe]| stripes.iter().any(|stripe| is_there(stripe.device));
    let missing = stripes.iter().filter(|stripe| !is_there(stripe.device)).count();
    match chunk.profile {
        Profile::Single | Profile::Raid0 => missing == 0,
        Profile::Dup | Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4 => any(stripes),
        Profile::Raid10 => stripes.chunks(2).all(any),
        Profile::Raid5 => missing <= 1,
        Profile::Raid6 => missing <= 2,
    }
}

/// The part of a range that lies in one stripe.
struct StripePart {
    /// The stripe's number in the chunk.
    number: u64,
    /// First byte in the stripe.
    inside: u64,
    /// First byte in the range.
    start: u64,
    /// Bytes.
    length: u64,
}

/// The stripes that a range touches, `distance` bytes into the chunk.
fn stripes_of(distance: u64, length: u64) -> impl Iterator<Item = StripePart> {
    let mut done = 0u64;
    core::iter::from_fn(move || {
        let left = length.checked_sub(done).filter(|left| *left > 0)?;
        let at = distance.checked_add(done)?;
        let inside = at % STRIPE_LENGTH;
        let part_length = left.min(STRIPE_LENGTH.saturating_sub(inside));
        let part = StripePart { number: at / STRIPE_LENGTH, inside, start: done, length: part_length };
        done = done.saturating_add(part_length);
        Some(part)
    })
}

/// Where a range is written: the parts of all copies.
///
/// # Errors
/// As [`plan_read`].
pub fn plan_write(
    chunk: &MappedChunk,
    logical: Logical,
    length: u64,
) -> Result<Vec<StripeRange>, VolumeError> {
    if !chunk.profile.is_writable() {
        return Err(VolumeError::UnsupportedProfile { profile: chunk.profile, operation: "writing" });
    }
    let copies = 0..chunk.profile.copies();
    let parts: Option<Vec<_>> =
        copies.map(|mirror| mirrored::place(chunk, logical, length, mirror)).collect();
    parts.ok_or(VolumeError::Unmapped { logical, length })
}

/// Bytes around a superblock copy that Linux keeps free: one stripe.
const SUPERBLOCK_STRIPE: u64 = STRIPE_LENGTH;

/// The superblock copies that lie in a run of a device: how far behind the run's start.
fn superblocks_in(stripe: &Stripe, length: u64) -> impl Iterator<Item = u64> {
    let start = stripe.physical.0;
    SuperblockMirror::ALL
        .into_iter()
        .filter_map(move |mirror| mirror.offset().0.checked_sub(start))
        .filter(move |distance| *distance < length)
}

#[cfg(test)]
mod tests;
