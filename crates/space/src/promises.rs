//! Sums of all promises, and whether they fit together: arithmetic without locks.
//!
//! Data and metadata that the block groups have no room for need new chunks, and both count on the same
//! unallocated space. So every promise asks whether *all* promises find room together, with the one that is
//! asked for.

use vlinder_format::chunk::STRIPE_LENGTH;

use crate::charge::{Charge, FILE_EXTENT_ITEM_BYTES, INODE_ITEM_BYTES, TreeSizes, given_back};
use crate::demand::{ReserveAccess, ReservedData, Wanted};
use crate::ticket_order::Tickets;

/// The longest compressed extent.
const PIECE_BYTES: u64 = 128 << 10;
/// Checksums of a [piece](PIECE_BYTES): the longest (SHA-256, BLAKE2) for each of the smallest sectors.
const PIECE_CHECKSUM_BYTES: u64 = PIECE_BYTES / 4096 * 32;
/// Items of extents that a run of dirty bytes changes: its own, the two parts of one that it cuts, and a
/// neighbour on either side.
const RUN_EXTENT_ITEMS: u64 = 5;
/// A file that lies in the tree, at most, if no option says otherwise (`max_inline`, in Linux as here).
const INLINE_BYTES: u64 = 2048;

/// What a run of dirty bytes may take of metadata when it is flushed, whatever its length: the items of its
/// file's extents, the file's inode item, and its bytes themselves where they go into the tree. Its own
/// extent is referenced, and the one that it cuts once more.
const RUN: Charge = Charge {
    items: RUN_EXTENT_ITEMS + 1,
    item_bytes: RUN_EXTENT_ITEMS * FILE_EXTENT_ITEM_BYTES + INODE_ITEM_BYTES + INLINE_BYTES,
    added_references: 2,
    extents: 1,
    checksums: 1,
    checksum_bytes: PIECE_CHECKSUM_BYTES,
    ..Charge::NOTHING
};
/// What each further [`PIECE_BYTES`] of a run may take: an extent of their own, and their checksums.
const PIECE: Charge = Charge {
    items: 1,
    item_bytes: FILE_EXTENT_ITEM_BYTES,
    added_references: 1,
    extents: 1,
    checksums: 1,
    checksum_bytes: PIECE_CHECKSUM_BYTES,
    ..Charge::NOTHING
};

/// Space of the devices that no chunk has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unallocated {
    /// Bytes that new chunks can have, on all devices.
    pub bytes: u64,
    /// How often a new chunk of data holds each byte.
    pub data_copies: u64,
    /// How often a new chunk of metadata holds each byte.
    pub metadata_copies: u64,
}

impl Unallocated {
    /// Bytes of devices that chunks of so much room take.
    pub fn taken_by(self, room: Room) -> u64 {
        let data = room.data.next_multiple_of(STRIPE_LENGTH).saturating_mul(self.data_copies);
        let metadata = room.metadata.next_multiple_of(STRIPE_LENGTH).saturating_mul(self.metadata_copies);
        data.saturating_add(metadata)
    }
}

/// An amount of space, in bytes as files and trees see them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Of data.
    pub data: u64,
    /// Of metadata, each byte once.
    pub metadata: u64,
}

impl Room {
    /// What of this `available` does not cover. Where groups are mixed, both come out of the same bytes,
    /// which `available.data` counts, and what lacks is called data.
    pub fn beyond(self, available: Self, is_mixed: bool) -> Self {
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

/// Metadata space that ordinary changes leave alone, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalReserve {
    /// All of it, as large as Linux's.
    pub all: u64,
    /// Beyond that, what ordinary changes leave, as Linux's do by asking for more than they take.
    pub margin: u64,
    /// What a snapshot asks Linux for beyond the reserve, on which it draws where it takes more.
    pub snapshot: u64,
    /// What flushing a piece of accepted data may take beyond its promise, because it drops the extents that
    /// it overwrites.
    pub overwriting: u64,
    /// What removing a name leaves of it, with what the removal itself may take: as much as Linux's does, so
    /// that it can go on there.
    pub removals: u64,
    /// What is left for deleting trees by those who draw on it for anything else.
    pub trees: u64,
}

/// The sums of all promises.
#[derive(Debug, Default)]
pub struct Promises {
    /// What open handles may change.
    handles: Charge,
    /// Data, to writes.
    data: ReservedData,
    /// Of `data`, what was taken from a group already and has no item yet. It may be more: bytes that were to
    /// be written in place, which are promised nothing, need new space if a snapshot came to share the old
    /// one.
    placed: u64,
    tickets: Tickets,
    reserve: GlobalReserve,
    sizes: TreeSizes,
}

impl Promises {
    pub fn new(block_bytes: u64) -> Self {
        let sizes = TreeSizes { block_bytes, ..TreeSizes::default() };
        Self { sizes, ..Self::default() }
    }

