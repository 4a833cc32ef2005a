//! From a data extent to the files that show it: the one walk of back references behind fiemap's *shared* and
//! `logical-resolve`.
//!
//! References name a leaf, directly (by address) or indirectly (by tree, inode and offset), and so does each
//! reference to that leaf and to the nodes above it, up to the roots. A snapshot shares a tree by referring
//! to one node of it, so each root above a leaf shows every extent that the leaf names. Levels rise with each
//! step, so the walk ends on any bytes.
//!
//! Linux does the same in `fs/btrfs/backref.c`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use vlinder_base::sync::Arc;
use vlinder_format::extent::{DataReference, ExtentFlags, ExtentItem, Reference};
use vlinder_format::file_extent::{CompressionId, FileExtent, FileExtentContent};
use vlinder_format::{Block, Damage, Generation, ItemType, Key, Level, Logical, ObjectId, Place, RootId};
use vlinder_tree::{Cursor, Readahead, WantedBlock};

use crate::{Forest, ForestError, OpenTree, Referrer};

/// A run of a file that lies in an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtentUser {
    /// The subvolume.
    pub root: RootId,
    /// The file.
    pub inode: ObjectId,
    /// Where the run begins in the file, in bytes.
    pub file_offset: u64,
    /// Where it begins in the (uncompressed) extent, in bytes.
    pub extent_offset: u64,
    /// Its bytes in the file.
    pub length_bytes: u64,
    /// Whether the extent is compressed: then no byte of it is one of the file.
    pub compressed: bool,
}

impl ExtentUser {
    /// Where the extent's first byte would be in the file; runs of one file that agree in it count as one
    /// reference.
    fn origin(&self) -> (RootId, ObjectId, u64) {
        (self.root, self.inode, self.file_offset.wrapping_sub(self.extent_offset))
    }
}

/// An extent of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundExtent {
    /// Its first byte.
    pub start: Logical,
    /// Its bytes on disk.
    pub length_bytes: u64,
    /// Whether it holds file data, and not a tree block.
    pub is_data: bool,
    /// The transaction that allocated it.
    pub generation: Generation,
    /// How many references the extent tree counts, pending ones left out.
    pub references: u64,
}

/// No extent is longer: what Linux preallocates at once, twice what it writes at once. So a count that is too
/// high sends no search through the rest of a file.
const MAX_EXTENT_BYTES: u64 = 256 << 20;

/// References that the running transaction has in memory, and the extent tree does not have yet.
pub trait PendingReferences {
    /// How the references to the extent that begins at `start` will change, each with the number of
    /// references that come (or go, where it is negative). None where nothing is pending.
    fn changes(&self, start: Logical) -> Option<Vec<(Referrer, i64)>>;

    /// The running transaction: the generation of an extent that the extent tree does not have yet.
    fn generation(&self) -> Generation;
}

/// One walk, or many over the same state: it remembers which roots are above a block.
///
/// The state must stand still, or what is told may miss what comes and goes meanwhile (as Linux's fiemap
/// may). While a handle of the running transaction is open at least no commit comes between.
pub struct ExtentUsers<'a> {
    forest: &'a Forest,
    extent_tree: Arc<OpenTree>,
    pending: Option<&'a dyn PendingReferences>,
    /// The subvolumes that are looked at; all if it is none.
    within: Option<Vec<Arc<OpenTree>>>,
    roots_above: RememberedRoots,
}

/// Roots that are remembered, over all blocks. More are forgotten, all at once: a file system with ten
/// thousand snapshots has as many above each of its blocks.
const MAX_REMEMBERED_ROOTS: usize = 1 << 16;

/// Which roots are above blocks.
#[derive(Default)]
struct RememberedRoots {
    by_block: HashMap<Logical, BTreeSet<RootId>>,
    count: usize,
}

impl RememberedRoots {
    fn get(&self, block: Logical) -> Option<BTreeSet<RootId>> {
        self.by_block.get(&block).cloned()
    }

    fn insert(&mut self, block: Logical, roots: BTreeSet<RootId>) {
        let added = roots.len().saturating_add(1);
        if self.count.saturating_add(added) > MAX_REMEMBERED_ROOTS {
            *self = Self::default();
        }
        self.count = self.count.saturating_add(added);
        self.by_block.insert(block, roots);
    }
}

/// What the extent tree and the pending changes say of an extent.
struct References {
    generation: Generation,
    level: Level,
    all: Vec<Reference>,
}

impl<'a> ExtentUsers<'a> {
    /// The users in a state, with what is pending there if it is the running transaction's.
    ///
    /// # Errors
    /// What opening the extent tree met.
    pub fn new(forest: &'a Forest, pending: Option<&'a dyn PendingReferences>) -> Result<Self, ForestError> {
        let extent_tree = forest.tree(RootId::EXTENT_TREE)?;
        Ok(Self { forest, extent_tree, pending, within: None, roots_above: RememberedRoots::default() })
    }

