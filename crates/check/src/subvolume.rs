//! A subvolume: its inodes one after the other, its names, its orphans.

use vlinder_base::sync::Arc;
use vlinder_format::directory::DirectoryIndex;
use vlinder_format::inode::InodeItem;
use vlinder_format::{Block, Fault, Logical, ObjectId, Place, RootId};

use crate::check_state::{CheckState, at};
use crate::checked_tree::CheckedTree;
use crate::collector::{Gathered, SubvolumeContext};
use crate::expected::Expected;
use crate::faulty::Faulty;
use crate::finding::FindingKind;
use crate::inode::Inode;
use crate::item::Leaf;
use crate::judge::Judge;
use crate::loops::Parents;
use crate::name_fact::{NameSink, Names};
use crate::names::explain;
use crate::ranges::Ranges;
use crate::roots::Roots;
use crate::shared::SharedSummary;
use crate::sorted::{Sorted, Sorter};
use crate::summary::{Need, Summary, continue_with, summarize};
use crate::walk::{Visitor, faults_of, walk_leaves};

/// Directories of one subvolume whose parents are kept and followed, in 16 bytes each.
const MAX_DIRECTORIES: usize = 4 << 20;
/// What is gathered for a summary at most, in bytes: a larger part is not worth the memory.
const MAX_SUMMARY_BYTES: usize = 4 << 20;

/// A part that is being gathered while it is walked.
struct Recording {
    /// That of the first leaf with items of inodes.
    need: Option<Need>,
    head: Option<Inode>,
    head_ended: bool,
    gathered: Gathered,
    /// It cannot be summed up.
    is_spoiled: bool,
}

/// What there may be too much of for memory, while it is gathered.
struct Listing {
    orphans: Sorter<[u64; 1]>,
    /// With how many there were before.
    unlinked: Sorter<[u64; 2]>,
    count: u64,
    subvolumes: Sorter<[u64; 4]>,
}

/// The same in order.
#[derive(Default)]
struct Lists {
    orphans: Sorted<[u64; 1]>,
    unlinked: Sorted<[u64; 2]>,
    /// Names of nested subvolumes.
    subvolumes: Sorted<[u64; 4]>,
}

impl Listing {
    fn new(context: &CheckState<'_>) -> Self {
        Self { orphans: context.sorter(), unlinked: context.sorter(), count: 0, subvolumes: context.sorter() }
    }

    /// Takes it out of what was gathered.
    fn take(&mut self, gathered: &mut Gathered) {
        gathered.orphans.drain(..).for_each(|orphan| self.orphans.add([orphan.0]));
        for inode in gathered.unlinked.drain(..) {
            self.unlinked.add([inode.0, self.count]);
            self.count = self.count.saturating_add(1);
        }
        gathered.subvolumes.drain(..).for_each(|name| self.subvolumes.add(name.row()));
    }

    fn finish(self) -> Lists {
        Lists {
            orphans: self.orphans.finish(),
            unlinked: self.unlinked.finish(),
            subvolumes: self.subvolumes.finish(),
        }
    }
}

/// What is gathered on the way through a subvolume.
struct Subvolume<'a> {
    surroundings: SubvolumeContext<'a>,
    /// The inode whose items are coming.
    current: Option<Inode>,
    gathered: Gathered,
    /// What of it is taken out at once, because it may be large.
    lists: Listing,
    /// Parts that are shared, each within the one before.
    recordings: Vec<Recording>,
    /// Some of it could not be read.
    has_gaps: bool,
    /// What could not be read lies just before what comes.
    is_behind_gap: bool,
    /// Items that could not be used.
    faulty: Faulty,
    /// Names that were said are handed on to here.
    names: Option<&'a mut Names>,
}

impl<'a> Subvolume<'a> {
    fn new(context: &CheckState<'_>, surroundings: SubvolumeContext<'a>) -> Self {
        Self {
            surroundings,
            current: None,
            gathered: Gathered::new(surroundings.empty_sink(&context.judge)),
            lists: Listing::new(context),
            recordings: Vec::new(),
            has_gaps: false,
            is_behind_gap: false,
            faulty: Faulty::default(),
            names: None,
        }
    }

    /// Whether what is found may be of use to other subvolumes, or have been found in them.
    fn shares(&self, context: &CheckState<'_>) -> bool {
        let SubvolumeContext { tree, is_whole, .. } = self.surroundings;
        is_whole && context.judging && tree != RootId::DATA_RELOCATION_TREE
    }

