//! The fixpoint of a commit: pending items, new chunks, delayed references, group items and root items, until
//! nothing changes any more. It ends because each block is copied at most once in a transaction, so after
//! enough rounds no edit makes or drops a block.

use std::time::Duration;

use vlinder_base::probe;
use vlinder_format::block_group::BlockGroupItem;
use vlinder_format::{Damage, Fault, Generation, Key, Logical, Place, RootId};
use vlinder_tree::Edit;

use crate::EngineError;
use crate::editor::{Editor, ItemChange};
use crate::engine::Engine;
use crate::extents::delayed::{ExtentKind, Head};
use crate::extents::tree::Effect;
use crate::handle::Handle;
use crate::pending::PendingKind;
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

impl Engine {
    /// Puts everything pending of all trees into them, a leaf-full at a time.
    pub(crate) fn drain_pending(&self, handle: &mut Handle<'_>) -> Result<(), EngineError> {
        for id in self.pending.trees() {
            probe!(delayed_items_insert_begin, id.0);
            let indexes = self.drain_kind(id, PendingKind::Indexes, handle);
            probe!(delayed_items_insert_end, id.0);
            indexes?;
            self.drain_kind(id, PendingKind::Others, handle)?;
        }
        Ok(())
    }

    /// Puts what is pending of a kind into one tree.
    fn drain_kind(&self, id: RootId, kind: PendingKind, handle: &mut Handle<'_>) -> Result<(), EngineError> {
        let tree = self.tree(id)?;
        let leaf_bytes = usize::try_from(self.node_size()).unwrap_or(usize::MAX);
        let metrics = self.pending.metrics();
        let (inserts, time) = match kind {
            PendingKind::Indexes => (&metrics.insert_batches, &metrics.insert_time),
            PendingKind::Others => (&metrics.other_batches, &metrics.other_time),
        };
        let mut from = Key::MIN;
        loop {
            let timer = time.time();
            let batch = self.pending.batch(id, kind, from, leaf_bytes, !self.options.disabled.delayed_batch);
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
            handle.editor.edit_in_parts(tree.root(), &edits)?;
            self.pending.drained(id, &batch);
            drop(timer);
            let Some(next) = next else { return Ok(()) };
            from = next;
        }
    }

    /// Runs to the fixpoint. No handle is open.
    pub(crate) fn settle(&self, handle: &mut Handle<'_>) -> Result<(), EngineError> {
        let generation = handle.generation();
        let mut group_time = Duration::ZERO;
        for _ in 0..ROUNDS {
            let mut moved = self.write_new_chunks(&mut handle.editor)?;
            moved |= self.run_delayed(&mut handle.editor, generation)?;
            let start = self.options.clock.monotonic();
            moved |= self.write_groups(&mut handle.editor)?;
            group_time += self.options.clock.monotonic().saturating_sub(start);
            moved |= self.write_roots(&mut handle.editor, generation)?;
            if moved || !self.delayed.lock().is_empty() || self.chunks.has_new() {
                continue;
            }
            let start = self.options.clock.monotonic();
            self.rewrite_groups(&mut handle.editor)?;
            group_time += self.options.clock.monotonic().saturating_sub(start);
            self.metrics.groups_updated.add(self.space.settle_groups());
            self.metrics.group_phase_time.record_duration(group_time);
            return Ok(());
        }
        unreachable!("the commit of {generation} did not settle in {ROUNDS} rounds")
    }

    /// Writes pending references into the extent tree until there are none; gives whether there were any.
    fn run_delayed(&self, editor: &mut Editor<'_>, generation: Generation) -> Result<bool, EngineError> {
        let mut any = false;
        loop {
            let heads = self.delayed.lock().take(HEADS_IN_BATCH);
            if heads.is_empty() {
                return Ok(any);
            }
            any = true;
            self.metrics.heads_run.add(u64::try_from(heads.len()).unwrap_or(u64::MAX));
            let tree = self.extent_tree();
            let mut changes = Vec::new();
            let mut effects = Vec::with_capacity(heads.len());
            for head in heads {
                let (edits, effect) = tree.resolve(&head, generation)?;
                changes.extend(edits);
                effects.push((head, effect));
            }
            editor.change_items(self.fixed.extent.root(), &changes)?;
            self.account(editor, &effects, generation)?;
        }
    }

