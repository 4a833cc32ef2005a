//! Two random states of a subvolume, and a receiver that applies the changes as a kernel would: it refuses
//! what a kernel refuses, and the last name of a file that the new state has never goes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use vlinder_format::{Generation, ObjectId};

use super::*;

/// A state, as a list of names.
#[derive(Clone, Debug, Default, PartialEq)]
struct Model {
    inodes: BTreeMap<u64, InodeFacts>,
    /// Directory and name, to the inode.
    names: BTreeMap<(Identity, Vec<u8>), Identity>,
}

impl Names for Model {
    fn inode(&self, number: ObjectId) -> Result<Option<InodeFacts>, SendError> {
        Ok(self.inodes.get(&number.0).copied())
    }

    fn links(&self, inode: Identity) -> Result<Vec<Link>, SendError> {
        let links = self.names.iter().filter(|(_, named)| **named == inode);
        Ok(links.map(|((parent, name), _)| Link { parent: *parent, name: name.clone() }).collect())
    }

    fn entry(&self, directory: Identity, name: &[u8]) -> Result<Option<InodeFacts>, SendError> {
        let inode = self.names.get(&(directory, name.to_vec()));
        Ok(inode.map(|inode| self.inodes[&inode.number.0]))
    }
}

/// What a program does to a state. The numbers choose among what is there.
#[derive(Clone, Debug)]
enum Operation {
    MakeFile(usize, u8),
    MakeDirectory(usize, u8),
    Rename(usize, usize, u8),
    Exchange(usize, usize),
    Link(usize, usize, u8),
    Remove(usize),
    Remount,
}

fn operations(most: usize) -> impl Strategy<Value = Vec<Operation>> {
    let any_index = 0..64_usize;
    let name = 0..6_u8;
    let operation = prop_oneof![
        2 => (any_index.clone(), name.clone()).prop_map(|(at, name)| Operation::MakeFile(at, name)),
        2 => (any_index.clone(), name.clone()).prop_map(|(at, name)| Operation::MakeDirectory(at, name)),
        6 => (any_index.clone(), any_index.clone(), name.clone())
            .prop_map(|(what, at, name)| Operation::Rename(what, at, name)),
        2 => (any_index.clone(), any_index.clone()).prop_map(|(one, other)| Operation::Exchange(one, other)),
        2 => (any_index.clone(), any_index.clone(), name)
            .prop_map(|(what, at, name)| Operation::Link(what, at, name)),
        2 => any_index.prop_map(Operation::Remove),
        1 => Just(Operation::Remount),
    ];
    prop::collection::vec(operation, 0..most)
}

/// A state that programs change.
#[derive(Clone)]
struct Subvolume {
    model: Model,
    next_number: u64,
    generation: u64,
}

impl Subvolume {
    fn new() -> Self {
        let root = InodeFacts { identity: Identity::ROOT, is_directory: true };
        let model = Model { inodes: BTreeMap::from([(256, root)]), names: BTreeMap::new() };
        Self { model, next_number: 257, generation: 7 }
    }

    fn directory(&self, index: usize) -> Identity {
        let directories: Vec<Identity> = self
            .model
            .inodes
            .values()
            .filter(|facts| facts.is_directory)
            .map(|facts| facts.identity)
            .collect();
        directories[index % directories.len()]
    }

    fn name(&self, index: usize) -> Option<((Identity, Vec<u8>), Identity)> {
        let count = self.model.names.len().max(1);
        self.model.names.iter().nth(index % count).map(|(name, inode)| (name.clone(), *inode))
    }

    fn is_directory(&self, inode: Identity) -> bool {
        self.model.inodes[&inode.number.0].is_directory
    }

    fn is_inside(&self, mut inner: Identity, outer: Identity) -> bool {
        while inner != outer {
            if inner == Identity::ROOT {
                return false;
            }
            inner = self.model.links(inner).unwrap()[0].parent;
        }
        true
    }

    fn make(&mut self, at: usize, name: u8, is_directory: bool) {
        let slot = (self.directory(at), vec![b'a' + name]);
        if !self.model.names.contains_key(&slot) {
            let number = ObjectId(self.next_number);
            let identity = Identity { number, generation: Generation(self.generation) };
            self.model.inodes.insert(number.0, InodeFacts { identity, is_directory });
            self.model.names.insert(slot, identity);
            self.next_number += 1;
        }
    }

    fn remove(&mut self, slot: &(Identity, Vec<u8>)) {
        let inode = self.model.names.remove(slot).unwrap();
        if !self.model.names.values().any(|named| *named == inode) {
            self.model.inodes.remove(&inode.number.0);
        }
    }

