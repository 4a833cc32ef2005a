//! Pending items: an ordered overlay over the trees, (tree, key) → data or tombstone, that knows no inode.
//!
//! `fs` puts directory indexes and inode items here, so that a thousand changes of one directory cost one
//! descent a leaf-full when the commit drains them, and an entry made and removed in one transaction costs
//! none. Readers merge it.
//!
//! Invariants, and the function that keeps each:
//! 1. A reader that looks here first and in the tree afterwards misses no item: a batch is in the tree before
//!    it leaves the overlay ([`drained`](PendingItems::drained)).
//! 2. What changed while its batch was drained stays: each change has a version of its own, and `drained`
//!    takes out what still has the version that was written.
//! 3. An item that the tree may hold is removed by a tombstone; one that the tree can't hold leaves nothing
//!    ([`remove`](PendingItems::remove)). A change never forgets that the tree may hold the key
//!    ([`put`](PendingItems::put)).
//! 4. The counts are those of the entries, and what was ever added never falls, so that a handle can tell by
//!    how much it let the overlay grow (`count_in`, `count_out`).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};

use vlinder_base::metrics::{Counter, Histogram, Registry, Unit};
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_format::{ItemType, Key, RootId};
use vlinder_tree::Touch;

use vlinder_space::Charge;

/// What an item will be once it is drained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Its data; none for a tombstone.
    pub(crate) data: Option<Vec<u8>>,
    /// The tree may hold an item of this key, so a removal must leave a tombstone.
    in_tree: bool,
    /// Counts changes, so that draining removes only what it wrote.
    version: u64,
    /// Another tree may share the leaf that it goes to.
    may_share_leaf: bool,
}

/// One batch to drain: what a leaf takes.
pub(crate) type Batch = Vec<(Key, Pending)>;

/// What is drained together. Indexes go first, and alone: nobody looks them up by name, so they come in runs,
/// while the inodes of the same files lie each between other items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingKind {
    /// Directory indexes.
    Indexes,
    /// All others.
    Others,
}

impl PendingKind {
    fn of(key: &Key) -> Self {
        if key.item_type == ItemType::DIR_INDEX { Self::Indexes } else { Self::Others }
    }
}

/// The overlay of all trees.
pub(crate) struct PendingItems {
    trees: Mutex<HashMap<RootId, BTreeMap<Key, Pending>>>,
    bytes: AtomicU64,
    entries: AtomicU64,
    /// Of the entries, those whose leaf another tree may share.
    shared_entries: AtomicU64,
    /// All that was ever added to these three.
    grown_entries: AtomicU64,
    grown_bytes: AtomicU64,
    grown_shared: AtomicU64,
    versions: AtomicU64,
    metrics: PendingMetrics,
}

/// What the mechanism counts.
pub(crate) struct PendingMetrics {
    pub(crate) insert_batches: Arc<Counter>,
    pub(crate) delete_batches: Arc<Counter>,
    pub(crate) cancelled: Arc<Counter>,
    pub(crate) insert_time: Arc<Histogram>,
    pub(crate) other_batches: Arc<Counter>,
    pub(crate) other_time: Arc<Histogram>,
}

impl PendingMetrics {
    fn new(registry: &Registry) -> Self {
        let counter = |name, help| registry.counter(name, help, Unit::Count);
        let time = |name, help| registry.histogram(name, help, Unit::Nanoseconds);
        Self {
            insert_batches: counter(
                "delayed_items.insert_batches",
                "batches of pending directory indexes put into trees",
            ),
            delete_batches: counter("delayed_items.delete_batches", "batches of pending removals alone"),
            cancelled: counter(
                "delayed_items.cancelled",
                "pending insertions removed before they reached a tree",
            ),
            insert_time: time(
                "delayed_items.insert_time_ns",
                "time to put one batch of pending directory indexes into its tree",
            ),
            other_batches: counter(
                "delayed_items.other_batches",
                "batches of other pending items (inodes) put into trees",
            ),
            other_time: time(
                "delayed_items.other_time_ns",
                "time to put one batch of other pending items into its tree",
            ),
        }
    }
}

/// Bytes that an entry takes beside its data.
const ENTRY_BYTES: u64 = 96;

impl Pending {
    fn bytes(&self) -> u64 {
        ENTRY_BYTES + u64::try_from(self.data.as_ref().map_or(0, Vec::len)).unwrap_or(u64::MAX)
    }
}

