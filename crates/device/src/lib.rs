//! Where the bytes of a volume lie: [`Device`], a trait of five calls, and its implementations over files,
//! block devices and memory, and a window on a part of one.
//!
//! This crate must not know what the bytes mean: no superblock, no block size, no checksum.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
//!
//! A device takes *batches* of requests ([`Device::submit`]) and gives a [`Ticket`] for each; requests of a
//! batch may run in any order and at the same time. A completed write is in the device's cache only, unless
//! it was asked to be [`Durability::Durable`] or a later [`Device::flush`] returned without an error.

mod checksum_question;
mod device;
mod error;
mod file;
mod host_identity;
mod kept_writes;
mod lock_holder;
mod memory;
mod mount_name;
mod mounted;
mod read_only;
mod request;
mod temporary;
#[cfg(test)]
mod tests;
mod ticket;
mod window;

pub use checksum_question::{CHECKSUM_QUESTION_COMMAND, ask_for_checksums};
pub use device::{Description, Device, DeviceExt, DeviceKind};
pub use error::{DeviceError, DeviceErrorKind, Operation};
pub use file::{Backend, FileDevice, LockMode, OpenOptions};
pub use host_identity::HostIdentity;
pub use lock_holder::LockHolder;
pub use memory::MemoryDevice;
pub use mount_name::{MOUNT_NAME_BYTES, MOUNT_NAME_COMMAND, ask_mount_name, encode_mount_name};
pub use mounted::{KernelMount, kernel_mount};
pub use read_only::ReadOnlyDevice;
pub use request::{Completion, Data, Durability, Request};
pub use temporary::TemporaryDevice;
pub use ticket::{Completer, Ticket};
pub use window::DeviceWindow;
