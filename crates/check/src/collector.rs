//! Collects what a part of a subvolume's tree comes to, while its items are judged.

use vlinder_format::{ObjectId, Place, RootId};

use crate::finding::FindingKind;
use crate::judge::Judge;
use crate::name_fact::NameSink;
use crate::ranges::Ranges;
use crate::report::Finding;
use crate::root_name::RootName;

/// What was found in a part of a subvolume.
#[derive(Clone, Debug)]
pub(crate) struct Gathered {
    pub(crate) findings: Vec<Finding>,
    pub(crate) names: NameSink,
    /// Inodes without a name.
    pub(crate) unlinked: Vec<ObjectId>,
    pub(crate) orphans: Vec<ObjectId>,
    /// Directories, each with the one that it lies in.
    pub(crate) parents: Vec<(u64, u64)>,
    /// Names of nested subvolumes.
    pub(crate) subvolumes: Vec<RootName>,
    pub(crate) has_root_directory: bool,
}

impl Gathered {
    pub(crate) fn new(names: NameSink) -> Self {
        Self {
            findings: Vec::new(),
            names,
            unlinked: Vec::new(),
            orphans: Vec::new(),
            parents: Vec::new(),
            subvolumes: Vec::new(),
            has_root_directory: false,
        }
    }

    /// Adds what was found further right; findings are told of at once, and kept only for a summary.
    pub(crate) fn add(&mut self, other: &Self) {
        self.unlinked.extend_from_slice(&other.unlinked);
        self.orphans.extend_from_slice(&other.orphans);
        self.parents.extend_from_slice(&other.parents);
        self.subvolumes.extend_from_slice(&other.subvolumes);
        self.has_root_directory |= other.has_root_directory;
        match (&mut self.names, &other.names) {
            (NameSink::Sum { sum, .. }, NameSink::Sum { sum: other, .. }) => *sum = sum.wrapping_add(*other),
            (NameSink::Facts(facts), NameSink::Facts(others)) => facts.extend_from_slice(others),
            // All parts of one walk are gathered alike.
            _ => {}
        }
    }

    /// About what it takes in memory, in bytes.
    pub(crate) fn weight_bytes(&self) -> usize {
        let lists = self.unlinked.len().saturating_add(self.orphans.len()).saturating_mul(8);
        let pairs = self.parents.len().saturating_mul(16);
        let records = self.findings.len().saturating_add(self.subvolumes.len()).saturating_mul(128);
        lists.saturating_add(pairs).saturating_add(records)
    }
}

/// Collects what is found, and what is said of names, while the items of a part are judged.
pub(crate) struct Collector<'a> {
    pub(crate) judge: &'a Judge<'a>,
    pub(crate) checksums: &'a Ranges,
    /// The subvolume is not being deleted: nothing may be missing.
    pub(crate) is_whole: bool,
    pub(crate) names: NameSink,
    pub(crate) findings: Vec<Finding>,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(subvolume: &SubvolumeContext<'a>, judge: &'a Judge<'a>) -> Self {
        let names = subvolume.empty_sink(judge);
        let SubvolumeContext { checksums, is_whole, .. } = *subvolume;
        Self { judge, checksums, is_whole, names, findings: Vec::new() }
    }

    pub(crate) fn find(&mut self, kind: FindingKind, place: Place) {
        self.findings.push(Finding { kind, place });
    }
}

/// What all parts of a subvolume are judged by.
#[derive(Clone, Copy)]
pub(crate) struct SubvolumeContext<'a> {
    pub(crate) tree: RootId,
    pub(crate) is_whole: bool,
    pub(crate) checksums: &'a Ranges,
    /// What is said of names is kept.
    pub(crate) keeps_names: bool,
}

impl SubvolumeContext<'_> {
    pub(crate) fn empty_sink(&self, judge: &Judge<'_>) -> NameSink {
        if self.keeps_names {
            NameSink::Facts(Vec::new())
        } else {
            NameSink::Sum { secret: judge.secret, sum: 0 }
        }
    }
}
