//! The root tree: which trees there are, and how subvolumes refer to each other. What it says is kept as
//! lists in order, which lie in temporary space where there are many subvolumes, and compared by going along
//! several at once.

use std::iter::Peekable;

use vlinder_format::directory::is_file_name;
use vlinder_format::root_item::RootItem;
use vlinder_format::root_ref::RootReference;
use vlinder_format::{Generation, ItemType, Key, Level, Logical, ObjectId, Place, RootId, Uuid, orphan};

use crate::check_state::CheckState;
use crate::checked_tree::CheckedTree;
use crate::faulty::Faulty;
use crate::finding::FindingKind;
use crate::item::Item;
use crate::loops::Parents;
use crate::name_fact::number_of;
use crate::root_name::RootName;
use crate::sorted::take;
use crate::sorted::{Pass, Record, Sorted, Sorter};
use crate::walk::{ItemVisitor, walk};

/// Subvolumes whose parents are followed, in 24 bytes each, where some lie in younger ones.
const MAX_SUBVOLUMES: usize = 4 << 20;

/// What is kept of a root item, and where it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FoundRoot {
    pub(crate) id: RootId,
    /// That of the key.
    offset: u64,
    /// How many were found before.
    number: u64,
    address: Logical,
    generation: Generation,
    level: Level,
    last_snapshot: Generation,
    root_directory: ObjectId,
    is_deleted: bool,
    /// Of a half-deleted subvolume.
    dropped_to: Option<(Key, Level)>,
    pub(crate) uuid: Uuid,
    pub(crate) received_uuid: Uuid,
    leaf: Logical,
    slot: u32,
}

impl FoundRoot {
    /// What an item of a root says, if it is one.
    pub(crate) fn of(item: &Item<'_>) -> Option<Self> {
        let decoded = RootItem::decode(item.data).ok()?;
        let is_half = decoded.is_deleted() && decoded.drop_progress != Key::MIN;
        Some(Self {
            id: RootId(item.key.objectid.0),
            offset: item.key.offset,
            number: 0,
            address: decoded.address,
            generation: decoded.generation,
            level: decoded.level,
            last_snapshot: decoded.last_snapshot,
            root_directory: decoded.root_directory,
            is_deleted: decoded.is_deleted(),
            dropped_to: is_half.then_some((decoded.drop_progress, decoded.drop_level)),
            uuid: decoded.uuid(),
            received_uuid: decoded.received_uuid(),
            leaf: item.leaf.logical(),
            slot: u32::try_from(item.slot).unwrap_or(u32::MAX),
        })
    }

    /// The tree that the item points at.
    pub(crate) fn tree(&self) -> CheckedTree {
        let Self { id, address: logical, generation, level, dropped_to, .. } = *self;
        let last_snapshot = (id.is_shareable() && !self.is_deleted).then_some(self.last_snapshot);
        CheckedTree { id, logical, generation, level, has_references: true, dropped_to, last_snapshot }
    }

    fn place(&self) -> Place {
        Place {
            tree: Some(RootId::ROOT_TREE),
            block: Some(self.leaf),
            slot: Some(self.slot),
            key: Some(RootItem::key(self.id, self.offset)),
        }
    }

    fn numbers(&self) -> [u64; 8] {
        let Self { id, offset, number, address, generation, last_snapshot, root_directory, leaf, .. } = *self;
        [id.0, offset, number, address.0, generation.0, last_snapshot.0, root_directory.0, leaf.0]
    }
}

impl Record for FoundRoot {
    const BYTES: usize = 8 * 8 + 4 + 4 + Key::SIZE + 2 * 16;

    fn encode(&self, bytes: &mut Vec<u8>) {
        self.numbers().encode(bytes);
        bytes.extend_from_slice(&self.slot.to_le_bytes());
        let (progress, level) = self.dropped_to.unwrap_or((Key::MIN, Level::LEAF));
        let is_half = u8::from(self.dropped_to.is_some());
        bytes.extend_from_slice(&[self.level.0, u8::from(self.is_deleted), is_half, level.0]);
        bytes.extend_from_slice(&progress.encode());
        bytes.extend_from_slice(&self.uuid.0);
        bytes.extend_from_slice(&self.received_uuid.0);
    }

