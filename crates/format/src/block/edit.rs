//! Changes of a block in place. Each keeps the structure sound: keys ascending, item data packed at the end.

use super::entries::ChildPointer;
use super::offsets::{
    HEADER_SIZE, ITEM_DATA_OFFSET, ITEM_DATA_SIZE, ITEM_HEADER_SIZE, NRITEMS, POINTER_SIZE, data_front,
    data_range, entry_start, get_u32, narrow, put, widen,
};
use super::tree_block::Block;
use crate::key::Key;

/// The items of a leaf, to be changed. Each change of a node's is refused.
pub struct ItemsMut<'a> {
    block: &'a mut Block,
}

/// The pointers of a node, to be changed. Each change of a leaf's is refused.
pub struct ChildrenMut<'a> {
    block: &'a mut Block,
}

impl Block {
    /// In a leaf: its items, to be changed.
    #[inline]
    pub fn items_mut(&mut self) -> ItemsMut<'_> {
        ItemsMut { block: self }
    }

    /// In a node: its pointers, to be changed.
    #[inline]
    pub fn children_mut(&mut self) -> ChildrenMut<'_> {
        ChildrenMut { block: self }
    }

    /// Gives an entry another key; the order must stay.
    pub fn set_key(&mut self, slot: usize, key: &Key) {
        let start = entry_start(self.bytes(), slot);
        put(self.bytes_mut(), start, &key.encode());
        assert_order_around(self, slot, 1);
    }
}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "each method asserts that its slots and sizes fit; the block's structure is sound before and after"
)]
impl<'a> ItemsMut<'a> {
    /// Inserts items before `slot`, data copied, with one move of what lies behind.
    ///
    /// The caller has seen that they fit ([`Block::free_bytes`]) and that the keys keep the order.
    pub fn insert(&mut self, slot: usize, items: &[(Key, &[u8])]) {
        let block = &mut *self.block;
        let total: usize = items.iter().map(|(_, data)| data.len()).sum();
        let mut end = open_gap(block, slot, items.len(), total);
        for (position, (key, data)) in items.iter().enumerate() {
            let start = end - data.len();
            write_item_header(block.bytes_mut(), slot + position, key, start, data.len());
            block.bytes_mut()[start..end].copy_from_slice(data);
            end = start;
        }
        assert_order_around(block, slot, items.len());
    }

    /// Inserts items, each before the slot that it names, of the leaf as it was; slots and keys ascend. What
    /// lies behind the first is moved once, however many there are.
    ///
    /// The caller has seen that they fit ([`Block::free_bytes`]) and that the keys keep the order.
    pub fn insert_between(&mut self, items: &[(usize, Key, &[u8])]) {
        let block = &mut *self.block;
        let len = block.len();
        // What still lies where it lay: items before `behind`, data from `front` on.
        let (mut behind, mut front) = (len, data_front(block.bytes()));
        let mut size: usize = items.iter().map(|(_, _, data)| data.len()).sum();
        let need = size + items.len() * ITEM_HEADER_SIZE;
        assert!(
            block.is_leaf() && need <= block.free_bytes(),
            "{need} bytes into {} free",
            block.free_bytes()
        );
        // From the last to the first, since everything moves to where something else may still lie.
        for (before, (slot, key, data)) in items.iter().enumerate().rev() {
            assert!(*slot <= behind, "item {slot} of {behind}");
            let end = slot
                .checked_sub(1)
                .map_or(block.bytes().len(), |previous| data_range(block.bytes(), previous).0);
            block.bytes_mut().copy_within(front..end, front - size);
            for later in *slot..behind {
                shift_data_offset(block.bytes_mut(), later, size, false);
            }
            let headers = HEADER_SIZE + slot * ITEM_HEADER_SIZE..HEADER_SIZE + behind * ITEM_HEADER_SIZE;
            block.bytes_mut().copy_within(headers, HEADER_SIZE + (slot + before + 1) * ITEM_HEADER_SIZE);
            let start = end - size;
            write_item_header(block.bytes_mut(), slot + before, key, start, data.len());
            block.bytes_mut()[start..start + data.len()].copy_from_slice(data);
            (behind, front, size) = (*slot, end, size - data.len());
        }
        set_len(block, len + items.len());
        for (before, (slot, _, _)) in items.iter().enumerate() {
            assert_order_around(block, slot + before, 1);
        }
    }

