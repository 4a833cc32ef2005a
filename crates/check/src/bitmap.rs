//! A set of tree blocks: one bit for each sector of the chunks that hold metadata.

use std::collections::BTreeMap;

use vlinder_format::Logical;

/// Bits of one run of addresses.
#[derive(Debug)]
struct Run {
    length: u64,
    bits: Vec<u64>,
}

/// A set of block addresses. Addresses outside the chunks that it was made for are never members.
#[derive(Debug, Default)]
pub(crate) struct BlockSet {
    sector_size: u64,
    runs: BTreeMap<u64, Run>,
}

impl BlockSet {
    /// An empty set over chunks, each its first byte and length.
    pub(crate) fn new(sector_size: u32, chunks: impl Iterator<Item = (Logical, u64)>) -> Self {
        let runs = chunks.map(|(start, length)| (start.0, Run { length, bits: Vec::new() })).collect();
        Self { sector_size: u64::from(sector_size.max(1)), runs }
    }

    /// Blocks of this chunk may be members from now on.
    pub(crate) fn add_chunk(&mut self, start: Logical, length: u64) {
        self.runs.entry(start.0).or_insert(Run { length, bits: Vec::new() });
    }

    /// Without members again.
    pub(crate) fn clear(&mut self) {
        self.runs.values_mut().for_each(|run| run.bits.clear());
    }

    /// The word and the bit of an address.
    fn place(&self, logical: Logical) -> Option<(u64, usize, u64)> {
        let (start, run) = self.runs.range(..=logical.0).next_back()?;
        let offset = logical.0.checked_sub(*start).filter(|offset| *offset < run.length)?;
        let sector = offset.checked_div(self.sector_size)?;
        let word = usize::try_from(sector / 64).ok()?;
        Some((*start, word, 1 << (sector % 64)))
    }

    /// Adds a block; false if it was there, or is outside.
    pub(crate) fn insert(&mut self, logical: Logical) -> bool {
        let Some((start, word, bit)) = self.place(logical) else { return false };
        let Some(run) = self.runs.get_mut(&start) else { return false };
        if run.bits.len() <= word {
            run.bits.resize(word.saturating_add(1), 0);
        }
        let Some(bits) = run.bits.get_mut(word) else { return false };
        let is_new = *bits & bit == 0;
        *bits |= bit;
        is_new
    }

    /// Takes a block out.
    pub(crate) fn remove(&mut self, logical: Logical) {
        let Some((start, word, bit)) = self.place(logical) else { return };
        if let Some(bits) = self.runs.get_mut(&start).and_then(|run| run.bits.get_mut(word)) {
            *bits &= !bit;
        }
    }

    /// Whether a block is there.
    pub(crate) fn contains(&self, logical: Logical) -> bool {
        self.place(logical).is_some_and(|(start, word, bit)| {
            self.runs.get(&start).and_then(|run| run.bits.get(word)).is_some_and(|bits| bits & bit != 0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_knows_its_blocks_and_nothing_outside() {
        let chunks = [(Logical(1 << 20), 1 << 20), (Logical(8 << 20), 1 << 16)];
        let mut set = BlockSet::new(4096, chunks.into_iter());
        assert!(set.insert(Logical(1 << 20)));
        assert!(!set.insert(Logical(1 << 20)));
        assert!(set.insert(Logical((8 << 20) + 4096)));
        assert!(set.contains(Logical((8 << 20) + 4096)) && !set.contains(Logical(8 << 20)));
        for outside in [0, (2 << 20), (8 << 20) + (1 << 16), u64::MAX] {
            assert!(!set.insert(Logical(outside)) && !set.contains(Logical(outside)), "{outside}");
        }
        set.remove(Logical(1 << 20));
        assert!(!set.contains(Logical(1 << 20)) && set.contains(Logical((8 << 20) + 4096)));
    }
}