    /// The users in some subvolumes of a state without pending references. What is walked grows with their
    /// number, and not with that of all snapshots.
    ///
    /// # Errors
    /// What opening the trees met; a subvolume that is not there.
    pub fn within(forest: &'a Forest, subvolumes: &[RootId]) -> Result<Self, ForestError> {
        let trees = subvolumes.iter().map(|id| forest.tree(*id)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { within: Some(trees), ..Self::new(forest, None)? })
    }

    /// The extent that holds an address; none if nothing does.
    ///
    /// # Errors
    /// What reading the extent tree met.
    pub fn extent_at(&self, logical: Logical) -> Result<Option<FoundExtent>, ForestError> {
        let (trees, root) = (self.forest.trees(), self.extent_tree.root());
        let mut sought = Some(Key::new(ObjectId(logical.0), ItemType(u8::MAX), u64::MAX));
        while let Some(position) = sought.map_or(Ok(None), |key| trees.floor(root, &key))? {
            let key = position.key();
            let length_bytes = match key.item_type {
                ItemType::EXTENT_ITEM => key.offset,
                ItemType::METADATA_ITEM => u64::from(trees.source().node_size()),
                // References of their own and group items: the extent's own item comes before all of these.
                _ => {
                    let own = Key::new(key.objectid, ItemType::METADATA_ITEM, u64::MAX);
                    sought = if own < key { Some(own) } else { key.previous() };
                    continue;
                }
            };
            let place = position.place(RootId::EXTENT_TREE);
            let header =
                ExtentItem::decode_header(position.data()).map_err(|fault| Damage::new(fault, place))?;
            let is_data = header.flags.has(ExtentFlags::DATA);
            let start = Logical(key.objectid.0);
            let holds = logical.0.wrapping_sub(start.0) < length_bytes;
            let generation = header.generation;
            let references = header.references;
            let found = FoundExtent { start, length_bytes, is_data, generation, references };
            return Ok(holds.then_some(found));
        }
        Ok(None)
    }

    /// All runs of files that lie in the data extent that begins at an address, in order.
    ///
    /// # Errors
    /// What reading the trees met.
    pub fn users(&mut self, start: Logical) -> Result<BTreeSet<ExtentUser>, ForestError> {
        let mut users = BTreeSet::new();
        let Some(references) = self.references(start)? else { return Ok(users) };
        for reference in references.all {
            self.users_by_reference(start, &reference, &mut users)?;
        }
        Ok(users)
    }

