//! Which tree blocks were met: a bit for each.

use std::collections::HashMap;

/// A set of tree blocks.
pub(super) struct BlockSet {
    node_bytes: u64,
    /// Bits of 64 neighbouring blocks each.
    words: HashMap<u64, u64>,
}

impl BlockSet {
    /// The empty set, of blocks of this size.
    pub(super) fn new(node_bytes: u32) -> Self {
        Self { node_bytes: u64::from(node_bytes).max(1), words: HashMap::new() }
    }

    /// Adds the block at an address; tells whether it is new.
    pub(super) fn insert(&mut self, address: u64) -> bool {
        let number = address / self.node_bytes;
        let (word, bit) = (number / 64, 1_u64 << (number % 64));
        let bits = self.words.entry(word).or_default();
        let is_new = *bits & bit == 0;
        *bits |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_new_once() {
        let mut set = BlockSet::new(16384);
        assert!(set.insert(0) && set.insert(16384) && set.insert(64 * 16384) && set.insert(u64::MAX));
        assert!(!set.insert(16384) && !set.insert(0));
    }
}
