//! How near the file system is to full, as far as writers are concerned.
//!
//! The engine says how many bytes it can still promise ([`Filesystem::room_for_writers`] is the one place
//! that asks it). Here is what follows from that: whether a writer would get any room now, and what is tried
//! before a writer is refused.
//!
//! Invariants:
//! 1. A writer is refused only after everything that could make room was tried: writing out what is
//!    unflushed, since it takes less in the end than is promised to it, and a commit, which frees what was
//!    dropped ([`Filesystem::make_room`]).
//! 2. What was tried in vain is not tried again before something has changed: a file system that stays full
//!    makes no commit for each write that fails ([`Attempts::is_vain`]).

use vlinder_base::sync::{Arc, Mutex};
use vlinder_transaction::{EngineError, PromisedData};

use crate::data;
use crate::drops::Drops;
use crate::inode::Inode;
use crate::{Filesystem, Refusal, Result};

/// What a writer of a file would find now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prospect {
    /// There is room for at least one sector.
    Room,
    /// There is no room but what the file has: preallocated space that was never written, or extents that it
    /// overwrites where they lie.
    OwnSpace,
    /// There is none.
    None,
}

/// What the last attempt to make room left behind.
#[derive(Default)]
pub(crate) struct Attempts {
    left: Mutex<Option<Signs>>,
    drops: Drops,
}

/// Amounts that differ whenever another attempt could succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signs {
    unflushed_bytes: u64,
    pinned_bytes: u64,
    room_bytes: u64,
    drops: u64,
}

impl Attempts {
    fn is_vain(&self, signs: Signs) -> bool {
        *self.left.lock() == Some(signs)
    }

    /// The counter of what is dropped.
    pub(crate) fn drops(&self) -> &Drops {
        &self.drops
    }

    fn note(&self, signs: Signs) {
        *self.left.lock() = Some(signs);
    }
}

impl Filesystem {
    /// Bytes that ordinary writers may still be promised, beside what was promised already. It counts nothing
    /// that only a commit would free.
    #[must_use]
    pub fn room_for_writers(&self) -> u64 {
        if self.engine().is_host_full() {
            return 0;
        }
        let free = self.engine().room_for_data();
        let promised = self.shared().write_back.bytes();
        let left = free.saturating_sub(promised.saturating_add(metadata_of(promised)));
        left.saturating_sub(metadata_of(left))
    }

    /// Bytes that the next commit frees.
    ///
    /// # Errors
    /// What learning how full the file system is met.
    pub fn bytes_freed_by_commit(&self) -> Result<u64> {
        let report = self.engine().space()?;
        Ok(report.kinds.iter().map(|kind| kind.pinned_bytes).sum())
    }

    /// What a writer of a file would find now, after what may make room was tried.
    ///
    /// # Errors
    /// [`Refusal::ReadOnly`], [`EngineError::HostFull`]; what flushing, committing or reading the file's
    /// items met.
    pub fn prospect_of_writer(&self, inode: &Arc<Inode>) -> Result<Prospect> {
        self.check_file_writable(inode)?;
        self.check_host_room()?;
        let sector = u64::from(self.sector_size());
        if self.has_room_for(sector)? {
            return Ok(Prospect::Room);
        }
        // Its own bytes in memory will take a part of its own space.
        let wanted = inode.data.unstored_bytes().saturating_add(sector);
        if data::owns_space(self, inode, wanted)? {
            return Ok(Prospect::OwnSpace);
        }
        let made = self.make_room()? && self.has_room_for(sector)?;
        Ok(if made { Prospect::Room } else { Prospect::None })
    }

    /// Whether so many bytes of data could be promised now.
    fn has_room_for(&self, bytes: u64) -> Result<bool> {
        match self.engine().promise_data(PromisedData::written(bytes, 1)) {
            Ok(_) => Ok(true),
            Err(EngineError::NoSpace { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Tries what may make room: writes out what is unflushed and commits. False where that was tried in vain
    /// before, and nothing has changed since.
    ///
    /// # Errors
    /// What flushing and committing met, but for a lack of room.
    pub(crate) fn make_room(&self) -> Result<bool> {
        let attempts = &self.shared().attempts_to_make_room;
        let before = self.signs_of_room()?;
        if attempts.is_vain(before) {
            return Ok(false);
        }
        for done in [data::flush_all(self), self.engine().commit().map(drop).map_err(Into::into)] {
            match done {
                // A file that finds no room keeps its bytes; the others have been written out.
                Err(error) if error.refusal() == Some(Refusal::NoSpace) => {
                    tracing::debug!(%error, "making room");
                }
                other => other?,
            }
        }
        attempts.note(self.signs_of_room()?);
        Ok(true)
    }

    fn signs_of_room(&self) -> Result<Signs> {
        Ok(Signs {
            unflushed_bytes: self.shared().write_back.bytes(),
            pinned_bytes: self.bytes_freed_by_commit()?,
            room_bytes: self.engine().room_for_data(),
            drops: self.shared().attempts_to_make_room.drops.count(),
        })
    }
}

/// Metadata that so much data take at worst when they are flushed.
fn metadata_of(bytes: u64) -> u64 {
    bytes / 4
}