impl PendingItems {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            trees: Mutex::default(),
            bytes: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            shared_entries: AtomicU64::new(0),
            grown_entries: AtomicU64::new(0),
            grown_bytes: AtomicU64::new(0),
            grown_shared: AtomicU64::new(0),
            versions: AtomicU64::new(1),
            metrics: PendingMetrics::new(registry),
        }
    }

    pub(crate) fn metrics(&self) -> &PendingMetrics {
        &self.metrics
    }

    /// Memory that the overlay takes, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How many items wait.
    pub(crate) fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// What putting all items into their trees may change, but for the references that copies of shared
    /// leaves add; and how many items may go to such leaves.
    pub(crate) fn charge(&self) -> (Charge, u64) {
        let shared = self.shared_entries.load(Ordering::Relaxed);
        (Charge::items(self.entries(), self.bytes()), shared)
    }

    /// All that was ever added to [`charge`](Self::charge).
    pub(crate) fn grown(&self) -> (Charge, u64) {
        let [entries, bytes, shared] = [&self.grown_entries, &self.grown_bytes, &self.grown_shared]
            .map(|count| count.load(Ordering::Relaxed));
        (Charge::items(entries, bytes), shared)
    }

    /// Where all items of a tree go, and by how much they may grow what is there.
    pub(crate) fn touches(&self, tree: RootId) -> Vec<Touch> {
        let trees = self.trees.lock();
        let items = trees.get(&tree).into_iter().flatten();
        let growth = |pending: &Pending| {
            pending.data.as_ref().map_or(0, |data| data.len() + vlinder_format::block::ITEM_HEADER_SIZE)
        };
        items.map(|(key, pending)| Touch::at(*key, growth(pending))).collect()
    }

    fn count_in(&self, pending: &Pending) {
        self.bytes.fetch_add(pending.bytes(), Ordering::Relaxed);
        self.entries.fetch_add(1, Ordering::Relaxed);
        self.shared_entries.fetch_add(u64::from(pending.may_share_leaf), Ordering::Relaxed);
        self.grown_entries.fetch_add(1, Ordering::Relaxed);
        self.grown_bytes.fetch_add(pending.bytes(), Ordering::Relaxed);
        self.grown_shared.fetch_add(u64::from(pending.may_share_leaf), Ordering::Relaxed);
    }

    fn count_out(&self, pending: &Pending) {
        self.bytes.fetch_sub(pending.bytes(), Ordering::Relaxed);
        self.entries.fetch_sub(1, Ordering::Relaxed);
        self.shared_entries.fetch_sub(u64::from(pending.may_share_leaf), Ordering::Relaxed);
    }

    /// An item gets these data. `new` when the tree is known not to hold the key; `may_share_leaf` when
    /// another tree may share the leaf that it goes to.
    pub(crate) fn put(&self, tree: RootId, key: Key, data: Vec<u8>, new: bool, may_share_leaf: bool) {
        let version = self.versions.fetch_add(1, Ordering::Relaxed);
        let mut trees = self.trees.lock();
        let mut pending = Pending { data: Some(data), in_tree: !new, version, may_share_leaf };
        self.count_in(&pending);
        match trees.entry(tree).or_default().entry(key) {
            Entry::Vacant(place) => {
                place.insert(pending);
            }
            Entry::Occupied(mut before) => {
                pending.in_tree = before.get().in_tree;
                self.count_out(&before.insert(pending));
            }
        }
    }

    /// An item goes: a pending insertion is cancelled, anything else becomes a tombstone.
    pub(crate) fn remove(&self, tree: RootId, key: Key, may_share_leaf: bool) {
        let version = self.versions.fetch_add(1, Ordering::Relaxed);
        let mut trees = self.trees.lock();
        let tombstone = Pending { data: None, in_tree: true, version, may_share_leaf };
        match trees.entry(tree).or_default().entry(key) {
            Entry::Occupied(before) if !before.get().in_tree => {
                self.count_out(&before.remove());
                self.metrics.cancelled.increment();
            }
            Entry::Occupied(mut before) => {
                self.count_in(&tombstone);
                self.count_out(&before.insert(tombstone));
            }
            Entry::Vacant(place) => {
                self.count_in(&tombstone);
                place.insert(tombstone);
            }
        }
    }

    /// What is pending for a key: data, or none inside for a tombstone.
    pub(crate) fn get(&self, tree: RootId, key: &Key) -> Option<Option<Vec<u8>>> {
        self.trees.lock().get(&tree)?.get(key).map(|pending| pending.data.clone())
    }

    /// What is pending from `from` up to and without `to`, at most `limit`.
    pub(crate) fn range(
        &self,
        tree: RootId,
        from: Key,
        to: Key,
        limit: usize,
    ) -> Vec<(Key, Option<Vec<u8>>)> {
        let trees = self.trees.lock();
        let Some(items) = trees.get(&tree) else { return Vec::new() };
        items.range(from..to).take(limit).map(|(key, pending)| (*key, pending.data.clone())).collect()
    }

    /// The trees with something pending.
    pub(crate) fn trees(&self) -> Vec<RootId> {
        let mut trees: Vec<RootId> =
            self.trees.lock().iter().filter(|(_, items)| !items.is_empty()).map(|(tree, _)| *tree).collect();
        trees.sort_unstable();
        trees
    }

    /// Whether something is pending of a tree.
    pub(crate) fn holds(&self, tree: RootId) -> bool {
        self.trees.lock().get(&tree).is_some_and(|items| !items.is_empty())
    }

    /// The next batch of a tree from `from` on: as many items of a kind as one leaf takes. Gaps between
    /// indexes do not end a batch, since an index number is never used again; with `gaps` false they do (the
    /// mechanism switched off).
    pub(crate) fn batch(
        &self,
        tree: RootId,
        kind: PendingKind,
        from: Key,
        leaf_bytes: usize,
        gaps: bool,
    ) -> Batch {
        let trees = self.trees.lock();
        let Some(items) = trees.get(&tree) else { return Vec::new() };
        let mut batch: Batch = Vec::new();
        let mut room = leaf_bytes;
        for (key, pending) in items.range(from..).filter(|(key, _)| PendingKind::of(key) == kind) {
            let size = pending.data.as_ref().map_or(0, Vec::len) + vlinder_format::block::ITEM_HEADER_SIZE;
            let follows = gaps || batch.last().is_none_or(|(last, _)| !leaves_gap(last, key));
            if (size > room || !follows) && !batch.is_empty() {
                break;
            }
            room = room.saturating_sub(size);
            batch.push((*key, pending.clone()));
        }
        batch
    }

    /// A batch is in the tree: what has not changed meanwhile is pending no more.
    pub(crate) fn drained(&self, tree: RootId, batch: &Batch) {
        let mut trees = self.trees.lock();
        let Some(items) = trees.get_mut(&tree) else { return };
        for (key, written) in batch {
            let Entry::Occupied(mut pending) = items.entry(*key) else { continue };
            if pending.get().version == written.version {
                self.count_out(&pending.remove());
            } else {
                pending.get_mut().in_tree = true;
            }
        }
        if items.is_empty() {
            trees.remove(&tree);
        }
    }
}

