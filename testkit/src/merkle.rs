//! Merkle trees as fs-verity makes them, from its description alone (Linux:
//! `Documentation/filesystems/fsverity.rst`), with SHA-256.

use sha2::{Digest, Sha256};

/// Bytes that SHA-256 takes in at once, to which a salt is filled up.
const INPUT_BYTES: usize = 64;

/// The tree over a file's data with blocks of so many bytes, its topmost block first, and the hash of that
/// block (or of the only block of data; zeros where there is none).
pub fn merkle_tree(data: &[u8], block_bytes: usize, salt: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let hash = |block: &[u8]| {
        let mut message = salt.to_vec();
        message.resize(salt.len().next_multiple_of(INPUT_BYTES), 0);
        message.extend_from_slice(block);
        message.resize(salt.len().next_multiple_of(INPUT_BYTES) + block_bytes, 0);
        Sha256::digest(&message).to_vec()
    };
    let mut hashes: Vec<Vec<u8>> = data.chunks(block_bytes).map(hash).collect();
    let mut tree = Vec::new();
    while hashes.len() > 1 {
        let mut level = hashes.concat();
        level.resize(level.len().next_multiple_of(block_bytes), 0);
        hashes = level.chunks(block_bytes).map(hash).collect();
        level.extend_from_slice(&tree);
        tree = level;
    }
    (tree, hashes.pop().unwrap_or_else(|| vec![0; 32]))
}
