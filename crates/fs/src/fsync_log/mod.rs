//! fsync: a file or directory becomes durable by a log, or where that can't hold it by a commit.
//!
//! The log is a function of three things: the committed state, the state now, and a set of inodes. An fsync
//! adds inodes to the set ([`closure`]: the one that is meant, and those without which the replay of its
//! names would lose or invent something), and brings the log's items of the set up to date ([`content`]).
//! What changed since the commit is known from the [`journal`]. Roots, blocks and their way to the devices
//! are `transaction`'s ([`vlinder_transaction::LogEdit`]).

mod closure;
mod content;
mod journal;

pub(crate) use journal::{Journal, Named, Note};

use vlinder_base::metrics::{Counter, Registry, Unit};
use vlinder_base::sync::Arc;
use vlinder_format::inode::FileType;
use vlinder_transaction::{Handle, LogError, LogTicket, NoLog, Reservation};

use crate::inode::Inode;
use crate::{Filesystem, FsError, Result, data};

/// Why an fsync commits instead of writing a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FullCommit {
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
enum Unlogged {
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
    syncs: Arc<Counter>,
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

    fn count(&self, reason: FullCommit) {
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

impl Filesystem {
    /// Makes a file or directory durable, names included (fsync).
    ///
    /// # Errors
    /// What writing met: nothing can be said then of what was written since the last success.
    pub fn sync_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        let metrics = &self.shared().fsync;
        metrics.syncs.increment();
        match self.sync_by_log(inode) {
            Ok(()) => Ok(()),
            Err(Unlogged::Error(error)) => Err(error),
            Err(Unlogged::Commit(reason)) => {
                metrics.count(reason);
                tracing::debug!(inode = %inode.id(), ?reason, "fsync commits");
                self.commit()?;
                Ok(())
            }
        }
    }

    /// Writes a log. The transaction's handle is held until it is durable, so that no commit comes between.
    fn sync_by_log(&self, inode: &Arc<Inode>) -> Result<(), Unlogged> {
        let (handle, ticket) = {
            let _operation = inode.operation.write();
            if inode.file_type() == FileType::Regular {
                data::flush::flush(self.store(), inode.node()).map_err(Unlogged::Error)?;
            }
            if self.options().no_tree_log {
                return Err(FullCommit::TurnedOff.into());
            }
            // The file's items stay as they are while they are logged.
            let _extents = data::flush::lock_settled(self.store(), inode.node());
            let begun = self.engine().begin(Reservation::accepted(0));
            let handle = begun.map_err(|error| Unlogged::Error(error.into()))?;
            match self.log_inode(&handle, inode)? {
                Some(ticket) => (handle, ticket),
                None => return Ok(()),
            }
        };
        Ok(handle.sync_log(ticket)?)
    }

    /// Puts all that an fsync of an inode has to make durable into the log; none where the last commit has
    /// it.
    fn log_inode(&self, handle: &Handle<'_>, inode: &Arc<Inode>) -> Result<Option<LogTicket>, Unlogged> {
        let subvolume = inode.subvolume();
        let generation = handle.generation();
        let made_in = subvolume.tree().item().current_extension().map(|item| item.creation_transaction);
        if subvolume.is_deleted() || made_in == Some(generation) {
            return Err(FullCommit::Subvolume.into());
        }
        if inode.state().deleted || inode.is_placeholder() {
            return Ok(None);
        }
        // What the last commit has is durable once that is published.
        handle.wait_until_published().map_err(|error| Unlogged::Error(error.into()))?;
        let journal = subvolume.journal().ok_or(FullCommit::TurnedOff)?;
        let _names = journal.gate.write();
        let mut record = journal.of(generation);
        let number = inode.number();
        let item = || inode.state().encode();
        let is_regular = inode.file_type() == FileType::Regular;
        if is_regular && let Some(ticket) = record.unchanged(number, item) {
            return Ok(Some(ticket));
        }
        let changed = {
            let state = inode.state();
            state.dirty || state.item.transaction >= generation
        };
        if !changed && !record.inodes.contains_key(&number) && !record.names.contains_key(&number) {
            return Ok(None);
        }
        let plan = closure::plan(self, subvolume, &record, inode)?;
        let mut edit = handle.edit_log()?;
        content::write(self, subvolume, &mut record, &mut edit, inode, &plan)?;
        let ticket = edit.finish();
        record.note_logged(number, item, ticket);
        Ok(Some(ticket))
    }
}
