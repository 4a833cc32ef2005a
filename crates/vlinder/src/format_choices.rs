//! What the disk format leaves open, as mkfs takes it.

use vlinder_codec::checksum::ChecksumKind;

/// The checksum of every block and sector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Checksum {
    /// CRC-32C, 4 bytes: Linux's default.
    #[default]
    Crc32c,
    /// XXH64, 8 bytes.
    Xxhash,
    /// SHA-256, 32 bytes.
    Sha256,
    /// BLAKE2b, 32 bytes.
    Blake2,
}

impl Checksum {
    pub(crate) fn inner(self) -> ChecksumKind {
        match self {
            Self::Crc32c => ChecksumKind::Crc32c,
            Self::Xxhash => ChecksumKind::Xxhash64,
            Self::Sha256 => ChecksumKind::Sha256,
            Self::Blake2 => ChecksumKind::Blake2b,
        }
    }
}

/// How often data or metadata are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// Once.
    Single,
    /// Twice on one device.
    Dup,
}

impl Profile {
    pub(crate) fn inner(self) -> vlinder_volume::Profile {
        match self {
            Self::Single => vlinder_volume::Profile::Single,
            Self::Dup => vlinder_volume::Profile::Dup,
        }
    }
}
