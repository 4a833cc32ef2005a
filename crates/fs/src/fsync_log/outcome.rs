//! How fsyncs end: by a log, by a commit in its place, or with an error; and a count of each.

use vlinder_base::metrics::{Counter, Registry, Unit};
use vlinder_base::sync::Arc;
use vlinder_transaction::{LogError, NoLog};

use crate::FsError;

/// Why an fsync commits instead of writing a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FullCommit {
    /// `-o notreelog`.
    TurnedOff,
    /// The subvolume was made in this transaction, or is deleted: a replay does not know it.
    Subvolume,
    /// A name of a subvolume came to or went from the directory, or it is a name that the inode got or lost.
    SubvolumeName,
    /// A file came out of a directory that is gone since.
    DirectoryGone,
    /// The log can't be written, or can't hold it.
    Log(NoLog),
    /// Building the log met an error. A commit does without what could not be read, or meets it, too.
    Failed,
}

/// An fsync that ends otherwise than with a log.
pub(super) enum Unlogged {
    Commit(FullCommit),
    Error(FsError),
}

impl From<FullCommit> for Unlogged {
    fn from(reason: FullCommit) -> Self {
        Self::Commit(reason)
    }
}

impl From<FsError> for Unlogged {
    fn from(error: FsError) -> Self {
        tracing::warn!(%error, "the fsync log could not be built; a commit is made instead");
        Self::Commit(FullCommit::Failed)
    }
}

impl From<LogError> for Unlogged {
    fn from(error: LogError) -> Self {
        match error {
            LogError::NoLog(reason) => Self::Commit(FullCommit::Log(reason)),
            LogError::Engine(error) => Self::Error(error.into()),
        }
    }
}

/// What fsyncs came to.
pub(crate) struct FsyncMetrics {
    pub(super) syncs: Arc<Counter>,
    full_commits: Arc<Counter>,
    turned_off: Arc<Counter>,
    subvolume: Arc<Counter>,
    subvolume_name: Arc<Counter>,
    directory_gone: Arc<Counter>,
    new_chunk: Arc<Counter>,
    no_space: Arc<Counter>,
    too_large: Arc<Counter>,
    failed: Arc<Counter>,
}

impl FsyncMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let count = |name, help| registry.counter(name, help, Unit::Count);
        Self {
            syncs: count("fsync_log.syncs", "fsyncs of files and directories"),
            full_commits: count("fsync_log.full_commits", "fsyncs that committed instead of writing a log"),
            turned_off: count("fsync_log.full_commits_turned_off", "of these, because of notreelog"),
            subvolume: count(
                "fsync_log.full_commits_subvolume",
                "of these, in a subvolume made since the last commit, or deleted",
            ),
            subvolume_name: count(
                "fsync_log.full_commits_subvolume_name",
                "of these, of a directory in which a subvolume's name came or went, or of what took or gave such a name",
            ),
            directory_gone: count(
                "fsync_log.full_commits_directory_gone",
                "of these, after something left a directory that was then removed",
            ),
            new_chunk: count("fsync_log.full_commits_new_chunk", "of these, because of a new chunk"),
            no_space: count("fsync_log.full_commits_no_space", "of these, for lack of room for the log"),
            too_large: count("fsync_log.full_commits_too_large", "of these, because the log was too large"),
            failed: count(
                "fsync_log.full_commits_failed",
                "of these, because an error was met while the log was built",
            ),
        }
    }

    pub(super) fn count(&self, reason: FullCommit) {
        self.full_commits.increment();
        match reason {
            FullCommit::TurnedOff => &self.turned_off,
            FullCommit::Subvolume => &self.subvolume,
            FullCommit::SubvolumeName => &self.subvolume_name,
            FullCommit::DirectoryGone => &self.directory_gone,
            FullCommit::Log(NoLog::NewChunk) => &self.new_chunk,
            FullCommit::Log(NoLog::NoSpace) => &self.no_space,
            FullCommit::Log(NoLog::TooLarge) => &self.too_large,
            FullCommit::Log(NoLog::Broken) | FullCommit::Failed => &self.failed,
        }
        .increment();
    }
}
