//! How a transport is set up.

use std::time::Duration;

/// How a transport is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Threads that answer.
    pub threads: usize,
    /// The kernel keeps written pages for a while.
    pub writeback: bool,
    /// The kernel drops set-id bits of files that change itself.
    pub kernel_kills_privileges: bool,
    /// Permissions go by ACLs as well.
    pub acls: bool,
    /// Each request is one of root's, whichever user it is of.
    pub acts_as_root: bool,
    /// How long the kernel may remember names and attributes. It hears of every change, so this is long.
    pub validity: Duration,
}

/// The largest write, and the largest read, in bytes.
pub const LARGEST_TRANSFER: u32 = 1 << 20;
