//! Kinds of changes, and the most that one of each kind took of what it was promised.

use vlinder_base::metrics::{Gauge, Registry, Unit};
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};

/// What a handle does, to tell the kinds apart in what they take of their promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChangeKind {
    /// Names made, removed, renamed.
    Names,
    /// Attributes, owners, modes, times.
    Attributes,
    /// Data entered into files.
    Flush,
    /// Files made shorter, or emptied.
    Truncation,
    /// Space preallocated, holes, zeroed ranges.
    Preallocation,
    /// Extents shared between files.
    Clone,
    /// Subvolumes and snapshots made, named, deleted.
    Subvolume,
    /// Blocks of deleted trees freed.
    TreeDeletion,
    /// The fsync log replayed, by a file system that nobody else uses yet. What that takes is not known
    /// before, and a full file system must be openable, so the replay alone takes more than it was promised.
    LogReplay,
    /// The commit itself.
    Commit,
    /// Anything else.
    #[default]
    Other,
}

impl ChangeKind {
    const ALL: [(Self, &'static str); 11] = [
        (Self::Names, "space.most_used_permille.names"),
        (Self::Attributes, "space.most_used_permille.attributes"),
        (Self::Flush, "space.most_used_permille.flush"),
        (Self::Truncation, "space.most_used_permille.truncation"),
        (Self::Preallocation, "space.most_used_permille.preallocation"),
        (Self::Clone, "space.most_used_permille.clone"),
        (Self::Subvolume, "space.most_used_permille.subvolume"),
        (Self::TreeDeletion, "space.most_used_permille.tree_deletion"),
        (Self::LogReplay, "space.most_used_permille.log_replay"),
        (Self::Commit, "space.most_used_permille.commit"),
        (Self::Other, "space.most_used_permille.other"),
    ];
}

/// The most that a change of each kind took of its promise, in thousandths.
pub(crate) struct MostUsed {
    kinds: Vec<(AtomicU64, Arc<Gauge>)>,
}

impl MostUsed {
    pub(crate) fn new(registry: &Registry) -> Self {
        let help = "the most that a change of this kind took of the space promised to it, in thousandths";
        let gauge = |(_, name): &(ChangeKind, &'static str)| {
            (AtomicU64::new(0), registry.gauge(name, help, Unit::Count))
        };
        Self { kinds: ChangeKind::ALL.iter().map(gauge).collect() }
    }

    /// A change took so many blocks of so many.
    pub(crate) fn note(&self, kind: ChangeKind, used_blocks: u64, promised_blocks: u64) {
        let share = used_blocks.saturating_mul(1000) / promised_blocks.max(1);
        let Some((most, gauge)) = self.kinds.get(kind as usize) else { return };
        if most.fetch_max(share, Ordering::Relaxed) < share {
            gauge.set(i64::try_from(share).unwrap_or(i64::MAX));
        }
    }
}
