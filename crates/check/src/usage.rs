//! What subvolumes refer to, counted as quotas count it: an extent counts once for each subvolume that leads
//! to it.
//!
//! Trees are read level by level in the order of addresses, all at once, so that what many subvolumes share
//! is read once: each block carries the set of subvolumes that lead to it, and the sets of what it refers to
//! grow by it. Sets are few, and each is kept once. The blocks of a level are a list that may lie in
//! temporary space. Data extents are looked at part by part, so that those of one part fit into memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter::Peekable;

use vlinder_format::file_extent::FileExtent;
use vlinder_format::{Block, Generation, ItemType, Key, Level, Logical, RootId};

use crate::check_state::CheckState;
use crate::checked_tree::CheckedTree;
use crate::expected::Expected;
use crate::root_sets::Uncounted;
use crate::root_sets::{RootSets, Run, Runs, SetId};
use crate::roots::Roots;
use crate::sorted::{Pass, Record, Sorted, Sorter};

/// Blocks that are read at once.
const BATCH: usize = 128;
/// Data extents of one part, at some 50 bytes each.
const MAX_EXTENTS: u64 = 500_000;
/// Bytes that a group of subvolumes uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Of all extents that one of them leads to.
    pub(crate) referenced: u64,
    /// Of those that nobody else leads to.
    pub(crate) exclusive: u64,
}

/// A block that is to be read: what a pointer says of it, and who leads to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wanted {
    logical: Logical,
    set: SetId,
    generation: Generation,
    /// None for the root of a tree.
    first_key: Option<Key>,
    tree: RootId,
}

impl Record for Wanted {
    const BYTES: usize = 29 + Key::SIZE;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.logical.0.to_le_bytes());
        bytes.extend_from_slice(&self.set.to_le_bytes());
        bytes.extend_from_slice(&self.generation.0.to_le_bytes());
        bytes.extend_from_slice(&self.tree.0.to_le_bytes());
        bytes.push(u8::from(self.first_key.is_some()));
        bytes.extend_from_slice(&self.first_key.unwrap_or(Key::MIN).encode());
    }

    fn decode(bytes: &[u8]) -> Self {
        let u64_at = |at| Self::field(bytes, at).map_or(0, u64::from_le_bytes);
        Self {
            logical: Logical(u64_at(0)),
            set: Self::field(bytes, 8).map_or(0, u32::from_le_bytes),
            generation: Generation(u64_at(12)),
            tree: RootId(u64_at(20)),
            first_key: Self::field(bytes, 29)
                .filter(|_| bytes.get(28) == Some(&1))
                .map(|key| Key::decode(&key)),
        }
    }

    /// Those of one block that others lead to are joined when the list is read.
    fn absorb(&mut self, next: &Self) -> bool {
        (self.logical, self.set) == (next.logical, next.set)
    }
}

impl Wanted {
    fn field<const BYTES: usize>(bytes: &[u8], at: usize) -> Option<[u8; BYTES]> {
        bytes.get(at..)?.first_chunk().copied()
    }
}

/// The blocks of one level, in the order of their addresses.
type Blocks<'a> = Peekable<Pass<'a, Wanted>>;

/// What was counted.
pub(crate) struct Counted {
    /// In order; with what each uses by itself.
    subvolumes: Vec<(RootId, Usage)>,
    /// Bytes by the set of subvolumes that lead to them, for sets of several: positions among the subvolumes.
    shared: Vec<(Runs, u64)>,
    /// Runs of these sets together.
    runs: usize,
}

impl Counted {
    /// From the bytes that each subvolume alone leads to, and those that several do.
    pub(crate) fn new(alone: Vec<(RootId, u64)>, shared: Vec<(Runs, u64)>) -> Self {
        let usage = |bytes| Usage { referenced: bytes, exclusive: bytes };
        let mut subvolumes: Vec<(RootId, Usage)> =
            alone.into_iter().map(|(subvolume, bytes)| (subvolume, usage(bytes))).collect();
        // What begins at each position, and what has ended there.
        let mut steps = vec![(0u64, 0u64); subvolumes.len().saturating_add(1)];
        for (run, bytes) in shared.iter().flat_map(|(set, bytes)| set.iter().map(move |run| (run, bytes))) {
            if let Some((begins, _)) = at(&mut steps, run.first) {
                *begins = begins.saturating_add(*bytes);
            }
            if let Some((_, ends)) = at(&mut steps, run.end) {
                *ends = ends.saturating_add(*bytes);
            }
        }
        let mut sum = 0u64;
        for ((_, usage), (begins, ends)) in subvolumes.iter_mut().zip(steps) {
            sum = sum.saturating_add(begins).saturating_sub(ends);
            usage.referenced = usage.referenced.saturating_add(sum);
        }
        let runs = shared.iter().map(|(set, _)| set.len()).fold(0, usize::saturating_add);
        Self { subvolumes, shared, runs }
    }

