//! Checksums of data: EXTENT_CSUM, key (-10, 128, logical start) in the checksum tree.
//!
//! The data are the checksums of sectors in a row, each of the file system's kind and size, without padding.
//! An item ends where it likes; items do not overlap. Inline data, preallocated extents and files without
//! checksums have none.

use crate::block::{HEADER_SIZE, ITEM_HEADER_SIZE};
use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::record::is_aligned;
use crate::rules::ItemContext;
use crate::types::{Logical, ObjectId};

/// Linux never puts more checksums than this into one item (a page's size, on the smallest page).
const MAX_ENTRIES: usize = 4096;

/// How a checksum item can be broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChecksumItemFault {
    /// Not the object id of all checksums.
    #[error("a checksum item under key object {found}")]
    KeyObject {
        /// In the key.
        found: ObjectId,
    },
    /// The start lies between sectors.
    #[error("the checksums start at {found}, which is no multiple of the sector size")]
    Start {
        /// Offset of the key.
        found: Logical,
    },
    /// The size is not of whole checksums, or there is none.
    #[error("the checksum item has {found} bytes, not a multiple of {checksum_size}")]
    Size {
        /// Bytes of the item.
        found: usize,
        /// Bytes of a checksum.
        checksum_size: u32,
    },
    /// The item ends past the last address, or over the start of the next.
    #[error("the checksums that start at {start} end past {limit}")]
    Overlap {
        /// Start of the earlier item.
        start: Logical,
        /// Start of the later item (2^64 - 1 for the end of all addresses).
        limit: Logical,
    },
}

/// The sizes that the arithmetic of checksum items needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumGeometry {
    /// Bytes of a sector.
    pub sector_size: u32,
    /// Bytes of a checksum.
    pub checksum_size: u32,
    /// Bytes of a tree block.
    pub node_size: u32,
}

impl ChecksumGeometry {
    /// Where an item lies.
    pub const fn key(start: Logical) -> Key {
        Key::new(ObjectId::EXTENT_CHECKSUM, ItemType::EXTENT_CHECKSUM, start.0)
    }

    /// The most checksums that Linux puts into one item: two items of them fit a leaf, less one checksum.
    pub fn most_entries(&self) -> usize {
        let node_size = usize::try_from(self.node_size).unwrap_or(0);
        let overhead = HEADER_SIZE.saturating_add(ITEM_HEADER_SIZE.saturating_mul(2));
        let entries = node_size.saturating_sub(overhead).checked_div(self.checksum_bytes()).unwrap_or(0);
        entries.saturating_sub(1).min(MAX_ENTRIES)
    }

    /// Bytes of data that an item of `item_size` bytes speaks of.
    pub fn covered(&self, item_size: usize) -> u64 {
        let entries = item_size.checked_div(self.checksum_bytes()).unwrap_or(0);
        u64::try_from(entries).unwrap_or(u64::MAX).saturating_mul(u64::from(self.sector_size))
    }

    /// The end of what an item speaks of; none past the last address.
    pub fn end(&self, start: Logical, item_size: usize) -> Option<Logical> {
        start.checked_add(self.covered(item_size))
    }

    /// Bytes of checksums for `length` bytes of data.
    pub fn bytes_for(&self, length: u64) -> Option<usize> {
        let sectors = usize::try_from(length.checked_div(u64::from(self.sector_size))?).ok()?;
        sectors.checked_mul(self.checksum_bytes())
    }

    /// The checksum of the sector at `logical`, from the item that starts at `start`; none if the item has
    /// none.
    pub fn entry<'a>(&self, start: Logical, item: &'a [u8], logical: Logical) -> Option<&'a [u8]> {
        let distance = self.bytes_for(logical.0.checked_sub(start.0)?)?;
        item.get(distance..distance.checked_add(self.checksum_bytes())?)
    }

    fn checksum_bytes(&self) -> usize {
        usize::try_from(self.checksum_size).unwrap_or(0)
    }
}

