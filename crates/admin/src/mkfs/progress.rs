//! What a caller hears while a file system is made.

/// How far the making is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The source was counted, since the size depends on it: not that of a file that is long enough.
    Counted {
        /// Names to copy.
        entries: u64,
        /// Bytes of data to copy, about.
        data_bytes: u64,
    },
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
