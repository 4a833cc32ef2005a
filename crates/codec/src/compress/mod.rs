//! Compression of extents, in Btrfs's framing of each algorithm.
//!
//! An extent of at most [`MAX_EXTENT_BYTES`] is compressed as a whole. On disk it is padded with zeros to whole sectors
//! (an inline extent is not), so what is read back may have anything behind the end of its stream. Its size on disk must be
//! no more than that: Linux refuses LZO extents that have a whole sector to spare.

mod lzo;
mod zlib;
mod zstd;

use std::cell::RefCell;
use std::fmt;
use std::ops::RangeInclusive;

/// The most that one compressed extent holds, compressed or not: 128 KiB (Linux's `BTRFS_MAX_UNCOMPRESSED`).
pub const MAX_EXTENT_BYTES: usize = 128 * 1024;

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

    /// The algorithm of a file extent item; none for 0 (not compressed) and for numbers Linux 6.18 does not know.
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

    /// The level that Linux takes where none is named.
    pub const fn default_level(self) -> i32 {
        match self {
            Self::Zlib | Self::Zstd => 3,
            Self::Lzo => 0,
        }
    }

    /// The levels that Linux 6.18 takes. LZO has none, its only one here is 0; for zstd, 0 is the default level.
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

/// What is wrong with compressed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Damage {
    /// They end inside the stream.
    Truncated,
    /// The length at the head of an LZO extent cannot be: less than itself, or more than there is.
    TotalLength,
    /// The length of an LZO segment cannot be: more than the extent holds, or than a sector compresses to.
    SegmentLength,
    /// A match refers to bytes before the output's start.
    Distance,
    /// An LZO segment decodes to more than a sector.
    SegmentOutput,
    /// An LZO segment goes on behind its end marker.
    BehindEnd,
    /// A zstd frame needs a window of more than 128 KiB, or the bytes are no frame at all.
    Frame,
    /// The algorithm's own library refuses the stream (its structure or its own checksum).
    Stream,
}

impl fmt::Display for Damage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Truncated => "it ends too early",
            Self::TotalLength => "the total length is impossible",
            Self::SegmentLength => "a segment's length is impossible",
            Self::Distance => "a match lies before the start",
            Self::SegmentOutput => "a segment is larger than a sector",
            Self::BehindEnd => "a segment has bytes behind its end",
            Self::Frame => "it has no frame with a window of at most 128 KiB",
            Self::Stream => "the stream is damaged",
        })
    }
}

/// Why bytes could not be compressed or decompressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The compressed bytes are not what Linux would have written or would read.
    #[error(
        "{compression} data is damaged at byte {offset}: {damage}; its extent cannot be read, restore it from a copy"
    )]
    Damaged {
        /// The algorithm they were read with.
        compression: Compression,
        /// Where in the compressed bytes it was noticed; 0 where only the whole is known to be wrong.
        offset: usize,
        /// What is wrong.
        damage: Damage,
    },
    /// There is no such level.
    #[error("{compression} has no level {level}; take one of {first} to {last}", first = compression.levels().start(), last = compression.levels().end())]
    Level {
        /// The algorithm.
        compression: Compression,
        /// The level that was asked for.
        level: i32,
    },
    /// The algorithm's library failed although the input was good: it had no memory.
    #[error("{compression} could not work: no memory; free some and try again")]
    OutOfMemory {
        /// The algorithm.
        compression: Compression,
    },
}

/// How many compressed bytes make a regular extent worth it: one sector less than it takes uncompressed, as Linux
/// decides. 0 where nothing can be saved.
pub fn extent_limit_bytes(input_bytes: usize, sector_bytes: usize) -> usize {
    input_bytes.div_ceil(sector_bytes.max(1)).saturating_sub(1).saturating_mul(sector_bytes)
}

/// Tables and contexts that an algorithm needs, made at first use and kept for the next.
#[derive(Default)]
pub struct Workspace {
    zlib: zlib::Workspace,
    lzo: lzo::Workspace,
    zstd: zstd::Workspace,
}

impl fmt::Debug for Workspace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Workspace")
    }
}

impl Workspace {
    /// A workspace that has made nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the compressed form of `input` to `output` if it has at most `limit_bytes`, and says whether it did:
    /// `false` leaves `output` as it was, because compressing is not worth it.
    ///
    /// `limit_bytes` is [`extent_limit_bytes`] for a regular extent and less than `input.len()` for an inline one. The
    /// result is not padded to sectors. LZO cuts `input` by `sector_bytes`. The same input gives the same bytes on
    /// every machine.
    ///
    /// # Errors
    /// A level that is not there, or no memory.
    pub fn compress(
        &mut self,
        kind: Compression,
        level: i32,
        input: &[u8],
        sector_bytes: usize,
        limit_bytes: usize,
        output: &mut Vec<u8>,
    ) -> Result<bool, CodecError> {
        if !kind.levels().contains(&level) {
            return Err(CodecError::Level { compression: kind, level });
        }
        match kind {
            Compression::Zlib => self.zlib.compress(level, input, limit_bytes, output),
            Compression::Lzo => Ok(self.lzo.compress(input, sector_bytes, limit_bytes, output)),
            Compression::Zstd => self.zstd.compress(level, input, limit_bytes, output),
        }
    }

    /// Decompresses into `output` and gives the number of bytes that came; the rest of `output` is zeroed, as Linux does.
    /// Decoding stops where `output` is full, so memory is bounded by it; bytes behind the stream's end are ignored.
    ///
    /// # Errors
    /// Any bytes that are not a stream of `kind`.
    pub fn decompress(
        &mut self,
        kind: Compression,
        input: &[u8],
        output: &mut [u8],
        sector_bytes: usize,
    ) -> Result<usize, CodecError> {
        let length = match kind {
            Compression::Zlib => self.zlib.decompress(input, output),
            Compression::Lzo => self.lzo.decompress(input, output, sector_bytes),
            Compression::Zstd => self.zstd.decompress(input, output),
        }?;
        output[length..].fill(0);
        Ok(length)
    }
}

thread_local! {
    static WORKSPACE: RefCell<Workspace> = RefCell::new(Workspace::new());
}

/// [`Workspace::compress`] with this thread's own workspace.
///
/// # Errors
/// As there.
pub fn compress(
    kind: Compression,
    level: i32,
    input: &[u8],
    sector_bytes: usize,
    limit_bytes: usize,
    output: &mut Vec<u8>,
) -> Result<bool, CodecError> {
    WORKSPACE.with_borrow_mut(|workspace| {
        workspace.compress(kind, level, input, sector_bytes, limit_bytes, output)
    })
}

/// [`Workspace::decompress`] with this thread's own workspace.
///
/// # Errors
/// As there.
pub fn decompress(
    kind: Compression,
    input: &[u8],
    output: &mut [u8],
    sector_bytes: usize,
) -> Result<usize, CodecError> {
    WORKSPACE.with_borrow_mut(|workspace| workspace.decompress(kind, input, output, sector_bytes))
}

fn damaged(compression: Compression, offset: usize, damage: Damage) -> CodecError {
    CodecError::Damaged { compression, offset, damage }
}

#[cfg(test)]
mod tests;
