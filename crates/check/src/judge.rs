//! What every thread judges by.

use vlinder_base::sync::{Arc, Mutex};
use vlinder_codec::checksum::ChecksumKind;
use vlinder_codec::compress::Compression;
use vlinder_format::block::BlockRules;
use vlinder_format::file_extent::FileExtent;
use vlinder_format::superblock::Superblock;
use vlinder_format::validate::LeafRules;
use vlinder_format::{Block, ItemType, Level, Logical};
use vlinder_volume::Volume;

use crate::bitmap::BlockSet;
use crate::extent_use::{Extent, Use, User};
use crate::ledger::{Balance, Prepared, Side};

/// What every thread judges by.
pub(crate) struct Judge<'a> {
    pub(crate) volume: Arc<Volume>,
    pub(crate) superblock: &'a Superblock,
    pub(crate) rules: LeafRules,
    pub(crate) block_rules: BlockRules,
    pub(crate) checksum_kind: ChecksumKind,
    /// Blocks whose children are referenced by parent.
    pub(crate) full: BlockSet,
    /// Blocks that several others refer to.
    pub(crate) shared: BlockSet,
    /// Compressed data are unpacked.
    pub(crate) unpacks: bool,
    /// An algorithm that data were met of, and that this program was built without.
    pub(crate) lacks: Mutex<Option<Compression>>,
    /// Nobody who made the image knows it.
    pub(crate) secret: u64,
}

impl Judge<'_> {
    pub(crate) fn block_extent(&self, logical: Logical, level: Level) -> Extent {
        Extent { logical, length: u64::from(self.rules.node_size), level: Some(level) }
    }

    /// Whether file systems like this one have holes without items.
    pub(crate) fn no_holes(&self) -> bool {
        self.superblock.incompat.has(vlinder_format::features::IncompatFeatures::NO_HOLES)
    }

    /// The data extents that a leaf refers to.
    pub(crate) fn claim_extents(&self, references: &Balance<Use>, leaf: &Block, claims: &mut Prepared<Use>) {
        let by_parent = self.full.contains(leaf.logical());
        for slot in 0..leaf.len() {
            let key = leaf.key(slot);
            if key.item_type != ItemType::EXTENT_DATA {
                continue;
            }
            let Ok(item) = FileExtent::decode(leaf.data(slot)) else { continue };
            let Some(range) = item.range().filter(|range| !range.is_hole()) else { continue };
            let user = if by_parent {
                User::Leaf(leaf.logical())
            } else {
                let offset = key.offset.wrapping_sub(range.offset_bytes);
                User::File { root: leaf.owner(), inode: key.objectid, offset }
            };
            let extent = Extent { logical: range.address, length: range.disk_bytes, level: None };
            references.prepare(Side::Claimed, Use { extent, user }, 1, claims);
        }
    }
}
