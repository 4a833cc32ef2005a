//! What repeated runs tell: medians, how sure a ratio of two of them is, and what a count may differ by.

use serde::Serialize;
use vlinder_base::random::{Random, SeededRandom};

/// How often the rounds are drawn anew for an interval.
const RESAMPLES: usize = 10_000;
/// The part of the resamples that lies below an interval, and above it.
const TAIL: f64 = 0.025;

/// The middle of the values, the upper one of two; NaN if there are none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Where a ratio lies with 95 % confidence.
#[derive(Serialize, Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// The interval of median(`over`) ÷ median(`under`), by the percentile bootstrap. Element n of both slices
/// comes from round n, and a round is drawn as a whole: what slowed both sides of a round down cancels out.
/// The same seed gives the same interval.
///
/// # Panics
/// If the slices differ in length, or are empty.
pub fn ratio_interval(over: &[f64], under: &[f64], seed: u64) -> Interval {
    assert!(!over.is_empty() && over.len() == under.len(), "one value of each side for each round");
    let random = SeededRandom::new(seed);
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let rounds: Vec<usize> = over.iter().map(|_| below(&random, over.len())).collect();
            let drawn =
                |values: &[f64]| median(&rounds.iter().map(|round| values[*round]).collect::<Vec<_>>());
            drawn(over) / drawn(under)
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let rank = |part: f64| ratios[((RESAMPLES - 1) as f64 * part).round() as usize];
    Interval { low: rank(TAIL), high: rank(1.0 - TAIL) }
}

/// A number below `end`. The modulo favours small numbers by less than `end` in 2^64.
fn below(random: &SeededRandom, end: usize) -> usize {
    (random.next_u64() % end as u64) as usize
}

/// The numbers below `N` in an order that depends on the seed and the round.
pub fn order<const N: usize>(seed: u64, round: usize) -> [usize; N] {
    // Each round has a sequence of its own, so that its order does not depend on how many came before.
    let random = SeededRandom::new(seed ^ (round as u64).rotate_left(32));
    let mut order = std::array::from_fn(|number| number);
    for last in (1..N).rev() {
        order.swap(last, below(&random, last + 1));
    }
    order
}

/// A count of one program in repeated runs: what its runs differ by is what another program's count may
/// exceed it by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The median of the runs.
    pub median: f64,
    /// The largest less the smallest.
    pub width: f64,
}

impl Spread {
    /// Of the counts of all runs of the one program; nothing if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let low = values.iter().copied().min_by(f64::total_cmp)?;
        let high = values.iter().copied().max_by(f64::total_cmp)?;
        Some(Self { median: median(values), width: high - low })
    }

    /// The largest count that is not more than this one.
    pub fn limit(self) -> f64 {
        self.median + self.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_the_upper_of_two() {
        assert_eq!((median(&[3.0, 1.0, 2.0]), median(&[4.0, 1.0, 2.0, 3.0])), (2.0, 3.0));
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn equal_rounds_have_an_interval_without_width() {
        let interval = ratio_interval(&[3.0; 5], &[2.0; 5], 1);
        assert_eq!(interval, Interval { low: 1.5, high: 1.5 });
    }

    #[test]
    fn rounds_are_drawn_in_pairs() {
        // The rounds differ by a factor of ten, the sides of each round by exactly two.
        let under = [1.0, 10.0, 2.0, 7.0, 4.0];
        let over = under.map(|value| value * 2.0);
        assert_eq!(ratio_interval(&over, &under, 7), Interval { low: 2.0, high: 2.0 });
    }

    #[test]
    fn an_interval_holds_the_ratio_and_follows_from_the_seed() {
        let under = [1.00, 1.03, 0.98, 1.01, 0.99, 1.02, 1.00, 0.97, 1.01];
        let over = [1.11, 1.09, 1.12, 1.10, 1.08, 1.13, 1.10, 1.09, 1.11];
        let interval = ratio_interval(&over, &under, 3);
        assert!(interval.low < 1.10 && 1.10 < interval.high, "{interval:?}");
        assert!(interval.low > 1.05 && interval.high < 1.15, "{interval:?}");
        assert_eq!(interval, ratio_interval(&over, &under, 3));
    }

    #[test]
    fn every_order_comes_up_and_a_round_always_has_the_same() {
        let mut seen: Vec<[usize; 3]> = (0..60).map(|round| order(1, round)).collect();
        assert_eq!(seen, (0..60).map(|round| order(1, round)).collect::<Vec<_>>());
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 6);
    }

    #[test]
    fn an_exact_count_may_not_grow_and_a_varying_one_a_little() {
        let exact = Spread::of(&[7.0, 7.0, 7.0]).unwrap();
        assert_eq!((exact.limit(), exact.width), (7.0, 0.0));
        assert_eq!(Spread::of(&[100.0, 104.0, 101.0]).unwrap().limit(), 105.0);
        assert_eq!(Spread::of(&[]), None);
    }
}
