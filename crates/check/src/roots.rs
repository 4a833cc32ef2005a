//! The root tree: which trees there are, and how subvolumes refer to each other.

use std::collections::{BTreeMap, BTreeSet};

use vlinder_format::directory::DirectoryIndex;
use vlinder_format::root_item::RootItem;
use vlinder_format::root_ref::RootReference;
use vlinder_format::{ItemType, Key, Logical, ObjectId, Place, RootId, orphan};

use crate::context::Context;
use crate::finding::FindingKind;
use crate::loops::Parents;
use crate::names::number_of;
use crate::walk::{Item, ItemVisitor, Tree, walk};

/// A subvolume's name in its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RootName {
    pub(crate) child: RootId,
    pub(crate) directory: ObjectId,
    pub(crate) index: DirectoryIndex,
    /// Stands for the name.
    pub(crate) name: u64,
}

impl RootName {
    const FIRST: Self = Self { child: RootId(0), directory: ObjectId(0), index: DirectoryIndex(0), name: 0 };
}

/// A root item where it was found.
pub(crate) struct FoundRoot {
    pub(crate) id: RootId,
    item: RootItem,
    place: Place,
}

impl FoundRoot {
    /// What an item of a root says, if it is one.
    pub(crate) fn of(item: &Item<'_>) -> Option<Self> {
        let decoded = RootItem::decode(item.data).ok()?;
        Some(Self { id: RootId(item.key.objectid.0), item: decoded, place: item.place() })
    }

    /// The tree that the item points at.
    pub(crate) fn tree(&self) -> Tree {
        let is_half = self.item.is_deleted() && self.item.drop_progress != Key::MIN;
        Tree {
            id: self.id,
            logical: self.item.address,
            generation: self.item.generation,
            level: self.item.level,
            has_references: true,
            dropped_to: is_half.then_some((self.item.drop_progress, self.item.drop_level)),
        }
    }
}

/// What the root tree says.
#[derive(Default)]
pub(crate) struct Roots {
    pub(crate) roots: Vec<FoundRoot>,
    /// As parents say: (parent, name).
    forward: BTreeSet<(RootId, RootName)>,
    /// As children say.
    backward: BTreeSet<(RootId, RootName)>,
    orphans: BTreeSet<RootId>,
    deleted: BTreeSet<RootId>,
}

impl Roots {
    /// The tree of a number.
    pub(crate) fn get(&self, id: RootId) -> Option<Tree> {
        self.roots.iter().find(|root| root.id == id).map(FoundRoot::tree)
    }

    pub(crate) fn is_deleted(&self, id: RootId) -> bool {
        self.deleted.contains(&id)
    }

    /// The subvolumes that must have names in this one.
    pub(crate) fn names_in(&self, parent: RootId) -> Vec<RootName> {
        let names = self.forward.range((parent, RootName::FIRST)..);
        names.take_while(|(of, _)| *of == parent).map(|(_, name)| *name).collect()
    }

    /// The subvolumes by their UUIDs.
    pub(crate) fn by_id(&self) -> BTreeMap<RootId, &RootItem> {
        self.roots.iter().map(|root| (root.id, &root.item)).collect()
    }
}

impl ItemVisitor for Roots {
    fn item(&mut self, _: &mut Context<'_>, item: &Item<'_>) {
        let (objectid, offset) = (item.key.objectid, item.key.offset);
        match item.key.item_type {
            ItemType::ROOT_ITEM => {
                let found = FoundRoot::of(item);
                self.deleted.extend(found.iter().filter(|root| root.item.is_deleted()).map(|root| root.id));
                self.roots.extend(found);
            }
            ItemType::ROOT_REF | ItemType::ROOT_BACKREF => {
                let Ok(reference) = RootReference::decode(item.data) else { return };
                let is_forward = item.key.item_type == ItemType::ROOT_REF;
                let (parent, child) = if is_forward { (objectid.0, offset) } else { (offset, objectid.0) };
                let name = RootName {
                    child: RootId(child),
                    directory: reference.directory,
                    index: reference.index,
                    name: number_of(reference.name),
                };
                let side = if is_forward { &mut self.forward } else { &mut self.backward };
                side.insert((RootId(parent), name));
            }
            ItemType::ORPHAN_ITEM => {
                self.orphans.extend(orphan::orphan_of(&item.key).map(|orphan| RootId(orphan.0)));
            }
            _ => {}
        }
    }
}

/// Reads the root tree.
pub(crate) fn read(context: &mut Context<'_>) -> Roots {
    let superblock = context.judge.superblock;
    let tree = Tree {
        id: RootId::ROOT_TREE,
        logical: superblock.root,
        generation: superblock.generation,
        level: superblock.root_level,
        has_references: true,
        dropped_to: None,
    };
    let mut roots = Roots::default();
    walk(context, &tree, &mut roots);
    roots
}

/// Compares root items and references with each other.
pub(crate) fn judge(context: &mut Context<'_>, roots: &Roots) {
    for (parent, name) in roots.forward.symmetric_difference(&roots.backward) {
        let place = Place { tree: Some(RootId::ROOT_TREE), ..Place::default() };
        context.find(FindingKind::RootReference { parent: *parent, child: name.child }, place);
    }
    judge_loops(context, roots);
    let mut names: BTreeMap<RootId, u64> = BTreeMap::new();
    for (_, name) in &roots.backward {
        let count = names.entry(name.child).or_default();
        *count = count.saturating_add(1);
    }
    let mut seen: BTreeMap<Logical, RootId> = BTreeMap::new();
    for root in &roots.roots {
        if seen.insert(root.item.address, root.id).is_some() {
            let reason = "the tree's root block is another tree's too";
            context.find(FindingKind::Root { reason }, root.place);
        }
        if root.id.is_subvolume() && root.id != RootId::FS_TREE {
            judge_subvolume(context, roots, root, names.get(&root.id).copied().unwrap_or(0));
        }
    }
}

/// No subvolume lies in itself.
fn judge_loops(context: &mut Context<'_>, roots: &Roots) {
    let by_child: BTreeMap<u64, u64> =
        roots.backward.iter().map(|(parent, name)| (name.child.0, parent.0)).collect();
    let mut parents = Parents::default();
    for (child, parent) in by_child {
        parents.add(child, parent);
    }
    for root in parents.loops().into_iter().map(RootId) {
        let found = roots.roots.iter().find(|found| found.id == root);
        context.find(FindingKind::RootLoop { root }, found.map_or(Place::default(), |found| found.place));
    }
}

/// A subvolume has as many names as it should.
fn judge_subvolume(context: &mut Context<'_>, roots: &Roots, root: &FoundRoot, names: u64) {
    if root.item.is_deleted() {
        if !roots.orphans.contains(&root.id) {
            context.find(FindingKind::RootOrphan { root: root.id }, root.place);
        }
    } else if names == 0 {
        context.find(FindingKind::RootWithoutReference { root: root.id }, root.place);
    } else if names > 1 {
        let reason = "the subvolume has several names";
        context.find(FindingKind::Root { reason }, root.place);
    }
}
