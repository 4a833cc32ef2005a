//! The fixpoint of a commit: pending items, new chunks, delayed references, group items and root items, until
//! nothing changes any more. It ends because each block is copied at most once in a transaction, so after
//! enough rounds no edit makes or drops a block.

use std::time::Duration;

use vlinder_base::probe;
use vlinder_format::block_group::BlockGroupItem;
use vlinder_format::device_statistics::DeviceStatistics;
use vlinder_format::{Damage, Fault, Generation, Key, Logical, Place, RootId};
use vlinder_tree::Edit;

use crate::EngineError;
use crate::checksums::ChecksumTree;
use crate::editor::ItemChange;
use crate::engine_core::EngineCore;
use crate::extents::delayed::{ExtentKind, Head};
use crate::extents::tree::Effect;
use crate::handle::Handle;
use crate::pending::PendingKind;
use crate::quotas::mark_inconsistent;
use vlinder_space::ChangedGroup;

/// Extents whose references are written in one batch.
const HEADS_IN_BATCH: usize = 512;
/// Block groups whose items are written in one edit.
const GROUPS_IN_BATCH: usize = 256;
/// More rounds than any tree has blocks on a path would be a mistake of ours.
const ROUNDS: usize = 10_000;

/// A range that became free or taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    start: u64,
    length: u64,
    free: bool,
}

/// What the extent tree frees and other trees say was free, with its place.
fn contradiction(fault: Fault) -> Damage {
    Damage::new(fault, Place { tree: Some(RootId::EXTENT_TREE), ..Place::default() })
}

/// What the committer changes in the trees, with a handle of its own, while no other is open.
pub(crate) struct Drain<'a> {
    pub(crate) core: &'a EngineCore,
    pub(crate) handle: Handle<'a>,
}

impl<'a> Drain<'a> {
    /// No handle is open in this transaction, and none begins.
    pub(crate) fn begin(core: &'a EngineCore, generation: Generation) -> Self {
        Self { core, handle: Handle::critical(core, generation) }
    }

    /// Puts everything pending of all trees into them, a leaf-full at a time.
    pub(crate) fn put_pending(&mut self) -> Result<(), EngineError> {
        for id in self.core.queues().pending().trees() {
            probe!(delayed_items_insert_begin, id.0);
            let indexes = self.put_kind(id, PendingKind::Indexes);
            probe!(delayed_items_insert_end, id.0);
            indexes?;
            self.put_kind(id, PendingKind::Others)?;
        }
        Ok(())
    }

    /// Puts what is pending of a kind into one tree.
    fn put_kind(&mut self, id: RootId, kind: PendingKind) -> Result<(), EngineError> {
        let tree = self.core.tree(id)?;
        let leaf_bytes = usize::try_from(self.core.trees().node_size()).unwrap_or(usize::MAX);
        let metrics = self.core.queues().pending().metrics();
        let (inserts, time) = match kind {
            PendingKind::Indexes => (&metrics.insert_batches, &metrics.insert_time),
            PendingKind::Others => (&metrics.other_batches, &metrics.other_time),
        };
        let mut from = Key::MIN;
        loop {
            let timer = time.time();
            let batch = self.core.queues().pending().batch(
                id,
                kind,
                from,
                leaf_bytes,
                !self.core.options().disabled.delayed_batch,
            );
            let Some((last, _)) = batch.last() else {
                timer.discard();
                return Ok(());
            };
            let next = last.next();
            if batch.iter().all(|(_, pending)| pending.data.is_none()) {
                metrics.delete_batches.increment();
            } else {
                inserts.increment();
                if kind == PendingKind::Indexes {
                    probe!(delayed_items_insert_batch, id.0, batch.len());
                }
            }
            let edits: Vec<Edit<'_>> = batch
                .iter()
                .map(|(key, pending)| Edit::put_or_remove(*key, pending.data.as_deref()))
                .collect();
            self.handle.editor_mut().edit_in_parts(tree.root(), &edits)?;
            self.core.queues().pending().drained(id, &batch);
            drop(timer);
            let Some(next) = next else { return Ok(()) };
            from = next;
        }
    }

