//! Changes of a block in place. Each keeps the structure sound: keys ascending, item data packed at the end.

use super::entries::ChildPointer;
use super::offsets::{HEADER_SIZE, ITEM_HEADER_SIZE, POINTER_SIZE, get_u32, narrow, put, widen};
use super::tree_block::Block;
use crate::key::Key;

/// Position of the data offset in an item header.
const ITEM_DATA_OFFSET: usize = Key::SIZE;
/// Position of the data size in an item header.
const ITEM_DATA_SIZE: usize = Key::SIZE + 4;

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "each method asserts that its slots and sizes fit; the block's structure is sound before and after"
)]
impl Block {
    /// In a leaf: inserts items before `slot`, data copied, with one move of what lies behind.
    ///
    /// The caller has seen that they fit ([`Block::free_bytes`]) and that the keys keep the order.
    pub fn insert_items(&mut self, slot: usize, items: &[(Key, &[u8])]) {
        let total: usize = items.iter().map(|(_, data)| data.len()).sum();
        let mut end = self.open_gap(slot, items.len(), total);
        for (position, (key, data)) in items.iter().enumerate() {
            let start = end - data.len();
            self.write_item_header(slot + position, key, start, data.len());
            self.bytes_mut()[start..end].copy_from_slice(data);
            end = start;
        }
        self.assert_order_around(slot, items.len());
    }

    /// In a leaf: inserts items, each before the slot that it names, of the leaf as it was; slots and keys
    /// ascend. What lies behind the first is moved once, however many there are.
    ///
    /// The caller has seen that they fit ([`Block::free_bytes`]) and that the keys keep the order.
    pub fn insert_items_between(&mut self, items: &[(usize, Key, &[u8])]) {
        let len = self.len();
        // What still lies where it lay: items before `behind`, data from `front` on.
        let (mut behind, mut front) = (len, self.data_front());
        let mut size: usize = items.iter().map(|(_, _, data)| data.len()).sum();
        let need = size + items.len() * ITEM_HEADER_SIZE;
        assert!(self.is_leaf() && need <= self.free_bytes(), "{need} bytes into {} free", self.free_bytes());
        // From the last to the first, since everything moves to where something else may still lie.
        for (before, (slot, key, data)) in items.iter().enumerate().rev() {
            assert!(*slot <= behind, "item {slot} of {behind}");
            let end = slot.checked_sub(1).map_or(self.bytes().len(), |previous| self.data_range(previous).0);
            self.bytes_mut().copy_within(front..end, front - size);
            for later in *slot..behind {
                self.shift_data_offset(later, size, false);
            }
            let headers = HEADER_SIZE + slot * ITEM_HEADER_SIZE..HEADER_SIZE + behind * ITEM_HEADER_SIZE;
            self.bytes_mut().copy_within(headers, HEADER_SIZE + (slot + before + 1) * ITEM_HEADER_SIZE);
            let start = end - size;
            self.write_item_header(slot + before, key, start, data.len());
            self.bytes_mut()[start..start + data.len()].copy_from_slice(data);
            (behind, front, size) = (*slot, end, size - data.len());
        }
        self.set_len(len + items.len());
        for (before, (slot, _, _)) in items.iter().enumerate() {
            self.assert_order_around(slot + before, 1);
        }
    }

    /// In a leaf: removes `count` items from `slot` on.
    pub fn remove_items(&mut self, slot: usize, count: usize) {
        assert!(self.is_leaf() && slot + count <= self.len(), "items {slot}+{count} of {}", self.len());
        if count == 0 {
            return;
        }
        let (front, len) = (self.data_front(), self.len());
        let start = self.data_range(slot + count - 1).0;
        let end = self.data_range(slot).1;
        self.bytes_mut().copy_within(front..start, front + (end - start));
        for later in slot + count..len {
            self.shift_data_offset(later, end - start, true);
        }
        let headers = HEADER_SIZE + (slot + count) * ITEM_HEADER_SIZE..HEADER_SIZE + len * ITEM_HEADER_SIZE;
        self.bytes_mut().copy_within(headers, HEADER_SIZE + slot * ITEM_HEADER_SIZE);
        self.set_len(len - count);
        self.clear_gap(front..front + (end - start), len);
    }

    /// In a leaf: changes the size of an item, keeping the front of its data; new bytes are zero.
    ///
    /// The caller has seen that growth fits.
    pub fn resize_item(&mut self, slot: usize, size: usize) {
        let (start, end) = self.data_range(slot);
        let (front, len) = (self.data_front(), self.len());
        let old = end - start;
        if size < old {
            let shrink = old - size;
            self.bytes_mut().copy_within(front..start + size, front + shrink);
            for later in slot..len {
                self.shift_data_offset(later, shrink, true);
            }
            self.bytes_mut()[front..front + shrink].fill(0);
        } else if size > old {
            let growth = size - old;
            assert!(growth <= self.free_bytes(), "growth of {growth} in {} free bytes", self.free_bytes());
            self.bytes_mut().copy_within(front..end, front - growth);
            for later in slot..len {
                self.shift_data_offset(later, growth, false);
            }
            self.bytes_mut()[end - growth..end].fill(0);
        }
        let header = HEADER_SIZE + slot * ITEM_HEADER_SIZE;
        put(self.bytes_mut(), header + ITEM_DATA_SIZE, &narrow(size).to_le_bytes());
    }

    /// Gives an entry another key; the order must stay.
    pub fn set_key(&mut self, slot: usize, key: &Key) {
        let start = self.entry_start(slot);
        put(self.bytes_mut(), start, &key.encode());
        self.assert_order_around(slot, 1);
    }

