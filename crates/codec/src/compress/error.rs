//! Why bytes could not be compressed or decompressed.

use std::fmt;

use super::algorithm::Compression;

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
    /// This program was built without the algorithm.
    #[error("this program was built without {compression}; build it with vlinder's feature {name:?}", name = compression.name())]
    NotBuiltIn {
        /// The algorithm.
        compression: Compression,
    },
    /// The algorithm's library failed although the input was good: it had no memory.
    #[error("{compression} could not work: no memory; free some and try again")]
    OutOfMemory {
        /// The algorithm.
        compression: Compression,
    },
}

/// The error of damaged bytes.
#[cfg(any(feature = "lzo", feature = "zlib", feature = "zstd"))]
pub(super) fn damaged(compression: Compression, offset: usize, damage: Damage) -> CodecError {
    CodecError::Damaged { compression, offset, damage }
}
