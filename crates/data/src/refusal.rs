//! Requests that are refused although data and file system are sound.

/// Why a request about a file's data is refused: the caller's world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum DataRefusal {
    /// No space left.
    #[error("no space left; delete files or snapshots, or copy everything to a larger file system")]
    NoSpace,
    /// Arguments that make no sense.
    #[error("invalid argument")]
    InvalidArgument,
    /// Past the end of what a file can hold.
    #[error("the file would be too large")]
    FileTooLarge,
    /// The kind of file, or this file system, can't do it.
    #[error("not supported")]
    NotSupported,
    /// No data (or hole) from there on.
    #[error("no such offset in the file")]
    NoSuchOffset,
}
