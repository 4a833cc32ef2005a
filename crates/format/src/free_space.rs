//! The free-space tree (feature free-space-tree): what is free in each block group.
//!
//! For each group one FREE_SPACE_INFO, key (group start, 198, group length), and then either
//! FREE_SPACE_EXTENTs, key (start, 199, length), without data, for each free run; or FREE_SPACE_BITMAPs, key
//! (start, 200, length), which together cover the whole group, a set bit for each free sector. Lengths are
//! bytes.

use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::record::{is_aligned, record, widen_u64};
use crate::rules::ItemContext;
use crate::types::{Logical, ObjectId};

/// Bytes of a full bitmap; only the last of a group is shorter.
pub const BITMAP_SIZE: usize = 256;
/// Sectors that a full bitmap covers.
pub const BITMAP_SECTORS: u64 = 2048;
/// The group's free space is in bitmaps (`BTRFS_FREE_SPACE_USING_BITMAPS`).
pub const FREE_SPACE_USING_BITMAPS: u32 = 1;
/// Bytes of an item header: what a free-space extent costs.
const ITEM_COST: u64 = 25;
/// Bytes of a full bitmap item.
const BITMAP_COST: u64 = 25 + 256;

record! {
    /// The head of a group's free-space records: 8 bytes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct FreeSpaceInfo in RawFreeSpaceInfo, 8 bytes {
        /// Free runs, in whichever form they are.
        extent_count: u32,
        /// [`FREE_SPACE_USING_BITMAPS`] or 0.
        flags: u32,
    }
}

/// How a free-space record can be broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeSpaceFault {
    /// The item has another size than its kind and length demand.
    #[error("the free-space item has {found} bytes instead of {expected}")]
    Size {
        /// Bytes of the item.
        found: usize,
        /// Bytes that it must have.
        expected: usize,
    },
    /// Start or length lie between sectors, the length is 0, or the end is past the last address.
    #[error("the free-space range at {start}, length {length}, is not of whole sectors")]
    Range {
        /// Object id of the key.
        start: Logical,
        /// Offset of the key.
        length: u64,
    },
    /// Unknown flags.
    #[error("the free-space info has unknown flags 0x{found:x}")]
    Flags {
        /// In the item.
        found: u32,
    },
    /// More free runs than sectors.
    #[error("{found} free runs in a group of {sectors} sectors")]
    ExtentCount {
        /// In the item.
        found: u32,
        /// Sectors of the group.
        sectors: u64,
    },
    /// A bitmap longer than 2048 sectors.
    #[error("a bitmap of {found} bytes of space")]
    BitmapLength {
        /// Offset of the key.
        found: u64,
    },
    /// A range begins before the one before it ends.
    #[error("the free-space range at {start} begins before {previous_end}, where the one before it ends")]
    Overlap {
        /// Object id of the key.
        start: Logical,
        /// End of the range before.
        previous_end: Logical,
    },
    /// A free range that is not in its group.
    #[error(
        "the free-space range at {start}, length {length}, reaches beyond its group, which ends at {group_end}"
    )]
    BeyondGroup {
        /// Object id of the key.
        start: Logical,
        /// Bytes.
        length: u64,
        /// End of the group.
        group_end: Logical,
    },
    /// Free space that an extent has.
    #[error("the space at {start} is called free, but an extent has it; check the file system")]
    InUse {
        /// First byte.
        start: Logical,
    },
    /// Space is to be freed that is free.
    #[error("{length} bytes at {start} are freed, and are free already; check the file system")]
    FreedTwice {
        /// First byte.
        start: Logical,
        /// Bytes.
        length: u64,
    },
    /// More free runs of a group vanish than it counts.
    #[error("the block group counts {found} free runs and has more; check the file system")]
    CountTooLow {
        /// In the item.
        found: u32,
    },
}

impl FreeSpaceInfo {
    /// Where a group's head lies.
    pub const fn key(group: Logical, length: u64) -> Key {
        Key::new(ObjectId(group.0), ItemType::FREE_SPACE_INFO, length)
    }

