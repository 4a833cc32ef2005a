//! What space somebody counts on, and whether all of it finds room: arithmetic over sums, without locks.
//!
//! Data and metadata that the block groups have no room for need new chunks, and both count on the same unallocated space.
//! So every promise asks whether *all* promises find room together, with the one that is asked for.

use vlinder_format::chunk::STRIPE_LENGTH;

use crate::reservation::Draw;

/// Data that are flushed together take at most this many bytes of leaves for each [`DATA_PIECE_BYTES`], or one tree block
/// where those are longer: even extents of one sector each have an item of the file, one of the extent tree, a checksum and
/// a place in the free-space tree, together some 210 bytes, in leaves that are half full.
const LEAST_PIECE_METADATA_BYTES: u64 = 8 << 10;
const DATA_PIECE_BYTES: u64 = 64 << 10;

/// Space of the devices that no chunk has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unallocated {
    /// Bytes that new chunks can have, on all devices.
    pub(crate) bytes: u64,
    /// How often a new chunk of data holds each byte.
    pub(crate) data_copies: u64,
    /// How often a new chunk of metadata holds each byte.
    pub(crate) metadata_copies: u64,
}

impl Unallocated {
    /// Bytes of devices that chunks of so much room take.
    pub(crate) fn taken_by(self, room: Room) -> u64 {
        let data = room.data.next_multiple_of(STRIPE_LENGTH).saturating_mul(self.data_copies);
        let metadata = room.metadata.next_multiple_of(STRIPE_LENGTH).saturating_mul(self.metadata_copies);
        data.saturating_add(metadata)
    }
}

/// An amount of space, in bytes as files and trees see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) data: u64,
    pub(crate) metadata: u64,
}

impl Room {
    /// What of this `available` does not cover. Where groups are mixed, both come out of the same bytes, which
    /// `available.data` counts, and what lacks is called data.
    pub(crate) fn beyond(self, available: Self, is_mixed: bool) -> Self {
        if is_mixed {
            let all = self.data.saturating_add(self.metadata);
            return Self { data: all.saturating_sub(available.data), metadata: 0 };
        }
        Self {
            data: self.data.saturating_sub(available.data),
            metadata: self.metadata.saturating_sub(available.metadata),
        }
    }
}

/// Metadata that are kept, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GlobalReserve {
    /// All of it.
    pub(crate) all: u64,
    /// Of that, what is the commit's alone: it may have to copy each block of the extent tree and its like once.
    pub(crate) commit: u64,
    /// Of that, what is kept for deleting trees.
    pub(crate) trees: u64,
}

/// The sums of all promises, in bytes.
#[derive(Debug, Default)]
pub(crate) struct Promises {
    /// Metadata, to open handles.
    metadata: u64,
    /// Data, to writes.
    data: u64,
    /// Of `data`, what was taken from a group already and has no item yet. It may be more: bytes that were to be written in
    /// place, which are promised nothing, need new space if a snapshot came to share the old one.
    placed: u64,
    reserve: GlobalReserve,
    /// Bytes of a tree block.
    block: u64,
}

impl Promises {
    pub(crate) fn new(block: u64) -> Self {
        Self { block, ..Self::default() }
    }

    /// What has to find room for all promises, the kept metadata and what the next commit owes.
    pub(crate) fn needs(&self, draw: Draw, owed: u64) -> Room {
        let kept = match draw {
            Draw::Nothing => self.reserve.all + self.metadata_of_data(self.data),
            Draw::Reserve => self.reserve.commit + self.reserve.trees,
            Draw::LastReserve => self.reserve.commit,
        };
        Room { data: self.data.saturating_sub(self.placed), metadata: self.metadata + owed + kept }
    }

    /// What [`needs`](Self::needs) is with so many bytes of data more.
    pub(crate) fn needs_with_data(&self, data: u64, owed: u64) -> Room {
        let needs = self.needs(Draw::Nothing, owed);
        let leaves = self.metadata_of_data(self.data + data) - self.metadata_of_data(self.data);
        Room { data: needs.data + data, metadata: needs.metadata + leaves }
    }

    /// The tree blocks that so much data need at worst when they are flushed.
    fn metadata_of_data(&self, data: u64) -> u64 {
        let block = u128::from(self.block.max(LEAST_PIECE_METADATA_BYTES));
        u64::try_from(u128::from(data) * block / u128::from(DATA_PIECE_BYTES)).unwrap_or(u64::MAX)
    }

