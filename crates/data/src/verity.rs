//! Reading files under fs-verity: every block is compared with the file's Merkle tree, up to the root in its
//! descriptor.
//!
//! The tree's levels lie one behind the other, the topmost (one block) first; level 0 holds the hashes of the
//! blocks of data. The last block of data is filled up with zeros. A file of one block has no tree: the root
//! is its hash. Source: Linux, `Documentation/filesystems/fsverity.rst`.

use std::collections::HashMap;

use vlinder_base::sync::Arc;
use vlinder_codec::merkle::MerkleHash;
use vlinder_format::verity::{MerkleDescriptor, VerityDescriptor};
use vlinder_format::{ItemType, Key};

use crate::Result;
use crate::bytes_error::{BytesError, DataFault};
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::open_cache::OpenCache;
use crate::read_whole::read_whole;

/// Bytes that are verified at once.
const PIECE_BYTES: u64 = 1 << 20;
/// The longest descriptor that Linux takes: that and a signature.
const MAX_DESCRIPTOR_BYTES: u64 = 16 << 10;
/// Powers of two that a block may have bytes: Linux allows no less, and no page is larger.
const LOG_BLOCK_BYTES: std::ops::RangeInclusive<u8> = 10..=16;

/// Reads a range within the file, and verifies every block of it.
///
/// # Errors
/// What reading met; [`DataFault::Verity`] for the first block that is not what the tree says.
pub(crate) fn read_verified(
    store: &FileStore,
    node: &FileNode,
    cache: &OpenCache,
    offset: u64,
    target: &mut [u8],
) -> Result<()> {
    if target.is_empty() {
        return Ok(());
    }
    let mut tree = MerkleTree::open(store, node, offset)?;
    let (size, block) = (node.size(), tree.block_bytes);
    let end = offset + target.len() as u64;
    let mut at = offset / block * block;
    while at < end {
        let next = (at + PIECE_BYTES).min(end.next_multiple_of(block));
        let mut bytes = vec![0; (next.min(size) - at) as usize];
        read_whole(store, node, cache, at, &mut bytes)?;
        bytes.resize((next - at) as usize, 0);
        for (number, data) in (at / block..).zip(bytes.chunks(block as usize)) {
            tree.verify(number, data)?;
        }
        let (from, to) = (at.max(offset), next.min(end));
        target[(from - offset) as usize..(to - offset) as usize]
            .copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
        at = next;
    }
    Ok(())
}

/// The Merkle tree of a file, and what of it was verified on the way.
struct MerkleTree<'a> {
    store: &'a FileStore,
    node: &'a FileNode,
    /// First byte asked for, for errors.
    base: u64,
    hash: MerkleHash,
    block_bytes: u64,
    salt: Vec<u8>,
    root: Vec<u8>,
    /// Where each level begins in the tree, level 0 first.
    levels: Vec<u64>,
    verified: HashMap<(usize, u64), Arc<Vec<u8>>>,
}

impl<'a> MerkleTree<'a> {
    fn open(store: &'a FileStore, node: &'a FileNode, base: u64) -> Result<Self> {
        let fail = |what| BytesError { inode: node.id(), offset: base, fault: DataFault::Verity { what } };
        let engine = store.engine();
        let head = engine.forest().trees().get(node.tree().root(), &VerityDescriptor::key(node.number()))?;
        let head = head.ok_or_else(|| fail("the file has no descriptor"))?;
        let head =
            VerityDescriptor::decode(head.data()).map_err(|_| fail("the descriptor's head is broken"))?;
        if head.encryption != 0 || head.size_bytes > MAX_DESCRIPTOR_BYTES {
            return Err(fail("the descriptor's head is of no known kind").into());
        }
        let wanted = MerkleDescriptor::SIZE as u64;
        let bytes = pieces(store, node, ItemType::VERITY_DESCRIPTOR_ITEM, 1, 0, wanted)?;
        let descriptor = bytes.as_deref().and_then(MerkleDescriptor::decode);
        let descriptor = descriptor.ok_or_else(|| fail("the descriptor is not whole"))?;
        let hash = MerkleHash::from_disk(descriptor.hash_algorithm);
        let hash = hash.filter(|_| descriptor.version == 1).ok_or_else(|| fail("its hash is not known"))?;
        if !LOG_BLOCK_BYTES.contains(&descriptor.log_block_bytes) || descriptor.salt_bytes > 32 {
            return Err(fail("the descriptor's sizes can't be").into());
        }
        if descriptor.data_bytes != node.size() {
            return Err(fail("the file has another size than its descriptor says").into());
        }
        let block_bytes = 1 << descriptor.log_block_bytes;
        Ok(MerkleTree {
            store,
            node,
            base,
            hash,
            block_bytes,
            salt: descriptor.salt[..usize::from(descriptor.salt_bytes)].to_vec(),
            root: descriptor.root_hash[..hash.size_bytes()].to_vec(),
            levels: levels(node.size().div_ceil(block_bytes), block_bytes, hash),
            verified: HashMap::new(),
        })
    }

