//! Chunks: where a run of logical addresses lies on the devices.
//!
//! Key (256, CHUNK_ITEM, logical start) in the chunk tree; chunks of type SYSTEM also in the superblock's
//! system array, each after its key, because the chunk tree itself lies in them. All lengths and offsets are
//! bytes. Present since the first format; RAID5/6 came with feature raid56, RAID1C3/4 with raid1c34, mixed
//! groups with mixed_groups.
//!
//! ```text
//! 0        8       16            24     32         36         40            44            46
//! | length | owner | stripe length | type | io align | io width | sector size | stripe count | sub stripes |
//! then for each stripe: device u64, physical u64, device UUID
//! ```

mod flags;
mod profile;

pub use flags::BlockGroupFlags;
pub use profile::{PROFILES, Profile, ProfileFacts};

use crate::features::IncompatFeatures;
use crate::key::Key;
use crate::layout::Layout;
use crate::record::{is_aligned, record, widen_u64};
use crate::rules::ItemContext;
use crate::types::{DeviceId, Logical, ObjectId, Physical, RootId, Uuid};

/// The only stripe length there is (`BTRFS_STRIPE_LEN`).
pub const STRIPE_LENGTH: u64 = 64 * 1024;
/// A chunk is shorter than this, so that its stripes are counted in 32 bits.
pub const CHUNK_LENGTH_LIMIT: u64 = STRIPE_LENGTH.wrapping_mul(widen_u64(u32::MAX));

record! {
    /// One run of a device that belongs to a chunk: 32 bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Stripe in RawStripe, 32 bytes {
        /// The member device.
        device: DeviceId,
        /// First byte on the device.
        physical: Physical,
        /// The device's UUID, to tell devices of one number apart.
        device_uuid: Uuid,
    }
}

record! {
    /// The part of a chunk before its stripes: 48 bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ChunkHeader in RawChunkHeader, 48 bytes {
        /// Bytes of logical address space.
        length: u64,
        /// The tree that the chunk serves: always the extent tree.
        owner: RootId,
        /// Bytes in a row on one device; always 64 KiB.
        stripe_length: u64,
        /// What the chunk holds, and its profile.
        flags: BlockGroupFlags,
        /// Best alignment of I/O in bytes.
        io_align: u32,
        /// Best width of I/O in bytes.
        io_width: u32,
        /// Smallest unit of I/O in bytes: the file system's sector size.
        sector_size: u32,
        /// Number of stripes that follow.
        stripe_count: u16,
        /// 2 in RAID10, else 0 or 1.
        sub_stripes: u16,
    }
}

/// A chunk and its stripes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Bytes of logical address space.
    pub length: u64,
    /// The tree that the chunk serves: always the extent tree.
    pub owner: RootId,
    /// Bytes in a row on one device; always 64 KiB.
    pub stripe_length: u64,
    /// What the chunk holds, and its profile.
    pub flags: BlockGroupFlags,
    /// Best alignment of I/O in bytes.
    pub io_align: u32,
    /// Best width of I/O in bytes.
    pub io_width: u32,
    /// Smallest unit of I/O in bytes: the file system's sector size.
    pub sector_size: u32,
    /// 2 in RAID10, else 0 or 1.
    pub sub_stripes: u16,
    /// Where the chunk lies: 1 to 65,535 runs.
    pub stripes: Vec<Stripe>,
}

/// How a chunk can be broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkFault {
    /// The item is not as long as its number of stripes says.
    #[error("the chunk item has {found} bytes, but {stripe_count} stripes need {expected}")]
    Size {
        /// Bytes of the item.
        found: usize,
        /// Bytes that header and stripes need.
        expected: usize,
        /// Stripes that the header announces.
        stripe_count: u16,
    },
    /// No stripe, fewer than copies, or as many as parities.
    #[error("{found} stripes (sub stripes {sub_stripes}) are impossible for {flags}")]
    StripeCount {
        /// In the chunk.
        found: u16,
        /// In the chunk.
        sub_stripes: u16,
        /// The profile that forbids it.
        flags: BlockGroupFlags,
    },
    /// The logical start lies between sectors.
    #[error("the chunk starts at {logical}, which is not a multiple of {sector_size}")]
    Start {
        /// Offset of the key.
        logical: Logical,
        /// The file system's.
        sector_size: u32,
    },
    /// The sector size is not the file system's.
    #[error("the chunk has sector size {found} instead of {expected}")]
    SectorSize {
        /// In the chunk.
        found: u32,
        /// The file system's.
        expected: u32,
    },
    /// The length is 0, not a multiple of the sector size, or 2^32 stripes and more.
    #[error("the chunk has the impossible length {found}")]
    Length {
        /// In the chunk.
        found: u64,
    },
    /// The end is past the last address.
    #[error("the chunk at {logical} of {length} bytes ends past the last address")]
    End {
        /// Offset of the key.
        logical: Logical,
        /// In the chunk.
        length: u64,
    },
    /// The stripe length is not 64 KiB.
    #[error("the chunk has stripe length {found} instead of 65536")]
    StripeLength {
        /// In the chunk.
        found: u64,
    },
    /// The type has unknown bits, more than one profile, no content, or a content that may not be together.
    #[error("the chunk has the impossible type {found} (0x{:x})", .found.0)]
    Flags {
        /// In the chunk.
        found: BlockGroupFlags,
    },
    /// A stripe ends past the last byte of any device.
    #[error("a stripe at {physical} on device {device} ends past the last address")]
    StripeEnd {
        /// The stripe's device.
        device: DeviceId,
        /// The stripe's start.
        physical: Physical,
    },
    /// The key is not that of a chunk.
    #[error("a chunk item under key object {found} instead of 256")]
    KeyObject {
        /// In the key.
        found: ObjectId,
    },
}

