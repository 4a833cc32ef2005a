//! A subvolume: its inodes one after the other, its names, its orphans.

use std::collections::BTreeSet;

use vlinder_format::directory::{DirectoryEntries, DirectoryIndex};
use vlinder_format::{ItemType, ObjectId, Place, RootId, orphan};

use crate::context::{Context, at};
use crate::data::Ranges;
use crate::finding::FindingKind;
use crate::inode::Inode;
use crate::loops::Parents;
use crate::names::{Names, explain, number_of};
use crate::roots::{RootName, Roots};
use crate::walk::{Item, Tree, Visitor, walk};

/// Directories of one subvolume whose parents are kept and followed, in 16 bytes each.
const MOST_DIRECTORIES: usize = 4 << 20;

/// What is gathered on the way through a subvolume.
struct Subvolume<'a> {
    tree: RootId,
    /// All of it is there: it is not being deleted.
    is_whole: bool,
    checksums: &'a Ranges,
    names: &'a mut Names,
    /// Names of nested subvolumes that must be found here.
    expected: &'a mut Vec<RootName>,
    current: Option<Inode>,
    unlinked: BTreeSet<ObjectId>,
    /// Directories by the directories that they lie in.
    parents: Parents,
    orphans: BTreeSet<ObjectId>,
    has_root_directory: bool,
    /// Some of it could not be read.
    has_gaps: bool,
}

impl Subvolume<'_> {
    fn finish_inode(&mut self, context: &mut Context<'_>) {
        let Some(inode) = self.current.take() else { return };
        let number = inode.number;
        self.has_root_directory |= number == ObjectId::FIRST_FREE;
        let Some(finished) = inode.finish(context, self.is_whole) else { return };
        if finished.is_unlinked {
            self.unlinked.insert(number);
        }
        if let Some(parent) = finished.parent
            && self.parents.len() < MOST_DIRECTORIES
        {
            self.parents.add(number.0, parent.0);
        }
    }

    /// The inode that an item belongs to.
    fn inode_of(&mut self, context: &mut Context<'_>, item: &Item<'_>) {
        if self.current.as_ref().is_none_or(|current| current.number != item.key.objectid) {
            self.finish_inode(context);
            self.current = Some(Inode::new(item.key.objectid, item.place()));
        }
    }

    /// Strikes the names of nested subvolumes off the list.
    fn find_subvolumes(&mut self, item: &Item<'_>) {
        for entry in DirectoryEntries::new(item.data).flatten() {
            if entry.location.item_type == ItemType::ROOT_ITEM {
                let found = RootName {
                    child: RootId(entry.location.objectid.0),
                    directory: item.key.objectid,
                    index: DirectoryIndex(item.key.offset),
                    name: number_of(entry.name),
                };
                self.expected.retain(|expected| *expected != found);
            }
        }
    }
}

impl Visitor for Subvolume<'_> {
    fn item(&mut self, context: &mut Context<'_>, item: &Item<'_>) {
        if let Some(orphan) = orphan::orphan_of(&item.key) {
            self.finish_inode(context);
            self.orphans.insert(orphan);
            return;
        }
        if item.key.objectid < ObjectId::FIRST_FREE || item.key.objectid > ObjectId::LAST_FREE {
            return;
        }
        self.inode_of(context, item);
        let Some(inode) = &mut self.current else { return };
        match item.key.item_type {
            ItemType::INODE_ITEM => inode.set_item(item.data, item.place()),
            ItemType::INODE_REF => inode.add_references(item, self.names),
            ItemType::INODE_EXTREF => inode.add_extended_references(item, self.names),
            ItemType::DIR_ITEM => inode.add_entries(context, item, self.names),
            ItemType::DIR_INDEX => {
                inode.add_entries(context, item, self.names);
                self.find_subvolumes(item);
            }
            ItemType::EXTENT_DATA => inode.add_extent(context, item, self.checksums),
            _ => {}
        }
    }

    fn gap(&mut self) {
        self.has_gaps = true;
        if let Some(inode) = &mut self.current {
            inode.is_incomplete = true;
        }
    }
}

/// Judges a subvolume.
pub(crate) fn judge(context: &mut Context<'_>, tree: &Tree, roots: &Roots, checksums: &Ranges) {
    let is_whole = !roots.is_deleted(tree.id);
    let mut names = Names::new();
    let mut expected = if is_whole { roots.names_in(tree.id) } else { Vec::new() };
    let mut subvolume = Subvolume {
        tree: tree.id,
        is_whole,
        checksums,
        names: &mut names,
        expected: &mut expected,
        current: None,
        unlinked: BTreeSet::new(),
        parents: Parents::default(),
        orphans: BTreeSet::new(),
        has_root_directory: false,
        has_gaps: false,
    };
    walk(context, tree, &mut subvolume);
    subvolume.finish_inode(context);
    if !is_whole {
        return;
    }
    judge_whole(context, &subvolume);
    for name in &expected {
        let place = Place { tree: Some(tree.id), ..Place::default() };
        context.find(FindingKind::RootName { parent: tree.id, child: name.child }, place);
    }
    if !names.is_even() {
        explain_names(context, tree, checksums, &mut names);
    }
}

fn judge_whole(context: &mut Context<'_>, subvolume: &Subvolume<'_>) {
    for directory in subvolume.parents.loops().into_iter().map(ObjectId) {
        let place = at(subvolume.tree, vlinder_format::inode::InodeItem::key(directory));
        context.find(FindingKind::DirectoryLoop { directory }, place);
    }
    if subvolume.parents.len() >= MOST_DIRECTORIES {
        let place = Place { tree: Some(subvolume.tree), ..Place::default() };
        context.find(FindingKind::DirectoriesNotFollowed {}, place);
    }
    for inode in subvolume.unlinked.difference(&subvolume.orphans) {
        let place = at(subvolume.tree, vlinder_format::inode::InodeItem::key(*inode));
        context.find(FindingKind::InodeOrphan { inode: *inode }, place);
    }
    if !subvolume.has_root_directory && !subvolume.has_gaps {
        let place = Place { tree: Some(subvolume.tree), ..Place::default() };
        context.find(FindingKind::RootDirectory {}, place);
    }
}

/// Names do not agree: reads the subvolume again and says which.
fn explain_names(context: &mut Context<'_>, tree: &Tree, checksums: &Ranges, names: &mut Names) {
    if !names.collect() {
        let place = Place { tree: Some(tree.id), ..Place::default() };
        context.find(FindingKind::NamesNotListed {}, place);
    }
    let mut again = Subvolume {
        tree: tree.id,
        is_whole: true,
        checksums,
        names,
        expected: &mut Vec::new(),
        current: None,
        unlinked: BTreeSet::new(),
        parents: Parents::default(),
        orphans: BTreeSet::new(),
        has_root_directory: false,
        has_gaps: false,
    };
    context.quietly(|context| walk(context, &Tree { has_references: false, ..*tree }, &mut again));
    explain(context, tree.id, names);
}