    fn apply(&mut self, operation: &Operation) {
        match *operation {
            Operation::MakeFile(at, name) => self.make(at, name, false),
            Operation::MakeDirectory(at, name) => self.make(at, name, true),
            Operation::Rename(what, at, name) => self.rename(what, at, name),
            Operation::Exchange(one, other) => self.exchange(one, other),
            Operation::Link(what, at, name) => {
                let slot = (self.directory(at), vec![b'a' + name]);
                if let Some((_, inode)) = self.name(what).filter(|(_, inode)| !self.is_directory(*inode)) {
                    self.model.names.entry(slot).or_insert(inode);
                }
            }
            Operation::Remove(what) => {
                let Some((slot, inode)) = self.name(what) else { return };
                let is_empty = !self.model.names.keys().any(|(parent, _)| *parent == inode);
                if is_empty {
                    self.remove(&slot);
                }
            }
            Operation::Remount => {
                let last = self.model.inodes.keys().next_back().copied().unwrap();
                self.next_number = last + 1;
                self.generation += 1;
            }
        }
    }

    fn rename(&mut self, what: usize, at: usize, name: u8) {
        let Some((from, inode)) = self.name(what) else { return };
        let to = (self.directory(at), vec![b'a' + name]);
        if from == to || self.is_directory(inode) && self.is_inside(to.0, inode) {
            return;
        }
        if let Some(there) = self.model.names.get(&to).copied() {
            let is_empty = !self.model.names.keys().any(|(parent, _)| *parent == there);
            if there == inode || !is_empty || self.is_directory(there) != self.is_directory(inode) {
                return;
            }
            self.remove(&to);
        }
        self.model.names.remove(&from);
        self.model.names.insert(to, inode);
    }

    fn exchange(&mut self, one: usize, other: usize) {
        let (Some((first, a)), Some((second, b))) = (self.name(one), self.name(other)) else { return };
        let is_circle =
            |inode, place: &(Identity, Vec<u8>)| self.is_directory(inode) && self.is_inside(place.0, inode);
        if !is_circle(a, &second) && !is_circle(b, &first) {
            self.model.names.insert(first, b);
            self.model.names.insert(second, a);
        }
    }
}

/// The receiver: paths are followed as a kernel does.
struct Receiver {
    names: BTreeMap<(Identity, Vec<u8>), Identity>,
    directories: BTreeSet<Identity>,
    lasting: BTreeSet<Identity>,
}

impl Receiver {
    fn slot(&self, path: &[u8]) -> (Identity, Vec<u8>) {
        let mut components: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let name = components.pop().unwrap();
        let directory = components.into_iter().fold(Identity::ROOT, |directory, component| {
            let found = self.names.get(&(directory, component.to_vec()));
            let found = *found.unwrap_or_else(|| panic!("no {}", path.escape_ascii()));
            assert!(self.directories.contains(&found), "{} goes through a file", path.escape_ascii());
            found
        });
        (directory, name.to_vec())
    }

    fn take(&mut self, path: &[u8]) -> Identity {
        let slot = self.slot(path);
        self.names.remove(&slot).unwrap_or_else(|| panic!("no {}", path.escape_ascii()))
    }

    fn give(&mut self, path: &[u8], inode: Identity) {
        let slot = self.slot(path);
        let before = self.names.insert(slot, inode);
        assert_eq!(before, None, "{} is there", path.escape_ascii());
    }

    fn apply(&mut self, change: &NameChange, is_directory: impl Fn(Identity) -> bool) {
        match change {
            NameChange::Create { path, inode, .. } => {
                self.give(path, *inode);
                if is_directory(*inode) {
                    self.directories.insert(*inode);
                }
            }
            NameChange::Rename { from, to } => {
                let inside = [&from[..], b"/"].concat();
                assert!(!to.starts_with(&inside), "into itself");
                let inode = self.take(from);
                self.give(to, inode);
            }
            NameChange::Link { path, existing } => {
                let slot = self.slot(existing);
                let inode = *self.names.get(&slot).unwrap();
                assert!(!self.directories.contains(&inode));
                self.give(path, inode);
            }
            NameChange::Unlink { path } => {
                let inode = self.take(path);
                assert!(!self.directories.contains(&inode), "a directory");
                let is_last = !self.names.values().any(|named| *named == inode);
                assert!(!is_last || !self.lasting.contains(&inode), "{} was lost", path.escape_ascii());
            }
            NameChange::RemoveDirectory { path } => {
                let inode = self.take(path);
                assert!(self.directories.remove(&inode), "no directory");
                assert!(!self.names.keys().any(|(parent, _)| *parent == inode), "not empty");
            }
        }
    }
}