impl Chunk {
    /// Bytes on disk of a chunk with this many stripes.
    pub const fn size(stripe_count: u16) -> usize {
        ChunkHeader::SIZE.saturating_add(Stripe::SIZE.saturating_mul(usize_of(stripe_count)))
    }

    /// Number of stripes. (There are never more than 65,535: decode reads no more, encode asserts it.)
    pub fn stripe_count(&self) -> u16 {
        u16::try_from(self.stripes.len()).unwrap_or(u16::MAX)
    }

    /// Reads the data of a chunk item.
    ///
    /// # Errors
    /// [`ChunkFault::Size`].
    pub fn decode(bytes: &[u8]) -> Result<Self, ChunkFault> {
        let (chunk, rest) = Self::decode_prefix(bytes)?;
        if rest.is_empty() {
            return Ok(chunk);
        }
        let stripe_count = chunk.stripe_count();
        Err(ChunkFault::Size { found: bytes.len(), expected: Self::size(stripe_count), stripe_count })
    }

    /// Reads a chunk from the front of `bytes`, and gives what follows it (in the system array: the next
    /// key).
    ///
    /// # Errors
    /// [`ChunkFault::Size`] where there are too few bytes.
    pub fn decode_prefix(bytes: &[u8]) -> Result<(Self, &[u8]), ChunkFault> {
        let too_short = |stripe_count| ChunkFault::Size {
            found: bytes.len(),
            expected: Self::size(stripe_count),
            stripe_count,
        };
        let (header, mut rest) = ChunkHeader::split_from(bytes).ok_or(too_short(1))?;
        if bytes.len() < Self::size(header.stripe_count) {
            return Err(too_short(header.stripe_count));
        }
        let mut stripes = Vec::with_capacity(usize_of(header.stripe_count));
        for _ in 0..header.stripe_count {
            let (stripe, after) = Stripe::split_from(rest).ok_or(too_short(header.stripe_count))?;
            stripes.push(stripe);
            rest = after;
        }
        let chunk = Self {
            length: header.length,
            owner: header.owner,
            stripe_length: header.stripe_length,
            flags: header.flags,
            io_align: header.io_align,
            io_width: header.io_width,
            sector_size: header.sector_size,
            sub_stripes: header.sub_stripes,
            stripes,
        };
        Ok((chunk, rest))
    }

    /// The data of the chunk item.
    pub fn encode(&self) -> Vec<u8> {
        assert!(
            self.stripes.len() <= usize::from(u16::MAX),
            "{} stripes do not fit a chunk",
            self.stripes.len()
        );
        let header = ChunkHeader {
            length: self.length,
            owner: self.owner,
            stripe_length: self.stripe_length,
            flags: self.flags,
            io_align: self.io_align,
            io_width: self.io_width,
            sector_size: self.sector_size,
            stripe_count: self.stripe_count(),
            sub_stripes: self.sub_stripes,
        };
        let mut bytes = Vec::with_capacity(Self::size(header.stripe_count));
        bytes.extend_from_slice(&header.to_array());
        for stripe in &self.stripes {
            bytes.extend_from_slice(&stripe.to_array());
        }
        bytes
    }

