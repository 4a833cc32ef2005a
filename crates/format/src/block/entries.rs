//! The entries of a block, which are the items of a leaf or the pointers of a node: finding and reading them.

use super::offsets::{
    HEADER_SIZE, ITEM_DATA_OFFSET, ITEM_DATA_SIZE, ITEM_HEADER_SIZE, POINTER_SIZE, data_front, data_range,
    entry_size, entry_start, get_key, get_u32, get_u64, widen,
};
use super::tree_block::Block;
use crate::key::Key;
use crate::types::{Generation, Logical};

/// A pointer in a node: the child's first key, address and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildPointer {
    /// Smallest key that may lie below the child.
    pub key: Key,
    /// The child's address.
    pub logical: Logical,
    /// The child's generation, verified when it is read.
    pub generation: Generation,
}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "validate() proved every offset below to lie in the block; a slot out of range is our own mistake and is asserted"
)]
impl Block {
    /// The key at a slot.
    #[inline]
    pub fn key(&self, slot: usize) -> Key {
        get_key(self.bytes(), entry_start(self.bytes(), slot))
    }

    /// The first key, unless the block is empty.
    pub fn first_key(&self) -> Option<Key> {
        (!self.is_empty()).then(|| self.key(0))
    }

    /// The last key, unless the block is empty.
    pub fn last_key(&self) -> Option<Key> {
        self.len().checked_sub(1).map(|slot| self.key(slot))
    }

    /// The slot of `key`, or the slot where it would be inserted.
    ///
    /// # Errors
    /// The slot of the first key above `key` when `key` itself is not here.
    pub fn search(&self, key: &Key) -> Result<usize, usize> {
        // What is the same for all steps is worked out once: most of a change's time goes by here.
        let (entry_size, len) = (entry_size(self.bytes()), self.len());
        let entries = &self.bytes()[HEADER_SIZE..HEADER_SIZE + len * entry_size];
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low + (high - low) / 2;
            match get_key(entries, middle * entry_size).cmp(key) {
                core::cmp::Ordering::Less => low = middle + 1,
                core::cmp::Ordering::Greater => high = middle,
                core::cmp::Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// As [`Block::search`], without one where the key is at `near`, or belongs there.
    ///
    /// # Errors
    /// As of [`Block::search`].
    pub fn search_near(&self, key: &Key, near: usize) -> Result<usize, usize> {
        let is_behind = near <= self.len() && near.checked_sub(1).is_none_or(|last| self.key(last) < *key);
        if !is_behind {
            return self.search(key);
        }
        if near == self.len() {
            return Err(near);
        }
        match self.key(near).cmp(key) {
            core::cmp::Ordering::Less => self.search(key),
            core::cmp::Ordering::Equal => Ok(near),
            core::cmp::Ordering::Greater => Err(near),
        }
    }

    /// In a node: the slot of the child below which `key` belongs (the first child for keys before all).
    pub fn child_slot(&self, key: &Key) -> usize {
        match self.search(key) {
            Ok(slot) => slot,
            Err(slot) => slot.saturating_sub(1),
        }
    }

    /// In a node: the pointer at a slot.
    pub fn child(&self, slot: usize) -> ChildPointer {
        assert!(!self.is_leaf(), "a leaf has no children");
        let start = entry_start(self.bytes(), slot);
        ChildPointer {
            key: self.key(slot),
            logical: Logical(get_u64(self.bytes(), start + Key::SIZE)),
            generation: Generation(get_u64(self.bytes(), start + Key::SIZE + 8)),
        }
    }

    /// In a node: all pointers in order.
    pub fn children(&self) -> impl Iterator<Item = ChildPointer> + '_ {
        (0..self.len()).map(|slot| self.child(slot))
    }

    /// In a leaf: the data of an item.
    pub fn data(&self, slot: usize) -> &[u8] {
        let (start, end) = data_range(self.bytes(), slot);
        &self.bytes()[start..end]
    }

    /// In a leaf: all items in order, each with its key and data.
    pub fn items(&self) -> impl Iterator<Item = (Key, &[u8])> {
        assert!(self.is_leaf(), "a node has no items");
        let (headers, data) = (&self.bytes()[HEADER_SIZE..], &self.bytes()[HEADER_SIZE..]);
        headers[..self.len() * ITEM_HEADER_SIZE].chunks_exact(ITEM_HEADER_SIZE).map(move |header| {
            let start = widen(get_u32(header, ITEM_DATA_OFFSET));
            (get_key(header, 0), &data[start..start + widen(get_u32(header, ITEM_DATA_SIZE))])
        })
    }

    /// In a leaf: the data of an item by its key.
    pub fn get(&self, key: &Key) -> Option<&[u8]> {
        self.search(key).ok().map(|slot| self.data(slot))
    }

    /// In a leaf: bytes of an item's data.
    pub fn data_len(&self, slot: usize) -> usize {
        let (start, end) = data_range(self.bytes(), slot);
        end - start
    }

    /// In a leaf: bytes that items and their headers take.
    pub fn used_bytes(&self) -> usize {
        self.len() * ITEM_HEADER_SIZE + (self.bytes().len() - data_front(self.bytes()))
    }

    /// In a leaf: bytes that the items up to a slot take, the one there included, with their headers.
    pub fn used_bytes_to(&self, slot: usize) -> usize {
        // Item data lie without gaps, the first item's at the end of the block.
        (slot + 1) * ITEM_HEADER_SIZE + (self.bytes().len() - data_range(self.bytes(), slot).0)
    }

    /// In a leaf: bytes free for further items and their headers.
    pub fn free_bytes(&self) -> usize {
        data_front(self.bytes()) - (HEADER_SIZE + self.len() * ITEM_HEADER_SIZE)
    }

    /// Bytes after the header: what items, or pointers, share.
    pub fn capacity_bytes(&self) -> usize {
        self.bytes().len() - HEADER_SIZE
    }

    /// In a node: how many pointers fit.
    pub fn pointer_capacity(&self) -> usize {
        self.capacity_bytes() / POINTER_SIZE
    }
}
