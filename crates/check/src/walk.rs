//! Walks of trees: the items in the order of their keys. Leaves are read, judged and prepared by several
//! threads, a batch at a time, and then taken in one after the other, so that nothing depends on the number
//! of threads.

use std::collections::VecDeque;

use vlinder_base::sync::Arc;
use vlinder_format::validate::{ItemContext, check_item};
use vlinder_format::{Block, Fault, Key, Level, Logical, Place};

use crate::belongings::may_hold;
use crate::block_head::BlockHead;
use crate::check_state::CheckState;
use crate::checked_tree::CheckedTree;
use crate::compressed;
use crate::expected::Expected;
use crate::extent_use::Use;
use crate::finding::FindingKind;
use crate::item::Item;
use crate::item::Leaf;
use crate::item::place;
use crate::judge::Judge;
use crate::ledger::{Balance, Prepared};
use crate::packed::Packed;
use crate::report::Finding;

/// Nodes that are read together.
const READ_AHEAD: usize = 32;
/// Leaves of a batch: enough for some threads, in memory that is no matter.
const BATCH: usize = 128;
/// Steps that wait at most.
const MAX_STEPS: usize = 1024;

/// Looks at the leaves of a tree.
pub(crate) trait Visitor: Sync {
    /// What is made of a leaf before its turn.
    type Part: Send;
    /// What is known of a part of the tree that was walked before.
    type Known;

    /// Makes of a leaf what can be made of it by itself; called by several threads.
    fn prepare(&self, judge: &Judge<'_>, leaf: &Leaf<'_>) -> Self::Part;