    /// Writes the counters of device errors that changed.
    pub(crate) fn write_statistics(&mut self) -> Result<(), EngineError> {
        for (device, statistics) in self.core.volume().members().take_changed_statistics() {
            let (tree, key) = (self.core.trees().fixed().device.root(), DeviceStatistics::key(device));
            let mut item = statistics.encode().to_vec();
            // Counters that later kernels add stay as they are.
            if let Some(found) = self.core.trees().store().get(tree, &key)?
                && let Ok((_, further)) = DeviceStatistics::decode(found.data())
            {
                item.extend_from_slice(further);
            }
            self.handle.editor_mut().put(tree, key, &item)?;
        }
        Ok(())
    }

    /// Says that what quota groups are said to use is out of date.
    pub(crate) fn mark_quotas(&mut self) -> Result<(), EngineError> {
        match &self.core.trees().fixed().quota {
            Some(tree) => mark_inconsistent(self.handle.editor_mut(), tree),
            None => Ok(()),
        }
    }

    /// Runs to the fixpoint.
    pub(crate) fn run_to_fixpoint(&mut self) -> Result<(), EngineError> {
        let generation = self.handle.generation();
        let mut group_time = Duration::ZERO;
        for _ in 0..ROUNDS {
            let mut moved = self.write_new_chunks()?;
            moved |= self.run_delayed()?;
            let start = self.core.options().clock.monotonic();
            moved |= self.write_groups()?;
            group_time += self.core.options().clock.monotonic().saturating_sub(start);
            moved |= self.write_roots()?;
            if moved || !self.core.queues().delayed().is_empty() || self.core.chunks().has_new() {
                continue;
            }
            let start = self.core.options().clock.monotonic();
            self.rewrite_groups()?;
            group_time += self.core.options().clock.monotonic().saturating_sub(start);
            self.core.metrics().groups_updated.add(self.core.space().settle_groups());
            self.core.metrics().group_phase_time.record_duration(group_time);
            return Ok(());
        }
        unreachable!("the commit of {generation} did not settle in {ROUNDS} rounds")
    }

    /// Writes pending references into the extent tree until there are none; gives whether there were any.
    fn run_delayed(&mut self) -> Result<bool, EngineError> {
        let mut any = false;
        loop {
            let heads = self.core.queues().delayed().take(HEADS_IN_BATCH);
            if heads.is_empty() {
                return Ok(any);
            }
            any = true;
            self.core.metrics().heads_run.add(u64::try_from(heads.len()).unwrap_or(u64::MAX));
            let (tree, generation) = (self.core.trees().extent_tree(), self.handle.generation());
            let mut changes = Vec::new();
            let mut effects = Vec::with_capacity(heads.len());
            for head in heads {
                let (edits, effect) = tree.resolve(&head, generation)?;
                changes.extend(edits);
                effects.push((head, effect));
            }
            self.handle.editor_mut().change_items(self.core.trees().fixed().extent.root(), &changes)?;
            self.account(&effects)?;
        }
    }

    /// What references that came or went mean for space: sums, free-space tree, checksums.
    fn account(&mut self, effects: &[(Head, Effect)]) -> Result<(), EngineError> {
        let mut turns: Vec<Turn> = Vec::new();
        let mut gone: Vec<(u64, u64)> = Vec::new();
        for (head, effect) in effects {
            match effect {
                Effect::None => {
                    if head.kind.is_data() {
                        self.core.queues().delayed().remember_dropped(head);
                    }
                    continue;
                }
                Effect::Allocated => self.core.space().use_reserved(head.logical, head.length),
                Effect::Freed { born } => {
                    let needing = self.core.freed().needing(*born, self.handle.generation());
                    self.core
                        .space()
                        .pins()
                        .pin_used(head.logical, head.length, needing)
                        .map_err(contradiction)?
                }
                Effect::Cancelled => {
                    self.core.space().pins().pin_reserved(head.logical, head.length).map_err(contradiction)?
                }
            }
            if *effect != Effect::Cancelled {
                self.join_turn(&mut turns, head, matches!(effect, Effect::Freed { .. }));
            }
            if head.kind == ExtentKind::Data && *effect != Effect::Allocated {
                match gone.last_mut() {
                    Some((start, length)) if *start + *length == head.logical.0 => *length += head.length,
                    _ => gone.push((head.logical.0, head.length)),
                }
            }
        }
        for (start, length) in gone {
            ChecksumTree::of(self.core.trees()).remove(self.handle.editor_mut(), Logical(start), length)?;
        }
        let Some(tree) = self.core.trees().free_space_tree() else { return Ok(()) };
        // A group made in this round has no records yet.
        self.write_new_chunks()?;
        for turn in turns {
            let Some(group) = self.core.space().range_of(Logical(turn.start)) else { continue };
            tree.change(self.handle.editor_mut(), group, turn.start, turn.length, turn.free)?;
        }
        Ok(())
    }