    /// How many steps [`of`](Self::of) takes at most.
    pub(crate) fn steps_of(&self, subvolumes: &BTreeSet<RootId>) -> usize {
        match subvolumes.len() {
            0 | 1 => 1,
            count => self.runs.saturating_add(count),
        }
    }

    /// What these subvolumes use together.
    pub(crate) fn of(&self, subvolumes: &BTreeSet<RootId>) -> Usage {
        let find = |subvolume: &RootId| self.subvolumes.binary_search_by_key(subvolume, |(id, _)| *id).ok();
        let found: Vec<usize> = subvolumes.iter().filter_map(find).collect();
        let usage_of = |position: &usize| self.subvolumes.get(*position).map(|(_, usage)| *usage);
        if let [only] = *found {
            return usage_of(&only).unwrap_or_default();
        }
        // What each alone leads to, and once what several of all subvolumes do.
        let exclusive: u64 =
            found.iter().filter_map(usage_of).map(|usage| usage.exclusive).fold(0, u64::saturating_add);
        let mut usage = Usage { referenced: exclusive, exclusive };
        for (set, bytes) in &self.shared {
            let members: usize = set.iter().map(|run| members_in(&found, run)).sum();
            if members > 0 {
                usage.referenced = usage.referenced.saturating_add(*bytes);
            }
            if members == set.iter().map(Run::len).sum() {
                usage.exclusive = usage.exclusive.saturating_add(*bytes);
            }
        }
        usage
    }
}

fn at<T>(list: &mut [T], position: u32) -> Option<&mut T> {
    list.get_mut(usize::try_from(position).ok()?)
}

/// How many of these positions, which are in order, lie in a run.
fn members_in(positions: &[usize], run: &Run) -> usize {
    let before = |bound: u32| {
        positions.partition_point(|position| {
            u64::try_from(*position).is_ok_and(|position| position < u64::from(bound))
        })
    };
    before(run.end).saturating_sub(before(run.first))
}

/// What is still to be read.
struct Counter<'c, 'a> {
    context: &'c mut CheckState<'a>,
    sets: RootSets,
    /// Bytes by set.
    bytes: Vec<u64>,
}

impl Counter<'_, '_> {
    fn add(&mut self, set: SetId, bytes: u64) {
        let Ok(at) = usize::try_from(set) else { return };
        if self.bytes.len() <= at {
            self.bytes.resize(at.saturating_add(1), 0);
        }
        if let Some(sum) = self.bytes.get_mut(at) {
            *sum = sum.saturating_add(bytes);
        }
    }

    /// The next blocks of a level, each once; none at the end.
    fn next_batch(&mut self, blocks: &mut Blocks<'_>) -> Result<Vec<Wanted>, Uncounted> {
        let mut batch: Vec<Wanted> = Vec::new();
        while batch.len() < BATCH
            && let Some(mut wanted) = blocks.next()
        {
            while let Some(other) = blocks.next_if(|other| other.logical == wanted.logical) {
                wanted.set = self.sets.union(wanted.set, other.set)?;
            }
            batch.push(wanted);
        }
        Ok(batch)
    }

    /// Reads blocks of one level, and gives what `look` makes of each, with what was wanted.
    fn read<R: Send>(
        &mut self,
        level: Level,
        blocks: &[Wanted],
        look: impl Fn(&Block) -> R + Sync,
    ) -> Result<Vec<(Wanted, R)>, Uncounted> {
        let CheckState { judge, workers, .. } = &mut *self.context;
        let read = workers.map(blocks, |wanted| {
            let Wanted { logical, generation, first_key, tree, .. } = *wanted;
            let expected = Expected { tree, logical, generation, level, first_key };
            // What is wrong with a copy was found before.
            let block = judge.read(&[expected], &mut Vec::new()).pop().flatten()?;
            Some((*wanted, look(&block)))
        });
        read.into_iter().collect::<Option<Vec<_>>>().ok_or(Uncounted::Damaged)
    }

