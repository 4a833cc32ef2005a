//! The inodes in memory: one value for each inode, bounded in number, forgotten when nobody holds them and
//! all that they know is with a transaction.

use std::collections::HashMap;

use vlinder_base::sync::{Arc, Mutex};
use vlinder_data::InodeId;

use super::Inode;

const SHARDS: usize = 16;
/// How many inodes a search for one to forget looks at, so that the bound holds at a constant cost.
const MAX_LOOKED_AT: usize = 16;

#[derive(Default)]
struct Shard {
    /// Where each inode is in `slots`.
    places: HashMap<InodeId, usize>,
    /// The inodes, in some order, round which the hand goes.
    slots: Vec<Arc<Inode>>,
    /// Where the search for something to forget goes on.
    hand: usize,
    /// Counts removals, so that a value read before one is not put in after it.
    removals: u64,
}

/// All inodes in memory.
pub(crate) struct InodeCache {
    shards: [Mutex<Shard>; SHARDS],
    most_per_shard: usize,
}

/// Says whether an inode was removed since a look into the cache.
#[derive(Clone, Copy)]
pub(crate) struct Ticket(u64);

impl InodeCache {
    /// A cache that forgets what it may above `most` inodes.
    pub(crate) fn new(most: usize) -> Self {
        let shards = std::array::from_fn(|_| Mutex::new(Shard::default()));
        Self { shards, most_per_shard: most.div_ceil(SHARDS).max(MAX_LOOKED_AT) }
    }

    fn shard(&self, id: InodeId) -> &Mutex<Shard> {
        // Numbers are handed out in sequence, so their low bits spread well.
        let number = id.number.0.wrapping_add(id.root.0);
        let index = usize::try_from(number % SHARDS as u64).unwrap_or(0);
        &self.shards[index]
    }

    /// The inode, if it is in memory; else a ticket for [`insert`](Self::insert).
    pub(crate) fn get(&self, id: InodeId) -> Result<Arc<Inode>, Ticket> {
        let shard = self.shard(id).lock();
        match shard.get(id) {
            Some(inode) => {
                inode.note_use();
                Ok(Arc::clone(inode))
            }
            None => Err(Ticket(shard.removals)),
        }
    }

    /// Puts in an inode that was read after the ticket was taken, unless another was faster, whose value is
    /// given; none if something was removed meanwhile: it has to be read again.
    pub(crate) fn insert(&self, inode: Inode, ticket: Ticket) -> Option<Arc<Inode>> {
        let id = inode.id();
        let mut shard = self.shard(id).lock();
        if let Some(present) = shard.get(id) {
            return Some(Arc::clone(present));
        }
        if shard.removals != ticket.0 {
            return None;
        }
        Some(self.put(&mut shard, inode))
    }

    /// Puts in an inode that was just created.
    pub(crate) fn insert_new(&self, inode: Inode) -> Arc<Inode> {
        let mut shard = self.shard(inode.id()).lock();
        self.put(&mut shard, inode)
    }

    fn put(&self, shard: &mut Shard, inode: Inode) -> Arc<Inode> {
        if let Some(present) = shard.get(inode.id()) {
            // Somebody asked for the number between the creation and this call.
            return Arc::clone(present);
        }
        if shard.slots.len() >= self.most_per_shard {
            shard.forget_one();
        }
        let inode = Arc::new(inode);
        shard.places.insert(inode.id(), shard.slots.len());
        shard.slots.push(Arc::clone(&inode));
        inode
    }

    /// Forgets an inode that is gone.
    pub(crate) fn remove(&self, id: InodeId) {
        let mut shard = self.shard(id).lock();
        shard.removals = shard.removals.wrapping_add(1);
        if let Some(place) = shard.places.get(&id).copied() {
            shard.take(place);
        }
    }

    /// Forgets all inodes of a subvolume that was deleted, but for open ones: those live on until they are
    /// closed, as on Linux.
    pub(crate) fn remove_subvolume(&self, root: vlinder_format::RootId) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.removals = shard.removals.wrapping_add(1);
            shard.slots.retain(|inode| inode.id().root != root || inode.is_open());
            shard.places = shard.slots.iter().enumerate().map(|(place, inode)| (inode.id(), place)).collect();
        }
    }
}

impl Shard {
    fn get(&self, id: InodeId) -> Option<&Arc<Inode>> {
        self.places.get(&id).and_then(|place| self.slots.get(*place))
    }

    /// Forgets the next inode round the hand that nobody holds and nobody asked for since the hand came by
    /// last.
    fn forget_one(&mut self) {
        for _ in 0..MAX_LOOKED_AT.min(self.slots.len()) {
            self.hand = if self.hand + 1 < self.slots.len() { self.hand + 1 } else { 0 };
            let inode = &self.slots[self.hand];
            if !inode.take_use() && may_be_forgotten(inode) {
                self.take(self.hand);
                self.removals = self.removals.wrapping_add(1);
                return;
            }
        }
    }

    /// Takes the inode at a place out; the last one comes there instead.
    fn take(&mut self, place: usize) {
        let inode = self.slots.swap_remove(place);
        self.places.remove(&inode.id());
        if let Some(moved) = self.slots.get(place) {
            self.places.insert(moved.id(), place);
        }
    }
}

/// Nobody else holds it or its node (new holders of either come through the shard's lock, or have one that is
/// held), and nothing would be lost.
fn may_be_forgotten(inode: &Arc<Inode>) -> bool {
    if Arc::strong_count(inode) > 1 || Arc::strong_count(inode.node()) > 1 {
        return false;
    }
    let state = inode.state();
    !state.dirty && state.opens == 0 && !state.orphan && inode.data().may_be_forgotten()
}