    /// Whether two items describe one chunk. `sub_stripes` means something in RAID10 alone: elsewhere
    /// mkfs.btrfs before 5.4 left 0 where Linux writes 1, and Linux reads neither (`read_one_chunk`,
    /// fs/btrfs/volumes.c).
    #[must_use]
    pub fn is_same_as(&self, other: &Self) -> bool {
        let is_read = Profile::of(self.flags).is_some_and(|profile| profile.facts().sub_stripes > 1);
        let Self {
            length,
            owner,
            stripe_length,
            flags,
            io_align,
            io_width,
            sector_size,
            sub_stripes,
            stripes,
        } = self;
        (length, owner, stripe_length, flags)
            == (&other.length, &other.owner, &other.stripe_length, &other.flags)
            && (io_align, io_width, sector_size) == (&other.io_align, &other.io_width, &other.sector_size)
            && *stripes == other.stripes
            && (!is_read || *sub_stripes == other.sub_stripes)
    }

    /// Bytes that each stripe takes on its device; none where the profile or the count is impossible.
    pub fn stripe_bytes(&self) -> Option<u64> {
        let data_stripes = Profile::of(self.flags)?.facts().data_stripes(self.stripe_count())?;
        self.length.checked_div(u64::from(data_stripes))
    }

    /// Checks everything that can be known from the chunk and its start (kernel: `btrfs_check_chunk_valid`,
    /// and that no stripe ends past the last address). `mixed_groups` says whether that feature is on.
    ///
    /// # Errors
    /// The first rule broken.
    pub fn check(&self, logical: Logical, sector_size: u32, mixed_groups: bool) -> Result<(), ChunkFault> {
        if !is_aligned(logical.0, sector_size) {
            return Err(ChunkFault::Start { logical, sector_size });
        }
        if self.sector_size != sector_size {
            return Err(ChunkFault::SectorSize { found: self.sector_size, expected: sector_size });
        }
        if self.length == 0 || !is_aligned(self.length, sector_size) || self.length >= CHUNK_LENGTH_LIMIT {
            return Err(ChunkFault::Length { found: self.length });
        }
        if logical.0.checked_add(self.length).is_none() {
            return Err(ChunkFault::End { logical, length: self.length });
        }
        if self.stripe_length != STRIPE_LENGTH {
            return Err(ChunkFault::StripeLength { found: self.stripe_length });
        }
        check_flags(self.flags, mixed_groups).map_err(|found| ChunkFault::Flags { found })?;
        let profile = Profile::of(self.flags).ok_or(ChunkFault::Flags { found: self.flags })?;
        if !profile.facts().allows(self.stripe_count(), self.sub_stripes) {
            return Err(ChunkFault::StripeCount {
                found: self.stripe_count(),
                sub_stripes: self.sub_stripes,
                flags: self.flags,
            });
        }
        let bytes = self.stripe_bytes().ok_or(ChunkFault::Length { found: self.length })?;
        for stripe in &self.stripes {
            if stripe.physical.0.checked_add(bytes).is_none() {
                return Err(ChunkFault::StripeEnd { device: stripe.device, physical: stripe.physical });
            }
        }
        Ok(())
    }
}

/// The rules for the type of a chunk. REMAPPED chunks are an unknown type here: their feature is not
/// supported.
fn check_flags(flags: BlockGroupFlags, mixed_groups: bool) -> Result<(), BlockGroupFlags> {
    let known = BlockGroupFlags::TYPE_MASK.with(BlockGroupFlags::PROFILE_MASK);
    let content = flags.content();
    let mixed = BlockGroupFlags::DATA.with(BlockGroupFlags::METADATA);
    let possible = match content {
        BlockGroupFlags::DATA | BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM => true,
        _ => content == mixed && mixed_groups,
    };
    if flags.0 & !known.0 != 0 || flags.profile().0.count_ones() > 1 || !possible {
        return Err(flags);
    }
    Ok(())
}

/// The rules for a CHUNK_ITEM of a leaf.
pub(crate) fn check(key: &Key, data: &[u8], context: &ItemContext<'_>) -> Result<(), ChunkFault> {
    if key.objectid != ObjectId::FIRST_CHUNK_TREE {
        return Err(ChunkFault::KeyObject { found: key.objectid });
    }
    let mixed_groups = context.rules.features.incompat.has(IncompatFeatures::MIXED_GROUPS);
    Chunk::decode(data)?.check(Logical(key.offset), context.rules.sector_size, mixed_groups)
}

const fn usize_of(value: u16) -> usize {
    crate::record::widen_usize(value)
}

/// The fields of a chunk and its stripes.
pub(crate) fn lay_out_chunk(layout: &mut Layout<'_>) {
    let Some(header) = layout.record::<ChunkHeader>() else { return };
    for _ in 0..header.stripe_count {
        layout.record::<Stripe>();
    }
}

#[cfg(test)]
mod tests;
