//! What the kernel is sent without having asked.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use ::fuser::INodeNo;

use crate::transport::{NodeNumber, Notifier};

/// Sends by the connection of a session.
pub(super) struct FuserNotifier {
    inner: ::fuser::Notifier,
}

impl FuserNotifier {
    pub(super) fn new(inner: ::fuser::Notifier) -> Self {
        Self { inner }
    }
}

/// A connection that has ended has nothing cached.
fn unless_ended(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOTCONN.raw_os_error()) => Ok(()),
        other => other,
    }
}

impl Notifier for FuserNotifier {
    fn invalidate_data(&self, node: NodeNumber, offset: u64) -> io::Result<()> {
        self.invalidate_range(node, offset, 0)
    }

    fn invalidate_range(&self, node: NodeNumber, offset: u64, length: u64) -> io::Result<()> {
        let signed = |value| i64::try_from(value).unwrap_or(i64::MAX);
        unless_ended(self.inner.inval_inode(INodeNo(node.0), signed(offset), signed(length)))
    }

    fn invalidate_attributes(&self, node: NodeNumber) -> io::Result<()> {
        unless_ended(self.inner.inval_inode(INodeNo(node.0), -1, 0))
    }

    fn invalidate_entry(&self, parent: NodeNumber, name: &[u8]) -> io::Result<()> {
        unless_ended(self.inner.inval_entry(INodeNo(parent.0), OsStr::from_bytes(name)))
    }
}
