//! Free places that new tree blocks take before all others. Where space is short, what a commit changes of
//! the extent tree is bounded by which of its leaves tell of the places that its new blocks take; few long
//! places have few of these.

use std::ops::Range;

use crate::free_ranges::FreeRanges;

/// A part of what is free. Nothing of it is counted here.
#[derive(Debug, Default)]
pub(crate) struct ChosenPlaces {
    /// As they were chosen, in order: what comes back to them is taken first again.
    all: Vec<Range<u64>>,
    left: FreeRanges,
}

impl ChosenPlaces {
    /// From now on these, which are free, in whole blocks and apart.
    pub(crate) fn choose(&mut self, mut places: Vec<Range<u64>>) {
        places.sort_unstable_by_key(|place| place.start);
        self.left = FreeRanges::default();
        for place in &places {
            self.left.add(place.start, place.end - place.start);
        }
        self.all = places;
    }

    /// Bytes that are left of them.
    pub(crate) fn bytes(&self) -> u64 {
        self.left.total()
    }

    /// Where so many bytes may be taken next.
    pub(crate) fn next(&self, bytes: u64) -> Option<u64> {
        self.left.iter().find(|(_, length)| *length >= bytes).map(|(start, _)| start)
    }

    /// What is left of them.
    pub(crate) fn left(&self) -> Vec<(u64, u64)> {
        self.left.iter().collect()
    }

    /// A range is free no more.
    pub(crate) fn taken(&mut self, start: u64, bytes: u64) {
        if !self.all.is_empty() {
            self.left.remove(start, bytes);
        }
    }

    /// A range is free again.
    pub(crate) fn given_back(&mut self, start: u64, bytes: u64) {
        let before = self.all.partition_point(|place| place.start <= start);
        let place = before.checked_sub(1).and_then(|place| self.all.get(place));
        if place.is_some_and(|place| start.saturating_add(bytes) <= place.end) {
            self.left.add(start, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_taken_first_again_and_nothing_else_is() {
        let mut chosen = ChosenPlaces::default();
        chosen.given_back(100, 10);
        chosen.taken(0, 1000);
        assert_eq!((chosen.bytes(), chosen.next(1)), (0, None));
        chosen.choose(vec![200..260, 100..120]);
        assert_eq!((chosen.bytes(), chosen.next(20), chosen.next(30)), (80, Some(100), Some(200)));
        chosen.taken(100, 20);
        chosen.taken(250, 100);
        assert_eq!(chosen.left(), [(200, 50)]);
        chosen.given_back(110, 10);
        chosen.given_back(255, 20);
        chosen.given_back(120, 10);
        assert_eq!(chosen.left(), [(110, 10), (200, 50)]);
        chosen.choose(Vec::new());
        chosen.given_back(110, 10);
        assert_eq!(chosen.bytes(), 0);
    }
}
