//! The checksum tree: which bytes have checksums, and, where asked, whether they are right.

use vlinder_codec::checksum::checksum;
use vlinder_format::checksum_item::ChecksumGeometry;
use vlinder_format::{ItemType, Logical, Place, RootId};
use vlinder_volume::ReadRequest;

use crate::check_state::CheckState;
use crate::finding::FindingKind;
use crate::item::Item;
use crate::ranges::{Gathering, Ranges};
use crate::reader::is_bad;
use crate::walk::ItemVisitor;

/// Bytes of data that are read at once.
const READ_BYTES: u64 = 1 << 20;

/// Bytes that have checksums.
pub(crate) struct ChecksumTree {
    pub(crate) covered: Gathering,
}

fn geometry(state: &CheckState<'_>) -> ChecksumGeometry {
    ChecksumGeometry {
        sector_size: state.judge.rules.sector_size,
        checksum_size: state.judge.rules.checksum_size,
        node_size: state.judge.rules.node_size,
    }
}

/// Reads the data of a checksum item and compares.
fn judge_data(state: &mut CheckState<'_>, start: Logical, sums: &[u8], place: Place) {
    let sector = u64::from(state.judge.rules.sector_size);
    let size = state.judge.checksum_kind.size_bytes();
    let sectors_at_once = usize::try_from(READ_BYTES.checked_div(sector).unwrap_or(1).max(1)).unwrap_or(1);
    let volume = vlinder_base::sync::Arc::clone(&state.judge.volume);
    let mut logical = start;
    let mut rest = sums;
    while !rest.is_empty() {
        // Items do not end where chunks do: one item may hold the checksums of neighbours in two chunks.
        let in_chunk = volume.chunks().get(logical).map_or(u64::MAX, |chunk| {
            chunk.end().0.saturating_sub(logical.0).checked_div(sector).unwrap_or(1)
        });
        let in_chunk = usize::try_from(in_chunk.max(1)).unwrap_or(usize::MAX);
        let (sums, after) = rest
            .split_at_checked(size.max(1).saturating_mul(sectors_at_once.min(in_chunk)))
            .unwrap_or((rest, &[]));
        rest = after;
        let sectors = u64::try_from(sums.len().checked_div(size).unwrap_or(0)).unwrap_or(0);
        let bytes = sectors.saturating_mul(sector);
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let kind = state.judge.checksum_kind;
        let mut is_good = |number: usize, data: &[u8]| {
            let at = number.saturating_mul(size);
            let stored = sums.get(at..at.saturating_add(size));
            stored.is_some_and(|stored| checksum(kind, data).as_bytes(kind) == stored)
        };
        match volume.read_data(ReadRequest { logical, length }, &mut is_good) {
            Ok(verified) => {
                for bad in verified.bad_copies.into_iter().filter(is_bad) {
                    let reason = bad.failure.fault.to_string();
                    let (device, physical) = (bad.failure.device, bad.failure.physical);
                    state.find(FindingKind::BadCopy { device, physical, reason }, place);
                }
            }
            Err(error) => {
                state.find(FindingKind::DataChecksum { logical, reason: error.to_string() }, place);
            }
        }
        state.report.data_bytes = state.report.data_bytes.saturating_add(bytes);
        state.advance(bytes);
        logical = Logical(logical.0.saturating_add(bytes));
    }
}

impl ItemVisitor for ChecksumTree {
    fn item(&mut self, context: &mut CheckState<'_>, item: &Item<'_>) {
        if item.key.item_type != ItemType::EXTENT_CHECKSUM {
            return;
        }
        let start = item.key.offset;
        let covered = geometry(context).covered(item.data.len());
        self.covered.add(start, start.saturating_add(covered));
        if context.options.data_checksums {
            judge_data(context, Logical(start), item.data, item.place());
        }
    }

    /// By its key the bytes have checksums, of which nothing else is known.
    fn faulty(&mut self, context: &mut CheckState<'_>, item: &Item<'_>) {
        let start = item.key.offset;
        let is_one = item.key.item_type == ItemType::EXTENT_CHECKSUM;
        if is_one && start.is_multiple_of(u64::from(context.judge.rules.sector_size.max(1))) {
            let covered = geometry(context).covered(item.data.len());
            self.covered.add(start, start.saturating_add(covered));
        }
    }
}

/// Checksums must be of data extents.
pub(crate) fn judge(context: &mut CheckState<'_>, covered: &Ranges, data: &Ranges) {
    for covered in covered.iter() {
        if let Some((start, end)) = data.first_gap(covered.start, covered.end) {
            let place = Place { tree: Some(RootId::CHECKSUM_TREE), ..Place::default() };
            let kind = FindingKind::ChecksumOfNothing { start: Logical(start), end: Logical(end) };
            context.find(kind, place);
        }
    }
}