    /// What references that came or went mean for space: sums, free-space tree, checksums.
    fn account(
        &self,
        editor: &mut Editor<'_>,
        effects: &[(Head, Effect)],
        generation: Generation,
    ) -> Result<(), EngineError> {
        let mut turns: Vec<Turn> = Vec::new();
        let mut gone: Vec<(u64, u64)> = Vec::new();
        for (head, effect) in effects {
            match effect {
                Effect::None => {
                    if head.kind.is_data() {
                        self.delayed.lock().remember_dropped(head);
                    }
                    continue;
                }
                Effect::Allocated => self.space.use_reserved(head.logical, head.length),
                Effect::Freed { born } => {
                    let needing = self.needing(*born, generation);
                    self.space.pins().pin_used(head.logical, head.length, needing).map_err(contradiction)?
                }
                Effect::Cancelled => {
                    self.space.pins().pin_reserved(head.logical, head.length).map_err(contradiction)?
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
            self.checksum_tree().remove(editor, Logical(start), length)?;
        }
        let Some(free_space) = &self.fixed.free_space else { return Ok(()) };
        // A group made in this round has no records yet.
        self.write_new_chunks(editor)?;
        let tree = self.free_space_tree(free_space);
        for turn in turns {
            let Some(group) = self.space.range_of(Logical(turn.start)) else { continue };
            tree.change(editor, group, turn.start, turn.length, turn.free)?;
        }
        Ok(())
    }

    /// Adds an extent to the turns; neighbours of one group that turn the same way become one.
    fn join_turn(&self, turns: &mut Vec<Turn>, head: &Head, free: bool) {
        let start = head.logical.0;
        if let Some(last) = turns.last_mut()
            && last.free == free
            && last.start + last.length == start
            && self.space.range_of(Logical(last.start)) == self.space.range_of(head.logical)
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
    fn write_groups(&self, editor: &mut Editor<'_>) -> Result<bool, EngineError> {
        let is_off = self.options.disabled.block_group_skip;
        let mut changed = self.space.changed_groups(is_off);
        changed.retain(|group| is_off || !group.item_is_ready);
        self.put_groups(editor, &changed)?;
        Ok(!changed.is_empty())
    }

    /// Writes again the items of those groups whose use moved after they were written. All has come to rest:
    /// their blocks are the transaction's, so nothing moves any more.
    fn rewrite_groups(&self, editor: &mut Editor<'_>) -> Result<(), EngineError> {
        let changed = self.space.changed_groups(false);
        for group in &changed {
            assert!(
                group.item_is_ready,
                "the item of group {:?} is in a block of an older transaction",
                group.range
            );
        }
        self.put_groups(editor, &changed)?;
        assert!(
            self.delayed.lock().is_empty(),
            "a group's item moved a block that was the transaction's already"
        );
        Ok(())
    }

    /// The items of groups, which are in order of their addresses and so of their keys, many in one edit.
    fn put_groups(&self, editor: &mut Editor<'_>, groups: &[ChangedGroup]) -> Result<(), EngineError> {
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
            editor.change_items(self.fixed.groups.root(), &items)?;
        }
        self.metrics.group_writes.add(u64::try_from(groups.len()).unwrap_or(u64::MAX));
        self.space.wrote_groups(groups);
        probe!(block_groups_write_end, groups.len());
        Ok(())
    }

    /// Writes the root items of trees whose root block moved, or whose item was changed.
    fn write_roots(&self, editor: &mut Editor<'_>, generation: Generation) -> Result<bool, EngineError> {
        let mut any = false;
        for tree in self.forest.open_trees() {
            let balance = self.block_balance.lock().get(&tree.id()).copied().unwrap_or_default();
            let Some(item) = tree.take_item_to_write(generation, balance) else { continue };
            self.block_balance.lock().remove(&tree.id());
            editor.put(self.forest.root_tree(), tree.item_key(), &item.encode())?;
            any = true;
        }
        Ok(any)
    }
}