    /// Takes in a part whose need is met. Findings are of this tree.
    fn apply(&mut self, context: &mut CheckState<'_>, summary: &Summary) {
        let is_exact = matches!(summary.need, Need::Exactly(_));
        if let (Some(current), Some(head)) = (&mut self.current, &summary.head) {
            if is_exact {
                *current = current.advanced_to(head);
            } else {
                current.add_entries_of(head);
            }
        }
        let finished = if summary.head_ended {
            let ended = core::mem::replace(&mut self.current, summary.tail.clone());
            ended.map(|inode| self.surroundings.finish(&context.judge, &inode))
        } else {
            None
        };
        for recording in &mut self.recordings {
            recording.add(summary, finished.as_ref(), self.current.as_ref());
        }
        for gathered in finished.iter().chain([&summary.gathered]) {
            self.tell(context, gathered);
        }
    }

    fn tell(&mut self, context: &mut CheckState<'_>, gathered: &Gathered) {
        for finding in &gathered.findings {
            let place = Place { tree: Some(self.surroundings.tree), ..finding.place };
            context.find(finding.kind.clone(), place);
        }
        self.gathered.add(gathered);
        self.lists.take(&mut self.gathered);
        if let (Some(names), NameSink::Facts(facts)) = (&mut self.names, &mut self.gathered.names) {
            for (side, fact) in facts.drain(..) {
                names.add(side, fact, 1);
            }
        }
        self.gathered.parents.truncate(MAX_DIRECTORIES);
    }

    /// The last inode has no more items.
    fn finish(&mut self, context: &mut CheckState<'_>) {
        if let Some(inode) = self.current.take() {
            let gathered = self.surroundings.finish(&context.judge, &inode);
            self.tell(context, &gathered);
        }
    }
}

impl Recording {
    fn new(names: NameSink) -> Self {
        Self { need: None, head: None, head_ended: false, gathered: Gathered::new(names), is_spoiled: false }
    }

    /// Adds a part that was taken in; `finished` is what came of the inode that ended in it, `current` the
    /// inode that its items left open.
    fn add(&mut self, summary: &Summary, finished: Option<&Gathered>, current: Option<&Inode>) {
        if self.is_spoiled {
            return;
        }
        if self.head_ended {
            finished.into_iter().for_each(|finished| self.add_gathered(finished));
        } else {
            match (&mut self.need, &summary.need) {
                (_, Need::Nothing) => {}
                (None, need) => {
                    self.need = Some(need.clone());
                    self.head.clone_from(&summary.head);
                }
                (Some(Need::Directory(_)), Need::Directory(_)) => {
                    let heads = self.head.iter_mut().zip(&summary.head);
                    heads.for_each(|(head, more)| head.add_entries_of(more));
                }
                (Some(Need::Exactly(_)), Need::Exactly(_)) => self.head.clone_from(&summary.head),
                (Some(Need::Exactly(_)), Need::Directory(_)) => {
                    // Where the head ended too, its last state is not at hand.
                    self.is_spoiled = summary.head_ended;
                    self.head = current.cloned();
                }
                // What was left of the part so far is over.
                (Some(_), Need::Other(_)) => {}
                (Some(_), Need::Exactly(_)) => self.is_spoiled = true,
                (Some(Need::Other(_) | Need::Nothing), Need::Directory(_)) => self.is_spoiled = true,
            }
            self.head_ended = summary.head_ended;
        }
        self.add_gathered(&summary.gathered);
        self.is_spoiled |= self.gathered.weight_bytes() > MAX_SUMMARY_BYTES;
    }

    fn add_gathered(&mut self, gathered: &Gathered) {
        self.gathered.add(gathered);
        self.gathered.findings.extend_from_slice(&gathered.findings);
    }
}

/// The first slots of a leaf, and what is wrong with the leaf's items.
struct LeafHead {
    block: Arc<Block>,
    end: usize,
    faults: Vec<(usize, Fault)>,
}

/// What is made of a leaf before its turn.
struct Part {
    /// The leaf and its first slots, if they depend on what comes before.
    head: Option<LeafHead>,
    /// What the others come to.
    rest: Summary,
}

