//! What subvolumes refer to, counted as quotas count it: an extent counts once for each subvolume that leads to it.
//!
//! Trees are read level by level in the order of addresses, all at once, so that what many subvolumes share is read once:
//! each block carries the set of subvolumes that lead to it, and the sets of what it refers to grow by it. Sets are few, and
//! each is kept once. The blocks of a level are a list that may lie in temporary space. Data extents are looked at part by
//! part, so that those of one part fit into memory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter::Peekable;

use vlinder_base::sync::Arc;
use vlinder_format::file_extent::FileExtent;
use vlinder_format::{Block, Generation, ItemType, Key, Level, Logical, RootId};

use crate::context::Context;
use crate::reader::Expected;
use crate::roots::Roots;
use crate::sorted::{Pass, Record, Sorted, Sorter};
use crate::walk::Tree;

/// Blocks that are read at once.
const BATCH: usize = 128;
/// Data extents of one part, at some 50 bytes each.
const MOST_EXTENTS: u64 = 500_000;
/// Numbers in all sets together, at 4 bytes each and as much again to find them.
const MOST_MEMBERS: usize = 8 << 20;

/// Bytes that a group of subvolumes uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Of all extents that one of them leads to.
    pub(crate) referenced: u64,
    /// Of those that nobody else leads to.
    pub(crate) exclusive: u64,
}

/// Why nothing could be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uncounted {
    /// Something could not be read, which has been found already; or a subvolume is half deleted.
    Damaged,
    /// There are too many different sets of subvolumes that share extents, quota groups, or members of groups.
    TooMany,
}

/// A set of subvolumes, by its place in the table.
type SetId = u32;

/// All sets that were met, each once: ascending positions in the list of subvolumes.
#[derive(Default)]
struct Sets {
    sets: Vec<Arc<[u32]>>,
    known: HashMap<Arc<[u32]>, SetId>,
    unions: HashMap<(SetId, SetId), SetId>,
    members: usize,
}

impl Sets {
    fn of(&mut self, set: Vec<u32>) -> Result<SetId, Uncounted> {
        let set: Arc<[u32]> = set.into();
        if let Some(id) = self.known.get(&set) {
            return Ok(*id);
        }
        self.members = self.members.saturating_add(set.len());
        let id = SetId::try_from(self.sets.len()).map_err(|_| Uncounted::TooMany)?;
        if self.members > MOST_MEMBERS {
            return Err(Uncounted::TooMany);
        }
        self.sets.push(Arc::clone(&set));
        self.known.insert(set, id);
        Ok(id)
    }

    fn get(&self, id: SetId) -> &[u32] {
        usize::try_from(id).ok().and_then(|id| self.sets.get(id)).map_or(&[], |set| set)
    }

    fn union(&mut self, left: SetId, right: SetId) -> Result<SetId, Uncounted> {
        if left == right {
            return Ok(left);
        }
        let pair = (left.min(right), left.max(right));
        if let Some(id) = self.unions.get(&pair) {
            return Ok(*id);
        }
        let both: BTreeSet<u32> = self.get(left).iter().chain(self.get(right)).copied().collect();
        let id = self.of(both.into_iter().collect())?;
        // What is forgotten is only worked out again.
        if self.unions.len() >= MOST_MEMBERS / 16 {
            self.unions.clear();
        }
        self.unions.insert(pair, id);
        Ok(id)
    }
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
    /// Bytes by the set of subvolumes that lead to them.
    by_set: Vec<(BTreeSet<RootId>, u64)>,
    /// Members of all sets together.
    members: usize,
    /// What each subvolume uses by itself.
    alone: BTreeMap<RootId, Usage>,
}

impl Counted {
    pub(crate) fn new(by_set: Vec<(BTreeSet<RootId>, u64)>) -> Self {
        let mut alone: BTreeMap<RootId, Usage> = BTreeMap::new();
        for (set, bytes) in &by_set {
            for subvolume in set {
                let usage = alone.entry(*subvolume).or_default();
                usage.referenced = usage.referenced.saturating_add(*bytes);
                if set.len() == 1 {
                    usage.exclusive = usage.exclusive.saturating_add(*bytes);
                }
            }
        }
        let members = by_set.iter().map(|(set, _)| set.len()).fold(0, usize::saturating_add);
        Self { by_set, members, alone }
    }

    /// How many steps [`of`](Self::of) takes at most.
    pub(crate) fn steps_of(&self, subvolumes: &BTreeSet<RootId>) -> usize {
        match subvolumes.len() {
            0 | 1 => 1,
            count => self.members.saturating_add(self.by_set.len().saturating_mul(count)),
        }
    }

    /// What these subvolumes use together.
    pub(crate) fn of(&self, subvolumes: &BTreeSet<RootId>) -> Usage {
        let mut usage = Usage::default();
        if subvolumes.len() <= 1 {
            let only = subvolumes.first().and_then(|only| self.alone.get(only));
            return only.copied().unwrap_or_default();
        }
        for (set, bytes) in &self.by_set {
            if !set.is_disjoint(subvolumes) {
                usage.referenced = usage.referenced.saturating_add(*bytes);
            }
            if set.is_subset(subvolumes) {
                usage.exclusive = usage.exclusive.saturating_add(*bytes);
            }
        }
        usage
    }
}

/// What is still to be read.
struct Counter<'c, 'a> {
    context: &'c mut Context<'a>,
    sets: Sets,
    /// Bytes by set.
    bytes: BTreeMap<SetId, u64>,
}