    /// What has to find room: all promises and what is asked for, what `waiting` changes take at the next
    /// commit, what that takes by itself, and what `draw` leaves of the reserve, for one. The calling
    /// thread's own ticket is for itself.
    pub fn needs(&self, access: ReserveAccess, waiting: Charge, wanted: Wanted) -> Room {
        let mut data = self.data;
        data += wanted.data;
        let changes = self.changes(access, waiting, wanted);
        let waited_for = self.tickets.bytes_before_this_thread();
        let owed = changes + self.kept_changes(access);
        let commit = self.sizes_for(access).commit_bytes(&owed);
        let deletions = commit.saturating_add(self.reserve.trees);
        // Linux asks for more than a change takes, not for both: so what it leaves beyond is for what is
        // asked for, too.
        let own = self.price_bytes(&(wanted.held + wanted.changes + charge_of_data(wanted.data)));
        let kept = match access {
            ReserveAccess::Nothing | ReserveAccess::Margin => {
                let margin = if access == ReserveAccess::Nothing {
                    self.reserve.margin.saturating_sub(own)
                } else {
                    0
                };
                let deletions = deletions.saturating_add(self.reserve.overwriting);
                self.reserve.all.max(deletions).saturating_add(waited_for).saturating_add(margin)
            }
            ReserveAccess::Snapshot => {
                let left_by_linux =
                    self.reserve.all.saturating_add(self.reserve.snapshot).saturating_sub(own);
                deletions
                    .saturating_add(self.reserve.overwriting)
                    .max(left_by_linux)
                    .saturating_add(waited_for)
            }
            ReserveAccess::Removal => {
                let left_by_linux = self.reserve.removals.saturating_sub(own);
                deletions.max(left_by_linux).saturating_add(waited_for)
            }
            ReserveAccess::Reserve => deletions.saturating_add(waited_for),
            ReserveAccess::Accepted => deletions,
            ReserveAccess::LastReserve => commit,
        };
        // A promise may be used in the transaction to come, which copies anew, as accepted data may. What
        // waits is of this one.
        let is_of_this_transaction =
            access > ReserveAccess::Reserve && self.handles == Charge::NOTHING && wanted == Wanted::default();
        let made = if is_of_this_transaction { self.sizes.made } else { 0 };
        let price = TreeSizes { made, ..self.sizes }.price_bytes(&changes);
        let metadata = price.saturating_add(kept);
        Room { data: data.bytes.saturating_sub(self.placed), metadata }
    }

    /// All changes that may go into the next commit: those of handles, those that wait, and what is asked
    /// for.
    fn changes(&self, access: ReserveAccess, waiting: Charge, wanted: Wanted) -> Charge {
        let changes = self.handles + waiting + wanted.changes;
        if access > ReserveAccess::Reserve {
            return changes;
        }
        let mut data = self.data;
        data += wanted.data;
        changes + charge_of_data(data)
    }

    /// What the commit may have to do beside them, since room is kept for it: a step of deleting a tree.
    fn kept_changes(&self, access: ReserveAccess) -> Charge {
        if access == ReserveAccess::LastReserve {
            return Charge::NOTHING;
        }
        Charge { blocks: self.reserve.trees / self.sizes.block_bytes.max(1), ..Charge::NOTHING }
    }

    /// By which sizes a commit is judged. The bound by how far moves go may be higher in the next
    /// transaction; where subvolumes must still go then, only they count on it.
    pub fn sizes_for(&self, access: ReserveAccess) -> TreeSizes {
        let may_count_on_moves = access == ReserveAccess::LastReserve || self.reserve.trees == 0;
        TreeSizes { own_moves: self.sizes.own_moves.filter(|_| may_count_on_moves), ..self.sizes }
    }

