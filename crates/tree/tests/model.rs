//! Trees against a sorted map: random node sizes, shared snapshots and a small cache; and every reference
//! that trees take or drop against what the blocks reachable from all roots say.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use vlinder_base::metrics::Registry;
use vlinder_base::sync::{Arc, Mutex};
use vlinder_format::block::{BLOCK_FLAG_WRITTEN, BlockRules};
use vlinder_format::{Block, Generation, ItemType, Key, Level, Logical, ObjectId, RootId, Uuid};
use vlinder_tree::{
    Action, AddressPool, BlockSource, Change, ChildReferences, Edit, Readahead, Root, Sharing, Space,
    TreeError, TreeIdentity, TreeMetrics, Trees, WantedBlock,
};

/// Blocks "on disk".
struct Disk {
    node_size: u32,
    blocks: Mutex<HashMap<Logical, Arc<Block>>>,
}

impl BlockSource for Disk {
    fn node_size(&self) -> u32 {
        self.node_size
    }
    fn read(&self, wanted: &[WantedBlock]) -> Vec<Result<Arc<Block>, TreeError>> {
        let blocks = self.blocks.lock();
        wanted.iter().map(|wanted| Ok(Arc::clone(&blocks[&wanted.logical]))).collect()
    }
}

/// What references a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Reference {
    Root(RootId),
    Parent(Logical),
}

#[derive(Default)]
struct Ledger {
    next: u64,
    references: HashMap<Logical, BTreeMap<Reference, i64>>,
    full: BTreeSet<Logical>,
    versions: HashMap<Logical, u64>,
}

/// Space that keeps exact books.
#[derive(Default)]
struct Books {
    ledger: Mutex<Ledger>,
    gate: Mutex<()>,
}

impl Ledger {
    fn change(&mut self, block: Logical, reference: Reference, by: i64) {
        *self.versions.entry(block).or_default() += 1;
        let entry = self.references.entry(block).or_default();
        let count = entry.entry(reference).or_default();
        *count += by;
        if *count == 0 {
            entry.remove(&reference);
        }
        if entry.is_empty() {
            self.references.remove(&block);
            self.full.remove(&block);
        }
    }
}

impl Space for Books {
    fn take(&self, _: RootId, count: usize, into: &mut Vec<Logical>) -> Result<(), TreeError> {
        let mut ledger = self.ledger.lock();
        for _ in 0..count {
            ledger.next += 1 << 16;
            into.push(Logical(ledger.next));
        }
        Ok(())
    }
    fn give(&self, _: RootId, _: &mut Vec<Logical>) {}
    fn sharing(&self, block: &Block) -> Result<Sharing, TreeError> {
        let ledger = self.ledger.lock();
        let logical = block.logical();
        Ok(Sharing {
            references: ledger.references[&logical].values().sum::<i64>() as u64,
            full_back_references: ledger.full.contains(&logical),
            version: ledger.versions.get(&logical).copied().unwrap_or_default(),
        })
    }
    fn sharing_gate(&self) -> &Mutex<()> {
        &self.gate
    }
    fn sharing_holds(&self, logical: Logical, known: &Sharing) -> bool {
        self.ledger.lock().versions.get(&logical).copied().unwrap_or_default() == known.version
    }
    fn block_created(&self, root: RootId, block: &Block, _: &Key) {
        self.ledger.lock().change(block.logical(), Reference::Root(root), 1);
    }
    fn block_dropped(&self, root: RootId, block: &Block, last: bool) -> bool {
        let mut ledger = self.ledger.lock();
        ledger.change(block.logical(), Reference::Root(root), -1);
        assert_eq!(last, !ledger.references.contains_key(&block.logical()), "{block:?}");
        last
    }
    fn share_children(&self, root: RootId, block: &Block, references: ChildReferences, add: bool) {
        if block.is_leaf() {
            return;
        }
        let reference = match references {
            ChildReferences::Keyed => Reference::Root(root),
            ChildReferences::Full => Reference::Parent(block.logical()),
        };
        let mut ledger = self.ledger.lock();
        for child in block.children() {
            ledger.change(child.logical, reference, if add { 1 } else { -1 });
        }
    }
    fn set_full_back_references(&self, block: &Block) {
        self.ledger.lock().full.insert(block.logical());
    }
}