    fn decode(bytes: &[u8]) -> Self {
        let mut rest = bytes;
        let [id, offset, number, address, generation, last_snapshot, root_directory, leaf] =
            <[u64; 8]>::decode(&take::<{ <[u64; 8]>::BYTES }>(&mut rest));
        let slot = u32::from_le_bytes(take(&mut rest));
        let [level, is_deleted, is_half, drop_level] = take(&mut rest);
        let progress = Key::decode(&take(&mut rest));
        Self {
            id: RootId(id),
            offset,
            number,
            address: Logical(address),
            generation: Generation(generation),
            level: Level(level),
            last_snapshot: Generation(last_snapshot),
            root_directory: ObjectId(root_directory),
            is_deleted: is_deleted == 1,
            dropped_to: (is_half == 1).then_some((progress, Level(drop_level))),
            uuid: Uuid(take(&mut rest)),
            received_uuid: Uuid(take(&mut rest)),
            leaf: Logical(leaf),
            slot,
        }
    }

    /// Two of one number are one.
    fn absorb(&mut self, next: &Self) -> bool {
        self == next
    }
}

/// What the root tree says.
#[derive(Default)]
pub(crate) struct Roots {
    /// In the order of their keys.
    roots: Sorted<FoundRoot>,
    /// As parents say.
    by_parent: Sorted<[u64; 5]>,
    /// As children say.
    by_child: Sorted<[u64; 5]>,
    orphans: Sorted<[u64; 1]>,
    deleted: Sorted<[u64; 1]>,
    /// Items that could not be used.
    pub(crate) faulty: Faulty,
}

impl Roots {
    /// All of them.
    pub(crate) fn iter(&self) -> Pass<'_, FoundRoot> {
        self.roots.iter()
    }

    fn find(&self, id: RootId) -> Option<FoundRoot> {
        self.roots.from(|root| root.id < id).next().filter(|root| root.id == id)
    }

    /// The tree of a number.
    pub(crate) fn get(&self, id: RootId) -> Option<CheckedTree> {
        self.find(id).map(|root| root.tree())
    }

    pub(crate) fn is_deleted(&self, id: RootId) -> bool {
        self.deleted.from(|[deleted]| *deleted < id.0).next() == Some([id.0])
    }

    /// The subvolumes that must have names in this one, each a [row](RootName::row), in order.
    pub(crate) fn names_in(&self, parent: RootId) -> impl Iterator<Item = [u64; 4]> {
        let names = self.by_parent.from(move |[of, ..]| *of < parent.0);
        names
            .take_while(move |[of, ..]| *of == parent.0)
            .map(|[_, child, directory, index, name]| [child, directory, index, name])
    }

    /// Each child and its parent, or one of several; in the order of the children.
    fn parents(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut names = self.by_child.iter().peekable();
        core::iter::from_fn(move || {
            let [child, mut parent, ..] = names.next()?;
            while let Some([_, other, ..]) = names.next_if(|[next, ..]| *next == child) {
                parent = other;
            }
            Some((child, parent))
        })
    }
}

/// The root tree, while it is read.
struct RootTree {
    found: u64,
    roots: Sorter<FoundRoot>,
    by_parent: Sorter<[u64; 5]>,
    by_child: Sorter<[u64; 5]>,
    orphans: Sorter<[u64; 1]>,
    deleted: Sorter<[u64; 1]>,
    faulty: Faulty,
}

impl RootTree {
    fn new(context: &CheckState<'_>) -> Self {
        Self {
            found: 0,
            roots: context.sorter(),
            by_parent: context.sorter(),
            by_child: context.sorter(),
            orphans: context.sorter(),
            deleted: context.sorter(),
            faulty: Faulty::default(),
        }
    }

    fn finish(self) -> Roots {
        Roots {
            roots: self.roots.finish(),
            by_parent: self.by_parent.finish(),
            by_child: self.by_child.finish(),
            orphans: self.orphans.finish(),
            deleted: self.deleted.finish(),
            faulty: self.faulty,
        }
    }
}

