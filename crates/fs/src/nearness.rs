//! How near the file system is to full, as far as writers are concerned.
//!
//! The engine says how many bytes it can still promise
//! ([`room_for_writers`](crate::Maintenance::room_for_writers) is the one place that asks it). Here is what
//! follows from that: whether a writer would get any room now.
//!
//! Invariant: a writer is refused only after everything that could make room was tried: writing out what is
//! unflushed, since it takes less in the end than is promised to it, and a commit, which frees what was
//! dropped ([`make_room`]).

use vlinder_base::sync::Arc;
use vlinder_data::{make_room, owns_space};
use vlinder_transaction::{EngineError, ReservedData};

use crate::Result;
use crate::file::FileContent;
use crate::inode::Inode;

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

impl FileContent<'_> {
    /// What a writer of a file would find now, after what may make room was tried.
    ///
    /// # Errors
    /// [`Refusal::ReadOnly`](crate::Refusal::ReadOnly), [`EngineError::HostFull`]; what flushing, committing
    /// or reading the file's items met.
    pub fn prospect_of_writer(&self, inode: &Arc<Inode>) -> Result<Prospect> {
        self.rights().check_file_writable(inode)?;
        self.maintenance().check_host_room()?;
        let sector = u64::from(self.engine().sector_size());
        if self.has_room_for(sector)? {
            return Ok(Prospect::Room);
        }
        // Its own bytes in memory will take a part of its own space.
        let wanted = inode.data().unstored_bytes().saturating_add(sector);
        if owns_space(self.store(), inode.node(), wanted)? {
            return Ok(Prospect::OwnSpace);
        }
        let made = make_room(self.store())? && self.has_room_for(sector)?;
        Ok(if made { Prospect::Room } else { Prospect::None })
    }

    /// Whether so many bytes of data could be promised now.
    fn has_room_for(&self, bytes: u64) -> Result<bool> {
        match self.engine().reserve_data(ReservedData::written(bytes, 1)) {
            Ok(_) => Ok(true),
            Err(EngineError::NoSpace { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
