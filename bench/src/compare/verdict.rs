//! What the runs of a row say: whether its time and its counts were kept.

use anyhow::Result;
use serde::Serialize;

use super::{AFTER, BEFORE, BEFORE_AGAIN, Measured};
use crate::row::Row;
use crate::span::{ALLOCATIONS, REQUESTS};
use crate::statistics::{Interval, Spread, median, ratio_interval};

/// A time that grew by no more than this is kept.
const MOST_RATIO: f64 = 1.03;
/// The counts that must not grow. The others are there to be looked at.
pub const JUDGED: [&str; 3] = [REQUESTS, "tree.descents", ALLOCATIONS];

/// A ratio of two medians.
#[derive(Serialize, Clone, Copy)]
pub struct Ratio {
    /// The ratio.
    pub value: f64,
    /// Where it lies with 95 % confidence.
    pub interval: Interval,
}

impl Ratio {
    fn new(over: &[f64], under: &[f64], seed: u64) -> Self {
        Self { value: median(over) / median(under), interval: ratio_interval(over, under, seed) }
    }
}

/// The time of a row.
#[derive(Serialize)]
pub struct Time {
    /// Medians before, after, and before again, in seconds.
    pub medians: [f64; 3],
    /// After ÷ before: above 1, it became slower.
    pub ratio: Ratio,
    /// Before again ÷ before: what the harness says of a program and itself.
    pub own_ratio: Ratio,
    /// Whether it was kept.
    pub is_kept: bool,
}

/// A count of a row.
#[derive(Serialize)]
pub struct Count {
    /// Its name.
    pub name: String,
    /// Medians before, after, and before again; nothing where it was not counted.
    pub medians: [Option<f64>; 3],
    /// By how much the runs of the earlier program differ, largest less smallest.
    pub spread: Option<f64>,
    /// Whether it was kept; nothing if it is not judged, or not known on both sides.
    pub is_kept: Option<bool>,
}

/// What became of a row.
#[derive(Serialize)]
pub struct Verdict {
    /// The row.
    pub id: String,
    /// What is done.
    pub workload: String,
    /// What was measured; nothing if the row failed.
    pub measured: Option<Measured>,
    /// Why it failed, if it did.
    pub error: Option<String>,
    /// Its time, if it did not fail.
    pub time: Option<Time>,
    /// What was counted, by name.
    pub counts: Vec<Count>,
}

impl Time {
    fn new(seconds: &[Vec<f64>; 3], seed: u64) -> Self {
        let ratio = Ratio::new(&seconds[AFTER], &seconds[BEFORE], seed);
        let own_ratio = Ratio::new(&seconds[BEFORE_AGAIN], &seconds[BEFORE], seed);
        // Faster is kept as well, so only the upper ends are compared.
        let is_kept = ratio.value <= MOST_RATIO || ratio.interval.high <= own_ratio.interval.high;
        Self { medians: seconds.each_ref().map(|values| median(values)), ratio, own_ratio, is_kept }
    }
}

impl Count {
    fn new(name: &str, values: &[Vec<f64>; 3]) -> Self {
        let medians = values.each_ref().map(|values| Spread::of(values).map(|spread| spread.median));
        let earlier = Spread::of(&[values[BEFORE].as_slice(), &values[BEFORE_AGAIN]].concat());
        let is_kept = match (earlier, medians[AFTER]) {
            (Some(earlier), Some(after)) if JUDGED.contains(&name) => Some(after <= earlier.limit()),
            _ => None,
        };
        Self { name: name.into(), medians, spread: earlier.map(|spread| spread.width), is_kept }
    }
}

impl Verdict {
    /// Judges what a row gave, or tells why it gave nothing.
    pub fn new(row: &Row, measured: Result<Measured>, seed: u64) -> Self {
        let (measured, error) = match measured {
            Ok(measured) => (Some(measured), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let counts = measured.iter().flat_map(|measured| &measured.counts);
        Self {
            id: row.id.into(),
            workload: row.workload.into(),
            time: measured.as_ref().map(|measured| Time::new(&measured.seconds, seed)),
            counts: counts.map(|(name, values)| Count::new(name, values)).collect(),
            measured,
            error,
        }
    }

    /// Whether no count that is judged grew.
    pub fn has_kept_counts(&self) -> bool {
        self.counts.iter().all(|count| count.is_kept != Some(false))
    }

    /// Whether the row ran, took no longer, and counted no more.
    pub fn is_kept(&self) -> bool {
        self.time.as_ref().is_some_and(|time| time.is_kept) && self.has_kept_counts()
    }

    /// A count by its name.
    pub fn count(&self, name: &str) -> Option<&Count> {
        self.counts.iter().find(|count| count.name == name)
    }

    /// In one line.
    pub fn line(&self) -> String {
        let Some(time) = &self.time else {
            return format!("{} failed: {}", self.id, self.error.as_deref().unwrap_or_default());
        };
        let word = |is_kept: bool| if is_kept { "kept" } else { "NOT KEPT" };
        format!(
            "{}: {:.3} after, {:.3} again; time {}, counts {}",
            self.id,
            time.ratio.value,
            time.own_ratio.value,
            word(time.is_kept),
            word(self.has_kept_counts())
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(after: [f64; 3], again: [f64; 3]) -> bool {
        Time::new(&[vec![1.0, 1.0, 1.0], after.to_vec(), again.to_vec()], 1).is_kept
    }

    #[test]
    fn a_time_is_kept_if_it_grew_little_or_by_no_more_than_the_harness_varies() {
        assert!(time([1.02, 1.03, 1.02], [1.0; 3]));
        assert!(time([0.5; 3], [1.0; 3]));
        assert!(!time([1.05; 3], [1.0; 3]));
        assert!(time([1.05; 3], [1.06; 3]));
        assert!(!time([1.05, 1.05, 1.2], [1.06; 3]));
    }

    #[test]
    fn counts_that_are_judged_may_grow_by_what_the_earlier_program_varies() {
        let kept = |name: &str, before: [f64; 2], after: f64| {
            Count::new(name, &[vec![before[0]], vec![after], vec![before[1]]]).is_kept
        };
        assert_eq!(kept(REQUESTS, [100.0, 100.0], 100.0), Some(true));
        assert_eq!(kept(REQUESTS, [100.0, 100.0], 101.0), Some(false));
        assert_eq!(kept(ALLOCATIONS, [100.0, 102.0], 104.0), Some(true));
        assert_eq!(kept(ALLOCATIONS, [100.0, 102.0], 105.0), Some(false));
        assert_eq!(kept("tree.splits", [100.0, 100.0], 900.0), None);
    }

    #[test]
    fn a_count_that_one_side_does_not_have_is_not_judged() {
        let count = Count::new(REQUESTS, &[vec![], vec![5.0], vec![]]);
        assert_eq!((count.medians, count.is_kept), ([None, Some(5.0), None], None));
    }
}