/// Books, with a write of the sealed blocks that ends while a change is being applied: they become clean, and
/// a cache without room forgets them.
struct ThawingMeanwhile<'a> {
    books: &'a Books,
    trees: &'a Trees,
}

impl Space for ThawingMeanwhile<'_> {
    fn take(&self, root: RootId, count: usize, into: &mut Vec<Logical>) -> Result<(), TreeError> {
        self.books.take(root, count, into)
    }
    fn give(&self, root: RootId, from: &mut Vec<Logical>) {
        self.books.give(root, from);
    }
    fn sharing(&self, block: &Block) -> Result<Sharing, TreeError> {
        self.books.sharing(block)
    }
    fn sharing_gate(&self) -> &Mutex<()> {
        self.books.sharing_gate()
    }
    fn sharing_holds(&self, logical: Logical, known: &Sharing) -> bool {
        self.books.sharing_holds(logical, known)
    }
    fn block_created(&self, root: RootId, block: &Block, first_key: &Key) {
        self.trees.thaw();
        self.books.block_created(root, block, first_key);
    }
    fn block_dropped(&self, root: RootId, block: &Block, last: bool) -> bool {
        self.books.block_dropped(root, block, last)
    }
    fn share_children(&self, root: RootId, block: &Block, references: ChildReferences, add: bool) {
        self.books.share_children(root, block, references, add);
    }
    fn set_full_back_references(&self, block: &Block) {
        self.books.set_full_back_references(block);
    }
}

/// Repeatable random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

/// What a tree must hold.
type Model = BTreeMap<Key, Vec<u8>>;

struct World {
    disk: Arc<Disk>,
    trees: Trees,
    space: Books,
    generation: Generation,
    roots: Vec<(Arc<Root>, Model)>,
    next_root: u64,
}

const IDENTITY: TreeIdentity = TreeIdentity { fsid: Uuid([1; 16]), chunk_tree_uuid: Uuid([2; 16]) };

impl World {
    fn new(node_size: u32, cache_bytes: u64) -> Self {
        let disk = Arc::new(Disk { node_size, blocks: Mutex::default() });
        let trees = Trees::new(
            Arc::clone(&disk) as Arc<dyn BlockSource>,
            cache_bytes,
            TreeMetrics::new(&Registry::new()),
        );
        let mut world = Self {
            disk,
            trees,
            space: Books::default(),
            generation: Generation(10),
            roots: Vec::new(),
            next_root: 257,
        };
        let mut pool = AddressPool::default();
        let pointer = world
            .trees
            .create_tree(RootId(256), world.generation, &IDENTITY, &world.space, &mut pool)
            .unwrap();
        world.roots.push((Root::new(RootId(256), pointer, Generation(0)), BTreeMap::new()));
        world
    }

    fn edit_some(&mut self, dice: &mut Dice, keys: u64) {
        let which = dice.roll(self.roots.len() as u64) as usize;
        let max_item = u64::from(self.disk.node_size) / if dice.roll(20) == 0 { 1 } else { 12 };
        let (root, model) = &mut self.roots[which];
        let shrink = dice.roll(3) == 0;
        let mut batch: BTreeMap<Key, Option<Vec<u8>>> = BTreeMap::new();
        let start = dice.roll(keys);
        for _ in 0..=dice.roll(30) {
            let number = if dice.roll(2) == 0 { dice.roll(keys) } else { (start + dice.roll(64)) % keys };
            let key = Key::new(ObjectId(number), ItemType::INODE_ITEM, 0);
            let remove = dice.roll(4) < if shrink { 3 } else { 1 };
            let size = (dice.roll(max_item) as usize).min(self.disk.node_size as usize - 101 - 25);
            batch.insert(key, (!remove).then(|| vec![dice.roll(256) as u8; size]));
        }
        let edits: Vec<Edit<'_>> = batch
            .iter()
            .map(|(key, data)| {
                let change = match data {
                    Some(data) => Change::Put(data),
                    None => Change::RemoveIfPresent,
                };
                Edit::new(*key, change)
            })
            .collect();
        let mut pool = AddressPool::default();
        self.trees.edit(root, self.generation, &self.space, &mut pool, &edits).unwrap();
        pool.give_back(&self.space, root.id());
        for (key, data) in batch {
            match data {
                Some(data) => model.insert(key, data),
                None => model.remove(&key),
            };
        }
    }

