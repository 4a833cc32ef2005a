//! What commits freed, until it may be taken again: held back as long as a lease on a committed state reaches
//! it, and discarded before it is free.

use vlinder_base::metrics::{Gauge, Registry, Unit};
use vlinder_base::sync::{Arc, Mutex, Weak};
use vlinder_format::superblock::Superblock;
use vlinder_format::{Generation, Logical};
use vlinder_space::{Needing, PinStage, Pins};
use vlinder_tree::Leases;
use vlinder_tree::lease::{CommitLease, LeaseObserver};
use vlinder_volume::Volume;

/// Pieces of space that leases may hold, at some 50 bytes of memory each; beyond, they are revoked.
const MAX_HELD_PIECES: usize = 1 << 19;

/// The leases on committed states, and the way of freed space from pinned to free.
///
/// Invariants:
/// 1. What a leased state reaches is not free before its last lease has ended or was revoked
///    ([`publish`](Self::publish) holds it back, [`release`](Self::release) lets it go).
/// 2. What was freed is discarded before a thread can take it again ([`publish`](Self::publish),
///    [`release`](Self::release)).
/// 3. One thread at a time lets go what leases held: between the look at the ranges and their end as pinned
///    no other thread adds to them.
pub(crate) struct FreedSpace {
    leases: Arc<Leases>,
    volume: Arc<Volume>,
    /// The devices are told what is free.
    discards: bool,
    /// Held by the thread that frees what a lease held.
    releasing: Mutex<()>,
    held_bytes: Arc<Gauge>,
}

impl FreedSpace {
    pub(crate) fn new(volume: Arc<Volume>, discards: bool, registry: &Registry) -> Self {
        Self {
            leases: Leases::new(registry),
            volume,
            discards,
            releasing: Mutex::new(()),
            held_bytes: registry.gauge(
                "commit.lease_held_bytes",
                "freed bytes that leases on committed states keep from being taken",
                Unit::Bytes,
            ),
        }
    }

    /// Leases the state that these superblocks publish; `observer` is told of the lease's end, and calls
    /// [`release`](Self::release) then. No commit is under way.
    pub(crate) fn lease(
        &self,
        superblocks: Vec<Superblock>,
        observer: Weak<dyn LeaseObserver>,
    ) -> CommitLease {
        self.leases.grant(superblocks, observer)
    }

    /// The leases that reach an extent that the transaction of `freed` frees.
    pub(crate) fn needing(&self, born: Generation, freed: Generation) -> Option<Needing> {
        self.leases.needing(born, Generation(freed.0.saturating_sub(1)))
    }

    fn still_needing(&self, (oldest, newest): Needing) -> Option<Needing> {
        self.leases.needing(oldest, newest)
    }

    /// The superblock is durable: what the transaction freed is free, but for what leased states reach.
    pub(crate) fn publish(&self, pins: Pins<'_>) {
        pins.hold_leased(|needing| self.still_needing(needing));
        let (_, pieces) = self.count_held(pins);
        if pieces > MAX_HELD_PIECES {
            self.revoke_leases(pins);
        }
        // Discarded before anyone may take it again.
        self.discard(&pins.waiting_ranges(PinStage::Committing));
        pins.unpin(PinStage::Committing);
    }

    /// Takes all leases back if that gives space; false if they hold none.
    pub(crate) fn revoke_leases(&self, pins: Pins<'_>) -> bool {
        let (bytes, _) = pins.held();
        if bytes == 0 {
            return false;
        }
        let leases = self.leases.revoke_all();
        tracing::warn!(leases, bytes, "leases on committed states were taken back: their space is needed");
        self.release(pins);
        true
    }

    /// Frees what no lease needs any more.
    pub(crate) fn release(&self, pins: Pins<'_>) {
        // One at a time: another's ranges may be discarded at this moment.
        let _releasing = self.releasing.lock();
        pins.release_unleased(|needing| self.still_needing(needing));
        self.discard(&pins.waiting_ranges(PinStage::Released));
        pins.unpin(PinStage::Released);
        self.count_held(pins);
    }

    fn count_held(&self, pins: Pins<'_>) -> (u64, usize) {
        let (bytes, pieces) = pins.held();
        self.held_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        (bytes, pieces)
    }

    /// Tells the devices what is free, if that was asked for. A device that cannot is no error.
    fn discard(&self, ranges: &[(Logical, u64)]) {
        if !self.discards {
            return;
        }
        for (logical, length) in ranges {
            if let Err(error) = self.volume.discard(*logical, *length) {
                tracing::warn!(%error, "discarding freed space failed");
                return;
            }
        }
    }
}
