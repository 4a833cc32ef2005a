//! Changes ranges of files without bytes of a program's: preallocation, holes, and copies.

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::data::Allocate;
use vlinder_fs::{ContentTimes, FileType};

use super::mounted::Mounted;
use super::parts::Parts;
use super::privileges::Privileges;
use super::unplaced::UnplacedBytes;
use crate::transport::{FilePosition, HandleNumber, Reply, Requester};

const FALLOC_FL_KEEP_SIZE: i32 = 0x01;
const FALLOC_FL_PUNCH_HOLE: i32 = 0x02;
const FALLOC_FL_ZERO_RANGE: i32 = 0x10;

/// Changes of ranges.
pub(super) struct RangeChanges {
    mounted: Arc<Mounted>,
    unplaced: Arc<UnplacedBytes>,
    privileges: Privileges,
}

impl RangeChanges {
    /// Made of these parts.
    pub(super) fn new(parts: &Parts) -> Self {
        Self {
            mounted: parts.mounted.clone(),
            unplaced: parts.unplaced.clone(),
            privileges: parts.privileges,
        }
    }

    /// fallocate(2).
    pub(super) fn allocate(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> Reply<()> {
        let what = match mode {
            0 => Allocate::Reserve { keep_size: false },
            FALLOC_FL_KEEP_SIZE => Allocate::Reserve { keep_size: true },
            mode if mode == FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE => Allocate::PunchHole,
            FALLOC_FL_ZERO_RANGE => Allocate::ZeroRange { keep_size: false },
            mode if mode == FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE => {
                Allocate::ZeroRange { keep_size: true }
            }
            _ => return Err(Errno::OPNOTSUPP),
        };
        let file = self.mounted.handles().file(handle)?;
        let inode = file.open.inode();
        let origin = self.origin();
        // A range that is preallocated must not hide older bytes that find their place later.
        let placed = self.unplaced.place(inode.id());
        let turn = self.unplaced.turn();
        let caller = self.privileges.changer(requester, inode);
        let allocated =
            self.mounted.filesystem().files().allocate_file(&caller, inode, what, offset, length, origin);
        if allocated.is_ok() && placed.is_err() && !matches!(what, Allocate::Reserve { .. }) {
            self.unplaced.drop_range(inode.id(), offset, offset.saturating_add(length));
        }
        drop(turn);
        self.mounted.note_change(inode, allocated).map(drop)
    }

    /// copy_file_range(2); returns how many bytes were copied.
    pub(super) fn copy(
        &self,
        requester: Requester,
        from: FilePosition,
        to: FilePosition,
        length: u64,
    ) -> Reply<u64> {
        let (source, target) = (self.mounted.inode(from.node)?, self.mounted.inode(to.node)?);
        if source.file_type() != FileType::Regular || target.file_type() != FileType::Regular {
            return Err(Errno::INVAL);
        }
        let origin = self.origin();
        // What the source lacks can't be copied.
        self.unplaced.place(source.id())?;
        let turn = self.unplaced.turn();
        let caller = self.privileges.changer(requester, &target);
        let copied = self.mounted.filesystem().files().copy_file_range(
            &caller,
            (&source, from.offset),
            (&target, to.offset),
            length,
            origin,
        );
        if let Ok(change) = &copied {
            self.unplaced.drop_range(target.id(), to.offset, to.offset.saturating_add(change.length_bytes));
        }
        drop(turn);
        self.mounted.note_change(&target, copied)
    }

    /// Of what the kernel hands over at once. With the writeback cache it keeps the times itself.
    fn origin(&self) -> vlinder_fs::WriteOrigin {
        let times = if self.mounted.has_writeback() { ContentTimes::ComeLater } else { ContentTimes::Move };
        vlinder_fs::WriteOrigin::OpenFile { times }
    }
}