    /// Puts items into the first tree, in one change.
    fn put(&mut self, items: &[(Key, &Vec<u8>)]) {
        let (root, model) = &mut self.roots[0];
        let edits: Vec<Edit<'_>> =
            items.iter().map(|(key, data)| Edit::new(*key, Change::Put(data))).collect();
        let mut pool = AddressPool::default();
        self.trees.edit(root, self.generation, &self.space, &mut pool, &edits).unwrap();
        pool.give_back(&self.space, root.id());
        model.extend(items.iter().map(|(key, data)| (*key, (*data).clone())));
    }

    /// Writes everything dirty "to disk" and opens the next generation.
    fn commit(&mut self) {
        self.seal();
        self.trees.thaw();
        self.generation = self.generation.next();
    }

    /// Seals everything dirty, and writes it "to disk".
    fn seal(&mut self) {
        let frozen = self.trees.frozen(&self.trees.freeze(self.generation));
        let written: Vec<Arc<Block>> = frozen
            .iter()
            .map(|block| {
                let mut block = Block::clone(block);
                block.set_flag(BLOCK_FLAG_WRITTEN, true);
                let owner_may_be_empty = block.is_empty();
                if !owner_may_be_empty {
                    let rules = BlockRules { node_size: self.disk.node_size, sector_size: 4096 };
                    block.validate(&rules).unwrap();
                }
                Arc::new(block)
            })
            .collect();
        for block in &written {
            self.disk.blocks.lock().insert(block.logical(), Arc::clone(block));
        }
        self.trees.seal_frozen(&written);
    }

    fn snapshot(&mut self, dice: &mut Dice) {
        let which = dice.roll(self.roots.len() as u64) as usize;
        let id = RootId(self.next_root);
        self.next_root += 1;
        let mut pool = AddressPool::default();
        let (source, model) = &self.roots[which];
        let model = model.clone();
        let pointer = self.trees.copy_tree(source, id, self.generation, &self.space, &mut pool).unwrap();
        self.roots.push((Root::new(id, pointer, self.generation), model));
    }

    fn block(&self, logical: Logical) -> Arc<Block> {
        Arc::clone(&self.disk.blocks.lock()[&logical])
    }

    /// Every tree equals its model, and the books equal what the blocks say. After a commit.
    fn judge(&self) {
        let mut expected: HashMap<Logical, BTreeMap<Reference, i64>> = HashMap::new();
        let mut seen = BTreeSet::new();
        for (root, model) in &self.roots {
            let mut cursor = self.trees.cursor(root, &Key::MIN, Readahead::Forward(3)).unwrap();
            for (key, data) in model {
                assert_eq!(cursor.item(), Some((*key, data.as_slice())));
                cursor.advance().unwrap();
            }
            assert_eq!(cursor.item(), None);
            self.judge_places_before(root, model);
            let pointer = root.pointer();
            *expected.entry(pointer.logical).or_default().entry(Reference::Root(root.id())).or_default() += 1;
            self.references_below(pointer.logical, pointer.level, &mut expected, &mut seen);
        }
        let ledger = self.space.ledger.lock();
        assert_eq!(ledger.references, expected);
    }