impl Counter<'_, '_> {
    fn add(&mut self, set: SetId, bytes: u64) {
        let sum = self.bytes.entry(set).or_default();
        *sum = sum.saturating_add(bytes);
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
        let Context { judge, workers, .. } = &mut *self.context;
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
    fn descend(&mut self, trees: &[Tree]) -> Result<Sorted<Wanted>, Uncounted> {
        let mut levels: BTreeMap<Level, Sorter<Wanted>> = BTreeMap::new();
        for (position, tree) in (0..).zip(trees) {
            // The kernel's counts go wrong there, too (docs/design/check.md).
            if tree.dropped_to.is_some() {
                return Err(Uncounted::Damaged);
            }
            let set = self.sets.of(vec![position])?;
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
        let parts = data_extents.div_ceil(MOST_EXTENTS).max(1);
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
    context: &mut Context<'_>,
    roots: &Roots,
    data_extents: u64,
) -> Result<Counted, Uncounted> {
    if roots.faulty.has_type(ItemType::ROOT_ITEM) {
        return Err(Uncounted::Damaged);
    }
    // A number of a higher level is no subvolume's.
    let is_counted = |tree: &Tree| tree.id.is_subvolume() && tree.id.0 >> 48 == 0;
    let subvolumes: Vec<Tree> = roots.iter().map(|root| root.tree()).filter(is_counted).collect();
    let mut counter = Counter { context, sets: Sets::default(), bytes: BTreeMap::new() };
    let leaves = counter.descend(&subvolumes)?;
    counter.count_leaves(&leaves, data_extents)?;
    let Counter { sets, bytes, .. } = counter;
    let subvolume = |position: &u32| {
        usize::try_from(*position).ok().and_then(|at| subvolumes.get(at)).map(|tree| tree.id)
    };
    let by_set =
        bytes.into_iter().map(|(set, bytes)| (sets.get(set).iter().filter_map(subvolume).collect(), bytes));
    Ok(Counted::new(by_set.collect()))
}

#[cfg(test)]
mod tests {
    use vlinder_format::block::BlockIdentity;
    use vlinder_format::file_extent::FileExtent;
    use vlinder_format::{FileOffset, ObjectId, Uuid};

    use super::*;
    use crate::context::tests::with_context;
    use crate::{chunks, roots};

    #[test]
    fn sets_are_joined_and_kept_once() {
        let mut sets = Sets::default();
        let (one, two, three) =
            (sets.of(vec![1]).unwrap(), sets.of(vec![2]).unwrap(), sets.of(vec![3]).unwrap());
        let both = sets.union(one, two).unwrap();
        assert_eq!(sets.get(both), [1, 2]);
        assert_eq!(sets.union(two, one), Ok(both));
        let left = sets.union(both, three).unwrap();
        let right = sets.union(two, three).unwrap();
        assert_eq!(sets.union(one, right), Ok(left));
        assert_eq!(sets.union(two, two), Ok(two));
        assert_eq!(sets.union(left, two), Ok(left));
        let many = (0..=u32::try_from(MOST_MEMBERS).unwrap()).collect();
        assert_eq!(sets.of(many), Err(Uncounted::TooMany));
    }

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
        let sets = vec![(set(&[5]), 1), (set(&[5, 256]), 10), (set(&[256]), 100), (set(&[257]), 1000)];
        let counted = Counted::new(sets);
        assert_eq!(counted.of(&set(&[5])), Usage { referenced: 11, exclusive: 1 });
        assert_eq!(counted.of(&set(&[258])), Usage::default());
        assert_eq!(counted.of(&set(&[5, 256])), Usage { referenced: 111, exclusive: 111 });
        assert_eq!(counted.of(&set(&[256, 257])), Usage { referenced: 1110, exclusive: 1100 });
        assert_eq!(counted.of(&set(&[])), Usage::default());
        assert_eq!((counted.steps_of(&set(&[5])), counted.steps_of(&set(&[5, 256]))), (1, 5 + 4 * 2));
    }
    #[test]
    fn unions_that_are_forgotten_are_worked_out_again() {
        let mut sets = Sets::default();
        let count = 1_100;
        let single: Vec<SetId> = (0..count).map(|member| sets.of(vec![member]).unwrap()).collect();
        let pairs = || (0..count).flat_map(|left| (0..left).map(move |right| (left, right)));
        assert!(pairs().count() > MOST_MEMBERS / 16);
        for (left, right) in pairs() {
            let at = |member: u32| single[usize::try_from(member).unwrap()];
            let both = sets.union(at(left), at(right)).unwrap();
            assert_eq!(sets.get(both), [right, left]);
        }
        assert!((1..=MOST_MEMBERS / 16).contains(&sets.unions.len()), "{}", sets.unions.len());
        let both = sets.union(single[0], single[1]).unwrap();
        assert_eq!(sets.get(both), [0, 1]);
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
            leaf.insert_items(leaf.len(), &[(key, &hole)]);
            // Where the address and the length lie: every third is left a hole.
            let data = leaf.data_mut(leaf.len() - 1);
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
            let [once, parts] = [1, 3].map(|parts| count(context, &roots, parts * MOST_EXTENTS).unwrap());
            let data = |counted: &Counted| counted.by_set.iter().map(|(_, bytes)| bytes).sum::<u64>();
            assert!(data(&once) > 0 && once.by_set.iter().any(|(set, _)| set.len() == 2), "some is shared");
            assert_eq!(once.by_set, parts.by_set);
        });
    }
}
