//! How the bytes of an extent are compressed.

use core::fmt;

use crate::record::wrapped;

/// The most bytes that are compressed together (`BTRFS_MAX_UNCOMPRESSED`), and that their compressed form may
/// have.
pub const LARGEST_COMPRESSED_EXTENT: u64 = 128 * 1024;

/// How an extent's bytes are compressed. Unknown values are kept.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CompressionId(pub u8);

wrapped! { CompressionId => u8; }

impl CompressionId {
    /// Not at all.
    pub const NONE: Self = Self(0);
    /// A zlib stream.
    pub const ZLIB: Self = Self(1);
    /// LZO segments (feature compress_lzo).
    pub const LZO: Self = Self(2);
    /// A zstd frame (feature compress_zstd).
    pub const ZSTD: Self = Self(3);

    /// Whether this version knows the method.
    pub const fn is_known(self) -> bool {
        self.0 <= Self::ZSTD.0
    }
}

impl fmt::Debug for CompressionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Display for CompressionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match *self {
            Self::NONE => "none",
            Self::ZLIB => "zlib",
            Self::LZO => "lzo",
            Self::ZSTD => "zstd",
            _ => return write!(formatter, "compression {}", self.0),
        })
    }
}