    /// Goes from the roots down to the leaves, and gives these.
    fn descend(&mut self, trees: impl Iterator<Item = CheckedTree>) -> Result<Sorted<Wanted>, Uncounted> {
        let mut levels: BTreeMap<Level, Sorter<Wanted>> = BTreeMap::new();
        for (set, tree) in (0..).zip(trees) {
            // The kernel's counts go wrong there, too (docs/design/check.md).
            if tree.dropped_to.is_some() {
                return Err(Uncounted::Damaged);
            }
            let (logical, generation) = (tree.logical, tree.generation);
            let wanted = Wanted { logical, set, generation, first_key: None, tree: tree.id };
            levels.entry(tree.level).or_insert_with(|| self.context.sorter()).add(wanted);
        }
        while let Some((level, blocks)) = levels.pop_last() {
            let blocks = blocks.finish();
            let Some(below) = level.below() else { return Ok(blocks) };
            let mut next = levels.remove(&below).unwrap_or_else(|| self.context.sorter());
            self.children_of(level, &blocks, &mut next)?;
            levels.insert(below, next);
        }
        Ok(Sorted::default())
    }

    /// Counts the nodes of a level, and adds what they refer to.
    fn children_of(
        &mut self,
        level: Level,
        blocks: &Sorted<Wanted>,
        children: &mut Sorter<Wanted>,
    ) -> Result<(), Uncounted> {
        let mut blocks = blocks.iter().peekable();
        loop {
            let batch = self.next_batch(&mut blocks)?;
            if batch.is_empty() {
                return Ok(());
            }
            self.count_blocks(&batch);
            for (parent, found) in self.read(level, &batch, |node| node.children().collect::<Vec<_>>())? {
                for child in found {
                    let (logical, generation, first_key) = (child.logical, child.generation, Some(child.key));
                    children.add(Wanted { logical, generation, first_key, ..parent });
                }
            }
        }
    }

    fn count_blocks(&mut self, blocks: &[Wanted]) {
        let node_size = u64::from(self.context.judge.rules.node_size);
        blocks.iter().for_each(|wanted| self.add(wanted.set, node_size));
    }

    /// Counts the leaves and their data extents.
    fn count_leaves(&mut self, leaves: &Sorted<Wanted>, data_extents: u64) -> Result<(), Uncounted> {
        let parts = data_extents.div_ceil(MAX_EXTENTS).max(1);
        for part in 0..parts {
            let mut extents: HashMap<u64, (u64, SetId)> = HashMap::new();
            let mut leaves = leaves.iter().peekable();
            loop {
                let batch = self.next_batch(&mut leaves)?;
                if batch.is_empty() {
                    break;
                }
                if part == 0 {
                    self.count_blocks(&batch);
                }
                for (wanted, of_leaf) in self.read(Level::LEAF, &batch, |leaf| data_of(leaf, parts, part))? {
                    for (logical, length) in of_leaf {
                        let before = extents.get(&logical).map_or(wanted.set, |(_, set)| *set);
                        let set = self.sets.union(before, wanted.set)?;
                        extents.insert(logical, (length, set));
                    }
                }
            }
            for (length, set) in extents.into_values() {
                self.add(set, length);
            }
        }
        Ok(())
    }
}

/// The data extents of a leaf that are of this part of so many.
fn data_of(leaf: &Block, parts: u64, part: u64) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for slot in (0..leaf.len()).filter(|slot| leaf.key(*slot).item_type == ItemType::EXTENT_DATA) {
        let range = FileExtent::decode(leaf.data(slot)).ok().and_then(|extent| extent.range());
        let Some(range) = range.filter(|range| !range.is_hole()) else { continue };
        let logical = range.address.0;
        // Neighbours go to different parts, so that parts are of one size.
        if (logical >> 12).checked_rem(parts) == Some(part) {
            found.push((logical, range.disk_bytes));
        }
    }
    found
}

/// Counts what all subvolumes use. So many data extents there are.
pub(crate) fn count(
    context: &mut CheckState<'_>,
    roots: &Roots,
    data_extents: u64,
) -> Result<Counted, Uncounted> {
    if roots.faulty.has_type(ItemType::ROOT_ITEM) {
        return Err(Uncounted::Damaged);
    }
    // A number of a higher level is no subvolume's.
    let is_counted = |tree: &CheckedTree| tree.id.is_subvolume() && tree.id.0 >> 48 == 0;
    let subvolumes = || roots.iter().map(|root| root.tree()).filter(is_counted);
    let most = RootSets::most_subvolumes().saturating_add(1);
    let sets = RootSets::new(subvolumes().take(most).count())?;
    let mut counter = Counter { context, sets, bytes: Vec::new() };
    let leaves = counter.descend(subvolumes())?;
    counter.count_leaves(&leaves, data_extents)?;
    let Counter { sets, bytes, .. } = counter;
    let mut bytes = bytes.into_iter().chain(core::iter::repeat(0));
    let alone = subvolumes().map(|tree| tree.id).zip(bytes.by_ref()).collect();
    // Sets that nothing is of in the end count nothing.
    let shared = sets.into_shared().into_iter().zip(bytes).filter(|(_, bytes)| *bytes > 0).collect();
    Ok(Counted::new(alone, shared))
}

