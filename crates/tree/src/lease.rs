//! The commit lease: a committed state that can be read while others commit.
//!
//! A state is left alone on the devices as long as nothing that it reaches is taken again. So a lease is
//! nothing but a name in a list: code that frees space asks the list which leases still need it
//! ([`Leases::needing`]), and is told when one ends ([`LeaseObserver`]).
//!
//! Invariants:
//! 1. A lease is granted on the last published state, while no commit is under way, so no transaction has
//!    freed anything of it yet.
//! 2. A lease that is gone from the list never comes back, and is marked as revoked before anything of its
//!    state is freed.

use vlinder_base::metrics::{Counter, Gauge, Registry, Unit};
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Arc, Mutex, Weak};
use vlinder_format::superblock::Superblock;
use vlinder_format::{Generation, RootId};

use crate::{Root, RootPointer};

/// A lease was taken back: what was read under it may belong to no state at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the state of commit {generation} was given up while it was read, because its space was needed; free some space, or try again"
)]
pub struct LeaseRevoked {
    /// The commit that was leased.
    pub generation: Generation,
}

/// Told when a lease ended, so that what only that lease held becomes free.
pub trait LeaseObserver: Send + Sync {
    /// A lease is gone from the list.
    fn lease_ended(&self);
}

/// One lease, as the list and its holder share it.
#[derive(Debug)]
struct Granted {
    generation: Generation,
    revoked: AtomicBool,
}

/// The leases of one file system.
#[derive(Debug)]
pub struct Leases {
    granted: Mutex<Vec<Arc<Granted>>>,
    count: Arc<Gauge>,
    revoked: Arc<Counter>,
}

/// The right to read a committed state; ends on drop.
pub struct CommitLease {
    granted: Arc<Granted>,
    superblocks: Vec<Superblock>,
    leases: Arc<Leases>,
    observer: Weak<dyn LeaseObserver>,
}

impl Leases {
    /// None yet.
    pub fn new(registry: &Registry) -> Arc<Self> {
        Arc::new(Self {
            granted: Mutex::default(),
            count: registry.gauge("commit.leases", "leases on committed states", Unit::Count),
            revoked: registry.counter(
                "commit.leases_revoked",
                "leases that were taken back because their space was needed",
                Unit::Count,
            ),
        })
    }

    /// Leases the state of these superblocks, one of each member: the last published one, with no commit
    /// under way.
    pub fn grant(
        self: &Arc<Self>,
        superblocks: Vec<Superblock>,
        observer: Weak<dyn LeaseObserver>,
    ) -> CommitLease {
        let newest = superblocks.iter().map(|superblock| superblock.generation).max();
        let granted =
            Arc::new(Granted { generation: newest.unwrap_or_default(), revoked: AtomicBool::new(false) });
        self.granted.lock().push(Arc::clone(&granted));
        self.count.add(1);
        CommitLease { granted, superblocks, leases: Arc::clone(self), observer }
    }

    /// The oldest and the newest of the leased states from `first` to `last`: of an extent that a transaction
    /// frees, those need it that are not older than it, and older than the transaction.
    pub fn needing(&self, first: Generation, last: Generation) -> Option<(Generation, Generation)> {
        let granted = self.granted.lock();
        let needing = granted.iter().map(|lease| lease.generation);
        needing.filter(|leased| (first..=last).contains(leased)).fold(None, |found, leased| {
            let (oldest, newest) = found.unwrap_or((leased, leased));
            Some((oldest.min(leased), newest.max(leased)))
        })
    }

    /// Takes every lease back; gives how many there were. Their holders hear of it when they next ask.
    pub fn revoke_all(&self) -> usize {
        let mut granted = self.granted.lock();
        let count = granted.len();
        for lease in granted.drain(..) {
            lease.revoked.store(true, Ordering::Release);
            self.count.add(-1);
            self.revoked.increment();
        }
        count
    }

