//! The global reserve, and how large the trees are that a commit changes: what the prices of changes are made
//! of.

use std::ops::Range;

use vlinder_base::sync::Arc;
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_format::{Generation, ItemType, Key, ObjectId};
use vlinder_tree::{Precision, Root, Touch, TreeError};

use crate::chunk_work::ChunkWork;
use crate::commit_queues::CommitQueues;
use crate::dead_trees::SMALLEST_STEP;
use crate::measuring::NO_GENERATION;
use crate::reservation::SUBVOLUME_DELETION_LEAVES;
use crate::subvolume_numbers::SubvolumeNumbers;
use crate::system_trees::SystemTrees;
use vlinder_forest::OpenTree;
use vlinder_space::{Charge, CountedBlocks, GlobalReserve, LookUps, SpaceManager, TreeSizes, Unallocated};

/// Linux's bound of the global reserve.
const MAX_RESERVED_BYTES: u64 = 512 << 20;
/// Levels that a tree can have (Linux: `BTRFS_MAX_LEVEL`).
const LEVELS: u64 = 8;
/// Items that removing a name changes (Linux 6.18: `BTRFS_UNLINK_METADATA_UNITS`).
const UNLINK_ITEMS: u64 = 6;
/// Items that a snapshot asks Linux for (`create_snapshot`).
const SNAPSHOT_ITEMS: u64 = 8;
/// What making a file asks Linux for beyond its reserve: five items, each by its path, copied and split, and
/// twice more for the delayed references (`btrfs_start_transaction`; seen on full file systems of 128 and
/// 256 MiB).
const MARGIN_BLOCKS: u64 = 5 * 3 * LEVELS * 2;
/// Extents of a sector that the smallest part of a flush may overwrite.
const OVERWRITTEN: Charge = {
    let mut charge = Charge::leaves(0);
    charge.dropped_references = 32;
    charge.extents = 32;
    charge.checksums = 32;
    charge
};
/// A part of the device that the reserve may always take.
const SHARE_OF_DEVICE: u64 = 8;
/// Linux's removals of names leave this part of its reserve (`steal_from_global_rsv`).
const SHARE_THAT_REMOVALS_LEAVE: u64 = 10;
/// What sizes the global reserve and counts the trees.
#[derive(Clone, Copy)]
pub(crate) struct ReserveSizing<'a> {
    pub(crate) trees: &'a SystemTrees,
    pub(crate) queues: &'a CommitQueues,
    pub(crate) space: &'a SpaceManager,
    pub(crate) chunks: &'a ChunkWork,
    pub(crate) numbers: &'a SubvolumeNumbers,
}

impl LookUps for ReserveSizing<'_> {
    fn unallocated(&self) -> Unallocated {
        self.chunks.unallocated()
    }

    /// Counts what [`TreeSizes`] has bounds for; none where that could not be read, or is no better.
    fn count_trees(&self, owed: &Charge) -> Option<CountedBlocks> {
        let counted = self.try_count_trees(owed);
        counted.inspect_err(|error| tracing::debug!(%error, "the trees could not be counted")).ok()
    }
}

