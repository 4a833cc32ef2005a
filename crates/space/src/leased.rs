//! Space that was freed while a committed state that reaches it is leased: it stays pinned until the lease
//! ends.

use std::collections::BTreeMap;

use vlinder_format::Generation;

use crate::free_ranges::FreeRanges;

/// The oldest and the newest leased state that reach an extent. All leases between them reach it too: it was
/// there when the oldest was committed, and was freed after the newest; leases that are granted later are of
/// later states.
pub type Needing = (Generation, Generation);

/// Ranges by the leases that need them.
#[derive(Debug, Default)]
pub struct NeededRanges(BTreeMap<Needing, FreeRanges>);

impl NeededRanges {
    pub fn add(&mut self, needing: Needing, start: u64, length: u64) {
        self.0.entry(needing).or_default().add(start, length);
    }

    pub fn bytes(&self) -> u64 {
        self.0.values().map(FreeRanges::total).sum()
    }

    pub fn pieces(&self) -> usize {
        self.0.values().map(FreeRanges::pieces).sum()
    }

    pub fn overlaps(&self, start: u64, length: u64) -> bool {
        self.0.values().any(|ranges| ranges.overlaps(start, length))
    }

    /// The ranges that share bytes with these bounds.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.values().flat_map(move |ranges| ranges.within(start, end))
    }

    /// Regroups all ranges by the leases that still need them. `needing` returns what is left of a span of
    /// leases. Ranges that no lease needs go to `release`.
    pub fn sift(&mut self, needing: impl Fn(Needing) -> Option<Needing>, mut release: impl FnMut(u64, u64)) {
        for (before, ranges) in std::mem::take(&mut self.0) {
            match needing(before) {
                None => ranges.iter().for_each(|(start, length)| release(start, length)),
                Some(now) if !self.0.contains_key(&now) => {
                    self.0.insert(now, ranges);
                }
                Some(now) => ranges.iter().for_each(|(start, length)| self.add(now, start, length)),
            }
        }
    }

    /// Moves all ranges to another set.
    pub fn move_to(&mut self, other: &mut Self, mut moved: impl FnMut(u64, u64)) {
        for (needing, ranges) in std::mem::take(&mut self.0) {
            for (start, length) in ranges.iter() {
                moved(start, length);
                other.add(needing, start, length);
            }
        }
    }
}