    /// Removes `count` items from `slot` on.
    pub fn remove(&mut self, slot: usize, count: usize) {
        let block = &mut *self.block;
        assert!(block.is_leaf() && slot + count <= block.len(), "items {slot}+{count} of {}", block.len());
        if count == 0 {
            return;
        }
        let (front, len) = (data_front(block.bytes()), block.len());
        let start = data_range(block.bytes(), slot + count - 1).0;
        let end = data_range(block.bytes(), slot).1;
        block.bytes_mut().copy_within(front..start, front + (end - start));
        for later in slot + count..len {
            shift_data_offset(block.bytes_mut(), later, end - start, true);
        }
        let headers = HEADER_SIZE + (slot + count) * ITEM_HEADER_SIZE..HEADER_SIZE + len * ITEM_HEADER_SIZE;
        block.bytes_mut().copy_within(headers, HEADER_SIZE + slot * ITEM_HEADER_SIZE);
        set_len(block, len - count);
        clear_gap(block, front..front + (end - start), len);
    }

    /// Changes the size of an item, keeping the front of its data; new bytes are zero.
    ///
    /// The caller has seen that growth fits.
    pub fn resize(&mut self, slot: usize, size: usize) {
        let block = &mut *self.block;
        let (start, end) = data_range(block.bytes(), slot);
        let (front, len) = (data_front(block.bytes()), block.len());
        let old = end - start;
        if size < old {
            let shrink = old - size;
            block.bytes_mut().copy_within(front..start + size, front + shrink);
            for later in slot..len {
                shift_data_offset(block.bytes_mut(), later, shrink, true);
            }
            block.bytes_mut()[front..front + shrink].fill(0);
        } else if size > old {
            let growth = size - old;
            assert!(growth <= block.free_bytes(), "growth of {growth} in {} free bytes", block.free_bytes());
            block.bytes_mut().copy_within(front..end, front - growth);
            for later in slot..len {
                shift_data_offset(block.bytes_mut(), later, growth, false);
            }
            block.bytes_mut()[end - growth..end].fill(0);
        }
        let header = HEADER_SIZE + slot * ITEM_HEADER_SIZE;
        put(block.bytes_mut(), header + ITEM_DATA_SIZE, &narrow(size).to_le_bytes());
    }

    /// Moves the items from `slot` on to the front of an empty leaf.
    pub fn split_into(&mut self, slot: usize, empty: &mut Block) {
        assert!(empty.is_leaf() && empty.is_empty(), "items move into an empty leaf");
        let items: Vec<(Key, &[u8])> =
            (slot..self.block.len()).map(|item| (self.block.key(item), self.block.data(item))).collect();
        empty.items_mut().insert(0, &items);
        let count = self.block.len() - slot;
        self.remove(slot, count);
    }

    /// The data of an item, to be changed in place.
    pub fn data(self, slot: usize) -> &'a mut [u8] {
        let block = self.block;
        let (start, end) = data_range(block.bytes(), slot);
        &mut block.bytes_mut()[start..end]
    }
}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "each method asserts that its slots and sizes fit; the block's structure is sound before and after"
)]
impl ChildrenMut<'_> {
    /// Inserts pointers before `slot`.
    pub fn insert(&mut self, slot: usize, children: &[ChildPointer]) {
        let block = &mut *self.block;
        let len = block.len();
        assert!(!block.is_leaf() && slot <= len, "pointer {slot} of {len}");
        assert!(len + children.len() <= block.pointer_capacity(), "no room for {} pointers", children.len());
        let start = HEADER_SIZE + slot * POINTER_SIZE;
        let end = HEADER_SIZE + len * POINTER_SIZE;
        block.bytes_mut().copy_within(start..end, start + children.len() * POINTER_SIZE);
        set_len(block, len + children.len());
        for (position, child) in children.iter().enumerate() {
            write_child(block.bytes_mut(), slot + position, child);
        }
        assert_order_around(block, slot, children.len());
    }

    /// Removes `count` pointers from `slot` on.
    pub fn remove(&mut self, slot: usize, count: usize) {
        let block = &mut *self.block;
        let len = block.len();
        assert!(!block.is_leaf() && slot + count <= len, "pointers {slot}+{count} of {len}");
        let start = HEADER_SIZE + slot * POINTER_SIZE;
        let end = HEADER_SIZE + len * POINTER_SIZE;
        block.bytes_mut().copy_within(start + count * POINTER_SIZE..end, start);
        block.bytes_mut()[end - count * POINTER_SIZE..end].fill(0);
        set_len(block, len - count);
    }

    /// Replaces a pointer.
    pub fn set(&mut self, slot: usize, child: &ChildPointer) {
        let block = &mut *self.block;
        assert!(!block.is_leaf() && slot < block.len(), "pointer {slot} of {}", block.len());
        write_child(block.bytes_mut(), slot, child);
        assert_order_around(block, slot, 1);
    }
}

