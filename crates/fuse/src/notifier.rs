//! What the control socket changes is told to the kernel, and what it must see is fetched from there.

use std::io;

use rustix::fs::{Mode, OFlags};
use vlinder_base::sync::Arc;
use vlinder_control::unmount::HeldMount;
use vlinder_control::{KernelNotifier, Unplaced, mounts};
use vlinder_fs::InodeId;

use crate::mountpoint::OwnMount;
use crate::service::MountService;
use crate::transport::Notifier;

/// The kernel's side of a mount.
pub(crate) struct MountNotifier {
    pub(crate) service: Arc<MountService>,
    pub(crate) transport: Arc<dyn Notifier>,
    pub(crate) own: OwnMount,
}

impl MountNotifier {
    fn warn(&self, result: io::Result<()>) {
        if let Err(error) = result {
            tracing::warn!(%error, "the kernel could not be told of a change");
        }
    }
}

impl KernelNotifier for MountNotifier {
    /// The kernel remembers errors of earlier write-backs until a program asks, also errors that the server
    /// never gave (a signal that ended the kernel's own request). Where none of those is met again, all has
    /// come.
    fn write_back(&self) -> io::Result<()> {
        self.fetch().or_else(|error| {
            tracing::info!(%error, "the kernel remembers a failed write-back of some file; it is asked again");
            self.fetch()
        })
    }

    fn store_the_rest(&self) -> io::Result<()> {
        Ok(self.service.place_for_sync()?)
    }

    fn entry_changed(&self, directory: InodeId, name: &[u8]) {
        self.warn(self.transport.invalidate_entry(self.service.node(directory), name));
    }

    fn deletions(&self) -> u64 {
        self.service.deletions()
    }

    fn wait_for_deletions(&self, before: u64) -> bool {
        self.service.wait_for_deletions(before)
    }

    fn unplaced(&self) -> Unplaced {
        self.service.unplaced()
    }

    fn is_read_only(&self, process: i32, mount: Option<u64>) -> bool {
        mounts::is_read_only_for(self.own.device, process, mount)
    }

    fn attributes_changed(&self, inode: InodeId) {
        self.warn(self.transport.invalidate_attributes(self.service.node(inode)));
        self.service.forget_in_kernel(inode);
    }
}

impl MountNotifier {
    /// syncfs(2) on the mount has the kernel hand over everything in large pieces, but it does not wait until
    /// the pieces have come. That the invalidation of a file does, so the files that are open for writing
    /// follow one by one; when the others were closed, all of theirs had come.
    fn fetch(&self) -> io::Result<()> {
        match synchronize(&self.own) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error()) => {
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // Which bytes found no room the server knows better: they may have found some since.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            Err(error) => return Err(error),
        }
        // One that fails keeps no other's bytes back.
        let mut fetched = Ok(());
        for node in self.service.written_files() {
            fetched = fetched.and(self.transport.invalidate_data(node, 0));
        }
        fetched
    }
}

/// Does nothing where the mount can't be reached: it was taken away, or lies under another. Whatever else
/// keeps it from being synced is told.
fn synchronize(own: &OwnMount) -> io::Result<()> {
    let Some(entry) = own.entry()? else { return Ok(()) };
    let place = match HeldMount::of(&entry).and_then(|held| held.root()) {
        Ok(place) => place,
        Err(refused) if refused.is_replaced() => return Ok(()),
        Err(refused) => return Err(io::Error::other(refused.message)),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::openat(&place, ".", flags, Mode::empty())?;
    rustix::fs::syncfs(&root)?;
    Ok(())
}