    pub(crate) fn set_global_reserve(&mut self, reserve: GlobalReserve) {
        self.reserve = reserve;
    }

    pub(crate) fn global_reserve(&self) -> u64 {
        self.reserve.all
    }

    pub(crate) fn add_metadata(&mut self, bytes: u64) {
        self.metadata += bytes;
    }

    pub(crate) fn remove_metadata(&mut self, bytes: u64) {
        self.metadata -= bytes;
    }

    pub(crate) fn add_data(&mut self, bytes: u64) {
        self.data += bytes;
    }

    pub(crate) fn remove_data(&mut self, bytes: u64) {
        self.data -= bytes;
    }

    /// Promised data were taken from a group.
    pub(crate) fn place(&mut self, bytes: u64) {
        self.placed += bytes;
    }

    /// Placed data have their items, or gave their space back.
    pub(crate) fn displace(&mut self, bytes: u64) {
        self.placed -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    #[test]
    fn data_and_metadata_beyond_the_groups_share_what_is_unallocated() {
        let unallocated = Unallocated { bytes: 10 * MEBIBYTE, data_copies: 1, metadata_copies: 2 };
        let available = Room { data: 5 * MEBIBYTE, metadata: MEBIBYTE };
        let taken = |data, metadata| unallocated.taken_by(Room { data, metadata }.beyond(available, false));
        assert_eq!(taken(5 * MEBIBYTE, MEBIBYTE), 0);
        assert_eq!(taken(15 * MEBIBYTE, MEBIBYTE), 10 * MEBIBYTE);
        assert_eq!(taken(11 * MEBIBYTE, 3 * MEBIBYTE), 10 * MEBIBYTE);
        assert_eq!(taken(5 * MEBIBYTE + 1, 0), STRIPE_LENGTH, "chunks are whole stripes");
    }

    #[test]
    fn in_mixed_groups_both_come_out_of_the_same_bytes() {
        let available = Room { data: 5 * MEBIBYTE, metadata: 5 * MEBIBYTE };
        let needs = Room { data: 4 * MEBIBYTE, metadata: 3 * MEBIBYTE };
        assert_eq!(needs.beyond(available, true), Room { data: 2 * MEBIBYTE, metadata: 0 });
    }

    #[test]
    fn who_draws_on_the_reserve_leaves_the_commits_part_and_the_promised_data() {
        let mut promises = Promises::new(16 << 10);
        promises.set_global_reserve(GlobalReserve {
            all: 8 * MEBIBYTE,
            commit: 5 * MEBIBYTE,
            trees: MEBIBYTE,
        });
        promises.add_metadata(MEBIBYTE);
        promises.add_data(64 * MEBIBYTE);
        let kept_for_data = 16 * MEBIBYTE;
        let anybody = promises.needs(Draw::Nothing, 100);
        assert_eq!(anybody, Room { data: 64 * MEBIBYTE, metadata: 9 * MEBIBYTE + kept_for_data + 100 });
        let reserve_user = promises.needs(Draw::Reserve, 100);
        assert_eq!(reserve_user, Room { data: 64 * MEBIBYTE, metadata: 7 * MEBIBYTE + 100 });
        let tree_deletion = promises.needs(Draw::LastReserve, 100);
        assert_eq!(tree_deletion, Room { data: 64 * MEBIBYTE, metadata: 6 * MEBIBYTE + 100 });
        promises.place(60 * MEBIBYTE);
        assert_eq!(promises.needs(Draw::Reserve, 0).data, 4 * MEBIBYTE);
        promises.displace(60 * MEBIBYTE);
        promises.remove_data(64 * MEBIBYTE);
        assert_eq!(promises.needs(Draw::Nothing, 0), Room { data: 0, metadata: 9 * MEBIBYTE });
    }

    #[test]
    fn small_blocks_do_not_make_the_leaves_of_data_smaller() {
        let leaves = |block| Promises::new(block).needs_with_data(MEBIBYTE, 0).metadata;
        assert_eq!([4096, 8192, 16384, 65536].map(leaves), [128 << 10, 128 << 10, 256 << 10, MEBIBYTE]);
    }
}