impl ReserveSizing<'_> {
    fn node_size(&self) -> u32 {
        self.trees.node_size()
    }

    /// Learns anew how large the trees are, and how much is kept for commits and deletions. Called when the
    /// trees of a transaction have come to rest.
    pub(crate) fn size_global_reserve(&self) {
        let fixed = self.trees.fixed();
        let blocks = |tree: &OpenTree| tree.item().bytes_used.div_ceil(u64::from(self.node_size()));
        let free_space = fixed.free_space.as_ref().map_or(0, |tree| blocks(tree));
        let open = self.trees.forest().open_trees();
        let levels = open.iter().map(|tree| u64::from(tree.root().pointer().level.0) + 1).max().unwrap_or(1);
        let sizes = TreeSizes {
            block_bytes: u64::from(self.node_size()),
            levels,
            extent: blocks(&fixed.extent),
            free_space,
            checksum: blocks(&fixed.checksum),
            files: self.trees.blocks_of_files(&open),
            made: 0,
            roots_and_groups: self.roots_and_groups_bound(open.len(), levels),
            about_blocks: blocks(&fixed.extent).saturating_add(free_space),
            own_moves: None,
            chosen_blocks: 0,
        };
        // A subvolume loses its name, and then its blocks.
        let name = sizes.price_bytes(&Charge::leaves(u64::from(SUBVOLUME_DELETION_LEAVES)));
        let deletion = name.max(sizes.price_bytes(&SMALLEST_STEP));
        let trees = if self.numbers.has_given_any() { deletion } else { 0 };
        let overwriting = sizes.price_blocks(&OVERWRITTEN).saturating_mul(sizes.block_bytes);
        let unallocated = self.chunks.unallocated();
        let room =
            self.metadata_total().saturating_add(unallocated.bytes / unallocated.metadata_copies.max(1));
        // A small file system has no room for all of Linux's; but data must not eat it up by and by.
        let share = self.chunks.device_bytes() / SHARE_OF_DEVICE / unallocated.metadata_copies.max(1);
        let all = self.linux_reserve().min(share.max(room / 2));
        let margin = (u64::from(self.node_size()) * MARGIN_BLOCKS).min(all / 3 * 2);
        let removals =
            (all / SHARE_THAT_REMOVALS_LEAVE).saturating_add(self.linux_items(UNLINK_ITEMS)).min(all);
        let trees = trees.min(all);
        let snapshot = self.linux_items(SNAPSHOT_ITEMS);
        let reserve = GlobalReserve { all, margin, snapshot, overwriting, removals, trees };
        self.space.reservations().set_sizes(sizes, reserve);
    }

    /// Blocks of root items and group items that a commit may copy: a path for each open tree and for each
    /// group, unless the trees that hold the items are smaller.
    fn roots_and_groups_bound(&self, open_trees: usize, levels: u64) -> u64 {
        let paths = |items: usize| u64::try_from(items).unwrap_or(u64::MAX).saturating_mul(levels);
        let groups = &self.trees.fixed().groups;
        let group_blocks = if groups.id() == self.trees.fixed().extent.id() {
            // They lie among the extent items, those of groups of tree blocks in leaves that are counted
            // there.
            paths(self.space.group_count())
        } else {
            groups.item().bytes_used.div_ceil(u64::from(self.node_size()))
        };
        paths(open_trees).saturating_add(group_blocks)
    }

    fn try_count_trees(&self, owed: &Charge) -> Result<CountedBlocks, TreeError> {
        let places = self.space.places_of_blocks();
        let keys = |range: &Range<u64>| {
            Key::new(ObjectId(range.start), ItemType(0), 0)..Key::new(ObjectId(range.end), ItemType(0), 0)
        };
        let ranges: Vec<Range<Key>> = places.iter().map(keys).collect();
        let mut about_blocks = self.count_blocks(self.trees.fixed().extent.root(), &ranges)?;
        if let Some(free_space) = &self.trees.fixed().free_space {
            about_blocks = about_blocks.saturating_add(self.count_blocks(free_space.root(), &ranges)?);
        }
        let everything = [Key::MIN..Key::MAX];
        let mut roots_and_groups = self.count_blocks(self.trees.root_tree(), &everything)?;
        if self.trees.fixed().groups.id() == self.trees.fixed().extent.id() {
            let groups = u64::try_from(self.space.group_count()).unwrap_or(u64::MAX);
            let levels = u64::from(self.trees.fixed().extent.root().pointer().level.0) + 1;
            roots_and_groups = roots_and_groups.saturating_add(groups.saturating_mul(levels));
        } else {
            let groups = self.count_blocks(self.trees.fixed().groups.root(), &everything)?;
            roots_and_groups = roots_and_groups.saturating_add(groups);
        }
        Ok(CountedBlocks { about_blocks, roots_and_groups, own_moves: self.own_moves(about_blocks, owed)? })
    }

    /// Blocks of a tree in which keys of these ranges lie.
    fn count_blocks(&self, root: &Arc<Root>, ranges: &[Range<Key>]) -> Result<u64, TreeError> {
        let touches: Vec<Touch> =
            ranges.iter().map(|keys| Touch { keys: keys.clone(), growth_bytes: 0 }).collect();
        Ok(self.trees.store().measure(root, NO_GENERATION, Generation(0), &touches, Precision::Nodes)?.copies)
    }

    /// Bytes of the groups that hold metadata.
    fn metadata_total(&self) -> u64 {
        let kinds = self.space.kinds(|_| false);
        let metadata = kinds.iter().filter(|kind| kind.flags.has(BlockGroupFlags::METADATA));
        metadata.map(|kind| kind.total_bytes).sum()
    }

    /// The size of Linux's global reserve on this file system (`btrfs_update_global_block_rsv`): the trees
    /// that describe space, or what the removal of a name may take where that is more.
    pub(crate) fn linux_reserve(&self) -> u64 {
        let (mut bytes, mut items) = (0_u64, 1 + UNLINK_ITEMS);
        for tree in self.trees.fixed().of_space() {
            bytes = bytes.saturating_add(tree.item().bytes_used);
            items += 1;
        }
        // Each reference that goes may change the free-space tree as well.
        let per_reference = if self.trees.fixed().free_space.is_some() { 2 } else { 1 };
        bytes.max(self.linux_items(items + UNLINK_ITEMS * per_reference)).min(MAX_RESERVED_BYTES)
    }

    /// What Linux asks for to change so many items (`btrfs_calc_insert_metadata_size`), in bytes.
    fn linux_items(&self, items: u64) -> u64 {
        u64::from(self.node_size()) * LEVELS * 2 * items
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use vlinder_testkit::{Scratch, kernel, require};

    use crate::opening_tests::write;

    /// Linux says how large its reserve is when it has mounted the image.
    #[test]
    fn the_reserve_is_as_large_as_that_of_linux() {
        require!(Root, Tool("mkfs.btrfs"), Tool("btrfs"));
        let scratch = Scratch::new("linux_reserve");
        for (arguments, megabytes) in [
            (&[][..], 256),
            (&["-R", "^free-space-tree"], 256),
            (&["-n", "4096", "-m", "single"], 512),
            (&["-n", "65536"], 1024),
            (&["--mixed"], 128),
        ] {
            let image = scratch.path().join("image");
            std::fs::File::create(&image).unwrap().set_len(megabytes << 20).unwrap();
            let mut mkfs = Command::new("mkfs.btrfs");
            assert!(mkfs.arg("-q").args(arguments).arg(&image).status().unwrap().success());
            // It uses so much that the trees have several blocks of which Linux counts each.
            let mounted = kernel::KernelMount::new(&image, "").unwrap();
            for number in 0..3000 {
                std::fs::write(mounted.path().join(format!("a rather long name {number}")), "x").unwrap();
            }
            mounted.unmount().unwrap();
            let ours = {
                let engine = write(&image).unwrap();
                let fsid = engine.superblock().fsid;
                (fsid.to_string(), engine.core().reserve_sizing().linux_reserve())
            };
            let mounted = kernel::KernelMount::new(&image, "").unwrap();
            let place = format!("/sys/fs/btrfs/{}/allocation/global_rsv_size", ours.0);
            let theirs: u64 = std::fs::read_to_string(place).unwrap().trim().parse().unwrap();
            mounted.unmount().unwrap();
            assert_eq!(ours.1, theirs, "{arguments:?}");
        }
    }
}