    /// Reads the item's data.
    ///
    /// # Errors
    /// [`FreeSpaceFault::Size`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FreeSpaceFault> {
        Self::read_whole(bytes).ok_or(FreeSpaceFault::Size { found: bytes.len(), expected: Self::SIZE })
    }

    /// The item's data.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        self.to_array()
    }

    /// Whether the group's free space is in bitmaps.
    pub const fn uses_bitmaps(&self) -> bool {
        self.flags & FREE_SPACE_USING_BITMAPS != 0
    }
}

/// The key of a free run.
pub const fn extent_key(start: Logical, length: u64) -> Key {
    Key::new(ObjectId(start.0), ItemType::FREE_SPACE_EXTENT, length)
}

/// The key of a bitmap.
pub const fn bitmap_key(start: Logical, length: u64) -> Key {
    Key::new(ObjectId(start.0), ItemType::FREE_SPACE_BITMAP, length)
}

/// Bytes of space that a full bitmap covers.
pub const fn bitmap_range(sector_size: u32) -> u64 {
    widen_u64(sector_size).saturating_mul(BITMAP_SECTORS)
}

/// Bytes of the bitmap that covers `length` bytes; none where no bitmap is that long.
pub fn bitmap_bytes(length: u64, sector_size: u32) -> Option<usize> {
    let sectors = length.checked_div(u64::from(sector_size))?;
    if sectors > BITMAP_SECTORS {
        return None;
    }
    usize::try_from(sectors.div_ceil(8)).ok()
}

/// When Linux converts a group between the two forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversionThresholds {
    /// With more free runs than this, a group of extents becomes one of bitmaps.
    pub to_bitmaps_above: u32,
    /// With fewer free runs than this, a group of bitmaps becomes one of extents.
    pub to_extents_below: u32,
}

impl ConversionThresholds {
    /// Of a group of `length` bytes: bitmaps begin to pay when the extents' items take more bytes, and a
    /// margin of 100 runs keeps a group from going back and forth.
    pub fn of(length: u64, sector_size: u32) -> Self {
        let range = bitmap_range(sector_size).max(1);
        let bitmaps = length.div_ceil(range).saturating_mul(BITMAP_COST);
        let to_bitmaps_above = u32::try_from(bitmaps.div_euclid(ITEM_COST)).unwrap_or(u32::MAX);
        Self { to_bitmaps_above, to_extents_below: to_bitmaps_above.saturating_sub(100) }
    }
}

/// Whether the sector `sector` of a bitmap is free; none past its end. Bits count from the lowest of the
/// first byte.
pub fn bitmap_bit(bitmap: &[u8], sector: u64) -> Option<bool> {
    let byte = bitmap.get(usize::try_from(sector.div_euclid(8)).ok()?)?;
    Some(byte & bit_mask(sector) != 0)
}

/// Marks `count` sectors from `sector` as free or taken.
///
/// # Errors
/// The count of sectors that the bitmap has, if the range does not lie within it; nothing is changed then.
pub fn bitmap_set(bitmap: &mut [u8], sector: u64, count: u64, free: bool) -> Result<(), u64> {
    let sectors = u64::try_from(bitmap.len()).unwrap_or(u64::MAX).saturating_mul(8);
    let end = sector.checked_add(count).filter(|end| *end <= sectors).ok_or(sectors)?;
    for number in sector..end {
        let byte = usize::try_from(number.div_euclid(8)).ok().and_then(|at| bitmap.get_mut(at));
        if let Some(byte) = byte {
            *byte = if free { *byte | bit_mask(number) } else { *byte & !bit_mask(number) };
        }
    }
    Ok(())
}

/// The runs of free sectors of a bitmap: (first sector, count), at most `sectors` in all.
pub fn bitmap_runs(bitmap: &[u8], sectors: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    let mut sector = 0u64;
    core::iter::from_fn(move || {
        while sector < sectors && bitmap_bit(bitmap, sector) == Some(false) {
            sector = sector.saturating_add(1);
        }
        let start = sector;
        while sector < sectors && bitmap_bit(bitmap, sector) == Some(true) {
            sector = sector.saturating_add(1);
        }
        let count = sector.saturating_sub(start);
        (count > 0).then_some((start, count))
    })
}