/// The rules for an EXTENT_CSUM item of a leaf (kernel: `check_csum_item`; also that it is not empty and that
/// it ends).
pub(crate) fn check(key: &Key, data: &[u8], context: &ItemContext<'_>) -> Result<(), ChecksumItemFault> {
    let rules = context.rules;
    let geometry = ChecksumGeometry {
        sector_size: rules.sector_size,
        checksum_size: rules.checksum_size,
        node_size: rules.node_size,
    };
    let start = Logical(key.offset);
    if key.objectid != ObjectId::EXTENT_CHECKSUM {
        return Err(ChecksumItemFault::KeyObject { found: key.objectid });
    }
    if !is_aligned(start.0, rules.sector_size) {
        return Err(ChecksumItemFault::Start { found: start });
    }
    if data.is_empty() || !data.len().is_multiple_of(geometry.checksum_bytes().max(1)) {
        return Err(ChecksumItemFault::Size { found: data.len(), checksum_size: rules.checksum_size });
    }
    if geometry.end(start, data.len()).is_none() {
        return Err(ChecksumItemFault::Overlap { start, limit: Logical(u64::MAX) });
    }
    if let Some((before, before_data)) = context.previous
        && before.item_type == ItemType::EXTENT_CHECKSUM
        && geometry.end(Logical(before.offset), before_data.len()).is_none_or(|end| end > start)
    {
        return Err(ChecksumItemFault::Overlap { start: Logical(before.offset), limit: start });
    }
    Ok(())
}

/// The fields of an item: its checksums.
pub(crate) fn lay_out(layout: &mut Layout<'_>, checksum_size: u32) {
    let width = usize::try_from(checksum_size).unwrap_or(usize::MAX).max(1);
    while !layout.left().is_empty() {
        layout.bytes("ChecksumItem", "checksum", width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Features;
    use crate::types::{Generation, RootId};
    use crate::validate::LeafRules;

    const GEOMETRY: ChecksumGeometry =
        ChecksumGeometry { sector_size: 4096, checksum_size: 32, node_size: 16384 };

    fn judge(key: Key, data: &[u8], previous: Option<(Key, &[u8])>) -> Result<(), ChecksumItemFault> {
        let rules = LeafRules {
            sector_size: 4096,
            node_size: 16384,
            checksum_size: 32,
            generation: Generation(1),
            features: Features::default(),
            writable: true,
        };
        check(&key, data, &ItemContext { rules: &rules, owner: RootId::CHECKSUM_TREE, previous })
    }

    #[test]
    fn geometry_is_linuxs() {
        assert_eq!(GEOMETRY.most_entries(), (16384 - 101 - 50) / 32 - 1);
        assert_eq!(ChecksumGeometry { node_size: 65536, checksum_size: 4, ..GEOMETRY }.most_entries(), 4096);
        assert_eq!(GEOMETRY.covered(64), 8192);
        assert_eq!(GEOMETRY.bytes_for(8192), Some(64));
        let item: Vec<u8> = (0..96).collect();
        assert_eq!(GEOMETRY.entry(Logical(4096), &item, Logical(8192)), Some(&item[32..64]));
        assert_eq!(GEOMETRY.entry(Logical(4096), &item, Logical(16384)), None);
        assert_eq!(GEOMETRY.entry(Logical(4096), &item, Logical(0)), None);
    }

    #[test]
    fn each_rule_has_its_fault() {
        let key = ChecksumGeometry::key(Logical(1 << 20));
        judge(key, &[0; 64], None).unwrap();
        let odd = Key { objectid: ObjectId(3), ..key };
        assert_eq!(judge(odd, &[0; 64], None), Err(ChecksumItemFault::KeyObject { found: ObjectId(3) }));
        let odd = Key { offset: 5, ..key };
        assert_eq!(judge(odd, &[0; 64], None), Err(ChecksumItemFault::Start { found: Logical(5) }));
        for found in [0, 1, 33] {
            let fault = ChecksumItemFault::Size { found, checksum_size: 32 };
            assert_eq!(judge(key, &vec![0; found], None), Err(fault));
        }
        let last = ChecksumGeometry::key(Logical(u64::MAX - 4095));
        let fault = ChecksumItemFault::Overlap { start: Logical(last.offset), limit: Logical(u64::MAX) };
        assert_eq!(judge(last, &[0; 32], None), Err(fault));
        let before = ChecksumGeometry::key(Logical((1 << 20) - 8192));
        judge(key, &[0; 64], Some((before, &[0; 64]))).unwrap();
        let fault = ChecksumItemFault::Overlap { start: Logical(before.offset), limit: Logical(1 << 20) };
        assert_eq!(judge(key, &[0; 64], Some((before, &[0; 96]))), Err(fault));
    }
}