    fn fail(&self, block: u64, what: &'static str) -> BytesError {
        let offset = (block * self.block_bytes).max(self.base);
        BytesError { inode: self.node.id(), offset, fault: DataFault::Verity { what } }
    }

    fn hashes_in_block(&self) -> u64 {
        self.block_bytes / self.hash.size_bytes() as u64
    }

    /// Compares a block of data with the tree.
    fn verify(&mut self, number: u64, data: &[u8]) -> Result<()> {
        let expected = self.expected(0, number, number)?;
        if self.hash.of(&self.salt, data) == expected {
            return Ok(());
        }
        Err(self.fail(number, "a block of the file is not what the Merkle tree says").into())
    }

    /// The hash of the block `number` below `level`, which is block `data` of the file or above it.
    fn expected(&mut self, level: usize, number: u64, data: u64) -> Result<Vec<u8>> {
        if level == self.levels.len() {
            return Ok(self.root.clone());
        }
        let in_block = self.hashes_in_block();
        let hashes = self.hash_block(level, number / in_block, data)?;
        let start = (number % in_block) as usize * self.hash.size_bytes();
        Ok(hashes[start..start + self.hash.size_bytes()].to_vec())
    }

    /// A block of the tree, verified. There are at most as many levels as halvings of a 64-bit number.
    fn hash_block(&mut self, level: usize, number: u64, data: u64) -> Result<Arc<Vec<u8>>> {
        if let Some(known) = self.verified.get(&(level, number)) {
            return Ok(Arc::clone(known));
        }
        let start = self.levels[level] + number * self.block_bytes;
        let bytes = pieces(self.store, self.node, ItemType::VERITY_MERKLE_ITEM, 0, start, self.block_bytes)?;
        let bytes = bytes.ok_or_else(|| self.fail(data, "the Merkle tree is not whole"))?;
        if self.hash.of(&self.salt, &bytes) != self.expected(level + 1, number, data)? {
            return Err(self.fail(data, "a block of the Merkle tree is wrong").into());
        }
        let bytes = Arc::new(bytes);
        self.verified.insert((level, number), Arc::clone(&bytes));
        Ok(bytes)
    }
}

/// Where the levels of a tree over so many blocks begin, level 0 first.
fn levels(blocks: u64, block_bytes: u64, hash: MerkleHash) -> Vec<u64> {
    let in_block = block_bytes / hash.size_bytes() as u64;
    let mut counts = Vec::new();
    let mut left = blocks;
    while left > 1 {
        left = left.div_ceil(in_block);
        counts.push(left);
    }
    let mut start = 0;
    let mut starts = vec![0; counts.len()];
    for level in (0..counts.len()).rev() {
        starts[level] = start;
        start += counts[level] * block_bytes;
    }
    starts
}

/// Bytes that lie in pieces, one item each, with `first` as the key's offset of position 0. None where some
/// are missing.
fn pieces(
    store: &FileStore,
    node: &FileNode,
    item_type: ItemType,
    first: u64,
    start: u64,
    length: u64,
) -> Result<Option<Vec<u8>>> {
    let engine = store.engine();
    let root = node.tree().root();
    let mut bytes = Vec::with_capacity(length as usize);
    while (bytes.len() as u64) < length {
        let at = start + bytes.len() as u64;
        let key = Key::new(node.number(), item_type, first + at);
        let found = engine.forest().trees().floor(root, &key)?;
        let is_piece = |found: Key| {
            found.objectid == key.objectid && found.item_type == key.item_type && found.offset >= first
        };
        let Some(found) = found.filter(|found| is_piece(found.key())) else { return Ok(None) };
        let skipped = usize::try_from(key.offset - found.key().offset).unwrap_or(usize::MAX);
        let Some(piece) = found.data().get(skipped..).filter(|rest| !rest.is_empty()) else {
            return Ok(None);
        };
        let wanted = length as usize - bytes.len();
        bytes.extend_from_slice(&piece[..piece.len().min(wanted)]);
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_level_comes_first() {
        // 128 hashes of SHA-256 in a block of 4 KiB.
        assert_eq!(levels(0, 4096, MerkleHash::Sha256), [0_u64; 0]);
        assert_eq!(levels(1, 4096, MerkleHash::Sha256), [0_u64; 0]);
        assert_eq!(levels(2, 4096, MerkleHash::Sha256), [0]);
        assert_eq!(levels(129, 4096, MerkleHash::Sha256), [4096, 0]);
        assert_eq!(levels(128 * 128 + 1, 4096, MerkleHash::Sha256), [3 * 4096, 4096, 0]);
        assert_eq!(levels(65, 4096, MerkleHash::Sha512), [4096, 0]);
        assert!(levels(u64::MAX >> 10, 1024, MerkleHash::Sha512).len() <= 64);
    }
}
