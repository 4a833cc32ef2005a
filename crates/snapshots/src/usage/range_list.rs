//! Ranges gathered in any order, of which only what they cover together matters.

/// Fewer ranges are not joined.
const MIN_JOINED: usize = 1 << 14;

/// A list of ranges: first and end.
#[derive(Default)]
pub(super) struct RangeList {
    ranges: Vec<(u64, u64)>,
    /// Ranges that were left when they were joined last.
    joined: usize,
}

impl RangeList {
    /// Adds a range.
    pub(super) fn push(&mut self, range: (u64, u64)) {
        if self.ranges.len() >= self.joined.saturating_mul(2).max(MIN_JOINED) {
            self.join();
        }
        self.ranges.push(range);
    }

    /// The ranges, of which none touch.
    pub(super) fn joined(&mut self) -> &[(u64, u64)] {
        self.join();
        &self.ranges
    }

    fn join(&mut self) {
        self.ranges.retain(|(from, to)| from < to);
        self.ranges.sort_unstable();
        self.ranges.dedup_by(|next, kept| {
            let touches = next.0 <= kept.1;
            if touches {
                kept.1 = kept.1.max(next.1);
            }
            touches
        });
        self.joined = self.ranges.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_touches_is_one() {
        let mut list = RangeList::default();
        for number in (0..100_000_u64).rev() {
            list.push((number * 2, number * 2 + 1 + number % 2));
        }
        list.push((7, 7));
        let joined = list.joined();
        assert_eq!(joined.len(), 50_001);
        assert_eq!(joined[..2], [(0, 1), (2, 5)]);
        assert_eq!(joined.iter().map(|(from, to)| to - from).sum::<u64>(), 150_000);
    }
}