impl ItemVisitor for RootTree {
    fn item(&mut self, context: &mut CheckState<'_>, item: &Item<'_>) {
        let (objectid, offset) = (item.key.objectid, item.key.offset);
        match item.key.item_type {
            ItemType::ROOT_ITEM => {
                let Some(found) = FoundRoot::of(item) else { return };
                self.roots.add(FoundRoot { number: self.found, ..found });
                self.found = self.found.saturating_add(1);
                if found.is_deleted {
                    self.deleted.add([found.id.0]);
                }
            }
            ItemType::ROOT_REF | ItemType::ROOT_BACKREF => {
                let Ok(reference) = RootReference::decode(item.data) else { return };
                let is_forward = item.key.item_type == ItemType::ROOT_REF;
                let (parent, child) = if is_forward { (objectid.0, offset) } else { (offset, objectid.0) };
                if !is_file_name(reference.name) {
                    let name = reference.name.escape_ascii().to_string();
                    let (directory, child) = (reference.directory, ObjectId(child));
                    context.find(FindingKind::NameUnusable { directory, child, name }, item.place());
                }
                let name = RootName {
                    child: RootId(child),
                    directory: reference.directory,
                    index: reference.index,
                    name: number_of(reference.name),
                };
                if is_forward {
                    self.by_parent.add(name.by_parent(RootId(parent)));
                } else {
                    self.by_child.add(name.by_child(RootId(parent)));
                }
            }
            ItemType::ORPHAN_ITEM => {
                if let Some(orphan) = orphan::orphan_of(&item.key) {
                    self.orphans.add([orphan.0]);
                }
            }
            _ => {}
        }
    }

    fn faulty(&mut self, _: &mut CheckState<'_>, item: &Item<'_>) {
        self.faulty.add(item.key);
        // Its key says all that it has to say.
        if let Some(orphan) = orphan::orphan_of(&item.key) {
            self.orphans.add([orphan.0]);
        }
    }
}

/// Reads the root tree.
pub(crate) fn read(context: &mut CheckState<'_>) -> Roots {
    let superblock = context.judge.superblock;
    let tree = CheckedTree {
        id: RootId::ROOT_TREE,
        logical: superblock.root,
        generation: superblock.generation,
        level: superblock.root_level,
        has_references: true,
        dropped_to: None,
        last_snapshot: None,
    };
    let mut roots = RootTree::new(context);
    walk(context, &tree, &mut roots);
    roots.finish()
}

/// Compares root items and references with each other.
pub(crate) fn judge(context: &mut CheckState<'_>, roots: &Roots) {
    judge_references(context, roots);
    judge_loops(context, roots, MAX_SUBVOLUMES);
    let again = with_blocks_of_others(context, roots);
    let mut again = again.iter().peekable();
    let mut names = Names(roots.by_child.iter().peekable());
    let mut orphans = roots.orphans.iter().peekable();
    // The number of names of the subvolume that was met last.
    let mut last = (RootId(0), 0);
    for (position, root) in (0..).zip(roots.iter()) {
        if again.next_if_eq(&[position]).is_some() {
            let reason = "the tree's root block is another tree's too";
            context.find(FindingKind::Root { reason }, root.place());
        }
        if let Some(reason) = odd_root(&root) {
            context.find(FindingKind::Root { reason }, root.place());
        }
        if root.id == RootId::FS_TREE && root.is_deleted {
            // Nobody can delete it.
            context.find(FindingKind::RootOrphan { root: root.id }, root.place());
        }
        if !root.id.is_subvolume() || root.id == RootId::FS_TREE {
            continue;
        }
        if last.0 != root.id {
            last = (root.id, names.count_of(root.id));
        }
        while orphans.next_if(|[orphan]| *orphan < root.id.0).is_some() {}
        let is_orphan = orphans.peek() == Some(&[root.id.0]);
        judge_subvolume(context, roots, &root, last.1, is_orphan);
    }
}

/// What of a root item Linux would not find, or not find its way by: trees that are no subvolumes are looked
/// up with the offset 0 (`read_tree_root`), and the root directory of a subvolume is inode 256
/// (`btrfs_mkdir`, `BTRFS_FIRST_FREE_OBJECTID`).
fn odd_root(root: &FoundRoot) -> Option<&'static str> {
    if !root.id.is_shareable() && root.offset != 0 {
        return Some("the tree's root item is not where it is looked for: the offset of its key is not 0");
    }
    // A snapshot's item has the transaction that took it, in which its root block was made; a relocated
    // tree's has the tree's number.
    if root.id.is_subvolume() && root.offset > root.generation.0 {
        return Some(
            "the subvolume is said to be a snapshot of a transaction that came after its root block",
        );
    }
    let has_files = root.id.is_subvolume() || root.id == RootId::DATA_RELOCATION_TREE;
    let is_odd = has_files && root.root_directory != ObjectId::FIRST_FREE;
    is_odd.then_some("the subvolume's root directory is said not to be inode 256")
}

