//! Compression of extents, in Btrfs's framing of each algorithm.
//!
//! An extent of at most [`MAX_EXTENT_BYTES`] is compressed as a whole. On disk it is padded with zeros to
//! whole sectors (an inline extent is not), so what is read back may have anything behind the end of its
//! stream. Its size on disk must be no more than that: Linux refuses LZO extents that have a whole sector to
//! spare.

mod algorithm;
mod error;
#[cfg(feature = "lzo")]
mod lzo;
#[cfg(feature = "zlib")]
mod zlib;
#[cfg(feature = "zstd")]
mod zstd;

use std::cell::RefCell;
use std::fmt;

pub use algorithm::Compression;
pub use error::{CodecError, Damage};

/// The most that one compressed extent holds, compressed or not: 128 KiB (Linux's `BTRFS_MAX_UNCOMPRESSED`).
pub const MAX_EXTENT_BYTES: usize = 128 * 1024;

/// How many compressed bytes make a regular extent worth it: one sector less than it takes uncompressed, as
/// Linux decides. 0 where nothing can be saved.
pub fn extent_limit_bytes(input_bytes: usize, sector_bytes: usize) -> usize {
    input_bytes.div_ceil(sector_bytes.max(1)).saturating_sub(1).saturating_mul(sector_bytes)
}

/// Tables and contexts that an algorithm needs, made at first use and kept for the next.
#[derive(Default)]
pub struct Workspace {
    #[cfg(feature = "zlib")]
    zlib: zlib::ZlibWorkspace,
    #[cfg(feature = "lzo")]
    lzo: lzo::LzoWorkspace,
    #[cfg(feature = "zstd")]
    zstd: zstd::ZstdWorkspace,
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

    /// Appends the compressed form of `input` to `output` if it has at most `limit_bytes`, and says whether
    /// it did: `false` leaves `output` as it was, because compressing is not worth it.
    ///
    /// `limit_bytes` is [`extent_limit_bytes`] for a regular extent and less than `input.len()` for an inline
    /// one. The result is not padded to sectors. LZO cuts `input` by `sector_bytes`. The same input gives the
    /// same bytes on every machine.
    ///
    /// # Errors
    /// A level that is not there, no memory, or an algorithm that was not built in.
    #[cfg_attr(
        not(all(feature = "lzo", feature = "zlib", feature = "zstd")),
        allow(unused_variables, reason = "not every algorithm uses every argument")
    )]
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
            #[cfg(feature = "zlib")]
            Compression::Zlib => self.zlib.compress(level, input, limit_bytes, output),
            #[cfg(feature = "lzo")]
            Compression::Lzo => Ok(self.lzo.compress(input, sector_bytes, limit_bytes, output)),
            #[cfg(feature = "zstd")]
            Compression::Zstd => self.zstd.compress(level, input, limit_bytes, output),
            #[cfg(not(all(feature = "lzo", feature = "zlib", feature = "zstd")))]
            compression => Err(CodecError::NotBuiltIn { compression }),
        }
    }

    /// Decompresses into `output` and gives the number of bytes that came; the rest of `output` is zeroed, as
    /// Linux does. Decoding stops where `output` is full, so memory is bounded by it; bytes behind the
    /// stream's end are ignored.
    ///
    /// # Errors
    /// Any bytes that are not a stream of `kind`, or a `kind` that was not built in.
    #[cfg_attr(
        not(all(feature = "lzo", feature = "zlib", feature = "zstd")),
        allow(unused_variables, reason = "not every algorithm uses every argument")
    )]
    pub fn decompress(
        &mut self,
        kind: Compression,
        input: &[u8],
        output: &mut [u8],
        sector_bytes: usize,
    ) -> Result<usize, CodecError> {
        let length: usize = match kind {
            #[cfg(feature = "zlib")]
            Compression::Zlib => self.zlib.decompress(input, output),
            #[cfg(feature = "lzo")]
            Compression::Lzo => self.lzo.decompress(input, output, sector_bytes),
            #[cfg(feature = "zstd")]
            Compression::Zstd => self.zstd.decompress(input, output),
            #[cfg(not(all(feature = "lzo", feature = "zlib", feature = "zstd")))]
            compression => Err(CodecError::NotBuiltIn { compression }),
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

#[cfg(all(test, feature = "lzo", feature = "zlib", feature = "zstd"))]
mod tests;