impl Subvolume<'_> {
    /// A leaf that does not begin with an inode's item continues an inode that begins in what could not be
    /// read.
    fn begin_behind_gap(&mut self, context: &mut CheckState<'_>, part: &Part) {
        let continued = match (&part.head, &part.rest.need) {
            (Some(head), _) => {
                let leaf = Leaf::new(self.surroundings.tree, &head.block, &head.faults).part(0..head.end);
                leaf.continued_inode()
            }
            (None, Need::Directory(number)) => Some(*number),
            (None, _) => None,
        };
        let is_known = |number: &ObjectId| self.current.as_ref().is_some_and(|inode| inode.number == *number);
        if let Some(number) = continued.filter(|number| !is_known(number)) {
            self.finish(context);
            self.current = Some(Inode::behind_gap(number));
        }
    }

    /// Takes in items that depend on what came before: the first of a leaf.
    fn take_head(&mut self, context: &mut CheckState<'_>, head: &LeafHead) {
        let leaf = Leaf::new(self.surroundings.tree, &head.block, &head.faults).part(0..head.end);
        self.has_gaps |= !head.faults.is_empty();
        head.faults.iter().for_each(|(slot, _)| self.faulty.add(head.block.key(*slot)));
        let (summary, is_odd) =
            continue_with(&self.surroundings, &context.judge, &leaf, self.current.as_ref());
        if is_odd {
            self.spoil();
            // What it came to in this leaf is more than what a summary of another could say.
            if let (Some(current), Some(head)) = (&mut self.current, &summary.head) {
                *current = head.clone();
            }
        }
        self.apply(context, &summary);
    }
}

impl Visitor for Subvolume<'_> {
    type Part = Part;
    type Known = Arc<SharedSummary>;

    fn prepare(&self, judge: &Judge<'_>, leaf: &Leaf<'_>) -> Part {
        let (end, rest) = summarize(&self.surroundings, judge, leaf);
        let head = || LeafHead { block: Arc::clone(leaf.block), end, faults: leaf.faults.to_vec() };
        Part { head: (end > 0).then(head), rest }
    }

    fn take(&mut self, context: &mut CheckState<'_>, expected: &Expected, part: Part) {
        if core::mem::take(&mut self.is_behind_gap) {
            self.begin_behind_gap(context, &part);
        }
        if let Some(head) = &part.head {
            self.take_head(context, head);
        }
        if part.rest.need.is_met(self.current.as_ref()) {
            return self.apply(context, &part.rest);
        }
        // It was read a moment ago; what is wrong with it now is found again.
        match context.read(&[*expected]).pop().flatten() {
            Some(block) => {
                let (end, faults) = (block.len(), faults_of(&context.judge, &block));
                self.take_head(context, &LeafHead { block, end, faults });
            }
            None => {
                self.spoil();
                self.gap();
            }
        }
    }

    fn gap(&mut self) {
        (self.has_gaps, self.is_behind_gap) = (true, true);
        if let Some(inode) = &mut self.current {
            inode.is_incomplete = true;
        }
    }

    fn spoil(&mut self) {
        self.recordings.iter_mut().for_each(|recording| recording.is_spoiled = true);
    }

    fn known(&self, context: &CheckState<'_>, expected: &Expected) -> Option<Arc<SharedSummary>> {
        if self.shares(context) { context.summaries.get(expected) } else { None }
    }

    fn take_known(&mut self, context: &mut CheckState<'_>, known: &Arc<SharedSummary>) -> bool {
        let is_met = known.summary.need.is_met(self.current.as_ref());
        if is_met {
            self.is_behind_gap = false;
            self.apply(context, &known.summary);
        }
        is_met
    }

    fn keeps(&self, context: &CheckState<'_>, logical: Logical) -> bool {
        self.shares(context) && context.judge.shared.contains(logical) && context.summaries.has_room()
    }

    fn begin(&mut self) {
        let names = match self.gathered.names {
            NameSink::Sum { secret, .. } => NameSink::Sum { secret, sum: 0 },
            NameSink::Facts(_) => NameSink::Facts(Vec::new()),
        };
        self.recordings.push(Recording::new(names));
    }

    fn end(&mut self, context: &mut CheckState<'_>, expected: &Expected) {
        let Some(recording) = self.recordings.pop().filter(|recording| !recording.is_spoiled) else { return };
        let Recording { need, head, head_ended, gathered, .. } = recording;
        let tail = self.current.clone().filter(|_| head_ended);
        let summary = Summary { need: need.unwrap_or(Need::Nothing), head, head_ended, tail, gathered };
        context.summaries.keep(expected, summary);
    }
}

