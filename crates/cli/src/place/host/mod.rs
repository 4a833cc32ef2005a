//! Directories of the host. Names are looked up in an open directory, so that what lies above may be moved or
//! replaced meanwhile.

mod convert;
mod directory;
mod errors;
mod held;
mod sink;
mod source;
mod stream;

pub use directory::HostDirectory;
pub(super) use errors::failure_of_path;
pub use sink::HostSink;
