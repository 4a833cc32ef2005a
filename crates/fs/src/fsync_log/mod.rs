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
mod outcome;

pub(crate) use journal::{Journal, NamePlace, Note};
pub(crate) use outcome::FsyncMetrics;

use vlinder_base::sync::Arc;
use vlinder_format::inode::FileType;
use vlinder_transaction::{Handle, LogTicket, Reservation};

use self::outcome::{FullCommit, Unlogged};
use crate::Result;
use crate::inode::Inode;
use crate::maintenance::Maintenance;

impl Maintenance {
    /// Makes a file or directory durable, names included (fsync).
    ///
    /// # Errors
    /// What writing met: nothing can be said then of what was written since the last success.
    pub fn sync_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        let metrics = self.fsync_metrics();
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
                vlinder_data::flush(self.store(), inode.node())
                    .map_err(|error| Unlogged::Error(error.into()))?;
            }
            if !self.inodes().has_log() {
                return Err(FullCommit::TurnedOff.into());
            }
            // The file's items stay as they are while they are logged.
            let _extents = vlinder_data::lock_settled(self.store(), inode.node());
            let begun = self.store().engine().begin(Reservation::accepted(0));
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
        let plan = closure::plan(self.store().engine(), subvolume, &record, inode)?;
        let mut edit = handle.edit_log()?;
        content::write(self.inodes(), subvolume, &mut record, &mut edit, inode, &plan)?;
        let ticket = edit.finish();
        record.note_logged(number, item, ticket);
        Ok(Some(ticket))
    }
}
