//! What the runs of a row say: whether its time and its counts were kept.

use anyhow::Result;
use serde::Serialize;

use super::measured::{AFTER, BEFORE, BEFORE_AGAIN, Measured};
use crate::row::Row;
use crate::span::{ALLOCATIONS, DESCENTS, REQUESTS};
use crate::statistics::{Interval, Spread, median, ratio_interval};

/// A time that grew by no more than this is kept.
const MAX_RATIO: f64 = 1.03;
/// Fewer counted rounds decide nothing about a time.
const MIN_ROUNDS: usize = 15;
/// The harness decides only if a program against itself lies within this of 1, with 95 % confidence.
const MAX_OWN_DIFFERENCE: f64 = 0.05;
/// The counts that must not grow. The others are there to be looked at.
pub const JUDGED: [&str; 3] = [REQUESTS, DESCENTS, ALLOCATIONS];

/// What is said of a time or a count.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It did not grow.
    Kept,
    /// It grew, or is missing where it was to be counted.
    NotKept,
    /// The runs do not tell: too few, or the harness varies too much.
    Undecided,
}

impl Judgement {
    /// In a table.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::NotKept => "**not kept**",
            Self::Undecided => "**undecided**",
        }
    }
}

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

    /// How far it may lie from 1, which it is for a program against itself.
    fn difference(&self) -> f64 {
        f64::max(self.interval.high - 1.0, 1.0 - self.interval.low)
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
    pub judgement: Judgement,
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
    /// Whether it was kept; nothing if it is not judged.
    pub judgement: Option<Judgement>,
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
        let judgement = Self::judge(seconds[AFTER].len(), ratio, own_ratio);
        Self { medians: seconds.each_ref().map(|values| median(values)), ratio, own_ratio, judgement }
    }

    /// | rounds | harness | the ratio | judgement |
    /// |---|---|---|---|
    /// | too few | any | any | undecided |
    /// | enough | any | surely no more than the most, of the harness's lower end too | kept |
    /// | enough | any | surely more than the most, and than the harness varies | not kept |
    /// | enough | too wide | any other | undecided |
    /// | enough | narrow | no more than the most, or no higher than the harness varies | kept |
    /// | enough | narrow | any other | not kept |
    fn judge(rounds: usize, ratio: Ratio, own_ratio: Ratio) -> Judgement {
        // Faster is kept as well, so only the upper ends are compared.
        // The earlier program may be as fast as its fastest runs are.
        let is_surely_kept = ratio.interval.high <= MAX_RATIO * f64::min(1.0, own_ratio.interval.low);
        let is_surely_lost = ratio.interval.low > f64::max(MAX_RATIO, own_ratio.interval.high);
        let is_kept = ratio.value <= MAX_RATIO || ratio.interval.high <= own_ratio.interval.high;
        // NaN, of a time of 0, is no decision.
        let decides = own_ratio.difference() <= MAX_OWN_DIFFERENCE;
        match (rounds >= MIN_ROUNDS, decides) {
            (false, _) => Judgement::Undecided,
            _ if is_surely_kept => Judgement::Kept,
            _ if is_surely_lost => Judgement::NotKept,
            (_, false) => Judgement::Undecided,
            _ if is_kept => Judgement::Kept,
            _ => Judgement::NotKept,
        }
    }
}

impl Count {
    fn new(name: &str, values: &[Vec<f64>; 3]) -> Self {
        let medians = values.each_ref().map(|values| Spread::of(values).map(|spread| spread.median));
        let earlier = Spread::of(&[values[BEFORE].as_slice(), &values[BEFORE_AGAIN]].concat());
        let judge = || match (earlier, medians[AFTER]) {
            (Some(earlier), Some(after)) if after <= earlier.limit() => Judgement::Kept,
            _ => Judgement::NotKept,
        };
        let judgement = JUDGED.contains(&name).then(judge);
        Self { name: name.into(), medians, spread: earlier.map(|spread| spread.width), judgement }
    }

    /// All of a row, with those that were to be judged and were counted on no side.
    fn all(measured: &Measured) -> Vec<Self> {
        let counts = &measured.counts;
        let is_missing = |name: &&str| measured.expected.contains(*name) && !counts.contains_key(*name);
        let missing = JUDGED.into_iter().filter(is_missing);
        let missing = missing.map(|name| Self::new(name, &Default::default()));
        counts.iter().map(|(name, values)| Self::new(name, values)).chain(missing).collect()
    }
}

