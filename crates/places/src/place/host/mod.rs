//! Directories of the host. Names are looked up in an open directory, so that what lies above may be moved or
//! replaced meanwhile.

mod convert;
mod directory;
mod errors;
mod held;
mod holes;
mod image_mark;
mod refill;
mod reflink;
mod sink;
mod source;
mod stream;

pub use directory::HostDirectory;
pub(super) use errors::failure_of_path;
pub use image_mark::has_filesystem;
pub use sink::HostSink;
pub use stream::HostStream;
