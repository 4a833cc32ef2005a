//! What was to be seen at each moment of a workload, and what was fsynced when.

use std::collections::{BTreeMap, BTreeSet};

use crate::workload::{FileId, Model, NameTarget, Node, Operation};

/// A directory and a name in it.
pub(super) type Name = (FileId, Vec<u8>);

/// Every name, by its place and by what it stands for.
#[derive(Clone, Debug, Default)]
pub(super) struct NameIndex {
    values: BTreeMap<Name, NameTarget>,
    of: BTreeMap<FileId, BTreeSet<Name>>,
}

impl NameIndex {
    pub(super) fn add(&mut self, directory: FileId, name: &[u8], entry: NameTarget) {
        let place = (directory, name.to_vec());
        let file = match entry {
            NameTarget::Inode(number) => Some(FileId { root: directory.root, number }),
            NameTarget::Subvolume(root) => Some(Model::root_directory(root)),
            NameTarget::Placeholder => None,
        };
        if let Some(file) = file {
            self.of.entry(file).or_default().insert(place.clone());
        }
        self.values.insert(place, entry);
    }

    /// What a name stands for; none where it is free.
    pub(super) fn value(&self, name: &Name) -> Option<NameTarget> {
        self.values.get(name).copied()
    }

    /// All names.
    pub(super) fn places(&self) -> impl Iterator<Item = &Name> {
        self.values.keys()
    }

    /// All that has a name.
    pub(super) fn files(&self) -> impl Iterator<Item = &FileId> {
        self.of.keys()
    }

    /// The names of a file.
    pub(super) fn of(&self, file: FileId) -> Option<&BTreeSet<Name>> {
        self.of.get(&file)
    }
}

/// The file system between two operations.
pub(super) struct Moment {
    pub(super) model: Model,
    pub(super) names: NameIndex,
}

impl Moment {
    fn of(model: Model) -> Self {
        let mut names = NameIndex::default();
        for (root, subvolume) in model.subvolumes() {
            for (number, node) in &subvolume.nodes {
                for (name, entry) in &node.entries {
                    names.add(FileId { root: *root, number: *number }, name, *entry);
                }
            }
        }
        Self { model, names }
    }

    pub(super) fn node(&self, file: FileId) -> Option<&Node> {
        self.model.node(file)
    }
}

/// An fsync that returned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Synced {
    /// The moment after it, which is that before it.
    pub(super) step: usize,
    pub(super) file: FileId,
    /// It was an fdatasync.
    pub(super) data_only: bool,
}

/// A workload's moments.
#[derive(Default)]
pub struct History {
    moments: Vec<Moment>,
    synced: Vec<Synced>,
    /// For each moment the generation of the last commit.
    generations: Vec<u64>,
}

impl History {
    /// Adds the moment after a step.
    pub fn add(&mut self, model: &Model, generation: u64) {
        self.moments.push(Moment::of(model.clone()));
        self.generations.push(generation);
    }

    /// Notes that the operation of the last step succeeded.
    pub fn note(&mut self, operation: &Operation) {
        let Some(moment) = self.moments.last() else { return };
        let (file, data_only) = match operation {
            Operation::Fsync { file, data_only } => (moment.model.file(*file), *data_only),
            Operation::FsyncOpen { slot, data_only } => (moment.model.open_file_of(*slot), *data_only),
            _ => return,
        };
        let step = self.moments.len() - 1;
        self.synced.extend(file.map(|file| Synced { step, file, data_only }));
    }

    /// How many fsyncs returned.
    pub fn fsyncs(&self) -> usize {
        self.synced.len()
    }

    /// The first moment whose state the commit of a generation may hold. It fell into the step that ends with
    /// the next one.
    pub(super) fn base(&self, generation: u64) -> usize {
        self.generations.partition_point(|known| *known < generation).saturating_sub(1)
    }

    /// The last moment at which the last commit was of a generation: a commit without a change makes none.
    pub fn last_of(&self, generation: u64) -> usize {
        self.generations.partition_point(|known| *known <= generation).saturating_sub(1)
    }

    /// Whether the commit of a moment is another than that of the one before.
    pub fn committed_in(&self, step: usize) -> bool {
        step > 0 && self.generations.get(step) > self.generations.get(step - 1)
    }

    pub(super) fn window(&self, first: usize, last: usize) -> &[Moment] {
        &self.moments[first..=last.min(self.moments.len() - 1)]
    }

    /// The model with what is open, at each moment from one to another.
    pub fn models(&self, first: usize, last: usize) -> impl Iterator<Item = &Model> {
        self.window(first, last).iter().map(|moment| &moment.model)
    }

    /// The fsyncs that returned between two moments.
    pub(super) fn synced(&self, first: usize, last: usize) -> impl Iterator<Item = Synced> + '_ {
        self.synced.iter().copied().filter(move |synced| (first..=last).contains(&synced.step))
    }
}
