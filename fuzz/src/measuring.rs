//! What is told of the snapshots of an image that nobody can trust: their differences, new extents, and what
//! they take. An image that `vlinder check` accepts is measured without an error.

use vlinder_base::sync::Arc;
use vlinder_format::{Generation, ObjectId, RootId};
use vlinder_fs::{Filesystem, FsError, LeasedState};
use vlinder_snapshots::diff::{Comparison, DiffError, OldNew, diff};
use vlinder_snapshots::usage::{DeletionSet, UsageError, UsageReader, UsageTarget};
use vlinder_snapshots::{NamesError, find_new};

/// Subvolumes that are looked at.
const MAX_SUBVOLUMES: usize = 4;
/// What one image may have to tell: it is small, and what lies in circles is refused.
const MAX_TOLD: usize = 200_000;

/// What measuring met.
#[derive(Debug, thiserror::Error)]
pub enum MeasuringError {
    /// The file system.
    #[error(transparent)]
    Fs(#[from] FsError),
    /// Two subvolumes were compared.
    #[error(transparent)]
    Diff(#[from] DiffError),
    /// New extents were looked for.
    #[error(transparent)]
    Names(#[from] NamesError),
    /// What a subvolume takes.
    #[error(transparent)]
    Usage(#[from] UsageError),
}

impl MeasuringError {
    /// Whether only bytes of files are wrong, which nothing but their checksums tells.
    pub fn is_of_data(&self) -> bool {
        matches!(self, Self::Diff(DiffError::Content { .. }))
    }
}

/// Measures the first subvolumes of a file system in each way.
///
/// # Errors
/// The first that was met; the others were measured all the same.
///
/// # Panics
/// Where something has no end, or what is freed does not fit together.
pub fn measure(filesystem: &Filesystem) -> Result<(), MeasuringError> {
    let all = filesystem.subvolumes().all()?;
    let ids: Vec<RootId> = all.iter().map(|found| found.id).take(MAX_SUBVOLUMES).collect();
    let state = filesystem.lease()?;
    let mut first: Result<(), MeasuringError> = Ok(());
    let mut note = |result: Result<(), MeasuringError>| {
        if first.is_ok() {
            first = result;
        }
    };
    for old in &ids {
        for new in &ids {
            note(compare(&state, *old, *new));
        }
        let mut told = 0;
        let found = find_new(state.forest(), *old, Generation(0), |_| {
            told += 1;
            assert!(told < MAX_TOLD, "new extents of subvolume {old} have no end");
            Ok::<(), NamesError>(())
        });
        note(found.map(drop).map_err(Into::into));
    }
    note(usage(&state, &ids).map_err(Into::into));
    first
}

fn compare(state: &LeasedState, old: RootId, new: RootId) -> Result<(), MeasuringError> {
    let root = |id| state.forest().tree(id).map(|tree| Arc::clone(tree.root())).map_err(DiffError::from);
    let comparison = Comparison {
        forest: state.forest(),
        roots: OldNew { old: root(old)?, new: root(new)? },
        source: state.content_source()?,
        no_readahead: false,
    };
    let mut told = 0;
    diff(&comparison, |change| {
        told += 1;
        assert!(told < MAX_TOLD, "the differences between {old} and {new} have no end");
        assert_ne!(old, new, "a subvolume differs from itself: {change:?}");
        Ok::<(), DiffError>(())
    })?;
    Ok(())
}

fn usage(state: &LeasedState, ids: &[RootId]) -> Result<(), UsageError> {
    let mut reader = UsageReader::new(state.forest(), &|_| ())?;
    let (mut together, mut alone_bytes, mut largest) = (DeletionSet::new(), 0_u64, 0);
    for id in ids {
        let target = UsageTarget { root: *id, inode: ObjectId::FIRST_FREE, name: None };
        let mut told = 0;
        let listed = reader.list(&target, &mut |_| {
            told += 1;
            assert!(told < MAX_TOLD, "the files of subvolume {id} have no end");
            std::ops::ControlFlow::Continue(())
        });
        match listed {
            // Names may lie deeper than lines reach.
            Err(UsageError::PathTooLong { .. }) => {}
            listed => drop(listed?),
        }
        reader.summary(&target)?;
        let mut set = DeletionSet::new();
        set.add(state.forest(), &target)?;
        let freed = reader.freed(set, &mut |_| ())?.total_bytes();
        (alone_bytes, largest) = (alone_bytes.saturating_add(freed), freed.max(largest));
        together.add(state.forest(), &target)?;
    }
    let freed = reader.freed(together, &mut |_| ())?.total_bytes();
    assert!(freed >= largest, "all free {freed} bytes, and one of them {largest} (of {alone_bytes})");
    Ok(())
}