    /// Takes the next leaf in.
    fn take(&mut self, context: &mut CheckState<'_>, expected: &Expected, part: Self::Part);

    /// Part of the tree could not be read: what comes next does not follow what came before.
    fn gap(&mut self) {}

    /// Something was found in the walk itself, which each tree must find for itself.
    fn spoil(&mut self) {}

    /// What is known of a block and all below it.
    fn known(&self, _: &CheckState<'_>, _: &Expected) -> Option<Self::Known> {
        None
    }

    /// Takes in what is known; false if it is of no use here, so that the blocks must be walked again.
    fn take_known(&mut self, _: &mut CheckState<'_>, _: &Self::Known) -> bool {
        false
    }

    /// Whether what is found below a block is to be kept.
    fn keeps(&self, _: &CheckState<'_>, _: Logical) -> bool {
        false
    }

    /// A block that is kept begins.
    fn begin(&mut self) {}

    /// A block that is kept has ended.
    fn end(&mut self, _: &mut CheckState<'_>, _: &Expected) {}
}

/// Looks at the items of a tree, one after the other.
pub(crate) trait ItemVisitor: Sync {
    /// The next item.
    fn item(&mut self, context: &mut CheckState<'_>, item: &Item<'_>);

    /// The next item breaks a rule, which is found: it is there, and what it says is not used.
    fn faulty(&mut self, _: &mut CheckState<'_>, _: &Item<'_>) {
        self.gap();
    }

    /// Part of the tree could not be read: what comes next does not follow what came before.
    fn gap(&mut self) {}
}

/// A visitor of a tree whose items nobody asks about.
pub(crate) struct Nobody;

impl Visitor for Nobody {
    type Part = ();
    type Known = ();

    fn prepare(&self, _: &Judge<'_>, _: &Leaf<'_>) {}

    fn take(&mut self, _: &mut CheckState<'_>, _: &Expected, (): ()) {}
}

/// The same for a tree that is walked item by item.
pub(crate) struct Unasked;

impl ItemVisitor for Unasked {
    fn item(&mut self, _: &mut CheckState<'_>, _: &Item<'_>) {}
}

/// Shows a tree's items.
struct InOrder<'a>(&'a mut dyn ItemVisitor);

impl Visitor for InOrder<'_> {
    type Part = (Arc<Block>, Vec<(usize, Fault)>);
    type Known = ();

    fn prepare(&self, _: &Judge<'_>, leaf: &Leaf<'_>) -> Self::Part {
        (Arc::clone(leaf.block), leaf.faults.to_vec())
    }

    fn take(&mut self, context: &mut CheckState<'_>, expected: &Expected, (block, faults): Self::Part) {
        let leaf = Leaf::new(expected.tree, &block, &faults);
        for item in leaf.items() {
            match item {
                Ok(item) => self.0.item(context, &item),
                Err(item) => {
                    context.lose();
                    self.0.faulty(context, &item);
                }
            }
        }
    }

    fn gap(&mut self) {
        self.0.gap();
    }
}

/// Walks a tree and shows its items.
pub(crate) fn walk(context: &mut CheckState<'_>, tree: &CheckedTree, visitor: &mut dyn ItemVisitor) {
    walk_leaves(context, tree, &mut InOrder(visitor));
}

/// Walks a tree.
pub(crate) fn walk_leaves<V: Visitor>(context: &mut CheckState<'_>, tree: &CheckedTree, visitor: &mut V) {
    if tree.has_references {
        context.claim_root(tree);
    }
    let expected = Expected {
        tree: tree.id,
        logical: tree.logical,
        generation: tree.generation,
        level: tree.level,
        first_key: None,
    };
    let on_edge = tree.dropped_to.is_some();
    Walk { context, tree, visitor, frames: Vec::new(), steps: Vec::new(), leaves: 0 }.run(Child {
        expected,
        upper: None,
        is_root: true,
        on_edge,
    });
}

/// A block that a pointer leads to.
#[derive(Clone, Copy)]
struct Child {
    expected: Expected,
    /// The first key right of it.
    upper: Option<Key>,
    is_root: bool,
    /// It leads to what a half-deleted subvolume still has first.
    on_edge: bool,
}

/// A node on the way.
struct Frame<K> {
    node: Arc<Block>,
    expected: Expected,
    /// The next child.
    slot: usize,
    upper: Option<Key>,
    /// Child nodes that were read ahead, from `slot` on.
    ahead: VecDeque<Ahead<K>>,
    on_edge: bool,
    /// What is below is kept.
    is_kept: bool,
}

/// A child that was looked at ahead.
enum Ahead<K> {
    Known(K),
    Node(Option<Arc<Block>>),
    Leaf,
}

/// What is taken in, in order.
enum Step<K> {
    Leaf { child: Child, is_first: bool },
    Known(Child, K),
    Gap,
    Begin,
    End(Expected),
}

/// What a thread made of a leaf.
struct Worked<P> {
    /// What was found while it was read.
    findings: Vec<Finding>,
    done: Option<Done<P>>,
}

/// Of a leaf that could be read.
struct Done<P> {
    last: Option<(usize, Key)>,
    head: BlockHead,
    faults: Vec<Finding>,
    claims: Prepared<Use>,
    packed: Vec<Packed>,
    part: P,
}

struct Walk<'w, 'a, V: Visitor> {
    context: &'w mut CheckState<'a>,
    tree: &'w CheckedTree,
    visitor: &'w mut V,
    frames: Vec<Frame<V::Known>>,
    steps: Vec<Step<V::Known>>,
    leaves: usize,
}

impl<V: Visitor> Walk<'_, '_, V> {
    /// Walks a block and all below it, whatever is known of it.
    fn run(&mut self, top: Child) {
        if top.expected.level == Level::LEAF {
            self.add_leaf(top);
        } else {
            let node = self.context.read(&[top.expected]).pop().flatten();
            self.enter(top, node, false);
        }
        // Where temporary space was lost there will be no report.
        while let Some(mut frame) = self.frames.pop().filter(|_| !self.context.store.has_failed()) {
            if frame.slot >= frame.node.len() {
                if frame.is_kept {
                    self.steps.push(Step::End(frame.expected));
                }
                continue;
            }
            if frame.ahead.is_empty() {
                frame.ahead = self.look_ahead(&frame);
            }
            self.next_child(frame);
            // What is known takes no reading, but memory.
            if self.steps.len() >= MAX_STEPS {
                self.flush();
            }
        }
        self.flush();
    }

    /// Goes on to the next child of a node.
    fn next_child(&mut self, mut frame: Frame<V::Known>) {
        let (slot, ahead) = (frame.slot, frame.ahead.pop_front());
        let next = slot.saturating_add(1);
        frame.slot = next;
        let upper = if next < frame.node.len() { Some(frame.node.key(next)) } else { frame.upper };
        let on_edge = core::mem::take(&mut frame.on_edge);
        let expected = Expected::of_child(self.tree.id, &frame.node, slot);
        let child = Child { expected, upper, is_root: false, on_edge };
        self.frames.push(frame);
        let is_kept = self.visitor.keeps(self.context, expected.logical);
        match ahead {
            Some(Ahead::Known(known)) => self.steps.push(Step::Known(child, known)),
            Some(Ahead::Node(node)) => {
                if is_kept {
                    self.steps.push(Step::Begin);
                }
                self.enter(child, node, is_kept);
            }
            Some(Ahead::Leaf) | None => {
                if is_kept {
                    self.steps.push(Step::Begin);
                }
                self.add_leaf(child);
                if is_kept {
                    self.steps.push(Step::End(expected));
                }
            }
        }
    }

