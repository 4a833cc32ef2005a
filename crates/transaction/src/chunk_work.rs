//! Chunks as the running transaction has changed them, and what the devices have room for beside.

use std::collections::HashSet;

use vlinder_base::metrics::{Counter, Registry, Unit};
use vlinder_base::sync::{Arc, Mutex, MutexGuard};
use vlinder_format::chunk::{BlockGroupFlags, Chunk, Profile, STRIPE_LENGTH, Stripe};
use vlinder_format::device::DeviceItem;
use vlinder_format::superblock::SystemChunkArray;
use vlinder_format::{DeviceId, Logical, Physical, RootId, Uuid};
use vlinder_space::{ChunkShare, DeviceReport, PURPOSES, Purpose, Room, Unallocated};
use vlinder_volume::allocation::{ChunkPlan, DeviceSpace, plan_chunk};
use vlinder_volume::{MappedChunk, Volume};

use crate::EngineError;

/// A range of a device that no chunk has, and its length in bytes.
pub(crate) type UnallocatedRange = (DeviceId, Physical, u64);

/// Chunks that were made or removed since the last commit, and a summary of all chunks.
///
/// Invariants:
/// 1. A chunk is usable from [`add`](Self::add) on, and is new until the committer takes it to write its
///    items ([`take_new`](Self::take_new)).
/// 2. Space of a removed chunk is free on the devices only once the transaction that removed it is durable
///    ([`forget_removed`](Self::forget_removed)); until then the volume maps the chunk.
/// 3. The summary, where there is one, says of each device what the chunks of the volume leave of it.
/// 4. One thread at a time makes chunks ([`begin_making`](Self::begin_making)).
/// 5. The device items say what all chunks take of each device, but for those that the running transaction
///    has removed ([`make`](Self::make), [`note_removed`](Self::note_removed)).
pub(crate) struct ChunkWork {
    volume: Arc<Volume>,
    /// That of every tree block and device extent.
    chunk_tree_uuid: Uuid,
    making: Mutex<()>,
    new: Mutex<Vec<(Logical, Chunk)>>,
    /// Removed by the running transaction; their space on the devices is free once it is durable.
    removed: Mutex<Vec<Logical>>,
    /// None until it is asked for, and after chunks went.
    summary: Mutex<Option<Summary>>,
    device_items: Mutex<Vec<DeviceItem>>,
    metrics: ChunkMetrics,
}

struct ChunkMetrics {
    made: Arc<Counter>,
    removed: Arc<Counter>,
}

impl ChunkMetrics {
    fn new(registry: &Registry) -> Self {
        Self {
            made: registry.counter("chunks.made", "chunks allocated", Unit::Count),
            removed: registry.counter("chunks.removed", "empty chunks removed", Unit::Count),
        }
    }
}

/// What has to be known of all chunks before one more is made. It is kept, since each of many would else take
/// a look at all those before.
struct Summary {
    spaces: Vec<DeviceSpace>,
    /// By purpose.
    newest: [Option<Arc<MappedChunk>>; 3],
}

impl Summary {
    fn of(volume: &Volume) -> Self {
        let chunks = volume.chunks().snapshot();
        let space = |device: DeviceId, total_bytes| {
            let mut allocated: Vec<std::ops::Range<Physical>> = chunks
                .iter()
                .flat_map(|chunk| {
                    let bytes = chunk.chunk.stripe_bytes().unwrap_or_default();
                    let stripes = chunk.chunk.stripes.iter().filter(move |stripe| stripe.device == device);
                    stripes.map(move |stripe| stripe.physical..Physical(stripe.physical.0 + bytes))
                })
                .collect();
            allocated.sort_by_key(|range| range.start);
            DeviceSpace::new(device, total_bytes, allocated)
        };
        let members = volume.members();
        let spaces = members.iter().map(|member| space(member.id, member.total_bytes)).collect();
        let mut summary = Self { spaces, newest: Default::default() };
        chunks.iter().for_each(|chunk| summary.note_newest(chunk));
        summary
    }

