//! What the runs of a row gave.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

/// The programs of a round, by their place in the arrays below.
pub const BEFORE: usize = 0;
pub const AFTER: usize = 1;
pub const BEFORE_AGAIN: usize = 2;
pub const NAMES: [&str; 3] = ["before", "after", "before again"];

/// What the runs of a row gave. All arrays are by [`BEFORE`], [`AFTER`] and [`BEFORE_AGAIN`].
#[derive(Serialize, Default)]
pub struct Measured {
    /// The time of each counted round, in seconds.
    pub seconds: [Vec<f64>; 3],
    /// The largest peak resident memory, in bytes; 0 where it can't be told.
    pub peak_bytes: [u64; 3],
    /// What was counted beside the time, by name: one value for each round that counted it.
    pub counts: BTreeMap<String, [Vec<f64>; 3]>,
    /// Why allocations are unknown, if they are.
    pub without_allocations: Option<String>,
    /// What is to be counted of the row.
    pub expected: BTreeSet<String>,
}

impl Measured {
    /// Adds the counts of a run that their map does not have from runs of another kind.
    pub fn add_counts(&mut self, role: usize, counts: Vec<(String, f64)>, known: &[String]) {
        for (name, value) in counts {
            if !known.contains(&name) {
                self.counts.entry(name).or_default()[role].push(value);
            }
        }
    }
}