/// What parents say of their children is what these say of them.
fn judge_references(context: &mut CheckState<'_>, roots: &Roots) {
    let mut of_children = context.sorter();
    for [child, parent, directory, index, name] in roots.by_child.iter() {
        of_children.add([parent, child, directory, index, name]);
    }
    let of_children = of_children.finish();
    let mut forward = roots.by_parent.iter().peekable();
    let mut backward = of_children.iter().peekable();
    loop {
        let odd = match (forward.peek(), backward.peek()) {
            (Some(left), Some(right)) if left == right => {
                forward.next();
                backward.next();
                continue;
            }
            (Some(left), Some(right)) if left < right => forward.next(),
            (_, Some(_)) => backward.next(),
            (Some(_), None) => forward.next(),
            (None, None) => return,
        };
        let is_faulty = |[parent, child, ..]: &[u64; 5]| {
            roots.faulty.has(ObjectId(*parent), ItemType::ROOT_REF, *child)
                || roots.faulty.has(ObjectId(*child), ItemType::ROOT_BACKREF, *parent)
        };
        if let Some([parent, child, ..]) = odd.filter(|odd| !is_faulty(odd)) {
            let place = Place { tree: Some(RootId::ROOT_TREE), ..Place::default() };
            let (parent, child) = (RootId(parent), RootId(child));
            context.find(FindingKind::RootReference { parent, child }, place);
        }
    }
}

/// The roots, by their positions in order, whose blocks are those of roots before.
fn with_blocks_of_others(context: &CheckState<'_>, roots: &Roots) -> Sorted<[u64; 1]> {
    let mut addresses = context.sorter();
    for (position, root) in (0..).zip(roots.iter()) {
        addresses.add([root.address.0, position]);
    }
    let mut again = context.sorter();
    let mut before = None;
    for [address, position] in addresses.finish().iter() {
        if before == Some(address) {
            again.add([position]);
        }
        before = Some(address);
    }
    again.finish()
}

/// The names of children, in the order of the children.
struct Names<'a>(Peekable<Pass<'a, [u64; 5]>>);

impl Names<'_> {
    /// How many names a child has that comes behind those that were asked for before.
    fn count_of(&mut self, child: RootId) -> u64 {
        while self.0.next_if(|[of, ..]| *of < child.0).is_some() {}
        let mut count = 0u64;
        while self.0.next_if(|[of, ..]| *of == child.0).is_some() {
            count = count.saturating_add(1);
        }
        count
    }
}

/// No subvolume lies in itself, as far as so many tell.
fn judge_loops(context: &mut CheckState<'_>, roots: &Roots, most: usize) {
    // Somewhere in a loop a child is its parent's elder, or itself: nothing is kept where none is.
    if roots.parents().all(|(child, parent)| parent < child) {
        return;
    }
    let parents = Parents::of(roots.parents().take(most).collect());
    for root in parents.loops().into_iter().map(RootId) {
        let place = roots.find(root).map_or(Place::default(), |root| root.place());
        context.find(FindingKind::RootLoop { root }, place);
    }
    if parents.len() >= most {
        let place = Place { tree: Some(RootId::ROOT_TREE), ..Place::default() };
        context.find(FindingKind::RootsNotFollowed {}, place);
    }
}

