//! What a caller hears while a file system is made.

/// How far the making is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So much was copied.
    Copied {
        /// Names.
        entries: u64,
        /// Bytes of data.
        data_bytes: u64,
    },
    /// Everything was copied and is being committed.
    Committing,
}