    /// Takes in a chunk. One that is in it already changes nothing.
    fn add(&mut self, chunk: &Arc<MappedChunk>) {
        let bytes = chunk.chunk.stripe_bytes().unwrap_or_default();
        for stripe in &chunk.chunk.stripes {
            for space in self.spaces.iter_mut().filter(|space| space.device == stripe.device) {
                space.take(stripe.physical, bytes);
            }
        }
        self.note_newest(chunk);
    }

    fn note_newest(&mut self, chunk: &Arc<MappedChunk>) {
        for purpose in PURPOSES.into_iter().filter(|purpose| chunk.chunk.flags.has(purpose.flag())) {
            let newest = &mut self.newest[purpose as usize];
            if newest.as_ref().is_none_or(|newest| newest.logical < chunk.logical) {
                *newest = Some(Arc::clone(chunk));
            }
        }
    }
}

impl ChunkWork {
    pub(crate) fn new(
        volume: Arc<Volume>,
        chunk_tree_uuid: Uuid,
        device_items: Vec<DeviceItem>,
        registry: &Registry,
    ) -> Self {
        Self {
            volume,
            chunk_tree_uuid,
            making: Mutex::new(()),
            new: Mutex::default(),
            removed: Mutex::default(),
            summary: Mutex::default(),
            device_items: Mutex::new(device_items),
            metrics: ChunkMetrics::new(registry),
        }
    }

    /// The UUID that every tree block and device extent carries.
    pub(crate) fn chunk_tree_uuid(&self) -> Uuid {
        self.chunk_tree_uuid
    }

