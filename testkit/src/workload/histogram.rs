//! How often each kind of operation came.

use std::collections::BTreeMap;
use std::fmt;

/// Successes and refusals by kind.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    counts: BTreeMap<String, (u64, u64)>,
}

impl Histogram {
    /// Counts one.
    pub fn count(&mut self, kind: &str, succeeded: bool) {
        self.add(kind, u64::from(succeeded), u64::from(!succeeded));
    }

    /// Counts many.
    pub fn add(&mut self, kind: &str, successes: u64, refusals: u64) {
        let count = self.counts.entry(kind.to_owned()).or_default();
        count.0 += successes;
        count.1 += refusals;
    }

    /// Adds another's counts.
    pub fn merge(&mut self, other: &Self) {
        for (kind, (successes, refusals)) in &other.counts {
            self.add(kind, *successes, *refusals);
        }
    }

    /// Successes of a kind.
    pub fn successes(&self, kind: &str) -> u64 {
        self.counts.get(kind).map_or(0, |count| count.0)
    }

    /// Kinds that came, with fewer successes than `least`.
    pub fn rarer_than(&self, least: u64) -> Vec<(&str, u64)> {
        self.counts
            .iter()
            .filter(|(_, count)| count.0 < least)
            .map(|(kind, count)| (kind.as_str(), count.0))
            .collect()
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{:<24} {:>10} {:>10}", "operation", "succeeded", "refused")?;
        for (kind, (successes, refusals)) in &self.counts {
            writeln!(formatter, "{kind:<24} {successes:>10} {refusals:>10}")?;
        }
        Ok(())
    }
}
