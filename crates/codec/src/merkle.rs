//! The hashes of Merkle trees as fs-verity makes them (Linux: `Documentation/filesystems/fsverity.rst`).

use sha2::Digest;

/// Which hash a tree is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MerkleHash {
    /// SHA-256: 32 bytes.
    Sha256,
    /// SHA-512: 64 bytes.
    Sha512,
}

impl MerkleHash {
    /// The hash of a number in a descriptor; none for those that Linux 6.18 does not know either.
    pub const fn from_disk(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Sha256),
            2 => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Bytes of a hash.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Bytes that the hash takes in at once, to which a salt is filled up with zeros.
    const fn input_bytes(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }

    /// The hash of a block, after the salt if there is one.
    pub fn of(self, salt: &[u8], block: &[u8]) -> Vec<u8> {
        let mut padded = salt.to_vec();
        padded.resize(salt.len().next_multiple_of(self.input_bytes()), 0);
        match self {
            Self::Sha256 => sha2::Sha256::new().chain_update(&padded).chain_update(block).finalize().to_vec(),
            Self::Sha512 => sha2::Sha512::new().chain_update(&padded).chain_update(block).finalize().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that forgets the padding, or pads where there is no salt, gets other bytes.
    #[test]
    fn a_salt_is_filled_up_to_what_the_hash_takes_in_at_once() {
        let mut salted = [0; 64 + 3];
        salted[..2].copy_from_slice(b"ab");
        salted[64..].copy_from_slice(b"xyz");
        assert_eq!(MerkleHash::Sha256.of(b"ab", b"xyz"), sha2::Sha256::digest(salted).to_vec());
        assert_eq!(MerkleHash::Sha256.of(b"", b"xyz"), sha2::Sha256::digest(b"xyz").to_vec());
        assert_eq!(MerkleHash::Sha512.of(b"", b"xyz"), sha2::Sha512::digest(b"xyz").to_vec());
        assert_eq!(MerkleHash::Sha512.of(&[0; 128], b"x").len(), MerkleHash::Sha512.size_bytes());
    }
}