fn bit_mask(sector: u64) -> u8 {
    1u8.wrapping_shl(u32::try_from(sector.rem_euclid(8)).unwrap_or(0))
}

/// The rules for FREE_SPACE_INFO, EXTENT and BITMAP items of a leaf. Linux has none; these are what readers
/// rely on.
pub(crate) fn check(key: &Key, data: &[u8], context: &ItemContext<'_>) -> Result<(), FreeSpaceFault> {
    let sector_size = context.rules.sector_size;
    let (start, length) = (Logical(key.objectid.0), key.offset);
    if length == 0
        || !is_aligned(start.0, sector_size)
        || !is_aligned(length, sector_size)
        || start.0.checked_add(length).is_none()
    {
        return Err(FreeSpaceFault::Range { start, length });
    }
    let sectors = length.div_euclid(u64::from(sector_size));
    match key.item_type {
        ItemType::FREE_SPACE_INFO => {
            let info = FreeSpaceInfo::decode(data)?;
            if info.flags & !FREE_SPACE_USING_BITMAPS != 0 {
                return Err(FreeSpaceFault::Flags { found: info.flags });
            }
            if u64::from(info.extent_count) > sectors {
                return Err(FreeSpaceFault::ExtentCount { found: info.extent_count, sectors });
            }
        }
        ItemType::FREE_SPACE_BITMAP => {
            let expected =
                bitmap_bytes(length, sector_size).ok_or(FreeSpaceFault::BitmapLength { found: length })?;
            check_size(data, expected)?;
        }
        _ => check_size(data, 0)?,
    }
    check_overlap(key, context)
}

fn check_size(data: &[u8], expected: usize) -> Result<(), FreeSpaceFault> {
    if data.len() == expected { Ok(()) } else { Err(FreeSpaceFault::Size { found: data.len(), expected }) }
}

/// A range begins where the one before it ends or later; only a group's first range has the group's own
/// start.
fn check_overlap(key: &Key, context: &ItemContext<'_>) -> Result<(), FreeSpaceFault> {
    let Some((before, _)) = context.previous else { return Ok(()) };
    let head_before_range =
        before.item_type == ItemType::FREE_SPACE_INFO && key.item_type != ItemType::FREE_SPACE_INFO;
    let previous_end = Logical(before.objectid.0.saturating_add(before.offset));
    if head_before_range || previous_end.0 <= key.objectid.0 {
        return Ok(());
    }
    Err(FreeSpaceFault::Overlap { start: Logical(key.objectid.0), previous_end })
}

/// The fields of a group's head.
pub(crate) fn lay_out_info(layout: &mut Layout<'_>) {
    layout.record::<FreeSpaceInfo>();
}

