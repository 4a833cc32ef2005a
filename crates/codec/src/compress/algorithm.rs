//! The algorithms: their numbers on disk, their names and their levels.

use std::fmt;
use std::ops::RangeInclusive;

/// An algorithm, as a file extent item's `compression` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Compression {
    /// One zlib stream (RFC 1950).
    Zlib,
    /// A length, then LZO1X streams of a sector each.
    Lzo,
    /// One Zstandard frame (RFC 8878) with a window of at most 128 KiB.
    Zstd,
}

impl Compression {
    /// All algorithms, in the order of their numbers on disk.
    pub const ALL: [Self; 3] = [Self::Zlib, Self::Lzo, Self::Zstd];

    /// The algorithm of a file extent item; none for 0 (not compressed) and for numbers Linux 6.18 does not
    /// know.
    pub const fn from_disk(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Zlib),
            2 => Some(Self::Lzo),
            3 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The number for a file extent item.
    pub const fn to_disk(self) -> u8 {
        match self {
            Self::Zlib => 1,
            Self::Lzo => 2,
            Self::Zstd => 3,
        }
    }

    /// Its name in mount options and properties.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
            Self::Lzo => "lzo",
            Self::Zstd => "zstd",
        }
    }

    /// The algorithm of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether this build can compress and decompress with it: each algorithm is a feature of this package.
    pub const fn is_built_in(self) -> bool {
        match self {
            Self::Zlib => cfg!(feature = "zlib"),
            Self::Lzo => cfg!(feature = "lzo"),
            Self::Zstd => cfg!(feature = "zstd"),
        }
    }

    /// The level that Linux takes where none is named.
    pub const fn default_level(self) -> i32 {
        match self {
            Self::Zlib | Self::Zstd => 3,
            Self::Lzo => 0,
        }
    }

    /// The levels that Linux 6.18 takes. LZO has none, its only one here is 0; for zstd, 0 is the default
    /// level.
    pub const fn levels(self) -> RangeInclusive<i32> {
        match self {
            Self::Zlib => 1..=9,
            Self::Lzo => 0..=0,
            Self::Zstd => -15..=15,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}
