//! The four checksums a Btrfs file system may be made with.

pub mod crc32c;

use sha2::Digest;
use std::fmt;

pub use self::crc32c::crc32c;

/// How a file system checks its blocks and sectors (`csum_type` of the superblock).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChecksumKind {
    /// CRC-32C (Castagnoli), 4 bytes; the default.
    #[default]
    Crc32c,
    /// XXH64 with seed 0, 8 bytes.
    Xxhash64,
    /// SHA-256, 32 bytes.
    Sha256,
    /// BLAKE2b without a key, cut to 256 bits by its parameters, 32 bytes.
    Blake2b,
}

impl ChecksumKind {
    /// All kinds, in the order of their numbers on disk.
    pub const ALL: [Self; 4] = [Self::Crc32c, Self::Xxhash64, Self::Sha256, Self::Blake2b];

    /// The kind of a superblock's `csum_type`; none for numbers Linux 6.18 does not know either.
    pub const fn from_disk(number: u16) -> Option<Self> {
        match number {
            0 => Some(Self::Crc32c),
            1 => Some(Self::Xxhash64),
            2 => Some(Self::Sha256),
            3 => Some(Self::Blake2b),
            _ => None,
        }
    }

    /// The number for the superblock's `csum_type`.
    pub const fn to_disk(self) -> u16 {
        match self {
            Self::Crc32c => 0,
            Self::Xxhash64 => 1,
            Self::Sha256 => 2,
            Self::Blake2b => 3,
        }
    }

    /// How many bytes a checksum has on disk.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::Crc32c => 4,
            Self::Xxhash64 => 8,
            Self::Sha256 | Self::Blake2b => 32,
        }
    }

    /// Its name as btrfs-progs 6.2's `mkfs` and `dump-super` print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crc32c => "crc32c",
            Self::Xxhash64 => "xxhash64",
            Self::Sha256 => "sha256",
            Self::Blake2b => "blake2",
        }
    }

    /// The kind of a name in any case, in the forms that `mkfs.btrfs` takes.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "crc32c" => Some(Self::Crc32c),
            "xxhash64" | "xxhash" => Some(Self::Xxhash64),
            "sha256" => Some(Self::Sha256),
            "blake2b" | "blake2" => Some(Self::Blake2b),
            _ => None,
        }
    }
}

impl fmt::Display for ChecksumKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// A checksum of any kind, as the 32 bytes the superblock and tree block headers keep for it: what the kind
/// does not use is zero.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Checksum([u8; 32]);

impl Checksum {
    /// A checksum field as it lies on disk.
    pub const fn from_field(field: [u8; 32]) -> Self {
        Self(field)
    }

    /// The whole field.
    pub const fn as_field(&self) -> &[u8; 32] {
        &self.0
    }

    /// The bytes that `kind` uses: the first [`ChecksumKind::size_bytes`].
    pub fn as_bytes(&self, kind: ChecksumKind) -> &[u8] {
        &self.0[..kind.size_bytes()]
    }

    /// Whether both agree in the bytes that `kind` uses; Linux compares no others.
    pub fn matches(&self, other: &Self, kind: ChecksumKind) -> bool {
        self.as_bytes(kind) == other.as_bytes(kind)
    }

    fn from_slice(bytes: &[u8]) -> Self {
        let mut field = [0; 32];
        field[..bytes.len()].copy_from_slice(bytes);
        Self(field)
    }
}

/// All 32 bytes in hexadecimal digits.
impl fmt::Debug for Checksum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("0x")?;
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// The checksum of `bytes`, in the byte order it has on disk.
pub fn checksum(kind: ChecksumKind, bytes: &[u8]) -> Checksum {
    match kind {
        ChecksumKind::Crc32c => Checksum::from_slice(&crc32c::checksum(bytes).to_le_bytes()),
        ChecksumKind::Xxhash64 => Checksum::from_slice(&twox_hash::XxHash64::oneshot(0, bytes).to_le_bytes()),
        ChecksumKind::Sha256 => Checksum::from_slice(&sha2::Sha256::digest(bytes)),
        ChecksumKind::Blake2b => Checksum::from_slice(blake2b_parameters().hash(bytes).as_bytes()),
    }
}