impl Verdict {
    /// Judges what a row gave, or tells why it gave nothing.
    pub fn new(row: &Row, measured: Result<Measured>, seed: u64) -> Self {
        let (measured, error) = match measured {
            Ok(measured) => (Some(measured), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        Self {
            id: row.id.into(),
            workload: row.workload.into(),
            time: measured.as_ref().map(|measured| Time::new(&measured.seconds, seed)),
            counts: measured.as_ref().map(Count::all).unwrap_or_default(),
            measured,
            error,
        }
    }

    /// Whether a count that is judged grew or is missing; nothing if the row has none.
    pub fn counts_judgement(&self) -> Option<Judgement> {
        let judged = || self.counts.iter().filter_map(|count| count.judgement);
        judged().find(|judgement| *judgement != Judgement::Kept).or_else(|| judged().next())
    }

    /// Whether the row ran, took no longer, and counted no more.
    pub fn judgement(&self) -> Judgement {
        let time = self.time.as_ref().map_or(Judgement::NotKept, |time| time.judgement);
        let both = [time, self.counts_judgement().unwrap_or(Judgement::Kept)];
        let has = |judgement| both.contains(&judgement).then_some(judgement);
        has(Judgement::NotKept).or_else(|| has(Judgement::Undecided)).unwrap_or(Judgement::Kept)
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
        format!(
            "{}: {:.3} after, {:.3} again; time {}, counts {}",
            self.id,
            time.ratio.value,
            time.own_ratio.value,
            time.judgement.word(),
            self.counts_judgement().map_or("none", Judgement::word)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Judgement::{Kept, NotKept, Undecided};

    /// Rounds that take these times in turn.
    fn rounds<const N: usize>(times: [f64; N]) -> Vec<f64> {
        times.into_iter().cycle().take(MIN_ROUNDS).collect()
    }

    fn time<const N: usize, const M: usize>(after: [f64; N], again: [f64; M]) -> Judgement {
        Time::new(&[rounds([1.0]), rounds(after), rounds(again)], 1).judgement
    }

    #[test]
    fn a_time_is_kept_if_it_grew_no_more_than_the_harness_varies() {
        assert_eq!(time([1.02, 1.03, 1.02], [1.0]), Kept);
        assert_eq!(time([0.5], [1.0]), Kept);
        assert_eq!(time([1.05], [1.0]), NotKept);
        assert_eq!(time([1.04], [1.045]), Kept);
        assert_eq!(time([1.04, 1.04, 1.2], [1.045]), NotKept);
    }

    #[test]
    fn a_noisy_harness_keeps_no_slowdown_and_loses_no_time() {
        let noise = [0.9, 1.0, 1.2];
        assert_eq!(time([1.05], [1.06]), Undecided, "a program is no slower than itself");
        assert_eq!(time([1.1], noise), Undecided);
        assert_eq!(time([0.9, 1.0, 1.3], noise), Undecided, "its median may be luck");
        assert_eq!(time([1.02], [0.85]), Undecided, "it is slower than the second of two equal programs");
    }

    #[test]
    fn what_is_sure_is_said_whatever_the_harness_varies() {
        let noise = [0.9, 1.0, 1.2];
        assert_eq!(time([0.5, 0.6, 0.7], noise), Kept);
        assert_eq!(time([2.0, 2.5, 3.0], noise), NotKept);
    }

    #[test]
    fn few_rounds_decide_nothing() {
        let few = |after: f64| {
            Time::new(&[vec![1.0; MIN_ROUNDS - 1], vec![after; MIN_ROUNDS - 1], vec![1.0; MIN_ROUNDS - 1]], 1)
        };
        assert_eq!([few(0.5).judgement, few(3.0).judgement], [Undecided; 2]);
        let nothing = vec![0.0; MIN_ROUNDS];
        assert_eq!(Time::new(&[nothing.clone(), nothing.clone(), nothing], 1).judgement, Undecided);
    }

    #[test]
    fn judged_counts_may_grow_by_what_the_earlier_program_varies() {
        let judged = |name: &str, before: [f64; 2], after: f64| {
            Count::new(name, &[vec![before[0]], vec![after], vec![before[1]]]).judgement
        };
        assert_eq!(judged(REQUESTS, [100.0, 100.0], 100.0), Some(Kept));
        assert_eq!(judged(REQUESTS, [100.0, 100.0], 101.0), Some(NotKept));
        assert_eq!(judged(ALLOCATIONS, [100.0, 102.0], 104.0), Some(Kept));
        assert_eq!(judged(ALLOCATIONS, [100.0, 102.0], 105.0), Some(NotKept));
        assert_eq!(judged("tree.splits", [100.0, 100.0], 900.0), None);
    }

    #[test]
    fn a_judged_count_that_one_side_does_not_have_is_not_kept() {
        let before = Count::new(REQUESTS, &[vec![], vec![5.0], vec![]]);
        assert_eq!((before.medians, before.judgement), ([None, Some(5.0), None], Some(NotKept)));
        let after = Count::new(DESCENTS, &[vec![5.0], vec![], vec![5.0]]);
        assert_eq!(after.judgement, Some(NotKept));
        assert_eq!(Count::new("tree.splits", &[vec![], vec![5.0], vec![]]).judgement, None);
    }

    #[test]
    fn a_judged_count_that_no_side_has_is_not_kept() {
        let judged = |measured: &Measured| -> Vec<(String, Judgement)> {
            let counts = Count::all(measured).into_iter();
            counts.filter_map(|count| Some((count.name, count.judgement?))).collect()
        };
        let mut measured = Measured::default();
        assert!(judged(&measured).is_empty(), "the row marks nothing");
        measured.expected = JUDGED.map(str::to_owned).into();
        measured.counts.insert(REQUESTS.into(), [vec![1.0], vec![1.0], vec![1.0]]);
        let expected = [(REQUESTS, Kept), (DESCENTS, NotKept), (ALLOCATIONS, NotKept)];
        assert_eq!(judged(&measured), expected.map(|(name, judgement)| (name.to_owned(), judgement)));
    }
}