    /// All that the next commit may do, with what is kept.
    pub fn owed(&self, access: ReserveAccess, waiting: Charge, wanted: Wanted) -> Charge {
        self.changes(access, waiting, wanted) + self.kept_changes(access)
    }

    /// What changes can take at worst, in bytes.
    pub fn price_bytes(&self, charge: &Charge) -> u64 {
        TreeSizes { made: 0, ..self.sizes }.price_bytes(charge)
    }

    /// What so much data may take of metadata when they are flushed, in bytes.
    pub fn price_of_data(&self, data: ReservedData) -> u64 {
        self.price_bytes(&charge_of_data(data))
    }

    /// What the commit may take by itself that does these changes, in bytes.
    pub fn commit_bytes(&self, changes: &Charge) -> u64 {
        self.sizes.commit_bytes(changes)
    }

    /// Bytes of a tree block.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.sizes.block_bytes
    }

    pub fn set_sizes(&mut self, sizes: TreeSizes, reserve: GlobalReserve) {
        self.sizes = sizes;
        self.reserve = reserve;
    }

    pub fn reserve(&self) -> &GlobalReserve {
        &self.reserve
    }

    pub fn sizes(&self) -> &TreeSizes {
        &self.sizes
    }

    pub fn sizes_mut(&mut self) -> &mut TreeSizes {
        &mut self.sizes
    }

    /// What metadata may grow by when data that are there already are changed: a file system whose data are
    /// full goes on.
    pub fn growth_bytes(&self) -> u64 {
        self.reserve.all / 4
    }

    pub fn global_reserve(&self) -> u64 {
        self.reserve.all
    }

    pub fn add_handle(&mut self, changes: Charge) {
        self.handles += changes;
    }

    pub fn remove_handle(&mut self, changes: Charge) {
        self.handles -= changes;
    }

    pub fn handles(&self) -> Charge {
        self.handles
    }

    pub(crate) fn tickets(&mut self) -> &mut Tickets {
        &mut self.tickets
    }

    pub fn add_data(&mut self, data: ReservedData) {
        self.data += data;
    }

    pub fn remove_data(&mut self, data: ReservedData) {
        self.data -= data;
    }

    /// Promised data were taken from a group.
    pub fn place(&mut self, bytes: u64) {
        self.placed = self.placed.saturating_add(bytes);
    }

    /// Placed data have their items, or gave their space back.
    pub fn displace(&mut self, bytes: u64) {
        self.placed = given_back(self.placed, bytes);
    }
}