    /// Whether more than one place of one file refers to the data extent that begins at an address, as
    /// fiemap's flag says it. Ends at the second such place: an extent may have a million.
    ///
    /// # Errors
    /// What reading the trees met.
    pub fn is_shared(&mut self, start: Logical) -> Result<bool, ForestError> {
        let mut origins = BTreeSet::new();
        let mut pending: BTreeMap<Referrer, i64> = BTreeMap::new();
        for (referrer, change) in self.pending_changes(start).unwrap_or_default() {
            *pending.entry(referrer).or_default() += change;
        }
        let mut cursor = self.extent_items(start)?;
        while let Some(found) = references_at(&cursor, start)? {
            for reference in found.references {
                let Some(referrer) = Referrer::of(&reference) else { continue };
                let change = pending.remove(&referrer).unwrap_or_default();
                let count = i64::from(reference.count()) + change;
                if self.is_second_origin(start, (referrer, count), &mut origins)? {
                    return Ok(true);
                }
            }
            cursor.advance()?;
        }
        for counted in pending {
            if self.is_second_origin(start, counted, &mut origins)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds the origins of the runs of one referrer; gives whether there are several by now.
    fn is_second_origin(
        &mut self,
        start: Logical,
        (referrer, count): (Referrer, i64),
        origins: &mut BTreeSet<(RootId, ObjectId, u64)>,
    ) -> Result<bool, ForestError> {
        if count > 0 {
            let mut users = BTreeSet::new();
            let reference = referrer.reference(u32::try_from(count).unwrap_or(u32::MAX));
            self.users_by_reference(start, &reference, &mut users)?;
            origins.extend(users.iter().map(ExtentUser::origin));
        }
        Ok(origins.len() > 1)
    }

    fn users_by_reference(
        &mut self,
        start: Logical,
        reference: &Reference,
        users: &mut BTreeSet<ExtentUser>,
    ) -> Result<(), ForestError> {
        match reference {
            Reference::ExtentData(reference) => self.users_by_file(start, reference, users),
            Reference::SharedData { parent, .. } => match self.block_at(*parent)? {
                Some(leaf) => self.users_in_leaf(start, &leaf, |_| true, users),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn users_by_file(
        &mut self,
        start: Logical,
        reference: &DataReference,
        users: &mut BTreeSet<ExtentUser>,
    ) -> Result<(), ForestError> {
        let Some(tree) = self.subvolume(reference.root)? else { return Ok(()) };
        // An origin before the file's start wraps; the first run that can show it is then the file's first.
        let first = if reference.offset > i64::MAX as u64 { 0 } else { reference.offset };
        let from = Key::new(reference.inode, ItemType::EXTENT_DATA, first);
        let mut left = reference.count;
        let mut cursor = self.forest.trees().cursor(tree.root(), &from, Readahead::None)?;
        let mut leaves: BTreeMap<Logical, Arc<Block>> = BTreeMap::new();
        while let Some((key, data)) = cursor.item() {
            let is_run = key.objectid == reference.inode && key.item_type == ItemType::EXTENT_DATA;
            if left == 0 || !is_run || key.offset.wrapping_sub(reference.offset) >= MAX_EXTENT_BYTES {
                break;
            }
            if let Some(user) = run_in(start, reference.root, &key, data)
                && user.origin().2 == reference.offset
                && let Some(position) = cursor.position()
            {
                leaves.insert(position.leaf().logical(), Arc::clone(position.leaf()));
                left = left.saturating_sub(1);
            }
            cursor.advance()?;
        }
        let is_meant =
            |user: &ExtentUser| user.origin().1 == reference.inode && user.origin().2 == reference.offset;
        leaves.values().try_for_each(|leaf| self.users_in_leaf(start, leaf, is_meant, users))
    }

    /// The runs of a leaf that lie in an extent, in each tree that shows the leaf.
    fn users_in_leaf(
        &mut self,
        start: Logical,
        leaf: &Arc<Block>,
        is_meant: impl Fn(&ExtentUser) -> bool,
        users: &mut BTreeSet<ExtentUser>,
    ) -> Result<(), ForestError> {
        let roots = self.roots_above(leaf)?;
        for slot in 0..leaf.len() {
            let user = run_in(start, RootId(0), &leaf.key(slot), leaf.data(slot));
            if let Some(user) = user.filter(&is_meant) {
                users.extend(roots.iter().map(|root| ExtentUser { root: *root, ..user }));
            }
        }
        Ok(())
    }

    /// The subvolumes in whose trees a block is.
    fn roots_above(&mut self, block: &Arc<Block>) -> Result<BTreeSet<RootId>, ForestError> {
        if let Some(known) = self.roots_above.get(block.logical()) {
            return Ok(known);
        }
        let mut roots = BTreeSet::new();
        if let Some(trees) = &self.within {
            for tree in trees {
                if self.holds_leaf(tree, block)? {
                    roots.insert(tree.id());
                }
            }
            self.roots_above.insert(block.logical(), roots.clone());
            return Ok(roots);
        }
        let references = self.references(block.logical())?.map_or_else(Vec::new, |references| references.all);
        for reference in references {
            let parent = match reference {
                Reference::TreeBlock { root } => {
                    let Some(tree) = self.subvolume(root)? else { continue };
                    if tree.root().pointer().logical == block.logical() {
                        roots.insert(root);
                        continue;
                    }
                    self.parent_in(&tree, block)?
                }
                Reference::SharedBlock { parent } => self.block_at(parent)?,
                _ => None,
            };
            // What is not exactly one level up is damage, and would let the walk go round.
            if let Some(parent) = parent.filter(|parent| parent.level().0 == block.level().0 + 1) {
                roots.extend(self.roots_above(&parent)?);
            }
        }
        self.roots_above.insert(block.logical(), roots.clone());
        Ok(roots)
    }

    /// Whether a tree has a leaf: then its first item is found there.
    fn holds_leaf(&self, tree: &OpenTree, leaf: &Block) -> Result<bool, ForestError> {
        if leaf.is_empty() {
            return Ok(false);
        }
        let found = self.forest.trees().get(tree.root(), &leaf.key(0))?;
        Ok(found.is_some_and(|found| {
            let (there, wanted) = (found.leaf(), leaf);
            (there.logical(), there.generation()) == (wanted.logical(), wanted.generation())
        }))
    }

    /// The node of a tree that points to a block.
    fn parent_in(&self, tree: &OpenTree, block: &Block) -> Result<Option<Arc<Block>>, ForestError> {
        if block.is_empty() {
            return Ok(None);
        }
        let key = block.key(0);
        let mut wanted = WantedBlock::root(tree.root());
        while wanted.level.0 > block.level().0 {
            let node = self.forest.trees().block(&wanted)?;
            wanted = WantedBlock::child(tree.id(), &node, node.child_slot(&key));
            if wanted.logical == block.logical() {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    /// A block by its address alone; none if no extent is there any more.
    fn block_at(&self, logical: Logical) -> Result<Option<Arc<Block>>, ForestError> {
        let Some(References { generation, level, .. }) = self.references(logical)? else { return Ok(None) };
        let wanted =
            WantedBlock { logical, generation, level, first_key: None, before: None, tree: RootId::FS_TREE };
        Ok(Some(self.forest.trees().block(&wanted)?))
    }

    fn subvolume(&self, id: RootId) -> Result<Option<Arc<OpenTree>>, ForestError> {
        match self.forest.tree(id) {
            Ok(tree) => Ok(Some(tree)),
            // Of a subvolume that is being deleted, or was in a damaged file system.
            Err(ForestError::NoSuchTree { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The references to an extent, with what is pending; none if no extent begins at the address.
    fn references(&self, start: Logical) -> Result<Option<References>, ForestError> {
        let mut found = None;
        let mut counts: BTreeMap<Referrer, i64> = BTreeMap::new();
        let mut cursor = self.extent_items(start)?;
        while let Some(at) = references_at(&cursor, start)? {
            found = at.extent.or(found);
            count_in(&mut counts, &at.references);
            cursor.advance()?;
        }
        if let Some(changes) = self.pending_changes(start) {
            found.get_or_insert((self.pending_generation(), Level::default()));
            for (referrer, change) in changes {
                *counts.entry(referrer).or_default() += change;
            }
        }
        let Some((generation, level)) = found else { return Ok(None) };
        let all = counts.into_iter().filter(|(_, count)| *count > 0);
        let all = all.map(|(referrer, count)| referrer.reference(u32::try_from(count).unwrap_or(u32::MAX)));
        Ok(Some(References { generation, level, all: all.collect() }))
    }

    fn pending_changes(&self, start: Logical) -> Option<Vec<(Referrer, i64)>> {
        self.pending.and_then(|pending| pending.changes(start))
    }

    fn pending_generation(&self) -> Generation {
        self.pending.map_or(Generation(0), PendingReferences::generation)
    }

    /// The items of the extent tree from the one on that an extent at an address has.
    fn extent_items(&self, start: Logical) -> Result<Cursor<'a>, ForestError> {
        let first = Key::new(ObjectId(start.0), ItemType::EXTENT_ITEM, 0);
        let forest: &'a Forest = self.forest;
        Ok(forest.trees().cursor(self.extent_tree.root(), &first, Readahead::None)?)
    }
}

/// What one item of the extent tree says of an extent.
struct ReferencesAt {
    /// Of the extent's own item: the transaction that allocated the extent, and its level.
    extent: Option<(Generation, Level)>,
    references: Vec<Reference>,
}

/// What the item at a cursor says of the extent that begins at `start`; none behind the last one that says
/// something of it.
fn references_at(cursor: &Cursor<'_>, start: Logical) -> Result<Option<ReferencesAt>, ForestError> {
    let Some((key, data)) = cursor.item().filter(|(key, _)| key.objectid.0 == start.0) else {
        return Ok(None);
    };
    let place = || Place { key: Some(key), tree: Some(RootId::EXTENT_TREE), ..cursor.place() };
    if !matches!(key.item_type, ItemType::EXTENT_ITEM | ItemType::METADATA_ITEM) {
        let reference = Reference::decode_item(&key, data).transpose();
        let references = reference.map_err(|fault| Damage::new(fault, place()))?.into_iter().collect();
        return Ok(Some(ReferencesAt { extent: None, references }));
    }
    let item = ExtentItem::decode(key.item_type, data).map_err(|fault| Damage::new(fault, place()))?;
    let level = match (&item.tree_block, key.item_type) {
        (Some(info), _) => info.level,
        (None, ItemType::METADATA_ITEM) => Level(u8::try_from(key.offset).unwrap_or(u8::MAX)),
        (None, _) => Level::default(),
    };
    Ok(Some(ReferencesAt { extent: Some((item.header.generation, level)), references: item.inline }))
}

fn count_in(counts: &mut BTreeMap<Referrer, i64>, references: &[Reference]) {
    for reference in references {
        if let Some(referrer) = Referrer::of(reference) {
            *counts.entry(referrer).or_default() += i64::from(reference.count());
        }
    }
}

/// The run that an item describes, if it lies in the extent that begins at an address.
fn run_in(start: Logical, root: RootId, key: &Key, data: &[u8]) -> Option<ExtentUser> {
    if key.item_type != ItemType::EXTENT_DATA {
        return None;
    }
    let extent = FileExtent::decode(data).ok()?;
    match extent.content {
        FileExtentContent::Regular(range) | FileExtentContent::Preallocated(range)
            if range.address == start =>
        {
            Some(ExtentUser {
                root,
                inode: key.objectid,
                file_offset: key.offset,
                extent_offset: range.offset_bytes,
                length_bytes: range.file_bytes,
                compressed: extent.compression != CompressionId::NONE,
            })
        }
        _ => None,
    }
}
