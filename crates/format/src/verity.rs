//! Files under fs-verity: a descriptor and a Merkle tree, in items of the file's inode (feature verity).
//!
//! | key | data |
//! |---|---|
//! | (inode, VERITY_DESCRIPTOR_ITEM, 0) | the descriptor's size and how it is encrypted: 25 bytes |
//! | (inode, VERITY_DESCRIPTOR_ITEM, 1 + position) | a piece of the descriptor |
//! | (inode, VERITY_MERKLE_ITEM, position) | a piece of the Merkle tree |
//!
//! Pieces have up to 2 KiB and mean nothing to Btrfs. Source: `struct btrfs_verity_descriptor_item`.

use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::record::{Reserved, record};
use crate::rules::ItemContext;
use crate::types::ObjectId;

/// How an item of a file under fs-verity can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerityFault {
    /// The head of the descriptor has another size.
    #[error("the head of the verity descriptor has {found} bytes instead of {}", VerityDescriptor::SIZE)]
    Size {
        /// Bytes of the item.
        found: usize,
    },
    /// A piece without bytes.
    #[error("an empty piece")]
    EmptyPiece,
    /// A piece that ends past the last position.
    #[error("a piece of {found} bytes at {position}, past the last position")]
    End {
        /// Bytes of the item.
        found: usize,
        /// Offset of the key.
        position: u64,
    },
}

record! {
    /// The head of a file's verity descriptor: 25 bytes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct VerityDescriptor in RawVerityDescriptor, 25 bytes {
        /// Bytes of the descriptor, which lie in further items.
        size_bytes: u64,
        /// For future use; kept.
        reserved: Reserved<16>,
        /// Always 0.
        encryption: u8,
    }
}

impl VerityDescriptor {
    /// The key of the head.
    #[must_use]
    pub const fn key(inode: ObjectId) -> Key {
        Key::new(inode, ItemType::VERITY_DESCRIPTOR_ITEM, 0)
    }

    /// Reads the item's data.
    ///
    /// # Errors
    /// [`VerityFault::Size`].
    pub fn decode(data: &[u8]) -> Result<Self, VerityFault> {
        Self::read_whole(data).ok_or(VerityFault::Size { found: data.len() })
    }

    /// The item's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        self.to_array()
    }
}

record! {
    /// What the pieces of the descriptor hold: how the file's Merkle tree was made, and its root. 256 bytes;
    /// a signature may follow. Source: `struct fsverity_descriptor`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MerkleDescriptor in RawMerkleDescriptor, 256 bytes {
        /// Always 1.
        version: u8,
        /// 1 SHA-256, 2 SHA-512.
        hash_algorithm: u8,
        /// Bytes of a block of the tree, as a power of two.
        log_block_bytes: u8,
        /// Bytes of the salt, at most 32.
        salt_bytes: u8,
        /// Bytes of the signature.
        signature_bytes: u32,
        /// Bytes of the file.
        data_bytes: u64,
        /// Hash of the tree's topmost block, or of the only block of data; zeros for an empty file.
        root_hash: [u8; 64],
        /// Goes into each hash first.
        salt: [u8; 32],
        /// For future use; kept.
        reserved: Reserved<144>,
    }
}

impl MerkleDescriptor {
    /// Reads it from the front of a descriptor; none where there are too few bytes.
    #[must_use]
    pub fn decode(descriptor: &[u8]) -> Option<Self> {
        Self::split_from(descriptor).map(|(found, _)| found)
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        self.to_array()
    }
}

/// Checks an item of a file under fs-verity. Linux does not.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(key: &Key, data: &[u8], _context: &ItemContext<'_>) -> Result<(), VerityFault> {
    if key.item_type == ItemType::VERITY_DESCRIPTOR_ITEM && key.offset == 0 {
        return VerityDescriptor::decode(data).map(drop);
    }
    if data.is_empty() {
        return Err(VerityFault::EmptyPiece);
    }
    let end = u64::try_from(data.len()).ok().and_then(|length| key.offset.checked_add(length));
    if end.is_none() {
        return Err(VerityFault::End { found: data.len(), position: key.offset });
    }
    Ok(())
}

/// The fields of an item of a descriptor: its head, or a piece that may hold the whole.
pub(crate) fn lay_out_descriptor(key: &Key, layout: &mut Layout<'_>) {
    match key.offset {
        0 => drop(layout.record::<VerityDescriptor>()),
        1 => drop(layout.record::<MerkleDescriptor>()),
        _ => {}
    }
    layout.rest("VerityDescriptor", "piece");
}

/// The fields of a piece of a Merkle tree.
pub(crate) fn lay_out_merkle(layout: &mut Layout<'_>) {
    layout.rest("VerityMerkle", "piece");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::tests::{assert_fault, assert_sound};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decode_and_encode_are_inverse(bytes in any::<[u8; 25]>()) {
            prop_assert_eq!(VerityDescriptor::decode(&bytes).unwrap().encode(), bytes);
        }
    }

    proptest! {
        #[test]
        fn a_descriptor_decodes_and_encodes(bytes in proptest::collection::vec(any::<u8>(), 256..300)) {
            prop_assert_eq!(&MerkleDescriptor::decode(&bytes).unwrap().encode()[..], &bytes[..256]);
            prop_assert_eq!(MerkleDescriptor::decode(&bytes[..255]), None);
        }
    }

    #[test]
    fn the_head_is_exact_and_pieces_are_free() {
        let head = VerityDescriptor::key(ObjectId(257));
        assert_sound(&head, &[0; 25], None);
        assert_fault(&head, &[0; 24], None, VerityFault::Size { found: 24 });
        let piece = head.next().unwrap();
        assert_sound(&piece, &[7; 256], None);
        assert_fault(&piece, &[], None, VerityFault::EmptyPiece);
        let position = u64::MAX - 3;
        let last = Key::new(ObjectId(257), ItemType::VERITY_MERKLE_ITEM, position);
        assert_sound(&last, &[7; 3], None);
        assert_fault(&last, &[7; 4], None, VerityFault::End { found: 4, position });
    }
}