#[cfg(test)]
mod tests {
    use vlinder_format::block::BlockIdentity;
    use vlinder_format::file_extent::FileExtent;
    use vlinder_format::{FileOffset, ObjectId, Uuid};

    use super::*;
    use crate::check_state::tests::with_context;
    use crate::{chunks, roots};

    #[test]
    fn what_is_wanted_of_a_block_comes_back_from_its_bytes() {
        let of_root = Wanted {
            logical: Logical(0x0102_0304_0506_0708),
            set: 0x1122_3344,
            generation: Generation(u64::MAX - 1),
            first_key: None,
            tree: RootId(257),
        };
        let key = Key::new(ObjectId(0x2122_2324_2526_2728), ItemType::EXTENT_DATA, 0x3132_3334_3536_3738);
        for wanted in [of_root, Wanted { first_key: Some(key), ..of_root }] {
            let mut bytes = Vec::new();
            wanted.encode(&mut bytes);
            assert_eq!(bytes.len(), Wanted::BYTES);
            assert_eq!(Wanted::decode(&bytes), wanted);
        }
    }

    #[test]
    fn what_is_used_alone_is_what_nobody_else_leads_to() {
        let set = |ids: &[u64]| ids.iter().map(|id| RootId(*id)).collect::<BTreeSet<_>>();
        let alone = vec![(RootId(5), 1), (RootId(256), 100), (RootId(257), 1000)];
        let counted = Counted::new(alone, vec![([Run { first: 0, end: 2 }].into(), 10)]);
        assert_eq!(counted.of(&set(&[5])), Usage { referenced: 11, exclusive: 1 });
        assert_eq!(counted.of(&set(&[258])), Usage::default());
        assert_eq!(counted.of(&set(&[5, 256])), Usage { referenced: 111, exclusive: 111 });
        assert_eq!(counted.of(&set(&[256, 257])), Usage { referenced: 1110, exclusive: 1100 });
        assert_eq!(counted.of(&set(&[])), Usage::default());
        assert_eq!((counted.steps_of(&set(&[5])), counted.steps_of(&set(&[5, 256]))), (1, 1 + 2));
    }

    #[test]
    fn each_extent_is_of_one_part() {
        let identity = BlockIdentity {
            logical: Logical(1 << 20),
            generation: Generation(7),
            owner: RootId::FS_TREE,
            level: Level::LEAF,
            fsid: Uuid([1; 16]),
            chunk_tree_uuid: Uuid([2; 16]),
        };
        let mut leaf = Block::new(4096, &identity);
        for number in 0..20 {
            let key = FileExtent::key(ObjectId(257), FileOffset(number * 4096));
            let hole = FileExtent::hole(4096, Generation(7)).encode();
            let end = leaf.len();
            leaf.items_mut().insert(end, &[(key, &hole)]);
            // Where the address and the length lie: every third is left a hole.
            let data = leaf.items_mut().data(end);
            if number % 3 > 0 {
                data[21..29].copy_from_slice(&((100 + number) << 12).to_le_bytes());
                data[29..37].copy_from_slice(&4096u64.to_le_bytes());
            }
        }
        let all = data_of(&leaf, 1, 0);
        let expected: Vec<(u64, u64)> =
            (0..20u64).filter(|number| number % 3 > 0).map(|number| ((100 + number) << 12, 4096)).collect();
        assert_eq!(all, expected);
        let mut parts: Vec<(u64, u64)> = (0..3).flat_map(|part| data_of(&leaf, 3, part)).collect();
        assert!((0..3).all(|part| data_of(&leaf, 3, part).len() < all.len()));
        parts.sort_unstable();
        assert_eq!(parts, all);
    }
    #[test]
    fn what_is_counted_part_by_part_is_what_is_counted_at_once() {
        with_context(|context| {
            chunks::read(context);
            let roots = roots::read(context);
            let [once, parts] = [1, 3].map(|parts| count(context, &roots, parts * MAX_EXTENTS).unwrap());
            assert!(once.subvolumes.iter().any(|(_, usage)| usage.exclusive > 0), "some is not shared");
            assert!(
                once.shared.iter().any(|(set, _)| set.iter().map(Run::len).sum::<usize>() == 2),
                "some is shared"
            );
            assert_eq!((once.subvolumes, once.shared), (parts.subvolumes, parts.shared));
        });
    }
}
