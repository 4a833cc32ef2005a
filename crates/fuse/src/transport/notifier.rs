//! What the kernel is told without having asked.

use std::io;

use super::values::NodeNumber;

/// Tells the kernel what it did not ask for. But for [`invalidate_attributes`](Self::invalidate_attributes),
/// each call may wait until other requests are answered, so never from a thread that answers them and never
/// with a lock held.
pub trait Notifier: Send + Sync {
    /// Writes dirty pages from `offset` to the end back, and forgets these pages and the attributes.
    ///
    /// # Errors
    /// The connection is broken. A file that the kernel does not know is no error.
    fn invalidate_data(&self, node: NodeNumber, offset: u64) -> io::Result<()>;
    /// As [`invalidate_data`](Self::invalidate_data), of so many bytes; 0 for all to the end.
    ///
    /// # Errors
    /// As there.
    fn invalidate_range(&self, node: NodeNumber, offset: u64, length: u64) -> io::Result<()>;
    /// Forgets the attributes and ACLs. Never waits.
    ///
    /// # Errors
    /// As there.
    fn invalidate_attributes(&self, node: NodeNumber) -> io::Result<()>;
    /// Forgets what a name stands for, or that it does not exist.
    ///
    /// # Errors
    /// As there.
    fn invalidate_entry(&self, parent: NodeNumber, name: &[u8]) -> io::Result<()>;
}