/// The fields of a bitmap: its bits.
pub(crate) fn lay_out_bitmap(layout: &mut Layout<'_>) {
    layout.rest("FreeSpaceBitmap", "bits");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Features;
    use crate::types::{Generation, RootId};
    use crate::validate::LeafRules;
    use proptest::prelude::*;

    const RULES: LeafRules = LeafRules {
        sector_size: 4096,
        node_size: 16384,
        checksum_size: 4,
        generation: Generation(5),
        features: Features {
            compat: crate::features::CompatFeatures(0),
            compat_read_only: crate::features::CompatReadOnlyFeatures(3),
            incompat: crate::features::IncompatFeatures(1),
        },
        writable: true,
    };

    fn judge(key: Key, data: &[u8], previous: Option<Key>) -> Result<(), FreeSpaceFault> {
        let previous = previous.map(|key| (key, &[][..]));
        check(&key, data, &ItemContext { rules: &RULES, owner: RootId::FREE_SPACE_TREE, previous })
    }

    #[test]
    fn each_rule_has_its_fault() {
        let group = FreeSpaceInfo::key(Logical(1 << 20), 8 << 20);
        let info = |extent_count, flags| FreeSpaceInfo { extent_count, flags }.encode();
        judge(group, &info(2048, 1), None).unwrap();
        let size = FreeSpaceFault::Size { found: 7, expected: 8 };
        assert_eq!(judge(group, &[0; 7], None), Err(size));
        assert_eq!(judge(group, &info(1, 2), None), Err(FreeSpaceFault::Flags { found: 2 }));
        let count = FreeSpaceFault::ExtentCount { found: 2049, sectors: 2048 };
        assert_eq!(judge(group, &info(2049, 0), None), Err(count));
        for (start, length) in [(1, 4096), (4096, 1), (4096, 0), (u64::MAX - 4095, 4096)] {
            let range = FreeSpaceFault::Range { start: Logical(start), length };
            assert_eq!(judge(extent_key(Logical(start), length), &[], None), Err(range));
        }
        let extent = extent_key(Logical(1 << 20), 4096);
        judge(extent, &[], Some(group)).unwrap();
        assert_eq!(judge(extent, &[0], None), Err(FreeSpaceFault::Size { found: 1, expected: 0 }));
        let bitmap = bitmap_key(Logical(1 << 20), 9 * 4096);
        judge(bitmap, &[0; 2], None).unwrap();
        assert_eq!(judge(bitmap, &[0; 3], None), Err(FreeSpaceFault::Size { found: 3, expected: 2 }));
        let long = bitmap_key(Logical(1 << 20), 2049 * 4096);
        assert_eq!(judge(long, &[0; 257], None), Err(FreeSpaceFault::BitmapLength { found: 2049 * 4096 }));
        let next = extent_key(Logical((1 << 20) + 4096), 4096);
        judge(next, &[], Some(extent)).unwrap();
        let wide = extent_key(Logical(1 << 20), 8192);
        let overlap = FreeSpaceFault::Overlap { start: Logical(1052672), previous_end: Logical(1056768) };
        assert_eq!(judge(next, &[], Some(wide)), Err(overlap));
        let inner = FreeSpaceInfo::key(Logical(2 << 20), 8 << 20);
        let overlap = FreeSpaceFault::Overlap { start: Logical(2 << 20), previous_end: Logical(9 << 20) };
        assert_eq!(judge(inner, &info(0, 0), Some(group)), Err(overlap));
    }

    #[test]
    fn thresholds_are_linuxs() {
        // 1 GiB has 128 bitmaps of 8 MiB: 128 * 281 / 25 = 1438.
        let gigabyte = ConversionThresholds::of(1 << 30, 4096);
        assert_eq!(gigabyte, ConversionThresholds { to_bitmaps_above: 1438, to_extents_below: 1338 });
        let one = ConversionThresholds::of(4096, 4096);
        assert_eq!(one, ConversionThresholds { to_bitmaps_above: 11, to_extents_below: 0 });
        assert_eq!(ConversionThresholds::of((8 << 20) + 4096, 4096).to_bitmaps_above, 22);
    }

    proptest! {
        #[test]
        fn info_bytes_come_back(bytes in any::<[u8; 8]>()) {
            prop_assert_eq!(FreeSpaceInfo::decode(&bytes).unwrap().encode(), bytes);
        }

        #[test]
        fn bitmaps_behave_as_rows_of_bits(changes in proptest::collection::vec((0u64..2100, 0u64..300, any::<bool>()), 0..40)) {
            let mut bitmap = [0u8; BITMAP_SIZE];
            let mut model = vec![false; 2048];
            for (start, count, free) in changes {
                if start + count > 2048 {
                    prop_assert_eq!(bitmap_set(&mut bitmap, start, count, free), Err(2048));
                } else {
                    bitmap_set(&mut bitmap, start, count, free).unwrap();
                    model[start as usize..(start + count) as usize].fill(free);
                }
            }
            let mut rebuilt = vec![false; 2048];
            let mut last = None;
            for (start, count) in bitmap_runs(&bitmap, 2048) {
                prop_assert!(last.is_none_or(|end| end < start), "runs are apart");
                rebuilt[start as usize..(start + count) as usize].fill(true);
                last = Some(start + count);
            }
            prop_assert_eq!(rebuilt, model);
        }
    }
}
