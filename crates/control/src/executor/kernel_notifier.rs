//! What a mount's server tells the kernel and asks it for.

use std::io;

use vlinder_fs::{InodeId, Refusal};

/// How often what finds no room is tried while files are being deleted.
const MAX_ATTEMPTS: usize = 64;

/// What the kernel has cached of a mount, and how it hears of changes that did not pass through it.
pub trait KernelNotifier: Send + Sync {
    /// Makes the kernel hand over all its dirty pages; they have arrived when this returns. Called without
    /// any lock. What became of a file's bytes is that file's to tell, at fsync or close.
    ///
    /// # Errors
    /// What the kernel met; some pages may not have arrived.
    fn write_back(&self) -> io::Result<()>;
    /// Tries again to store what has arrived and found no room.
    ///
    /// # Errors
    /// Once, of bytes that are not stored and of which nobody was told.
    fn store_the_rest(&self) -> io::Result<()>;
    /// A name in a directory came, went, or stands for something else.
    fn entry_changed(&self, directory: InodeId, name: &[u8]);
    /// Attributes of a file changed.
    fn attributes_changed(&self, inode: InodeId);
    /// What came from the kernel's cache and found no room.
    fn unplaced(&self) -> Unplaced;
    /// How many files without names were deleted so far because the kernel forgot them.
    fn deletions(&self) -> u64;
    /// Whether the kernel shows the file system read-only to a process (0 for one that is not known) that
    /// came by way of the mount of this number, or by any where none is named.
    fn is_read_only(&self, process: i32, mount: Option<u64>) -> bool;
    /// Waits until more are deleted than `before`, where some are about to be; whether that is so.
    fn wait_for_deletions(&self, before: u64) -> bool;
}

/// Bytes from the kernel's cache that found no room in the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unplaced {
    /// In memory, and tried again.
    pub held_bytes: u64,
    /// There were too many to be kept. The process that wrote them is told at fsync.
    pub lost_bytes: u64,
}

/// Does what may find no room, and again where files that were removed are deleted meanwhile: the user who
/// removed them counts on their room.
pub(super) fn with_room<T>(
    notifier: &dyn KernelNotifier,
    mut attempt: impl FnMut() -> vlinder_fs::Result<T>,
) -> vlinder_fs::Result<T> {
    for _ in 0..MAX_ATTEMPTS {
        let before = notifier.deletions();
        match attempt() {
            Err(error)
                if error.refusal() == Some(Refusal::NoSpace) && notifier.wait_for_deletions(before) => {}
            other => return other,
        }
    }
    attempt()
}