    /// Held by the thread that makes chunks.
    pub(crate) fn begin_making(&self) -> MutexGuard<'_, ()> {
        self.making.lock()
    }

    /// Whether there are chunks whose items are not written yet.
    pub(crate) fn has_new(&self) -> bool {
        !self.new.lock().is_empty()
    }

    /// The chunks whose items are not written yet: the caller writes them.
    pub(crate) fn take_new(&self) -> Vec<(Logical, Chunk)> {
        std::mem::take(&mut *self.new.lock())
    }

    /// Where a chunk would lie that leaves of the devices all but `most_bytes`; none where there is no room.
    pub(crate) fn plan(
        &self,
        flags: BlockGroupFlags,
        most_bytes: u64,
    ) -> Result<Option<ChunkPlan>, EngineError> {
        let total_bytes = self.volume.members().total_bytes();
        Ok(self.with_summary(|summary| plan_chunk(flags, total_bytes, &summary.spaces, most_bytes))?)
    }

    /// Makes a chunk as it was planned: it is usable, and its items are to be written. Gives where it begins.
    pub(crate) fn make(&self, plan: &ChunkPlan, flags: BlockGroupFlags) -> Result<Logical, EngineError> {
        let uuids = self.device_items();
        let uuid =
            |device| uuids.iter().find(|item| item.device == device).map_or(Uuid::NIL, |item| item.uuid);
        let sector_size = self.volume.geometry().sector_size;
        let alignment = u32::try_from(STRIPE_LENGTH).unwrap_or(sector_size);
        let chunk = Chunk {
            length: plan.length,
            owner: RootId::EXTENT_TREE,
            stripe_length: STRIPE_LENGTH,
            flags,
            io_align: alignment,
            io_width: alignment,
            sector_size,
            sub_stripes: Profile::of(flags).map_or(1, |profile| profile.facts().sub_stripes),
            stripes: plan
                .stripes
                .iter()
                .map(|(device, physical)| Stripe {
                    device: *device,
                    physical: *physical,
                    device_uuid: uuid(*device),
                })
                .collect(),
        };
        let logical = self.add(chunk)?;
        for item in self.device_items.lock().iter_mut() {
            let stripes = plan.stripes.iter().filter(|(device, _)| *device == item.device).count();
            item.bytes_used += plan.stripe_bytes * u64::try_from(stripes).unwrap_or_default();
        }
        self.metrics.made.increment();
        Ok(logical)
    }

    fn add(&self, chunk: Chunk) -> Result<Logical, EngineError> {
        let logical = self.volume.chunks().next_logical();
        self.volume.add_chunk(logical, chunk.clone())?;
        if let Some(added) = self.volume.chunks().get(logical) {
            self.with_summary(|summary| {
                summary.add(&added);
                debug_assert_eq!(
                    summary.spaces,
                    Summary::of(&self.volume).spaces,
                    "what chunks leave of the devices"
                );
            });
        }
        self.new.lock().push((logical, chunk));
        Ok(logical)
    }

    /// The running transaction has removed a chunk.
    pub(crate) fn note_removed(&self, logical: Logical, chunk: &Chunk) {
        let bytes = chunk.stripe_bytes().unwrap_or_default();
        for stripe in &chunk.stripes {
            for item in self.device_items.lock().iter_mut().filter(|item| item.device == stripe.device) {
                item.bytes_used = item.bytes_used.saturating_sub(bytes);
            }
        }
        self.removed.lock().push(logical);
        self.metrics.removed.increment();
    }

    /// The transaction is durable: the chunks that it removed are no more. Gives whether there were any.
    pub(crate) fn forget_removed(&self) -> bool {
        let removed = std::mem::take(&mut *self.removed.lock());
        for logical in &removed {
            self.volume.remove_chunk(*logical);
            *self.summary.lock() = None;
        }
        !removed.is_empty()
    }

    /// The system chunks that stay, as the superblock names them, and the bytes that this takes.
    pub(crate) fn system_array(&self) -> Result<(SystemChunkArray, u32), EngineError> {
        let removed = self.removed.lock().clone();
        let chunks = self.volume.chunks().snapshot();
        let system = chunks
            .iter()
            .filter(|chunk| {
                chunk.chunk.flags.has(BlockGroupFlags::SYSTEM) && !removed.contains(&chunk.logical)
            })
            .map(|chunk| (chunk.logical, &chunk.chunk));
        SystemChunkArray::of(system)
            .map_err(|_| EngineError::NoSpace { kind: "system chunks in the superblock", needed_bytes: 0 })
    }

    /// Content and profile of a new chunk: those of the newest group that serves the purpose. In memory a
    /// profile that can't be written gives way to single: no copy of it is ever made.
    pub(crate) fn flags_for(&self, purpose: Purpose) -> Option<BlockGroupFlags> {
        let newest = self.with_summary(|summary| summary.newest[purpose as usize].clone());
        let flags = newest.map(|chunk| match chunk.chunk.flags {
            flags if self.volume.keeps_writes_in_memory() && !chunk.profile.is_writable() => flags.content(),
            flags => flags,
        });
        flags.or_else(|| {
            // A file system that was emptied may have no data group: single is the default.
            (purpose == Purpose::Data).then_some(BlockGroupFlags::DATA)
        })
    }

    /// How often a new chunk holds each byte.
    fn copies_for(&self, purpose: Purpose) -> u64 {
        self.flags_for(purpose).map_or(1, BlockGroupFlags::copies)
    }

    /// Looks at the summary of all chunks, or changes it.
    fn with_summary<R>(&self, look: impl FnOnce(&mut Summary) -> R) -> R {
        look(self.summary.lock().get_or_insert_with(|| Summary::of(&self.volume)))
    }

    /// The first range that no chunk has at or behind a byte of a device, or on a device of a higher number;
    /// reserved starts and superblock copies are in none.
    pub(crate) fn unallocated_from(&self, device: DeviceId, start: Physical) -> Option<UnallocatedRange> {
        self.with_summary(|summary| {
            let first = |space: &DeviceSpace| {
                let start = if space.device == device { start } else { Physical(0) };
                let hole = space.holes_beside_superblocks_from(start).next()?;
                Some((space.device, hole.start, hole.length))
            };
            let behind = summary.spaces.iter().filter(|space| space.device >= device);
            behind.filter_map(first).min_by_key(|range| range.0)
        })
    }

    /// Bytes of all devices that no chunk has.
    pub(crate) fn unallocated_bytes(&self) -> u64 {
        self.with_summary(|summary| summary.spaces.iter().map(DeviceSpace::unallocated_bytes).sum())
    }

    /// What new chunks can have.
    pub(crate) fn unallocated(&self) -> Unallocated {
        Unallocated {
            bytes: self.with_summary(|summary| summary.spaces.iter().map(DeviceSpace::usable_bytes).sum()),
            data_copies: self.copies_for(Purpose::Data),
            metadata_copies: self.copies_for(Purpose::Metadata),
        }
    }

    /// Whether the devices have room for one more chunk of metadata, of the shortest kind.
    pub(crate) fn can_make_metadata(&self) -> bool {
        let unallocated = self.unallocated();
        unallocated.bytes >= unallocated.taken_by(Room { data: 0, metadata: STRIPE_LENGTH })
    }

    /// The devices that the chunk tree names; Linux counts none of those of a seed.
    pub(crate) fn device_reports(&self) -> Vec<DeviceReport> {
        let items = self.device_items.lock();
        let reports = items.iter().filter(|item| !self.is_seed(item.device)).map(|item| DeviceReport {
            number: item.device,
            total_bytes: item.total_bytes,
            allocated_bytes: item.bytes_used,
            is_missing: self.volume.member(item.device).is_none(),
        });
        reports.collect()
    }

    fn is_seed(&self, device: DeviceId) -> bool {
        self.volume.member(device).is_some_and(|member| member.seed.is_some())
    }

    /// The first addresses of the chunks that have a device of a seed: nothing is written to them.
    pub(crate) fn on_seed(&self) -> HashSet<Logical> {
        if !self.volume.members().has_seed() {
            return HashSet::new();
        }
        let chunks = self.volume.chunks().snapshot().into_iter();
        let on_seed = chunks.filter(|mapped| mapped.chunk.stripes.iter().any(|one| self.is_seed(one.device)));
        on_seed.map(|mapped| mapped.logical).collect()
    }

    /// What the chunks have on each device, in the order in which the chunks name them.
    pub(crate) fn shares(&self) -> Vec<ChunkShare> {
        let mut shares: Vec<ChunkShare> = Vec::new();
        for chunk in self.volume.chunks().snapshot() {
            let (flags, stripe_count) = (chunk.chunk.flags, chunk.chunk.stripe_count());
            for stripe in &chunk.chunk.stripes {
                let device = stripe.device;
                let known = shares.iter_mut().find(|share| {
                    (share.flags, share.device, share.stripe_count) == (flags, device, stripe_count)
                });
                match known {
                    Some(share) => share.chunk_bytes = share.chunk_bytes.saturating_add(chunk.chunk.length),
                    None => {
                        shares.push(ChunkShare {
                            flags,
                            device,
                            stripe_count,
                            chunk_bytes: chunk.chunk.length,
                        });
                    }
                }
            }
        }
        shares
    }

    /// The devices that the file system has and nobody gave.
    pub(crate) fn missing_devices(&self) -> Vec<DeviceId> {
        let items = self.device_items.lock();
        let missing = items.iter().filter(|item| self.volume.member(item.device).is_none());
        missing.map(|item| item.device).collect()
    }

    /// What the chunk tree says of the devices.
    pub(crate) fn device_items(&self) -> Vec<DeviceItem> {
        self.device_items.lock().clone()
    }

    /// Bytes of all devices.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.volume.members().total_bytes()
    }

    /// How many chunks there are.
    pub(crate) fn count(&self) -> usize {
        self.volume.chunks().len()
    }

    /// Logical ranges of a chunk that lie under superblock copies.
    pub(crate) fn excluded(&self, logical: Logical) -> Vec<std::ops::Range<Logical>> {
        self.volume.chunks().get(logical).map(|chunk| chunk.superblock_ranges()).unwrap_or_default()
    }
}