    /// Cursors at or before a key, of every item and right behind it, with each answer to whether that is
    /// wanted.
    fn judge_places_before(&self, root: &Arc<Root>, model: &BTreeMap<Key, Vec<u8>>) {
        for key in model.keys().flat_map(|key| [*key, key.next().unwrap()]) {
            let before = model.range(..=key).next_back().map(|(key, _)| *key);
            let behind = model
                .range((std::ops::Bound::Excluded(before.unwrap()), std::ops::Bound::Unbounded))
                .next()
                .map(|(key, _)| *key);
            for (is_wanted, first) in [(true, before), (false, behind)] {
                let mut cursor = self.trees.cursor_at_or_before(root, &key, |_| is_wanted).unwrap();
                assert_eq!(cursor.key(), first);
                cursor.advance().unwrap();
                assert_eq!(
                    cursor.key(),
                    if is_wanted {
                        behind
                    } else {
                        behind.and_then(|key| model.range(key..).nth(1).map(|(key, _)| *key))
                    }
                );
            }
        }
        let first = self.trees.cursor_at_or_before(root, &Key::MIN, |_| true).unwrap();
        assert_eq!(first.key(), model.keys().next().copied());
    }

    fn references_below(
        &self,
        logical: Logical,
        level: Level,
        expected: &mut HashMap<Logical, BTreeMap<Reference, i64>>,
        seen: &mut BTreeSet<Logical>,
    ) {
        if level == Level::LEAF || !seen.insert(logical) {
            return;
        }
        let block = self.block(logical);
        let full = self.space.ledger.lock().full.contains(&logical);
        for child in block.children() {
            let reference = if full { Reference::Parent(logical) } else { Reference::Root(block.owner()) };
            *expected.entry(child.logical).or_default().entry(reference).or_default() += 1;
            self.references_below(child.logical, level.below().unwrap(), expected, seen);
        }
    }
}

fn run(
    seed: u64,
    node_size: u32,
    cache_bytes: u64,
    keys: u64,
    commits: u32,
    edits: u32,
    snapshots: bool,
) -> (u64, u64, Level) {
    let mut dice = Dice(seed | 1);
    let mut world = World::new(node_size, cache_bytes);
    for _ in 0..commits {
        for _ in 0..edits {
            world.edit_some(&mut dice, keys);
        }
        if snapshots && dice.roll(3) == 0 && world.roots.len() < 6 {
            world.snapshot(&mut dice);
            if dice.roll(2) == 0 {
                world.edit_some(&mut dice, keys);
            }
        }
        world.commit();
        world.judge();
    }
    let height = world.roots.iter().map(|(root, _)| root.pointer().level).max().unwrap();
    (world.trees.metrics().splits.get(), world.trees.metrics().merges.get(), height)
}

#[test]
fn one_tree_equals_a_sorted_map() {
    for (seed, node_size) in [(1, 4096), (2, 16384), (3, 65536), (4, 8192), (5, 4096)] {
        let (splits, merges, _) = run(seed, node_size, 1 << 26, 3000, 20, 60, false);
        assert!(splits > 0 && merges > 0, "seed {seed}: {splits} splits, {merges} merges");
    }
}

#[test]
fn shared_trees_keep_exact_references() {
    for seed in 10..22 {
        run(seed, 4096, 1 << 26, 4000, 14, 40, true);
    }
}

#[test]
fn a_cache_of_a_few_blocks_changes_nothing_but_the_time() {
    for seed in 30..34 {
        run(seed, 4096, 5 * 4096, 3000, 6, 20, true);
    }
}

#[test]
fn a_tall_tree_grows_and_shrinks() {
    let mut world = World::new(4096, 1 << 24);
    let data = [7u8; 100];
    let key = |number: u64| Key::new(ObjectId(number), ItemType::INODE_ITEM, 0);
    let mut pool = AddressPool::default();
    let root = Arc::clone(&world.roots[0].0);
    let count = 40_000u64;
    for start in (0..count).step_by(100) {
        let edits: Vec<Edit<'_>> =
            (start..start + 100).map(|number| Edit::new(key(number), Change::Insert(&data))).collect();
        world.trees.edit(&root, world.generation, &world.space, &mut pool, &edits).unwrap();
    }
    assert!(root.pointer().level >= Level(2), "{:?}", root.pointer());
    world.commit();
    for start in (0..count).step_by(50) {
        let edits: Vec<Edit<'_>> = (start..start + 50)
            .filter(|number| number % 10 != 0)
            .map(|number| Edit::new(key(number), Change::Remove))
            .collect();
        world.trees.edit(&root, world.generation, &world.space, &mut pool, &edits).unwrap();
    }
    for number in (0..count).filter(|number| number % 10 == 0) {
        world.roots[0].1.insert(key(number), data.to_vec());
    }
    world.commit();
    world.judge();
    assert!(world.trees.metrics().merges.get() > 500);
    assert!(root.pointer().level <= Level(2), "{:?}", root.pointer());
}