    /// Looks at some of a node's children: which are known, and what nodes there are.
    fn look_ahead(&mut self, frame: &Frame<V::Known>) -> VecDeque<Ahead<V::Known>> {
        let is_leaf = frame.node.level().below() == Some(Level::LEAF);
        let mut ahead = VecDeque::new();
        let mut wanted = Vec::new();
        for slot in (frame.slot..frame.node.len()).take(READ_AHEAD) {
            let expected = Expected::of_child(self.tree.id, &frame.node, slot);
            ahead.push_back(match self.visitor.known(self.context, &expected) {
                Some(known) => Ahead::Known(known),
                None if is_leaf => Ahead::Leaf,
                None => {
                    wanted.push(expected);
                    Ahead::Node(None)
                }
            });
        }
        let mut nodes = self.context.read(&wanted).into_iter();
        for place in &mut ahead {
            if let Ahead::Node(node) = place {
                *node = nodes.next().flatten();
            }
        }
        ahead
    }

    /// A node is reached: it waits for its children's turn.
    fn enter(&mut self, child: Child, node: Option<Arc<Block>>, is_kept: bool) {
        let Some(node) = node else {
            self.context.lose();
            self.steps.push(Step::Gap);
            if is_kept {
                self.steps.push(Step::End(child.expected));
            }
            return;
        };
        let edge = self.tree.dropped_to.filter(|(_, level)| child.on_edge && node.level() >= *level);
        let slot = edge.map_or(0, |(key, _)| node.child_slot(&key));
        let is_first = self.context.reached.insert(node.logical());
        self.context.reach(self.tree, &BlockHead::of(&node), child.is_root, is_first);
        if self.tree.has_references {
            self.context.judge_sharing(self.tree, &node, slot);
        }
        if is_first {
            if self.tree.has_references {
                self.context.claim_children(&node, slot);
            }
            self.judge_bound(child.upper, node.logical(), last_of(&node));
        }
        self.frames.push(Frame {
            node,
            expected: child.expected,
            slot,
            upper: child.upper,
            ahead: VecDeque::new(),
            on_edge: edge.is_some(),
            is_kept,
        });
    }

    /// A block's last key lies left of what comes behind the block.
    fn judge_bound(&mut self, upper: Option<Key>, block: Logical, last: Option<(usize, Key)>) {
        if let Some((bound, (slot, last))) = upper.zip(last).filter(|(bound, (_, last))| last >= bound) {
            let place = Place {
                tree: Some(self.tree.id),
                block: Some(block),
                slot: u32::try_from(slot).ok(),
                key: Some(last),
            };
            self.context.find(FindingKind::KeyRange { bound }, place);
        }
    }

    /// A leaf is reached: it waits for the batch to be full.
    fn add_leaf(&mut self, child: Child) {
        let is_first = self.context.reached.insert(child.expected.logical);
        self.steps.push(Step::Leaf { child, is_first });
        self.leaves = self.leaves.saturating_add(1);
        if self.leaves >= BATCH {
            self.flush();
        }
    }

