//! fs-verity, which is told of and not turned on: the digest of a file's data, as the sender's Linux has it.
//!
//! The digest is the hash of a descriptor that has the root of the Merkle tree over the data. Source: Linux,
//! `Documentation/filesystems/fsverity.rst`.

use vlinder_base::sync::Arc;
use vlinder_codec::merkle::MerkleHash;
use vlinder_format::verity::MerkleDescriptor;
use vlinder_fs::data::{OpenCache, Seek};
use vlinder_fs::{Filesystem, FsError, Inode, Refusal};

/// Powers of two that a block may have bytes, as Linux has them.
const LOG_BLOCK_BYTES: std::ops::RangeInclusive<u32> = 10..=16;
/// Bytes that are read at once; whole blocks of any size.
const PIECE_BYTES: u64 = 1 << 20;
/// The longest salt.
const MAX_SALT_BYTES: usize = 32;

/// How a file's data are hashed.
pub(super) struct VerityParameters<'a> {
    algorithm: u8,
    hash: MerkleHash,
    block_bytes: u32,
    salt: &'a [u8],
}

impl<'a> VerityParameters<'a> {
    /// Those of a command; none where Linux has no such ones.
    pub fn new(algorithm: u8, block_bytes: u32, salt: &'a [u8]) -> Option<Self> {
        let hash = MerkleHash::from_disk(algorithm)?;
        let is_block = block_bytes.is_power_of_two() && LOG_BLOCK_BYTES.contains(&block_bytes.ilog2());
        (is_block && salt.len() <= MAX_SALT_BYTES).then_some(Self { algorithm, hash, block_bytes, salt })
    }

    /// The name of the hash.
    pub fn algorithm(&self) -> &'static str {
        match self.hash {
            MerkleHash::Sha256 => "sha256",
            MerkleHash::Sha512 => "sha512",
        }
    }

    /// The digest of a file.
    ///
    /// # Errors
    /// What reading it met.
    pub fn digest(&self, filesystem: &Filesystem, inode: &Arc<Inode>) -> Result<Vec<u8>, FsError> {
        let (size, cache) = (inode.size(), OpenCache::new());
        let block_bytes = u64::from(self.block_bytes);
        let mut tree = MerkleBuilder { parameters: self, levels: Vec::new() };
        let zeros = self.hash_of(&vec![0; self.block_bytes as usize]);
        let mut offset = 0;
        while offset < size {
            // Holes are as large as a stream says, and cost nothing.
            let data = match filesystem.files().seek(inode, &cache, offset, Seek::Data) {
                Err(FsError::Refused(Refusal::NoSuchOffset)) => size,
                found => found?,
            };
            let hole_blocks = (data - offset) / block_bytes;
            tree.add(0, &zeros, hole_blocks);
            offset += hole_blocks * block_bytes;
            let mut bytes = vec![0; PIECE_BYTES.min(size - offset) as usize];
            filesystem.files().read_at(inode, &cache, offset, &mut bytes)?;
            bytes.resize(bytes.len().next_multiple_of(self.block_bytes as usize), 0);
            bytes.chunks(self.block_bytes as usize).for_each(|block| tree.add(0, &self.hash_of(block), 1));
            offset += PIECE_BYTES;
        }
        let Some(mut descriptor) = MerkleDescriptor::decode(&[0; MerkleDescriptor::SIZE]) else {
            unreachable!("these are as many bytes as it has")
        };
        descriptor.version = 1;
        descriptor.hash_algorithm = self.algorithm;
        descriptor.log_block_bytes = self.block_bytes.ilog2() as u8;
        descriptor.salt_bytes = self.salt.len() as u8;
        descriptor.data_bytes = size;
        let root = tree.root();
        descriptor.root_hash[..root.len()].copy_from_slice(&root);
        descriptor.salt[..self.salt.len()].copy_from_slice(self.salt);
        Ok(self.hash.of(&[], &descriptor.encode()))
    }

    fn hash_of(&self, block: &[u8]) -> Vec<u8> {
        self.hash.of(self.salt, block)
    }
}

/// A Merkle tree of which only the blocks at its right edge are kept.
struct MerkleBuilder<'a> {
    parameters: &'a VerityParameters<'a>,
    /// Of each level, how many hashes it has so far, and those of the block that is not full.
    levels: Vec<(u64, Vec<u8>)>,
}

impl MerkleBuilder<'_> {
    /// Adds a hash to a level, `count` times. There are at most as many levels as halvings of a 64-bit
    /// number.
    fn add(&mut self, level: usize, hash: &[u8], mut count: u64) {
        let block_bytes = self.parameters.block_bytes as usize;
        let hashes_per_block = (block_bytes / hash.len()) as u64;
        while count > 0 {
            if level == self.levels.len() {
                self.levels.push((0, Vec::new()));
            }
            let (total, block) = &mut self.levels[level];
            if block.is_empty() && count >= hashes_per_block {
                // Whole blocks of one hash are all the same.
                let blocks = count / hashes_per_block;
                *total += blocks * hashes_per_block;
                count %= hashes_per_block;
                let hash = self.parameters.hash_of(&hash.repeat(hashes_per_block as usize));
                self.add(level + 1, &hash, blocks);
                continue;
            }
            *total += 1;
            count -= 1;
            block.extend_from_slice(hash);
            if block.len() == block_bytes {
                let full = std::mem::take(block);
                let hash = self.parameters.hash_of(&full);
                self.add(level + 1, &hash, 1);
            }
        }
    }

    /// The hash of the topmost block, or of the only block of data; nothing for an empty file.
    fn root(mut self) -> Vec<u8> {
        let mut level = 0;
        loop {
            match self.levels.get(level) {
                None => return Vec::new(),
                Some((1, hashes)) if level + 1 == self.levels.len() => return hashes.clone(),
                Some((_, hashes)) if !hashes.is_empty() => {
                    let mut block = hashes.clone();
                    block.resize(self.parameters.block_bytes as usize, 0);
                    let hash = self.parameters.hash_of(&block);
                    self.add(level + 1, &hash, 1);
                }
                Some(_) => {}
            }
            level += 1;
        }
    }
}
