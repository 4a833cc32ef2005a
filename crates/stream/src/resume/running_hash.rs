//! A hash of all commands so far.

use vlinder_codec::merkle::MerkleHash;

use crate::wire::COMMAND_HEAD_BYTES;

/// A hash of the commands of a subvolume so far, each of which goes in together with the hash before it. So a
/// hash that was stored goes on with the next command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RunningHash {
    bytes: u64,
    hash: [u8; 32],
}

impl RunningHash {
    /// A hash that was stored, of so many bytes of commands.
    pub(super) fn stored(bytes: u64, hash: [u8; 32]) -> Self {
        Self { bytes, hash }
    }

    /// Bytes of the commands so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The SHA-256 of all commands so far; zeros before the first.
    #[must_use]
    pub fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// Takes in a whole command, head and attributes. The checksum in its head says nothing that the rest
    /// does not, and counts as zeros.
    ///
    /// # Panics
    /// Where it is shorter than the head of a command.
    pub fn add(&mut self, command: &[u8]) {
        let (head, attributes) = command.split_at(COMMAND_HEAD_BYTES);
        let checksum = COMMAND_HEAD_BYTES - size_of::<u32>();
        // The hash before and the head fill a block of SHA-256.
        let mut before = [0; 64];
        before[..32].copy_from_slice(&self.hash);
        before[32..32 + checksum].copy_from_slice(&head[..checksum]);
        let hash = MerkleHash::Sha256.of(&before, attributes);
        self.hash.copy_from_slice(&hash);
        self.bytes += command.len() as u64;
    }
}