#[test]
fn an_edit_that_is_refused_changes_nothing() {
    let world = World::new(4096, 1 << 20);
    let root = &world.roots[0].0;
    let key = |number: u64| Key::new(ObjectId(number), ItemType::INODE_ITEM, 0);
    let mut pool = AddressPool::default();
    let edit = |edits: &[Edit<'_>], pool: &mut AddressPool| {
        world.trees.edit(root, world.generation, &world.space, pool, edits)
    };
    edit(&[Edit::new(key(5), Change::Insert(b"five"))], &mut pool).unwrap();
    let refused = edit(
        &[Edit::new(key(4), Change::Insert(b"four")), Edit::new(key(5), Change::Insert(b"x"))],
        &mut pool,
    );
    assert!(matches!(refused, Err(TreeError::Exists { key: found, .. }) if found == key(5)));
    let refused =
        edit(&[Edit::new(key(4), Change::Insert(b"four")), Edit::new(key(6), Change::Remove)], &mut pool);
    assert!(matches!(refused, Err(TreeError::Missing { .. })));
    let conflict = |_: Option<&[u8]>| Action::Conflict;
    let refused = edit(&[Edit::new(key(5), Change::Update(&conflict))], &mut pool);
    assert!(matches!(refused, Err(TreeError::Conflict { .. })));
    assert!(world.trees.get(root, &key(4)).unwrap().is_none());
    assert_eq!(world.trees.get(root, &key(5)).unwrap().unwrap().data(), b"five");
}

/// Leaves that are nearly full, and batches that fill each of them to the last byte: what one leaf gives to
/// the next was not foreseen there, and still no change runs out of the addresses that its plan counted.
#[test]
fn batches_that_fill_many_leaves_to_the_brim() {
    let node_size = 4096;
    let capacity = 4096 - 101;
    let key = |leaf: u64, number: u64| Key::new(ObjectId(leaf << 32 | number), ItemType::INODE_ITEM, 0);
    for seed in 1..80 {
        let mut dice = Dice(seed * 0x9e37_79b9);
        let mut world = World::new(node_size, 1 << 24);
        let root = Arc::clone(&world.roots[0].0);
        let leaves = 10 + dice.roll(150);
        let small = 1 + dice.roll(60);
        let mut pool = AddressPool::default();
        let mut room = Vec::new();
        for leaf in 0..leaves {
            // The first item is too large for the leaf before.
            let big = capacity / 2 - 25 + dice.roll(capacity / 4);
            let wanted = 70 + dice.roll(capacity - big - 200);
            let mut left = capacity - big - 25;
            let mut items = vec![(key(leaf, 0), big)];
            let mut number = 1 << 16;
            while left >= wanted + small + 25 {
                items.push((key(leaf, number), small));
                left -= small + 25;
                number += 1;
            }
            room.push(left);
            for (key, size) in items {
                let data = vec![1; size as usize];
                let edits = [Edit::new(key, Change::Insert(&data))];
                world.trees.edit(&root, world.generation, &world.space, &mut pool, &edits).unwrap();
                world.roots[0].1.insert(key, data);
            }
        }
        world.commit();
        let first_too_many = dice.roll(3) == 0;
        let size = 1 + dice.roll(200);
        let mut items: Vec<(Key, Vec<u8>)> = Vec::new();
        for leaf in 0..leaves {
            let count = room[leaf as usize] / (size + 25)
                + u64::from(leaf == 0 || (first_too_many && dice.roll(9) == 0));
            let base = if dice.roll(4) == 0 { 1 << 24 } else { 1 };
            items.extend((0..count).map(|number| (key(leaf, base + number), vec![2; size as usize])));
        }
        items.sort();
        let edits: Vec<Edit<'_>> =
            items.iter().map(|(key, data)| Edit::new(*key, Change::Insert(data))).collect();
        let mut pool = AddressPool::default();
        world.trees.edit(&root, world.generation, &world.space, &mut pool, &edits).unwrap();
        world.roots[0].1.extend(items);
        world.commit();
        world.judge();
    }
}