/// A subvolume has as many names as it should.
fn judge_subvolume(
    context: &mut CheckState<'_>,
    roots: &Roots,
    root: &FoundRoot,
    names: u64,
    is_orphan: bool,
) {
    if root.is_deleted {
        if !is_orphan {
            context.find(FindingKind::RootOrphan { root: root.id }, root.place());
        }
    } else if names == 0 && !roots.faulty.has_any(root.id.object_id(), ItemType::ROOT_BACKREF) {
        context.find(FindingKind::RootWithoutReference { root: root.id }, root.place());
    } else if names > 1 {
        let reason = "the subvolume has several names";
        context.find(FindingKind::Root { reason }, root.place());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use vlinder_base::random::{Random, SeededRandom};
    use vlinder_base::sync::Arc;
    use vlinder_device::MemoryDevice;

    use super::*;
    use crate::check_state::tests::with_context;
    use crate::report::Finding;
    use crate::store::Store;

    const ROOT: FoundRoot = FoundRoot {
        id: RootId(0x0102_0304_0506_0708),
        offset: 0x1112_1314_1516_1718,
        number: 3,
        address: Logical(0x2122_2324_2526_2728),
        generation: Generation(u64::MAX - 1),
        level: Level(7),
        last_snapshot: Generation(0x5152_5354_5556_5758),
        root_directory: ObjectId(0x6162_6364_6566_6768),
        is_deleted: false,
        dropped_to: None,
        uuid: Uuid([0xab; 16]),
        received_uuid: Uuid([0xcd; 16]),
        leaf: Logical(0x3132_3334_3536_3738),
        slot: 0x4142_4344,
    };

    #[test]
    fn what_is_kept_of_a_root_comes_back_from_its_bytes() {
        let key = Key::new(ObjectId(1 << 60), ItemType::EXTENT_DATA, 1 << 50);
        let half = FoundRoot { is_deleted: true, dropped_to: Some((key, Level(2))), ..ROOT };
        for root in [ROOT, FoundRoot { is_deleted: true, ..ROOT }, half] {
            let mut bytes = Vec::new();
            root.encode(&mut bytes);
            assert_eq!((bytes.len(), FoundRoot::decode(&bytes)), (FoundRoot::BYTES, root));
        }
    }

    /// A list with next to nothing in memory.
    fn list<R: Record>(store: &Store, records: impl IntoIterator<Item = R>) -> Sorted<R> {
        let mut sorter = Sorter::new(store, 0);
        records.into_iter().for_each(|record| sorter.add(record));
        sorter.finish()
    }

    fn store() -> Store {
        Store::new(Some(Arc::new(MemoryDevice::new(1 << 20))))
    }

    /// What a root tree may say, as sets.
    struct Said {
        roots: Vec<FoundRoot>,
        forward: BTreeSet<(u64, [u64; 4])>,
        backward: BTreeSet<(u64, [u64; 4])>,
        orphans: BTreeSet<u64>,
    }

    impl Said {
        fn random(random: &SeededRandom) -> Self {
            let below = |bound: u64| random.next_u64() % bound;
            let name = || (254 + below(20), [250 + below(20), 256, 2 + below(2), below(2)]);
            let root = |number: u64| FoundRoot {
                id: RootId(250 + below(20)),
                offset: below(3),
                number,
                address: Logical(below(60)),
                is_deleted: below(3) == 0,
                ..ROOT
            };
            let mut roots: Vec<FoundRoot> = (0..20).map(root).collect();
            roots.sort();
            let mut forward: BTreeSet<_> = (0..20).map(|_| name()).collect();
            let backward =
                forward.iter().copied().filter(|_| below(4) > 0).chain((0..3).map(|_| name())).collect();
            forward.retain(|_| below(6) > 0);
            Self { roots, forward, backward, orphans: (0..8).map(|_| 250 + below(20)).collect() }
        }

        /// The lists of it.
        fn roots(&self) -> Roots {
            let store = store();
            let row = |(first, second): (u64, u64), [directory, index, name]: [u64; 3]| {
                [first, second, directory, index, name]
            };
            let by_parent =
                self.forward.iter().map(|(parent, [child, rest @ ..])| row((*parent, *child), *rest));
            let by_child =
                self.backward.iter().map(|(parent, [child, rest @ ..])| row((*child, *parent), *rest));
            let deleted = self.roots.iter().filter(|root| root.is_deleted).map(|root| [root.id.0]);
            Roots {
                roots: list(&store, self.roots.iter().copied()),
                by_parent: list(&store, by_parent),
                by_child: list(&store, by_child),
                orphans: list(&store, self.orphans.iter().map(|orphan| [*orphan])),
                deleted: list(&store, deleted),
                faulty: Faulty::default(),
            }
        }

        /// What is wrong with it, by sets and maps.
        fn findings(&self) -> Vec<Finding> {
            let mut found = Vec::new();
            let mut find = |kind, place| found.push(Finding { kind, place });
            for (parent, [child, ..]) in self.forward.symmetric_difference(&self.backward) {
                let (parent, child) = (RootId(*parent), RootId(*child));
                let place = Place { tree: Some(RootId::ROOT_TREE), ..Place::default() };
                find(FindingKind::RootReference { parent, child }, place);
            }
            let of = |id: u64| self.roots.iter().find(|root| root.id.0 == id);
            let parents: BTreeMap<u64, u64> =
                self.backward.iter().map(|(parent, [child, ..])| (*child, *parent)).collect();
            for root in Parents::of(parents.into_iter().collect()).loops() {
                find(
                    FindingKind::RootLoop { root: RootId(root) },
                    of(root).map_or(Place::default(), FoundRoot::place),
                );
            }
            let mut seen = BTreeSet::new();
            for root in &self.roots {
                if !seen.insert(root.address) {
                    let reason = "the tree's root block is another tree's too";
                    find(FindingKind::Root { reason }, root.place());
                }
                let names = self.backward.iter().filter(|(_, [child, ..])| *child == root.id.0).count();
                let id = root.id;
                if !id.is_subvolume() {
                } else if root.is_deleted && !self.orphans.contains(&id.0) {
                    find(FindingKind::RootOrphan { root: id }, root.place());
                } else if !root.is_deleted && names == 0 {
                    find(FindingKind::RootWithoutReference { root: id }, root.place());
                } else if !root.is_deleted && names > 1 {
                    find(FindingKind::Root { reason: "the subvolume has several names" }, root.place());
                }
            }
            found
        }
    }

    #[test]
    fn lists_are_judged_as_sets_are() {
        let random = SeededRandom::new(3);
        let mut kinds = BTreeSet::new();
        for _ in 0..200 {
            let said = Said::random(&random);
            let roots = said.roots();
            for id in 248..272 {
                let all = || said.roots.iter().filter(|root| root.id.0 == id);
                assert_eq!(roots.find(RootId(id)), all().next().copied());
                assert_eq!(roots.is_deleted(RootId(id)), all().any(|root| root.is_deleted));
                let names = said.forward.iter().filter(|(parent, _)| *parent == id).map(|(_, name)| *name);
                assert!(roots.names_in(RootId(id)).eq(names));
            }
            with_context(|context| {
                judge(context, &roots);
                // By itself each root item is judged elsewhere.
                let is_odd = |kind: &FindingKind| matches!(kind, FindingKind::Root { reason } if reason.contains("is said") || reason.contains("looked for"));
                context.report.findings.retain(|finding| !is_odd(&finding.kind));
                assert_eq!(context.report.findings, said.findings());
                kinds.extend(context.report.findings.iter().map(|finding| finding.kind.to_string()));
            });
        }
        let has = |word: &str| kinds.iter().any(|kind| kind.contains(word));
        let words =
            ["do not agree", "lies in itself", "several names", "another tree's", "no name", "deleted, and"];
        assert!(words.into_iter().all(has), "{kinds:?}");
    }

    #[test]
    fn a_root_item_is_where_linux_looks_and_leads_to_an_inode() {
        let root = |id: u64, offset, root_directory| {
            let (id, root_directory) = (RootId(id), ObjectId(root_directory));
            odd_root(&FoundRoot { id, offset, root_directory, ..ROOT }).is_some()
        };
        assert!(!root(7, 0, 0) && !root(5, 0, 256) && !root(300, 9, 256));
        assert!(root(7, 1, 0) && root(5, 0, 257) && root(300, 9, 0));
        assert!(
            !root(300, u64::MAX - 1, 256) && root(300, u64::MAX, 256),
            "the root block is of {}",
            ROOT.generation
        );
        let RootId(relocation) = RootId::DATA_RELOCATION_TREE;
        assert!(!root(relocation, 0, 256) && root(relocation, 0, 255));
        let RootId(relocations) = RootId::TREE_RELOCATION;
        assert!(!root(relocations, 5, 0), "named by the tree that is relocated");
    }

    #[test]
    fn subvolumes_beyond_the_bound_are_told_not_to_be_followed() {
        let found = |parents: &[(u64, u64)]| {
            let by_child = list(&store(), parents.iter().map(|(child, parent)| [*child, *parent, 256, 2, 0]));
            let mut found = Vec::new();
            with_context(|context| {
                judge_loops(context, &Roots { by_child, ..Roots::default() }, 3);
                found = core::mem::take(&mut context.report.findings);
            });
            found.into_iter().map(|finding| finding.kind).collect::<Vec<_>>()
        };
        let lies_in_itself = FindingKind::RootLoop { root: RootId(256) };
        let beyond = FindingKind::RootsNotFollowed {};
        assert_eq!(found(&[(256, 257), (257, 256), (258, 5)]), [lies_in_itself.clone(), beyond.clone()]);
        assert_eq!(found(&[(256, 257), (257, 256)]), [lies_in_itself]);
        assert_eq!(found(&[(256, 5), (257, 5), (258, 5), (259, 260), (260, 259)]), [beyond]);
        assert_eq!(
            found(&[(256, 5), (257, 256), (258, 5), (259, 256), (260, 5)]),
            [],
            "each in an older one"
        );
    }
}
