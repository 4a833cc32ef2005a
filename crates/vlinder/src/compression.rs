//! The compressions of file data.

use vlinder_codec::compress::Compression as Algorithm;
use vlinder_fs::CompressOption;

use crate::{Error, ErrorKind, Result};

/// How new data are compressed: an algorithm, at its own level or another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Compression {
    algorithm: Algorithm,
    /// 0 is the algorithm's default.
    level: i32,
    force: bool,
}

impl Compression {
    /// Zstandard: needs the feature `zstd`.
    pub const ZSTD: Self = Self::of(Algorithm::Zstd);
    /// zlib: needs the feature `zlib`.
    pub const ZLIB: Self = Self::of(Algorithm::Zlib);
    /// LZO: needs the feature `lzo`.
    pub const LZO: Self = Self::of(Algorithm::Lzo);

    const fn of(algorithm: Algorithm) -> Self {
        Self { algorithm, level: 0, force: false }
    }

    /// At a level: 1 to 9 of zlib, -15 to 15 of Zstandard. LZO has none.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] where the algorithm has no such level.
    pub fn with_level(self, level: i32) -> Result<Self> {
        let levels = self.algorithm.levels();
        if levels.contains(&level) {
            return Ok(Self { level, ..self });
        }
        let (name, first, last) = (self.name(), levels.start(), levels.end());
        let what = format!("{name} has no level {level}; take one of {first} to {last}");
        Err(Error::new(ErrorKind::InvalidInput, what))
    }

    /// Whether even data that don't look as if they could be compressed are tried.
    #[must_use]
    pub fn force(self, force: bool) -> Self {
        Self { force, ..self }
    }

    /// Its name, as mount options have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.algorithm.name()
    }

    /// Whether this build has it: each algorithm is a feature of this package.
    #[must_use]
    pub fn is_built_in(self) -> bool {
        self.algorithm.is_built_in()
    }

    pub(crate) fn option(self) -> CompressOption {
        CompressOption { algorithm: self.algorithm, level: self.level, force: self.force }
    }
}