    /// Adds an extent to the turns; neighbours of one group that turn the same way become one.
    fn join_turn(&self, turns: &mut Vec<Turn>, head: &Head, free: bool) {
        let start = head.logical.0;
        if let Some(last) = turns.last_mut()
            && last.free == free
            && last.start + last.length == start
            && self.core.space().range_of(Logical(last.start)) == self.core.space().range_of(head.logical)
        {
            last.length += head.length;
            return;
        }
        turns.push(Turn { start, length: head.length, free });
    }

    /// Writes the items of groups that changed (`block_group_skip`), once each: that copies their blocks, and
    /// so moves what groups of metadata use. It mostly ends where it was, as one block comes for each that
    /// goes. With the mechanism off the item of a group is written again each time that the commit comes
    /// round to it and anything of the group came or went. Gives whether there were any.
    fn write_groups(&mut self) -> Result<bool, EngineError> {
        let is_off = self.core.options().disabled.block_group_skip;
        let mut changed = self.core.space().changed_groups(is_off);
        changed.retain(|group| is_off || !group.item_is_ready);
        self.put_groups(&changed)?;
        Ok(!changed.is_empty())
    }

    /// Writes again the items of those groups whose use moved after they were written. All has come to rest:
    /// their blocks are the transaction's, so nothing moves any more.
    fn rewrite_groups(&mut self) -> Result<(), EngineError> {
        let changed = self.core.space().changed_groups(false);
        for group in &changed {
            assert!(
                group.item_is_ready,
                "the item of group {:?} is in a block of an older transaction",
                group.range
            );
        }
        self.put_groups(&changed)?;
        assert!(
            self.core.queues().delayed().is_empty(),
            "a group's item moved a block that was the transaction's already"
        );
        Ok(())
    }

    /// The items of groups, which are in order of their addresses and so of their keys, many in one edit.
    fn put_groups(&mut self, groups: &[ChangedGroup]) -> Result<(), EngineError> {
        if groups.is_empty() {
            return Ok(());
        }
        let item = |group: &ChangedGroup| -> ItemChange {
            let key = BlockGroupItem::key(group.range.start, group.range.length);
            (key, Some(BlockGroupItem::new(group.used, group.flags).encode().to_vec()))
        };
        probe!(block_groups_write_begin, groups.len());
        for part in groups.chunks(GROUPS_IN_BATCH) {
            let items: Vec<ItemChange> = part.iter().map(item).collect();
            self.handle.editor_mut().change_items(self.core.trees().fixed().groups.root(), &items)?;
        }
        self.core.metrics().group_writes.add(u64::try_from(groups.len()).unwrap_or(u64::MAX));
        self.core.space().wrote_groups(groups);
        probe!(block_groups_write_end, groups.len());
        Ok(())
    }

    /// Writes the root items of trees whose root block moved, or whose item was changed.
    fn write_roots(&mut self) -> Result<bool, EngineError> {
        let mut any = false;
        for tree in self.core.trees().forest().open_trees() {
            let balance = self.core.balance().of(tree.id());
            let Some(item) = tree.take_item_to_write(self.handle.generation(), balance) else { continue };
            self.core.balance().settle(tree.id());
            self.handle.editor_mut().put(self.core.trees().root_tree(), tree.item_key(), &item.encode())?;
            any = true;
        }
        Ok(any)
    }
}
