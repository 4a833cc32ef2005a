//! What a request of the kernel is and how it is answered, independent of what carries it.
//!
//! A *transport* reads requests from the kernel in threads of its own, calls a [`Service`] for each, and
//! sends what that returns. A *notifier* sends the kernel what it did not ask for. There is one transport,
//! [`fuser`]; another has to bring the same two things and nothing above changes.

mod attendance;
mod bystander;
pub mod fuser;
mod locality;
mod notifier;
mod requests;
mod service;
mod settings;
mod values;

pub use self::notifier::Notifier;
pub use self::service::{
    AttributeService, DirectoryService, ExtendedAttributeService, FileService, NameService, Service,
};
pub use self::settings::{LARGEST_TRANSFER, Settings};
pub use self::values::{
    AttributeChanges, Deferred, Entry, EntrySink, FilePosition, HandleNumber, ListedName, NameSink,
    NodeAttributes, NodeNumber, Opened, OpenedDirectory, Reply, Requester, SeekFor, SetTime, Statistics,
    Time, WriteOrigin,
};
