//! How the data of a file system are read and stored.

use vlinder_codec::compress::Compression;
use vlinder_transaction::Disabled;

/// Compression of new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressOption {
    /// The algorithm.
    pub algorithm: Compression,
    /// Its level; 0 is the algorithm's default.
    pub level: i32,
    /// Compress even what does not look compressible (`compress-force`).
    pub force: bool,
}

/// The options of a file system that say how data are read and stored.
#[derive(Clone, Copy, Debug)]
pub struct DataOptions {
    /// How new data are compressed where the file does not say so itself.
    pub compress: Option<CompressOption>,
    /// The most bytes that a file has which lies in its tree.
    pub max_inline_bytes: u64,
    /// Bound of the bytes in memory that no extent holds yet.
    pub dirty_bytes: u64,
    /// The file system was opened to be read alone.
    pub read_only: bool,
    /// What is read is not compared with its checksums.
    pub ignores_data_checksums: bool,
    /// Mechanisms turned off for measurement.
    pub disabled: Disabled,
}
