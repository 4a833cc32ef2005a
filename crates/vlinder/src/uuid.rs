//! UUIDs of file systems and subvolumes.

use std::fmt;
use std::str::FromStr;

use crate::{Error, ErrorKind};

/// The UUID of a file system or a subvolume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// A UUID of its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// The nil UUID stands for none.
    pub(crate) fn known(inner: vlinder_format::Uuid) -> Option<Self> {
        (!inner.is_nil()).then_some(Self(inner.0))
    }

    pub(crate) fn inner(self) -> vlinder_format::Uuid {
        vlinder_format::Uuid(self.0)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.inner(), formatter)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Uuid({self})")
    }
}

impl FromStr for Uuid {
    type Err = Error;

    /// Reads the canonical form: 8-4-4-4-12 hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, Error> {
        let parsed = vlinder_format::Uuid::parse(text).map(|uuid| Self(uuid.0));
        let what = || format!("{text:?} is no UUID; give 8-4-4-4-12 hexadecimal digits");
        parsed.ok_or_else(|| Error::new(ErrorKind::InvalidInput, what()))
    }
}
