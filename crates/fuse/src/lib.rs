//! The mount: adapts the kernel's requests and the file system's errors to one another.
//!
//! This crate must not know the command line, and holds no file-system logic: what a request means is
//! `vlinder-fs`'s.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
//!
//! Reading path: [`session`] (a mount's life), [`options`], `mountpoint` (how the kernel is told), then the
//! requests: [`transport`] says what a request is and how it is answered, [`service`] answers them, with an
//! object for each family of requests, `numbers` gives files their inode numbers. `notifier` tells the kernel
//! what the control socket changed.

mod error;
mod mountpoint;
mod notifier;
mod numbers;
mod option_table;
pub mod options;
mod remount;
pub mod service;
pub mod session;
pub mod transport;
mod watcher;

pub use error::{HelperCause, MountError};
pub use option_table::MOUNT_OPTIONS;
pub use options::MountOptions;
pub use remount::remount;
pub use session::{Session, mount, mount_filesystem};