/// What of metadata a flush of so much data may change at most, in counts. The charge of a run includes its
/// first extent.
fn charge_of_data(data: ReservedData) -> Charge {
    let pieces = data.bytes.saturating_sub(data.preallocated_bytes) / PIECE_BYTES;
    RUN.times(data.runs) + PIECE.times(pieces) + data.leaf_copies
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEBIBYTE: u64 = 1 << 20;

    #[test]
    fn a_ticket_keeps_its_room_beside_the_reserve_and_not_within_it() {
        let mut promises = promises();
        let draws = [
            ReserveAccess::Nothing,
            ReserveAccess::Margin,
            ReserveAccess::Snapshot,
            ReserveAccess::Removal,
            ReserveAccess::Reserve,
            ReserveAccess::Accepted,
            ReserveAccess::LastReserve,
        ];
        let needs = |promises: &Promises| {
            draws.map(|access| promises.needs(access, Charge::default(), Wanted::default()).metadata)
        };
        let without = needs(&promises);
        let other = vlinder_base::thread::spawn("other", vlinder_base::thread::current_id).join().unwrap();
        promises.tickets().add(other, 100);
        let with = needs(&promises);
        assert_eq!(
            std::array::from_fn(|access| with[access] - without[access]),
            [100, 100, 100, 100, 100, 0, 0]
        );
    }

    #[test]
    fn deletions_leave_the_metadata_of_accepted_data_alone() {
        let mut promises = promises();
        let needs = |promises: &Promises, access| {
            promises.needs(access, Charge::default(), Wanted::default()).metadata
        };
        let without = needs(&promises, ReserveAccess::Reserve);
        promises.add_data(ReservedData::written(MEBIBYTE, 3));
        let data = promises.price_bytes(&charge_of_data(ReservedData::written(MEBIBYTE, 3)));
        assert!(data > 0);
        assert_eq!(needs(&promises, ReserveAccess::Reserve), without + data);
    }

    #[test]
    fn data_and_metadata_beyond_groups_share_the_unallocated() {
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

    fn promises() -> Promises {
        let block_bytes = 16 << 10;
        let mut promises = Promises::new(block_bytes);
        let sizes = TreeSizes { block_bytes, levels: 2, extent: 40, files: 500, ..TreeSizes::default() };
        promises.set_sizes(
            sizes,
            GlobalReserve {
                all: 8 * MEBIBYTE,
                margin: 3 * MEBIBYTE,
                snapshot: 2 * MEBIBYTE,
                overwriting: 0,
                removals: 5 * MEBIBYTE,
                trees: MEBIBYTE,
            },
        );
        promises
    }

    #[test]
    fn each_draw_leaves_the_reserve_what_a_commit_takes() {
        let mut promises = promises();
        let commit = promises.commit_bytes(&Charge::default());
        assert!(commit > 0 && commit + MEBIBYTE < 8 * MEBIBYTE);
        let metadata = |promises: &Promises, access| {
            promises.needs(access, Charge::default(), Wanted::default()).metadata
        };
        assert_eq!(metadata(&promises, ReserveAccess::Nothing), 11 * MEBIBYTE);
        assert_eq!(metadata(&promises, ReserveAccess::Margin), 8 * MEBIBYTE);
        assert_eq!(metadata(&promises, ReserveAccess::Removal), 5 * MEBIBYTE);
        assert_eq!(metadata(&promises, ReserveAccess::Reserve), commit + MEBIBYTE);
        assert_eq!(metadata(&promises, ReserveAccess::Accepted), commit + MEBIBYTE);
        assert_eq!(metadata(&promises, ReserveAccess::LastReserve), commit);
        promises.sizes_mut().about_blocks = 1000;
        let commit = promises.commit_bytes(&Charge::default());
        assert_eq!(
            metadata(&promises, ReserveAccess::Margin),
            commit + MEBIBYTE,
            "a commit that takes more than the reserve"
        );
    }

    #[test]
    fn a_snapshot_draws_on_the_reserve_and_leaves_deletions_theirs() {
        let promises = promises();
        let blocks = |bytes| Charge { blocks: bytes / promises.sizes().block_bytes, ..Charge::NOTHING };
        for bytes in [MEBIBYTE, 4 * MEBIBYTE, 8 * MEBIBYTE, 20 * MEBIBYTE] {
            let wanted = Wanted { changes: blocks(bytes), ..Wanted::default() };
            let needs = |access| promises.needs(access, Charge::default(), wanted).metadata;
            assert_eq!(
                needs(ReserveAccess::Snapshot),
                (10 * MEBIBYTE).max(needs(ReserveAccess::Reserve)),
                "{bytes}"
            );
        }
    }

    #[test]
    fn what_an_operation_may_take_is_judged_as_a_whole() {
        let mut promises = promises();
        let blocks = |bytes| Charge { blocks: bytes / promises.sizes().block_bytes, ..Charge::NOTHING };
        let (first, second) = (blocks(MEBIBYTE), blocks(2 * MEBIBYTE));
        for access in [ReserveAccess::Nothing, ReserveAccess::Snapshot, ReserveAccess::Removal] {
            let at_once = Wanted { changes: first + second, ..Wanted::default() };
            let at_once = promises.needs(access, Charge::default(), at_once);
            promises.add_handle(first);
            let bit_by_bit = Wanted { changes: second, held: first, ..Wanted::default() };
            assert_eq!(promises.needs(access, Charge::default(), bit_by_bit), at_once, "{access:?}");
            promises.remove_handle(first);
        }
    }

    /// What flushing them asks for by then (`ReserveAccess::Accepted`) has been left by everybody.
    #[test]
    fn data_into_shared_leaves_find_room_for_the_copies_at_flush() {
        let mut promises = promises();
        let copies = Charge { blocks: 100, ..Charge::NOTHING };
        let data = ReservedData::written(4096, 1).with_leaf_copies(copies);
        let changes = charge_of_data(data);
        let flush = Wanted { changes, ..Wanted::default() };
        let flush = promises.needs(ReserveAccess::Accepted, Charge::default(), flush).metadata;
        let asked = Wanted { data, ..Wanted::default() };
        assert!(promises.needs(ReserveAccess::Margin, Charge::default(), asked).metadata >= flush);
        promises.add_data(data);
        for access in [
            ReserveAccess::Nothing,
            ReserveAccess::Margin,
            ReserveAccess::Snapshot,
            ReserveAccess::Removal,
            ReserveAccess::Reserve,
        ] {
            let left = promises.needs(access, Charge::default(), Wanted::default()).metadata;
            assert!(left >= flush, "{access:?}");
        }
        promises.remove_data(data);
        let without = promises.needs(ReserveAccess::Reserve, Charge::default(), Wanted::default()).metadata;
        assert_eq!(without, promises.commit_bytes(&Charge::NOTHING) + MEBIBYTE);
    }

    #[test]
    fn handles_changes_and_data_find_room_that_ordinary_ones_leave() {
        let mut promises = promises();
        let handle = Charge::leaves(10);
        promises.add_handle(handle);
        let data = ReservedData::written(64 * MEBIBYTE, 7);
        promises.add_data(data);
        let waiting = Charge::items(5, 500);
        let wanted = Wanted { changes: Charge::leaves(1), ..Wanted::default() };
        let own = promises.price_bytes(&wanted.changes);
        let reserve_user = promises.needs(ReserveAccess::LastReserve, waiting, wanted);
        let changes = handle + waiting + Charge::leaves(1);
        assert_eq!(
            reserve_user.metadata,
            promises.price_bytes(&changes) + promises.commit_bytes(&Charge::default())
        );
        assert_eq!(reserve_user.data, 64 * MEBIBYTE);
        let anybody = promises.needs(ReserveAccess::Nothing, waiting, wanted);
        let with_data = changes + charge_of_data(data);
        assert_eq!(anybody.metadata, promises.price_bytes(&with_data) + 11 * MEBIBYTE - own);
        promises.place(60 * MEBIBYTE);
        assert_eq!(promises.needs(ReserveAccess::Reserve, waiting, wanted).data, 4 * MEBIBYTE);
        promises.displace(60 * MEBIBYTE);
        promises.remove_data(data);
        promises.remove_handle(handle);
        assert_eq!(promises.needs(ReserveAccess::LastReserve, Charge::default(), Wanted::default()).data, 0);
    }

    #[test]
    fn what_waits_copies_no_block_that_a_handle_copied_already() {
        let mut promises = promises();
        promises.sizes_mut().made = 400;
        let waiting = Charge::items(10_000, 0);
        let sizes = *promises.sizes_mut();
        let (now, anew) = (sizes.price_bytes(&waiting), promises.price_bytes(&waiting));
        assert!(now < anew, "{now} {anew}");
        let commit = promises.commit_bytes(&Charge::default());
        let needs = |promises: &Promises, access, wanted| promises.needs(access, waiting, wanted).metadata;
        assert_eq!(needs(&promises, ReserveAccess::LastReserve, Wanted::default()), commit + now);
        let more = Wanted { changes: Charge { blocks: 1, ..Charge::NOTHING }, ..Wanted::default() };
        assert!(needs(&promises, ReserveAccess::LastReserve, more) > commit + anew);
        assert!(needs(&promises, ReserveAccess::Reserve, Wanted::default()) >= commit + anew);
        promises.add_handle(Charge::leaves(1));
        assert!(needs(&promises, ReserveAccess::LastReserve, Wanted::default()) > commit + anew);
    }

    #[test]
    fn a_long_run_is_charged_for_its_compressed_extents() {
        let run = Charge {
            items: 6,
            item_bytes: 5 * 78 + 185 + 2048,
            added_references: 2,
            extents: 1,
            checksums: 1,
            checksum_bytes: 1024,
            ..Charge::default()
        };
        assert_eq!((charge_of_data(ReservedData::written(100, 1)), PIECE.item_bytes), (run, 78));
        assert_eq!(charge_of_data(ReservedData::written(MEBIBYTE, 1)), RUN + PIECE.times(8));
        assert_eq!(charge_of_data(ReservedData::preallocated(MEBIBYTE, 1)), RUN);
    }
}