/// The items of small files come in three sweeps over the same leaves: references when a file is made, data
/// when it is written back, inodes at the commit, which comes in the midst of all. On a full disk each leaf
/// that is left half full is missing.
#[test]
fn sweeps_leave_full_leaves_behind_them() {
    let node_size = 16384;
    let (mut dice, mut world) = (Dice(3), World::new(node_size, 1 << 28));
    let root = Arc::clone(&world.roots[0].0);
    let (reference, inode, data) = (vec![1; 14], vec![2; 160], vec![3; 621]);
    let key = |number: u64, item_type: ItemType| Key::new(ObjectId(257 + number), item_type, 0);
    let (mut made, mut written) = (0, 0);
    for _ in 0..40 {
        let before = made;
        for _ in 0..100 + dice.roll(300) {
            world.put(&[(key(made, ItemType::INODE_REF), &reference)]);
            made += 1;
        }
        let lag = dice.roll(5);
        while written + lag < made {
            world.put(&[(key(written, ItemType::EXTENT_DATA), &data)]);
            written += 1;
        }
        let inodes: Vec<(Key, &Vec<u8>)> =
            (before..made).map(|number| (key(number, ItemType::INODE_ITEM), &inode)).collect();
        inodes.chunks(80).for_each(|batch| world.put(batch));
        world.commit();
    }
    world.judge();
    let bytes: usize = world.roots[0].1.values().map(|data| data.len() + 25).sum();
    let leaves = world.trees.shape(&root).unwrap().leaves.len();
    let full = bytes.div_ceil(node_size as usize - 101);
    assert!(leaves * 100 <= full * 105, "{leaves} leaves for what {full} could hold");
}

/// A batch of entries of a directory that lies before other objects in a full leaf makes room for all of them
/// at once, not for one after another: also in the last leaf below a full node, where each further leaf goes
/// to the next node, and so none lies beside to take items.
#[test]
fn a_batch_before_other_objects_takes_few_splits() {
    let mut world = World::new(4096, 1 << 28);
    let data = vec![1; 48];
    let in_leaf = (4096 - 101) / 73;
    let leaves = 300;
    for number in 0..leaves * in_leaf {
        world.put(&[(Key::new(ObjectId(1000 + number), ItemType::INODE_ITEM, 0), &data)]);
    }
    for leaf in (0..leaves).rev() {
        let splits = world.trees.metrics().splits.get();
        let directory = ObjectId(1000 + leaf * in_leaf + 34);
        let batch: Vec<(Key, &Vec<u8>)> =
            (0..18).map(|index| (Key::new(directory, ItemType::DIR_INDEX, index), &data)).collect();
        world.put(&batch);
        let splits = world.trees.metrics().splits.get() - splits;
        assert!(splits <= 3, "{splits} splits in leaf {leaf}");
    }
    world.commit();
    world.judge();
}

#[test]
fn sealed_blocks_may_become_clean_while_a_change_is_applied() {
    // The fsync log writes its blocks while the next change of it is under way.
    let mut dice = Dice(7);
    let mut world = World::new(4096, 4096);
    for _ in 0..60 {
        world.edit_some(&mut dice, 2000);
        world.seal();
        let (root, model) = &mut world.roots[0];
        let space = ThawingMeanwhile { books: &world.space, trees: &world.trees };
        let mut pool = AddressPool::default();
        let number = dice.roll(2000);
        let key = Key::new(ObjectId(number), ItemType::INODE_ITEM, 0);
        let edit = Edit::new(key, Change::Put(&[3; 300]));
        world.trees.edit(root, world.generation, &space, &mut pool, &[edit]).unwrap();
        pool.give_back(&space, root.id());
        model.insert(key, vec![3; 300]);
    }
    assert!(world.roots[0].0.pointer().level > Level(0));
    world.commit();
    world.judge();
}