/// Judges a subvolume.
pub(crate) fn judge(context: &mut CheckState<'_>, tree: &CheckedTree, roots: &Roots, checksums: &Ranges) {
    let is_whole = !roots.is_deleted(tree.id);
    let surroundings = SubvolumeContext { tree: tree.id, is_whole, checksums, keeps_names: false };
    let mut subvolume = Subvolume::new(context, surroundings);
    walk_leaves(context, tree, &mut subvolume);
    subvolume.finish(context);
    if !is_whole {
        return;
    }
    let Subvolume { mut gathered, lists, has_gaps, faulty, .. } = subvolume;
    let lists = lists.finish();
    judge_whole(context, tree.id, &mut gathered, &lists, has_gaps);
    let mut found = lists.subvolumes.iter().peekable();
    for name in roots.names_in(tree.id) {
        while found.next_if(|found| *found < name).is_some() {}
        let [child, directory, index, _] = name;
        if found.peek() != Some(&name) && !faulty.has_index(ObjectId(directory), DirectoryIndex(index)) {
            let place = Place { tree: Some(tree.id), ..Place::default() };
            context.find(FindingKind::RootName { parent: tree.id, child: RootId(child) }, place);
        }
    }
    if !matches!(gathered.names, NameSink::Sum { sum: 0, .. }) {
        explain_names(context, tree, checksums, &faulty);
    }
}

fn judge_whole(
    context: &mut CheckState<'_>,
    tree: RootId,
    gathered: &mut Gathered,
    lists: &Lists,
    has_gaps: bool,
) {
    let parents = Parents::of(core::mem::take(&mut gathered.parents));
    for directory in parents.loops().into_iter().map(ObjectId) {
        context.find(FindingKind::DirectoryLoop { directory }, at(tree, InodeItem::key(directory)));
    }
    if parents.len() >= MAX_DIRECTORIES {
        let place = Place { tree: Some(tree), ..Place::default() };
        context.find(FindingKind::DirectoriesNotFollowed {}, place);
    }
    let mut orphans = lists.orphans.iter().peekable();
    for [inode, _] in lists.unlinked.iter() {
        while orphans.next_if(|[orphan]| *orphan < inode).is_some() {}
        if orphans.peek() != Some(&[inode]) {
            let inode = ObjectId(inode);
            context.find(FindingKind::InodeOrphan { inode }, at(tree, InodeItem::key(inode)));
        }
    }
    if !gathered.has_root_directory && !has_gaps {
        let place = Place { tree: Some(tree), ..Place::default() };
        context.find(FindingKind::RootDirectory {}, place);
    }
}

/// Names do not agree: reads the subvolume twice again, to see where the difference is and what makes it.
fn explain_names(context: &mut CheckState<'_>, tree: &CheckedTree, checksums: &Ranges, faulty: &Faulty) {
    let surroundings = SubvolumeContext { tree: tree.id, is_whole: true, checksums, keeps_names: true };
    let mut names = Names::new();
    let again = |context: &mut CheckState<'_>, names: &mut Names| {
        context.quietly(|context| {
            let mut subvolume = Subvolume::new(context, surroundings);
            subvolume.names = Some(names);
            walk_leaves(context, &CheckedTree { has_references: false, ..*tree }, &mut subvolume);
            subvolume.finish(context);
        });
    };
    again(context, &mut names);
    if !names.collect() {
        let place = Place { tree: Some(tree.id), ..Place::default() };
        context.find(FindingKind::NamesNotListed {}, place);
    }
    again(context, &mut names);
    explain(context, tree.id, &mut names, faulty);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check_state::tests::with_context;
    use crate::report::Finding;

    #[test]
    fn directories_beyond_the_bound_are_told_not_to_be_followed() {
        let found = |directories: usize| {
            let mut gathered = Gathered::new(NameSink::Facts(Vec::new()));
            let last = 257 + u64::try_from(directories).unwrap();
            gathered.parents = (257..last).map(|directory| (directory, 256)).collect();
            gathered.has_root_directory = true;
            let mut found = Vec::new();
            with_context(|context| {
                judge_whole(context, RootId(300), &mut gathered, &Lists::default(), false);
                found = core::mem::take(&mut context.report.findings);
            });
            found
        };
        assert_eq!(found(MAX_DIRECTORIES - 1), []);
        let place = Place { tree: Some(RootId(300)), ..Place::default() };
        let kind = FindingKind::DirectoriesNotFollowed {};
        assert_eq!(found(MAX_DIRECTORIES), [Finding { kind, place }]);
    }
}