/// Whether both are indexes of one directory, and not neighbours.
fn leaves_gap(before: &Key, key: &Key) -> bool {
    let same_directory = before.objectid == key.objectid && before.item_type == key.item_type;
    same_directory && key.item_type == ItemType::DIR_INDEX && before.next() != Some(*key)
}

/// What is pending of a range, read a part at a time: a directory may have any number of pending names, and
/// is listed in small parts.
pub(crate) struct PendingWindow<'a> {
    pending: &'a PendingItems,
    tree: RootId,
    part: VecDeque<(Key, Option<Vec<u8>>)>,
    /// Where the part after this one begins; none after the last.
    next: Option<Key>,
    to: Key,
    refilled: bool,
}

/// Items of a part.
const WINDOW_ITEMS: usize = 128;

impl<'a> PendingWindow<'a> {
    pub(crate) fn new(pending: &'a PendingItems, tree: RootId, from: Key, to: Key) -> Self {
        let mut window = Self { pending, tree, part: VecDeque::new(), next: Some(from), to, refilled: false };
        window.fill();
        window
    }

    /// The key of the next pending item or tombstone.
    pub(crate) fn first_key(&self) -> Option<Key> {
        self.part.front().map(|(key, _)| *key)
    }

    /// Takes the next pending item or tombstone.
    pub(crate) fn take(&mut self) -> Option<(Key, Option<Vec<u8>>)> {
        let first = self.part.pop_front();
        self.refilled = self.part.is_empty() && self.next.is_some();
        if self.refilled {
            self.fill();
        }
        first
    }

