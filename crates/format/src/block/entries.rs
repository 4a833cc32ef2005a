//! The entries of a block, which are the items of a leaf or the pointers of a node: finding and reading them.

use super::offsets::{HEADER_SIZE, ITEM_HEADER_SIZE, POINTER_SIZE, get_key, get_u32, get_u64, widen};
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
        get_key(self.bytes(), self.entry_start(slot))
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
        let (entry_size, len) = (self.entry_size(), self.len());
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
        let start = self.entry_start(slot);
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
        let (start, end) = self.data_range(slot);
        &self.bytes()[start..end]
    }

    /// In a leaf: the data of an item, to be changed in place.
    pub fn data_mut(&mut self, slot: usize) -> &mut [u8] {
        let (start, end) = self.data_range(slot);
        &mut self.bytes_mut()[start..end]
    }

    /// In a leaf: the data of an item by its key.
    pub fn get(&self, key: &Key) -> Option<&[u8]> {
        self.search(key).ok().map(|slot| self.data(slot))
    }

    /// In a leaf: bytes of an item's data.
    pub fn data_len(&self, slot: usize) -> usize {
        let (start, end) = self.data_range(slot);
        end - start
    }

    /// In a leaf: bytes that items and their headers take.
    pub fn used_bytes(&self) -> usize {
        self.len() * ITEM_HEADER_SIZE + (self.bytes().len() - self.data_front())
    }

    /// In a leaf: bytes free for further items and their headers.
    pub fn free_bytes(&self) -> usize {
        self.data_front() - (HEADER_SIZE + self.len() * ITEM_HEADER_SIZE)
    }

    /// Bytes after the header: what items, or pointers, share.
    pub fn capacity_bytes(&self) -> usize {
        self.bytes().len() - HEADER_SIZE
    }

    /// In a node: how many pointers fit.
    pub fn pointer_capacity(&self) -> usize {
        self.capacity_bytes() / POINTER_SIZE
    }

    /// Position in the block of the entry at `slot`: an item header or a pointer.
    #[inline]
    pub(super) fn entry_start(&self, slot: usize) -> usize {
        assert!(slot < self.len(), "slot {slot} of {}", self.len());
        HEADER_SIZE + slot * self.entry_size()
    }

    /// Bytes of an item's header, or of a pointer.
    #[inline]
    fn entry_size(&self) -> usize {
        if self.is_leaf() { ITEM_HEADER_SIZE } else { POINTER_SIZE }
    }

    /// Position in the block of an item's data.
    pub(super) fn data_range(&self, slot: usize) -> (usize, usize) {
        assert!(self.is_leaf(), "a node has no items");
        let start = self.entry_start(slot);
        let offset = HEADER_SIZE + widen(get_u32(self.bytes(), start + Key::SIZE));
        (offset, offset + widen(get_u32(self.bytes(), start + Key::SIZE + 4)))
    }

    /// Position in the block where item data begin: that of the last item, or the end.
    pub(super) fn data_front(&self) -> usize {
        self.len().checked_sub(1).map_or(self.bytes().len(), |slot| self.data_range(slot).0)
    }
}