/// Makes room for `count` item headers and `size` data bytes at `slot`; gives the end of the new data.
#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "the caller's slots lie in the block; that there is room is asserted"
)]
fn open_gap(block: &mut Block, slot: usize, count: usize, size: usize) -> usize {
    let len = block.len();
    assert!(block.is_leaf() && slot <= len, "item {slot} of {len}");
    let need = size + count * ITEM_HEADER_SIZE;
    assert!(need <= block.free_bytes(), "{need} bytes into {} free", block.free_bytes());
    let front = data_front(block.bytes());
    let end =
        slot.checked_sub(1).map_or(block.bytes().len(), |previous| data_range(block.bytes(), previous).0);
    block.bytes_mut().copy_within(front..end, front - size);
    for later in slot..len {
        shift_data_offset(block.bytes_mut(), later, size, false);
    }
    let headers = HEADER_SIZE + slot * ITEM_HEADER_SIZE..HEADER_SIZE + len * ITEM_HEADER_SIZE;
    block.bytes_mut().copy_within(headers, HEADER_SIZE + (slot + count) * ITEM_HEADER_SIZE);
    set_len(block, len + count);
    end
}

/// Zeroes what a removal left between the item headers and the data, so that equal trees have equal bytes.
#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "the caller's slots lie in the block; that there is room is asserted"
)]
fn clear_gap(block: &mut Block, data: core::ops::Range<usize>, old_len: usize) {
    block.bytes_mut()[data].fill(0);
    let start = HEADER_SIZE + block.len() * ITEM_HEADER_SIZE;
    let end = HEADER_SIZE + old_len * ITEM_HEADER_SIZE;
    block.bytes_mut()[start..end].fill(0);
}

fn set_len(block: &mut Block, len: usize) {
    put(block.bytes_mut(), NRITEMS, &narrow(len).to_le_bytes());
}

#[allow(clippy::arithmetic_side_effects, reason = "the caller asserted that the entry lies in the block")]
fn write_item_header(bytes: &mut [u8], slot: usize, key: &Key, start: usize, size: usize) {
    let header = HEADER_SIZE + slot * ITEM_HEADER_SIZE;
    put(bytes, header, &key.encode());
    put(bytes, header + ITEM_DATA_OFFSET, &narrow(start - HEADER_SIZE).to_le_bytes());
    put(bytes, header + ITEM_DATA_SIZE, &narrow(size).to_le_bytes());
}

#[allow(clippy::arithmetic_side_effects, reason = "the caller asserted that the entry lies in the block")]
fn write_child(bytes: &mut [u8], slot: usize, child: &ChildPointer) {
    let start = HEADER_SIZE + slot * POINTER_SIZE;
    put(bytes, start, &child.key.encode());
    put(bytes, start + Key::SIZE, &child.logical.0.to_le_bytes());
    put(bytes, start + Key::SIZE + 8, &child.generation.0.to_le_bytes());
}

#[allow(clippy::arithmetic_side_effects, reason = "the caller asserted that the entry lies in the block")]
fn shift_data_offset(bytes: &mut [u8], slot: usize, by: usize, up: bool) {
    let at = HEADER_SIZE + slot * ITEM_HEADER_SIZE + ITEM_DATA_OFFSET;
    let offset = widen(get_u32(bytes, at));
    let shifted = if up { offset + by } else { offset - by };
    put(bytes, at, &narrow(shifted).to_le_bytes());
}

/// Our own mistakes are asserted, in release too: the keys at the borders of a change ascend.
#[allow(clippy::arithmetic_side_effects, reason = "the caller asserted that the entry lies in the block")]
fn assert_order_around(block: &Block, slot: usize, count: usize) {
    let last = (slot + count).min(block.len().saturating_sub(1));
    for left in slot.saturating_sub(1)..last {
        let (key, next) = (block.key(left), block.key(left + 1));
        assert!(key < next, "keys {key} and {next} at slot {left} of block {}", block.logical());
    }
}