/// The changes, and the directories whose times they move.
fn changes(old: Option<&Model>, new: &Model) -> (Vec<NameChange>, Vec<Identity>) {
    let mut namespace = Namespace::new(old, new);
    let numbers: BTreeSet<u64> =
        old.into_iter().chain([new]).flat_map(|model| model.inodes.keys().copied()).collect();
    let mut changes = Vec::new();
    for number in numbers.into_iter().map(ObjectId) {
        let old = old.map(|old| (old, old.inode(number).unwrap()));
        let facts = new.inode(number).unwrap();
        let is_same = old.is_some_and(|(old, before)| {
            before == facts
                && facts.is_some_and(|facts| {
                    old.links(facts.identity).unwrap() == new.links(facts.identity).unwrap()
                })
        });
        if !is_same {
            namespace.turn(number).unwrap();
            if let Some(facts) = facts.filter(|facts| !facts.is_directory) {
                namespace.path_of_file(facts.identity).unwrap();
            }
        }
        changes.extend(namespace.take_changes());
    }
    namespace.finish().unwrap();
    changes.extend(namespace.take_changes());
    (changes, namespace.touched_directories().unwrap())
}

/// Directories that are in both states, with other names in them.
fn directories_with_other_names(old: &Model, new: &Model) -> BTreeSet<Identity> {
    let only = |one: &Model, other: &Model| -> Vec<Identity> {
        let differs = |slot: &&(Identity, Vec<u8>)| one.names.get(slot) != other.names.get(slot);
        one.names.keys().filter(differs).map(|(directory, _)| *directory).collect()
    };
    let is_there = |model: &Model, directory: &Identity| {
        model.inodes.get(&directory.number.0).is_some_and(|facts| facts.identity == *directory)
    };
    let changed = only(old, new).into_iter().chain(only(new, old));
    changed.filter(|directory| is_there(old, directory) && is_there(new, directory)).collect()
}

fn is_received(old: Option<&Model>, new: &Model) -> Vec<NameChange> {
    let (changes, touched) = changes(old, new);
    let must_be_touched = old.map(|old| directories_with_other_names(old, new)).unwrap_or_default();
    assert!(must_be_touched.iter().all(|directory| touched.contains(directory)), "{touched:?}");
    let is_directory_of = |model: &Model| {
        model.inodes.values().filter(|facts| facts.is_directory).map(|facts| facts.identity).collect()
    };
    let mut directories: BTreeSet<Identity> = old.map(is_directory_of).unwrap_or_default();
    directories.insert(Identity::ROOT);
    let mut receiver = Receiver {
        names: old.map(|old| old.names.clone()).unwrap_or_default(),
        directories,
        lasting: new.inodes.values().map(|facts| facts.identity).collect(),
    };
    for change in &changes {
        receiver
            .apply(change, |inode| new.inodes.get(&inode.number.0).is_some_and(|facts| facts.is_directory));
    }
    assert_eq!(receiver.names, new.names);
    changes
}

fn subvolume_after(start: &Subvolume, operations: &[Operation]) -> Subvolume {
    let mut subvolume = start.clone();
    operations.iter().for_each(|operation| subvolume.apply(operation));
    subvolume
}

#[test]
fn random_states_are_received_whole_and_one_from_another() {
    let cases = std::env::var("CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(3000);
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let kinds = RefCell::new(BTreeMap::new());
    let count = |changes: &[NameChange]| {
        for change in changes {
            *kinds.borrow_mut().entry(kind(change)).or_insert(0_u32) += 1;
        }
    };
    runner
        .run(&(operations(60), operations(30)), |(first, second)| {
            let before = subvolume_after(&Subvolume::new(), &first);
            let mut between = before.clone();
            between.generation += 1;
            let after = subvolume_after(&between, &second);
            let full = is_received(None, &after.model);
            let creates = full.iter().filter(|change| matches!(change, NameChange::Create { .. })).count();
            let links = full.iter().filter(|change| matches!(change, NameChange::Link { .. })).count();
            assert_eq!((creates + 1, creates + links), (after.model.inodes.len(), full.len()));
            count(&is_received(Some(&before.model), &after.model));
            count(&is_received(Some(&after.model), &before.model));
            Ok(())
        })
        .unwrap();
    let kinds = kinds.into_inner();
    assert_eq!(kinds.len(), 6, "{kinds:?}");
    assert!(kinds.values().all(|count| *count >= 20), "{kinds:?}");
}

fn kind(change: &NameChange) -> &'static str {
    match change {
        NameChange::Create { .. } => "create",
        NameChange::Rename { to, .. } if to.starts_with(b"o2") => "wait",
        NameChange::Rename { .. } => "rename",
        NameChange::Link { .. } => "link",
        NameChange::Unlink { .. } => "unlink",
        NameChange::RemoveDirectory { .. } => "remove directory",
    }
}
