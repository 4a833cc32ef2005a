//! Chunks made and removed (the third of the four knots: a new chunk changes the chunk tree, which lives in
//! chunks).
//!
//! A new chunk is usable at once, in memory; its items are queued and written by the commit. Before a chunk
//! of another content is made, system space for the chunk tree's own copies is made sure of.

use vlinder_format::chunk::STRIPE_LENGTH;

use crate::EngineError;
use crate::chunk_work::ChunkWork;
use crate::commit_queues::CommitQueues;
use crate::phase::RunningTransaction;
use crate::system_trees::SystemTrees;
use vlinder_space::{Charge, Group, GroupRange, Purpose, ReserveAccess, Room, SpaceManager};

/// Copies of the chunk tree's blocks that one commit may make: a path, a split on each level, and one for
/// each batch of chunk items; small trees need a fraction.
const SYSTEM_BLOCKS: u64 = 16;

/// How much of what is unallocated a new chunk leaves to other purposes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    /// All that promises count on, the reserve with its margin, and the metadata of data to come.
    WhatMayCome,
    /// All that promises count on, and the reserve with its margin.
    WhatIsCounted,
    /// What changes that draw on the reserve leave: the commit's part and that for deleting trees.
    WhatIsOwed,
    /// Nothing.
    Nothing,
}

/// A chunk of data leaves to metadata so large a share of what data may still take: extents of a sector take
/// some 5 %, small files more, large ones next to nothing.
const METADATA_SHARE: u64 = 16;

/// What makes chunks, and knows what others need of the room for them.
#[derive(Clone, Copy)]
pub(crate) struct ChunkMaker<'a> {
    trees: &'a SystemTrees,
    queues: &'a CommitQueues,
    space: &'a SpaceManager,
    chunks: &'a ChunkWork,
    running: &'a RunningTransaction,
}

impl<'a> ChunkMaker<'a> {
    pub(crate) fn new(
        trees: &'a SystemTrees,
        queues: &'a CommitQueues,
        space: &'a SpaceManager,
        chunks: &'a ChunkWork,
        running: &'a RunningTransaction,
    ) -> Self {
        Self { trees, queues, space, chunks, running }
    }

    /// Makes a chunk for a purpose; false where the devices have no room.
    pub(crate) fn make_chunk(&self, purpose: Purpose) -> Result<bool, EngineError> {
        let before = self.chunks.count();
        let _making = self.chunks.begin_making();
        if self.chunks.count() > before {
            return Ok(true);
        }
        let lacks_system = || self.space.available(Purpose::System) < self.system_bytes();
        if purpose != Purpose::System && lacks_system() {
            self.make_chunk_of(Purpose::System)?;
            if lacks_system() {
                // The chunk's own item would find no room.
                return Ok(false);
            }
        }
        self.make_chunk_of(purpose)
    }

    /// What the chunk tree may take at any time.
    pub(crate) fn system_bytes(&self) -> u64 {
        SYSTEM_BLOCKS * u64::from(self.trees.node_size())
    }

    fn make_chunk_of(&self, purpose: Purpose) -> Result<bool, EngineError> {
        let Some(flags) = self.chunks.flags_for(purpose) else { return Ok(false) };
        let _nothing_is_promised = self.space.begin_chunk();
        // A promise that can't be kept loses what was written lately; a commit that can't end, or a change
        // that ends half-way, loses more.
        let steps: &[Leave] = match purpose {
            Purpose::Data => &[Leave::WhatMayCome, Leave::WhatIsCounted, Leave::WhatIsOwed],
            Purpose::Metadata => &[Leave::WhatIsCounted, Leave::Nothing],
            Purpose::System => &[Leave::WhatIsCounted],
        };
        let mut found = None;
        for leave in steps {
            found = self.chunks.plan(flags, self.left_by_others(purpose, *leave))?;
            if found.is_some() {
                break;
            }
        }
        let Some(plan) = found else {
            return Ok(false);
        };
        let logical = self.chunks.make(&plan, flags)?;
        let range = GroupRange { start: logical, length: plan.length };
        self.space.add_group(Group::fresh(range, flags, &self.chunks.excluded(logical)));
        self.running.mark_changed();
        Ok(true)
    }

    /// Unallocated bytes that a new chunk for `purpose` may use and leave so much to the other purposes.
    fn left_by_others(&self, purpose: Purpose, leave: Leave) -> u64 {
        let unallocated = self.chunks.unallocated();
        if purpose != Purpose::System && self.space.is_mixed() {
            // The chunk is as good for them.
            return unallocated.bytes;
        }
        let data_to_come = unallocated.bytes.saturating_add(self.space.available(Purpose::Data));
        let (access, metadata_to_come) = match leave {
            Leave::WhatMayCome => (
                ReserveAccess::Nothing,
                (data_to_come / METADATA_SHARE).saturating_add(self.space.growth_bytes()),
            ),
            Leave::WhatIsCounted if purpose == Purpose::Data => {
                (ReserveAccess::Nothing, self.space.growth_bytes())
            }
            Leave::WhatIsCounted => (ReserveAccess::Nothing, 0),
            Leave::WhatIsOwed => (ReserveAccess::Accepted, 0),
            Leave::Nothing => return u64::MAX,
        };
        let mut others = self.space.reservations().lacking(access, self.queues.waiting(), metadata_to_come);
        // What takes more than its due takes no more than it must.
        let most = match leave {
            Leave::WhatIsOwed => {
                let data = others.data.max(1);
                unallocated.taken_by(Room { data, metadata: 0 }).next_multiple_of(2 * STRIPE_LENGTH)
            }
            _ => u64::MAX,
        };
        match purpose {
            Purpose::Data => others.data = 0,
            Purpose::Metadata => others.metadata = 0,
            Purpose::System => {}
        }
        unallocated.bytes.saturating_sub(unallocated.taken_by(others)).min(most)
    }

    /// Bytes of data that the groups, and chunks that can be made, have room for beside what metadata need. A
    /// file system that is only read knows its groups after [`Engine::space`](crate::Engine::space).
    pub(crate) fn room_for_data(&self) -> u64 {
        let unallocated = self.space.reservations().unallocated().unwrap_or_else(|chunks| {
            let unallocated = self.chunks.unallocated();
            self.space.reservations().set_unallocated(chunks, unallocated);
            unallocated
        });
        let metadata = Room {
            data: 0,
            ..self.space.reservations().lacking(ReserveAccess::Nothing, Charge::default(), 0)
        };
        let left = unallocated.bytes.saturating_sub(unallocated.taken_by(metadata));
        self.space.available(Purpose::Data) + left / unallocated.data_copies
    }

    /// Whether a commit would remove a chunk. It begins with that even where nothing else has changed.
    pub(crate) fn asks_to_remove_chunks(&self) -> bool {
        let waiting = self.queues.waiting() + self.queues.awaited(self.trees.forest().may_share_blocks());
        // A group that stays must not ask for commits, one after the other.
        let has_one = self.space.removable_groups().iter().any(|group| {
            let start = group.range.start;
            self.space.may_remove(start, waiting, self.system_bytes())
                && self.trees.has_space_cache(start).is_ok_and(|has_cache| !has_cache)
        });
        if has_one {
            self.running.mark_changed();
        }
        has_one
    }
}
