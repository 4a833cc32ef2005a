//! Opens and closes files.

use vlinder_base::sync::Arc;
use vlinder_fs::{ChattrFlags, Inode};

use super::blocks::Blocks;
use super::change_times::ChangeTimes;
use super::convert::errno;
use super::gate::Gate;
use super::handles::FileAccess;
use super::kept_pages::KeptPages;
use super::kernel_names::KernelNames;
use super::mounted::Mounted;
use super::parts::Parts;
use super::unplaced::UnplacedBytes;
use crate::transport::{HandleNumber, Opened, Reply};

const O_ACCMODE: i32 = 0o3;
const O_RDONLY: i32 = 0;
const O_WRONLY: i32 = 1;
const O_TRUNC: i32 = 0o1000;
const O_APPEND: i32 = 0o2000;

/// What begins when a file is opened and ends when it is closed.
pub(super) struct OpenFiles {
    mounted: Arc<Mounted>,
    gate: Arc<Gate>,
    blocks: Arc<Blocks>,
    unplaced: Arc<UnplacedBytes>,
    kept_pages: Arc<KeptPages>,
    change_times: Arc<ChangeTimes>,
    kernel_names: KernelNames,
}

impl OpenFiles {
    /// Made of these parts.
    pub(super) fn new(parts: &Parts) -> Self {
        Self {
            mounted: parts.mounted.clone(),
            gate: parts.gate.clone(),
            blocks: parts.blocks.clone(),
            unplaced: parts.unplaced.clone(),
            kept_pages: parts.kept_pages.clone(),
            change_times: parts.change_times.clone(),
            kernel_names: parts.kernel_names.clone(),
        }
    }

    /// Opens a file. The kernel has judged the access, and with the writeback cache reads and writes through
    /// handles of either kind, so all that is asked here is whether the file is still there and takes
    /// changes.
    pub(super) fn open(&self, inode: &Arc<Inode>, flags: i32) -> Reply<Opened> {
        let writes = flags & O_ACCMODE != O_RDONLY || flags & O_TRUNC != 0;
        if writes {
            let filesystem = self.mounted.filesystem();
            filesystem.rights().check_writable(inode.subvolume()).map_err(|error| errno(&error))?;
            let checked = ChattrFlags::of(filesystem, inode).check_writing(flags & O_APPEND != 0);
            checked.map_err(|error| errno(&error))?;
        }
        self.hold(inode, flags & O_ACCMODE != O_WRONLY, writes)
    }

    /// As [`open`](Self::open), for a file that was made for this.
    pub(super) fn open_new(&self, inode: &Arc<Inode>, flags: i32) -> Reply<Opened> {
        let access = flags & O_ACCMODE;
        self.hold(inode, access != O_WRONLY, access != O_RDONLY)
    }

    fn hold(&self, inode: &Arc<Inode>, reads: bool, writes: bool) -> Reply<Opened> {
        let open = self.mounted.filesystem().files().hold(inode).map_err(|error| errno(&error))?;
        let direct = writes && self.gate.goes_past_the_cache(inode);
        let access = FileAccess { reads, writes, past_cache: direct };
        let handle = self.mounted.handles().insert_file(open, access, self.gate.told_at_opening());
        if access.writes {
            self.gate.note_opened(inode);
        }
        Ok(Opened { handle, direct })
    }

    /// The last user of an open file is gone.
    pub(super) fn close(&self, handle: HandleNumber) {
        let handles = self.mounted.handles();
        let file = (!self.unplaced.is_empty()).then(|| handles.file(handle).ok()).flatten();
        let Some(id) = handles.remove(handle) else { return };
        let has_writers = handles.is_written(id);
        if !has_writers {
            self.kept_pages.forget(id);
        }
        if !self.mounted.has_writeback() {
            return;
        }
        self.mounted.nodes().note_close(id);
        self.change_times.show(id);
        if !has_writers {
            self.gate.forget_writer(id);
            self.blocks.forget(id);
            self.unplaced.note_writer_told(id);
            if let Some(file) = file.filter(|file| file.writes)
                && self.unplaced.drop_refused_writes(file.open.inode())
            {
                // The kernel still has these bytes, and the size with them.
                self.kernel_names.forget_size(id);
            }
        }
    }
}
