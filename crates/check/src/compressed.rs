//! Compressed data must unpack: their checksums are of what lies on the device, and say nothing of what was
//! packed there, or whether it was packed at all (mkfs.btrfs 7.0 called plain extents compressed:
//! kdave/btrfs-progs#1135).
//!
//! Inline data are unpacked where their leaf is read. The others are listed on the way and unpacked in the
//! order of their addresses: each extent once, however many files show it.

use vlinder_codec::compress::{Compression, decompress};
use vlinder_format::block::BlockFault;
use vlinder_format::file_extent::{CompressionId, FileExtent, FileExtentContent};
use vlinder_format::{Block, Damage, Fault, ItemType, Logical, RootId};
use vlinder_volume::ReadRequest;

use crate::check_state::CheckState;
use crate::finding::FindingKind;
use crate::judge::Judge;
use crate::packed::Packed;
use crate::report::Finding;

/// Extents that are unpacked at once, of at most 128 KiB each.
const BATCH: usize = 64;

/// The compressed extents that a leaf shows, but for the items that break a rule. What is inline is unpacked,
/// and found if it can't be.
pub(crate) fn of_leaf(
    judge: &Judge<'_>,
    tree: RootId,
    leaf: &Block,
    faults: &[(usize, Fault)],
    findings: &mut Vec<Finding>,
) -> Vec<Packed> {
    let mut packed = Vec::new();
    for slot in (0..leaf.len()).filter(|slot| faults.iter().all(|(faulty, _)| faulty != slot)) {
        let key = leaf.key(slot);
        if key.item_type != ItemType::EXTENT_DATA {
            continue;
        }
        let Ok(extent) = FileExtent::decode(leaf.data(slot)) else { continue };
        let (compression, ram_bytes) = (extent.compression, extent.ram_bytes);
        if compression == CompressionId::NONE {
            continue;
        }
        let slot = u32::try_from(slot).unwrap_or(u32::MAX);
        let item = Packed {
            address: 0,
            disk_bytes: 0,
            ram_bytes,
            compression,
            tree,
            leaf: leaf.logical(),
            slot,
            key,
        };
        match extent.content {
            FileExtentContent::Inline(bytes) => findings.extend(
                judge
                    .unpack(&item, bytes)
                    .err()
                    .map(|reason| Finding { kind: not_unpacked(&item, reason), place: item.place() }),
            ),
            FileExtentContent::Regular(range) if !range.is_hole() => {
                packed.push(Packed { address: range.address.0, disk_bytes: range.disk_bytes, ..item });
            }
            _ => {}
        }
    }
    packed
}

fn not_unpacked(packed: &Packed, reason: String) -> FindingKind {
    FindingKind::DataNotUnpacked { inode: packed.key.objectid, offset: packed.key.offset, reason }
}

impl Judge<'_> {
    /// Unpacks what lies on the device or in the item.
    fn unpack(&self, packed: &Packed, bytes: &[u8]) -> Result<(), String> {
        let method = packed.compression.0;
        let compression =
            Compression::from_disk(method).ok_or_else(|| format!("the method {method} is not known"))?;
        if !compression.is_built_in() {
            // The data are not to blame: the check as a whole says that it could not be made.
            *self.lacks.lock() = Some(compression);
            return Ok(());
        }
        let mut output = vec![0; usize::try_from(packed.ram_bytes).unwrap_or(0)];
        let sector_bytes = usize::try_from(self.rules.sector_size).unwrap_or(usize::MAX);
        let unpacked = decompress(compression, bytes, &mut output, sector_bytes);
        unpacked.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Reads an extent and unpacks it, from any copy that can be.
    fn unpack_extent(&self, packed: &Packed) -> Result<(), String> {
        let length = usize::try_from(packed.disk_bytes).unwrap_or(usize::MAX);
        let request = ReadRequest { logical: Logical(packed.address), length };
        let mut reason = None;
        let mut results = self.volume.submit_reads(&[request]).wait(&mut |_, bytes| {
            self.unpack(packed, &bytes).map_err(|error| {
                reason.get_or_insert(error);
                Damage::new(Fault::from(BlockFault::Checksum), packed.place())
            })
        });
        match results.pop() {
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => Err(reason.unwrap_or_else(|| error.to_string())),
            None => Err("it was not read".to_owned()),
        }
    }
}

/// Unpacks all that was listed. Leaves that are read from here on list nothing.
pub(crate) fn judge(context: &mut CheckState<'_>) {
    context.judge.unpacks = false;
    let empty = context.sorter();
    let packed = core::mem::replace(&mut context.packed, empty).finish();
    let mut all = packed.iter().peekable();
    while all.peek().is_some() {
        let mut batch: Vec<Packed> = Vec::with_capacity(BATCH);
        while batch.len() < BATCH
            && let Some(next) = all.next()
        {
            batch.push(next);
        }
        let CheckState { judge, workers, .. } = &mut *context;
        let unpacked = workers.map(&batch, |packed| judge.unpack_extent(packed));
        for (packed, result) in batch.iter().zip(unpacked) {
            if let Err(reason) = result {
                context.find(not_unpacked(packed, reason), packed.place());
            }
        }
    }
}