    /// Takes one lease off the list; false if it was not on it any more.
    fn end(&self, ended: &Arc<Granted>) -> bool {
        let mut granted = self.granted.lock();
        let place = granted.iter().position(|lease| Arc::ptr_eq(lease, ended));
        if let Some(place) = place {
            granted.swap_remove(place);
            self.count.add(-1);
        }
        place.is_some()
    }
}

impl CommitLease {
    /// The leased state.
    pub fn generation(&self) -> Generation {
        self.granted.generation
    }

    /// The superblocks of the state, by device number.
    pub fn superblocks(&self) -> &[Superblock] {
        &self.superblocks
    }

    /// The root tree of the state, for searches in the file system's [`crate::Trees`]: their cache tells
    /// blocks of different generations apart.
    pub fn root_tree(&self) -> Option<Arc<Root>> {
        let superblock = self.superblocks.first()?;
        let pointer = RootPointer {
            logical: superblock.root,
            generation: superblock.generation,
            level: superblock.root_level,
        };
        Some(Root::new(RootId::ROOT_TREE, pointer, Generation(0)))
    }

    /// The chunk tree of the state.
    pub fn chunk_tree(&self) -> Option<Arc<Root>> {
        let superblock = self.superblocks.first()?;
        let pointer = RootPointer {
            logical: superblock.chunk_root,
            generation: superblock.chunk_root_generation,
            level: superblock.chunk_root_level,
        };
        Some(Root::new(RootId::CHUNK_TREE, pointer, Generation(0)))
    }

    /// Whether all that was read until now is of the leased state. Asked after reading, and before an error
    /// met on the way is believed.
    ///
    /// # Errors
    /// [`LeaseRevoked`].
    pub fn confirm(&self) -> Result<(), LeaseRevoked> {
        if self.granted.revoked.load(Ordering::Acquire) {
            return Err(LeaseRevoked { generation: self.generation() });
        }
        Ok(())
    }
}

impl Drop for CommitLease {
    fn drop(&mut self) {
        if self.leases.end(&self.granted)
            && let Some(observer) = self.observer.upgrade()
        {
            observer.lease_ended();
        }
    }
}

#[cfg(test)]
mod tests {
    use vlinder_base::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl LeaseObserver for Count {
        fn lease_ended(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn extents_are_needed_by_leases_from_birth_to_end() {
        let (registry, count) = (Registry::new(), Arc::new(Count::default()));
        let leases = Leases::new(&registry);
        let observer: Arc<dyn LeaseObserver> = Arc::clone(&count) as _;
        let state = |generation| {
            vec![Superblock { generation: Generation(generation), ..Superblock::decode(&[0; 4096]).unwrap() }]
        };
        let lease = |generation| leases.grant(state(generation), Arc::downgrade(&observer));
        let needing = |first, last| leases.needing(Generation(first), Generation(last));
        assert_eq!(needing(0, u64::MAX), None);
        let (old, middle, again, new) = (lease(5), lease(8), lease(8), lease(11));
        assert_eq!(needing(5, 11), Some((Generation(5), Generation(11))));
        assert_eq!(needing(6, 10), Some((Generation(8), Generation(8))));
        assert_eq!(needing(9, 10), None);
        drop(middle);
        assert_eq!(needing(6, 10), Some((Generation(8), Generation(8))));
        drop(again);
        assert_eq!(needing(6, 10), None);
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert_eq!(leases.revoke_all(), 2);
        assert_eq!(old.confirm(), Err(LeaseRevoked { generation: Generation(5) }));
        assert_eq!(new.confirm(), Err(LeaseRevoked { generation: Generation(11) }));
        let fresh = lease(11);
        assert_eq!(fresh.confirm(), Ok(()));
        drop((old, new));
        assert_eq!(count.0.load(Ordering::Relaxed), 2, "who revoked them knows");
        assert_eq!(needing(0, u64::MAX), Some((Generation(11), Generation(11))));
    }
}