    /// Whether the item taken last was the last of its part: the next part was read just now.
    pub(crate) fn took_last_of_part(&self) -> bool {
        self.refilled
    }

    fn fill(&mut self) {
        let Some(from) = self.next.take().filter(|from| *from < self.to) else { return };
        self.part = self.pending.range(self.tree, from, self.to, WINDOW_ITEMS).into();
        if self.part.len() == WINDOW_ITEMS {
            self.next = self.part.back().and_then(|(key, _)| key.next());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vlinder_format::ObjectId;

    fn key(offset: u64) -> Key {
        Key::new(ObjectId(256), ItemType::DIR_INDEX, offset)
    }

    #[test]
    fn a_hundred_files_are_one_batch_and_fifty_with_gaps_off() {
        let pending = PendingItems::new(&Registry::new());
        for index in 2..102 {
            pending.put(RootId::FS_TREE, key(index), vec![0; 37], true, false);
        }
        for index in (2..102).step_by(2) {
            pending.remove(RootId::FS_TREE, key(index), false);
        }
        assert_eq!(pending.metrics.cancelled.get(), 50);
        let batches = |gaps| {
            let (mut from, mut count) = (Key::MIN, 0);
            loop {
                let batch = pending.batch(RootId::FS_TREE, PendingKind::Indexes, from, 16283, gaps);
                let Some((last, _)) = batch.last() else { return count };
                from = last.next().unwrap();
                count += 1;
            }
        };
        assert_eq!(batches(true), 1);
        assert_eq!(batches(false), 50);
    }

    #[test]
    fn indexes_are_drained_apart_from_all_else() {
        let pending = PendingItems::new(&Registry::new());
        let inode = |number| Key::new(ObjectId(number), ItemType::INODE_ITEM, 0);
        let index = |directory, number| Key::new(ObjectId(directory), ItemType::DIR_INDEX, number);
        let keys = [inode(256), index(256, 2), index(256, 5), inode(257), index(257, 2), inode(258)];
        for key in keys {
            pending.put(RootId::FS_TREE, key, vec![0; 10], true, false);
        }
        let drained = |kind| {
            let batch = pending.batch(RootId::FS_TREE, kind, Key::MIN, 16283, true);
            pending.drained(RootId::FS_TREE, &batch);
            batch.iter().map(|(key, _)| *key).collect::<Vec<_>>()
        };
        assert_eq!(drained(PendingKind::Indexes), [keys[1], keys[2], keys[4]]);
        assert!(pending.holds(RootId::FS_TREE), "inodes wait");
        assert_eq!(drained(PendingKind::Others), [keys[0], keys[3], keys[5]]);
        assert!(!pending.holds(RootId::FS_TREE) && pending.entries() == 0);
    }

    #[test]
    fn what_changed_while_it_was_drained_stays_pending() {
        let pending = PendingItems::new(&Registry::new());
        pending.put(RootId::FS_TREE, key(2), vec![1], true, false);
        pending.put(RootId::FS_TREE, key(3), vec![1], true, false);
        let batch = pending.batch(RootId::FS_TREE, PendingKind::Indexes, Key::MIN, 1000, true);
        pending.put(RootId::FS_TREE, key(3), vec![2], false, false);
        pending.drained(RootId::FS_TREE, &batch);
        assert_eq!(pending.get(RootId::FS_TREE, &key(2)), None);
        assert_eq!(pending.get(RootId::FS_TREE, &key(3)), Some(Some(vec![2])));
        pending.remove(RootId::FS_TREE, key(3), false);
        assert_eq!(
            pending.get(RootId::FS_TREE, &key(3)),
            Some(None),
            "the tree has it, so a tombstone stays"
        );
        assert!(pending.holds(RootId::FS_TREE));
        let batch = pending.batch(RootId::FS_TREE, PendingKind::Indexes, Key::MIN, 1000, true);
        pending.drained(RootId::FS_TREE, &batch);
        assert!(!pending.holds(RootId::FS_TREE));
        assert_eq!(pending.bytes(), 0);
    }
}