    /// In a leaf: moves the items from `slot` on to the front of an empty leaf.
    pub fn split_items_into(&mut self, slot: usize, empty: &mut Self) {
        assert!(empty.is_leaf() && empty.is_empty(), "items move into an empty leaf");
        let items: Vec<(Key, &[u8])> =
            (slot..self.len()).map(|item| (self.key(item), self.data(item))).collect();
        empty.insert_items(0, &items);
        let count = self.len() - slot;
        self.remove_items(slot, count);
    }

    /// In a node: inserts pointers before `slot`.
    pub fn insert_children(&mut self, slot: usize, children: &[ChildPointer]) {
        let len = self.len();
        assert!(!self.is_leaf() && slot <= len, "pointer {slot} of {len}");
        assert!(len + children.len() <= self.pointer_capacity(), "no room for {} pointers", children.len());
        let start = HEADER_SIZE + slot * POINTER_SIZE;
        let end = HEADER_SIZE + len * POINTER_SIZE;
        self.bytes_mut().copy_within(start..end, start + children.len() * POINTER_SIZE);
        self.set_len(len + children.len());
        for (position, child) in children.iter().enumerate() {
            self.write_child(slot + position, child);
        }
        self.assert_order_around(slot, children.len());
    }

    /// In a node: removes `count` pointers from `slot` on.
    pub fn remove_children(&mut self, slot: usize, count: usize) {
        let len = self.len();
        assert!(!self.is_leaf() && slot + count <= len, "pointers {slot}+{count} of {len}");
        let start = HEADER_SIZE + slot * POINTER_SIZE;
        let end = HEADER_SIZE + len * POINTER_SIZE;
        self.bytes_mut().copy_within(start + count * POINTER_SIZE..end, start);
        self.bytes_mut()[end - count * POINTER_SIZE..end].fill(0);
        self.set_len(len - count);
    }

    /// In a node: replaces a pointer.
    pub fn set_child(&mut self, slot: usize, child: &ChildPointer) {
        assert!(!self.is_leaf() && slot < self.len(), "pointer {slot} of {}", self.len());
        self.write_child(slot, child);
        self.assert_order_around(slot, 1);
    }

    /// Makes room for `count` item headers and `size` data bytes at `slot`; gives the end of the new data.
    fn open_gap(&mut self, slot: usize, count: usize, size: usize) -> usize {
        let len = self.len();
        assert!(self.is_leaf() && slot <= len, "item {slot} of {len}");
        let need = size + count * ITEM_HEADER_SIZE;
        assert!(need <= self.free_bytes(), "{need} bytes into {} free", self.free_bytes());
        let front = self.data_front();
        let end = slot.checked_sub(1).map_or(self.bytes().len(), |previous| self.data_range(previous).0);
        self.bytes_mut().copy_within(front..end, front - size);
        for later in slot..len {
            self.shift_data_offset(later, size, false);
        }
        let headers = HEADER_SIZE + slot * ITEM_HEADER_SIZE..HEADER_SIZE + len * ITEM_HEADER_SIZE;
        self.bytes_mut().copy_within(headers, HEADER_SIZE + (slot + count) * ITEM_HEADER_SIZE);
        self.set_len(len + count);
        end
    }

    fn write_item_header(&mut self, slot: usize, key: &Key, start: usize, size: usize) {
        let header = HEADER_SIZE + slot * ITEM_HEADER_SIZE;
        put(self.bytes_mut(), header, &key.encode());
        put(self.bytes_mut(), header + ITEM_DATA_OFFSET, &narrow(start - HEADER_SIZE).to_le_bytes());
        put(self.bytes_mut(), header + ITEM_DATA_SIZE, &narrow(size).to_le_bytes());
    }

    fn write_child(&mut self, slot: usize, child: &ChildPointer) {
        let start = HEADER_SIZE + slot * POINTER_SIZE;
        put(self.bytes_mut(), start, &child.key.encode());
        put(self.bytes_mut(), start + Key::SIZE, &child.logical.0.to_le_bytes());
        put(self.bytes_mut(), start + Key::SIZE + 8, &child.generation.0.to_le_bytes());
    }

    fn shift_data_offset(&mut self, slot: usize, by: usize, up: bool) {
        let at = HEADER_SIZE + slot * ITEM_HEADER_SIZE + ITEM_DATA_OFFSET;
        let offset = widen(get_u32(self.bytes(), at));
        let shifted = if up { offset + by } else { offset - by };
        put(self.bytes_mut(), at, &narrow(shifted).to_le_bytes());
    }

    /// Zeroes what a removal left between the item headers and the data, so that equal trees have equal
    /// bytes.
    fn clear_gap(&mut self, data: core::ops::Range<usize>, old_len: usize) {
        self.bytes_mut()[data].fill(0);
        let start = HEADER_SIZE + self.len() * ITEM_HEADER_SIZE;
        let end = HEADER_SIZE + old_len * ITEM_HEADER_SIZE;
        self.bytes_mut()[start..end].fill(0);
    }

    /// Our own mistakes are asserted, in release too: the keys at the borders of a change ascend.
    fn assert_order_around(&self, slot: usize, count: usize) {
        let last = (slot + count).min(self.len().saturating_sub(1));
        for left in slot.saturating_sub(1)..last {
            let (key, next) = (self.key(left), self.key(left + 1));
            assert!(key < next, "keys {key} and {next} at slot {left} of block {}", self.logical());
        }
    }
}