/// Appends the checksum of each sector of `sectors` to `output`, [`ChecksumKind::size_bytes`] each, without
/// gaps: the form of a checksum item's payload.
///
/// # Panics
/// If `sectors` is not whole sectors of `sector_bytes`, which is a mistake of the caller.
pub fn checksum_many(kind: ChecksumKind, sectors: &[u8], sector_bytes: usize, output: &mut Vec<u8>) {
    assert!(
        sector_bytes > 0 && sectors.len().is_multiple_of(sector_bytes),
        "{} bytes are not whole sectors of {sector_bytes}",
        sectors.len()
    );
    let sectors = sectors.chunks_exact(sector_bytes);
    output.reserve(sectors.len() * kind.size_bytes());
    if kind == ChecksumKind::Blake2b {
        // Several sectors at once, one in each lane of a vector register.
        let parameters = blake2b_parameters();
        let mut jobs: Vec<_> =
            sectors.map(|sector| blake2b_simd::many::HashManyJob::new(&parameters, sector)).collect();
        blake2b_simd::many::hash_many(&mut jobs);
        jobs.iter().for_each(|job| output.extend_from_slice(job.to_hash().as_bytes()));
        return;
    }
    for sector in sectors {
        output.extend_from_slice(checksum(kind, sector).as_bytes(kind));
    }
}

fn blake2b_parameters() -> blake2b_simd::Params {
    let mut parameters = blake2b_simd::Params::new();
    parameters.hash_length(32);
    parameters
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hexadecimal(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The published vectors: RFC 3720 B.4, the xxHash specification, FIPS 180-4, and `b2sum -l 256`.
    #[test]
    fn each_kind_gives_its_published_vectors() {
        let vectors: [(ChecksumKind, &[u8], &str); 11] = [
            (ChecksumKind::Crc32c, b"", "00000000"),
            (ChecksumKind::Crc32c, b"123456789", "839206e3"),
            (ChecksumKind::Crc32c, &[0; 32], "aa36918a"),
            (ChecksumKind::Crc32c, &[0xff; 32], "43aba862"),
            (ChecksumKind::Xxhash64, b"", "99e9d85137db46ef"),
            (ChecksumKind::Xxhash64, b"abc", "990977adf52cbc44"),
            (ChecksumKind::Sha256, b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (
                ChecksumKind::Sha256,
                b"abc",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (ChecksumKind::Blake2b, b"", "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"),
            (
                ChecksumKind::Blake2b,
                b"abc",
                "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319",
            ),
            (
                ChecksumKind::Blake2b,
                b"123456789",
                "16e0bf1f85594a11e75030981c0b670370b3ad83a43f49ae58a2fd6f6513cde9",
            ),
        ];
        for (kind, input, expected) in vectors {
            let found = checksum(kind, input);
            assert_eq!(hexadecimal(found.as_bytes(kind)), expected, "{kind} of {input:?}");
            assert!(found.as_field()[kind.size_bytes()..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn many_sectors_give_the_checksum_of_each() {
        let data: Vec<u8> = (0..37 * 4096_u32).map(|index| (index * 31 % 251) as u8).collect();
        for kind in ChecksumKind::ALL {
            for count in [0, 1, 3, 37] {
                let mut output = vec![0xaa];
                checksum_many(kind, &data[..count * 4096], 4096, &mut output);
                assert_eq!(output.len(), 1 + count * kind.size_bytes());
                for (sector, found) in data.chunks(4096).zip(output[1..].chunks(kind.size_bytes())) {
                    assert_eq!(checksum(kind, sector).as_bytes(kind), found, "{kind}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "not whole sectors")]
    fn part_of_a_sector_has_no_checksum() {
        checksum_many(ChecksumKind::Crc32c, &[0; 5000], 4096, &mut Vec::new());
    }

    #[test]
    fn numbers_and_names_are_each_others_inverse() {
        for number in 0..=u16::MAX {
            let kind = ChecksumKind::from_disk(number);
            assert_eq!(kind.is_some(), number < 4);
            assert!(kind.is_none_or(|kind| kind.to_disk() == number));
        }
        for kind in ChecksumKind::ALL {
            assert_eq!(ChecksumKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(ChecksumKind::from_name("BLAKE2b"), Some(ChecksumKind::Blake2b));
        assert_eq!(ChecksumKind::from_name("md5"), None);
    }

    #[test]
    fn only_the_bytes_of_the_kind_are_compared() {
        let found = checksum(ChecksumKind::Crc32c, b"x");
        let mut field = *found.as_field();
        field[31] = 1;
        let other = Checksum::from_field(field);
        assert!(found.matches(&other, ChecksumKind::Crc32c));
        assert!(!found.matches(&other, ChecksumKind::Sha256));
    }
}