    /// Reads the leaves that wait, and takes in all that waits.
    fn flush(&mut self) {
        let steps = core::mem::take(&mut self.steps);
        self.leaves = 0;
        let leaves: Vec<(Expected, bool)> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Leaf { child, is_first } => Some((child.expected, *is_first)),
                _ => None,
            })
            .collect();
        let (tree, visitor) = (self.tree, &*self.visitor);
        let CheckState { judge, references, workers, .. } = &mut *self.context;
        let worked = workers
            .map(&leaves, |(expected, is_first)| work(judge, references, visitor, tree, expected, *is_first));
        let mut worked = worked.into_iter();
        for step in steps {
            match step {
                Step::Leaf { child, is_first } => {
                    if let Some(worked) = worked.next() {
                        self.take(&child, is_first, worked);
                    }
                }
                Step::Known(child, known) => {
                    if !self.visitor.take_known(self.context, &known) {
                        let (context, visitor) = (&mut *self.context, &mut *self.visitor);
                        let tree = self.tree;
                        // Levels fall, so that this ends.
                        Walk { context, tree, visitor, frames: Vec::new(), steps: Vec::new(), leaves: 0 }
                            .run(child);
                    }
                }
                Step::Gap => {
                    self.visitor.spoil();
                    self.visitor.gap();
                }
                Step::Begin => self.visitor.begin(),
                Step::End(expected) => self.visitor.end(self.context, &expected),
            }
        }
    }

    fn take(&mut self, child: &Child, is_first: bool, worked: Worked<V::Part>) {
        let logical = child.expected.logical;
        if !worked.findings.is_empty() {
            self.visitor.spoil();
        }
        for finding in worked.findings {
            self.context.find(finding.kind, finding.place);
        }
        let Some(done) = worked.done else {
            if is_first {
                self.context.reached.remove(logical);
            }
            self.context.lose();
            self.visitor.spoil();
            return self.visitor.gap();
        };
        self.context.reach(self.tree, &done.head, child.is_root, is_first);
        if is_first {
            self.judge_bound(child.upper, logical, done.last);
            for finding in done.faults {
                self.context.find(finding.kind, finding.place);
            }
        }
        self.context.references.add_prepared(done.claims);
        done.packed.into_iter().for_each(|packed| self.context.packed.add(packed));
        self.visitor.take(self.context, &child.expected, done.part);
    }
}

/// A block's last slot and its key.
fn last_of(block: &Block) -> Option<(usize, Key)> {
    block.last_key().map(|key| (block.len().saturating_sub(1), key))
}

/// Reads a leaf, judges its items, and makes of it what the visitor wants.
fn work<V: Visitor>(
    judge: &Judge<'_>,
    references: &Balance<Use>,
    visitor: &V,
    tree: &CheckedTree,
    expected: &Expected,
    is_first: bool,
) -> Worked<V::Part> {
    let mut findings = Vec::new();
    let block = judge.read(&[*expected], &mut findings).pop().flatten();
    let done = block.map(|block| {
        let faults = faults_of(judge, &block);
        let leaf = Leaf::new(tree.id, &block, &faults);
        let mut claims = Prepared::default();
        if is_first && tree.has_references {
            judge.claim_extents(references, &block, &mut claims);
        }
        let (mut packed, mut not_unpacked) = (Vec::new(), Vec::new());
        if is_first && judge.unpacks {
            packed = compressed::of_leaf(judge, tree.id, &block, &faults, &mut not_unpacked);
        }
        let part = visitor.prepare(judge, &leaf);
        let last = last_of(&block);
        let found = |(slot, fault): (usize, Fault)| Finding {
            kind: FindingKind::Item { fault },
            place: place(tree.id, &block, slot),
        };
        let faults = if is_first {
            faults.into_iter().map(found).chain(misplaced(tree, &block)).chain(not_unpacked).collect()
        } else {
            Vec::new()
        };
        Done { last, head: BlockHead::of(&block), faults, claims, packed, part }
    });
    Worked { findings, done }
}

/// The items of a leaf that do not belong into the tree. (What belongs into a log is its own pass's matter.)
fn misplaced(tree: &CheckedTree, leaf: &Block) -> Vec<Finding> {
    let slots = (0..leaf.len()).filter(|slot| tree.has_references && !may_hold(tree.id, &leaf.key(*slot)));
    let kind = |slot| FindingKind::ItemInWrongTree { item_type: leaf.key(slot).item_type };
    slots.map(|slot| Finding { kind: kind(slot), place: place(tree.id, leaf, slot) }).collect()
}

/// Judges the items of a leaf, each by the rules of its family.
pub(crate) fn faults_of(judge: &Judge<'_>, leaf: &Block) -> Vec<(usize, Fault)> {
    let mut previous = None;
    let mut faults = Vec::new();
    for slot in 0..leaf.len() {
        let (key, data) = (leaf.key(slot), leaf.data(slot));
        let context = ItemContext { rules: &judge.rules, owner: leaf.owner(), previous };
        previous = Some((key, data));
        if let Err(fault) = check_item(&key, data, &context) {
            faults.push((slot, fault));
        }
    }
    faults
}
