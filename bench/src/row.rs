//! What a row is, and how it is run.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::host::Host;
use crate::machine::Machine;
use crate::statistics::median;

/// A side that takes longer than this is run once.
const LONG: Duration = Duration::from_secs(60);

/// How often, and how large.
#[derive(Serialize, Deserialize, Clone)]
pub struct Settings {
    /// Counted runs of each side; one more comes first and does not count.
    pub runs: usize,
    /// Files of the tree.
    pub files: u64,
}

impl Settings {
    /// From RUNS, or `runs` without it, and FILES.
    pub fn from_environment(runs: u64) -> Result<Self> {
        Ok(Self { runs: usize::try_from(number("RUNS", runs)?)?, files: number("FILES", 50_000)? })
    }
}

/// A number that the environment gives, or its default.
pub fn number(name: &str, default: u64) -> Result<u64> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => text.parse().with_context(|| format!("{name}={text} is no number")),
        _ => Ok(default),
    }
}

/// What one run of a side gave.
pub struct Outcome {
    /// Time from the common start state to the durable end.
    pub time: Duration,
    /// Peak resident memory of the side's server or command; 0 where that cannot be told.
    pub peak_bytes: u64,
}

/// One run of a side.
pub type Run = fn(&Host, &Settings) -> Result<Outcome>;

/// One side of a comparison.
pub struct Side {
    /// Its name.
    pub name: &'static str,
    /// A program that it needs.
    pub needs: &'static str,
    /// Runs it once.
    pub run: Run,
}

/// A row of the table.
pub struct Row {
    /// As the table names it.
    pub id: &'static str,
    /// What is done.
    pub workload: &'static str,
    /// What is wanted, in words.
    pub goal: &'static str,
    /// Files that the row works on, where FILES does not say it.
    pub files: Option<u64>,
    /// Prepares what all sides start from.
    pub prepare: fn(&Host, &Settings) -> Result<()>,
    /// vlinder first, then peers.
    pub sides: Vec<Side>,
}

/// What a side needed.
#[derive(Serialize, Deserialize, Clone)]
pub struct SideResult {
    /// Its name.
    pub name: String,
    /// Every counted run, in seconds.
    pub seconds: Vec<f64>,
    /// Median of them.
    pub median_seconds: f64,
    /// Largest peak resident memory.
    pub peak_bytes: u64,
    /// This side's median over vlinder's: above 1, vlinder is faster.
    pub ratio: f64,
    /// What it counted beside its time: medians by name.
    #[serde(default)]
    pub counts: BTreeMap<String, f64>,
}

/// What a row gave.
#[derive(Serialize, Deserialize, Clone)]
pub struct RowResult {
    /// As the table names it.
    pub id: String,
    /// What was done.
    pub workload: String,
    /// What is wanted.
    pub goal: String,
    /// The commit that was measured.
    pub commit: String,
    /// The command that measured it.
    pub command: String,
    /// Files of the tree.
    pub files: u64,
    /// What it was measured on, and when.
    #[serde(default)]
    pub machine: Option<Machine>,
    /// vlinder first.
    pub sides: Vec<SideResult>,
}

impl Row {
    /// Whether a name means this row: its own, or without the letter, or what follows a dash, that tells the
    /// parts of a row apart.
    pub fn is_named(&self, name: &str) -> bool {
        let (id, name) = (self.id.to_uppercase(), name.to_uppercase());
        let part_of = |part: &str| id.strip_prefix(part).is_some_and(|rest| rest.starts_with('-'));
        id == name || part_of(&name) || id.trim_end_matches(|end: char| end.is_ascii_alphabetic()) == name
    }

    /// Runs all sides in turn, once to warm up and then as often as the settings say; a side that takes long,
    /// once in all.
    pub fn run(&self, host: &Host, settings: &Settings) -> Result<RowResult> {
        (self.prepare)(host, settings)?;
        let present: Vec<&Side> = self
            .sides
            .iter()
            .filter(|side| {
                let there = crate::command::have(side.needs);
                if !there {
                    eprintln!("  {} is left out: {} is not installed", side.name, side.needs);
                }
                there
            })
            .collect();
        let mut seconds = vec![Vec::new(); present.len()];
        let mut peaks = vec![0; present.len()];
        let mut is_over = vec![false; present.len()];
        let mut counts: Vec<BTreeMap<String, Vec<f64>>> = vec![BTreeMap::new(); present.len()];
        for round in 0..=settings.runs {
            for (number, side) in present.iter().enumerate() {
                if is_over[number] {
                    continue;
                }
                let outcome = (side.run)(host, settings).with_context(|| side.name.to_string())?;
                eprintln!("  {} {:.3} s", side.name, outcome.time.as_secs_f64());
                is_over[number] = outcome.time > LONG;
                let notes = host.take_notes();
                if round > 0 || is_over[number] {
                    for (name, value) in notes {
                        counts[number].entry(name).or_default().push(value);
                    }
                    seconds[number].push(outcome.time.as_secs_f64());
                    peaks[number] = peaks[number].max(outcome.peak_bytes);
                }
            }
        }
        let medians: Vec<f64> = seconds.iter().map(|runs| median(runs)).collect();
        let own = medians.first().copied().unwrap_or(f64::NAN);
        let sides = present
            .iter()
            .enumerate()
            .map(|(number, side)| SideResult {
                name: side.name.into(),
                seconds: seconds[number].clone(),
                median_seconds: medians[number],
                peak_bytes: peaks[number],
                ratio: medians[number] / own,
                counts: counts[number].iter().map(|(name, values)| (name.clone(), median(values))).collect(),
            })
            .collect();
        Ok(RowResult {
            id: self.id.into(),
            workload: self.workload.into(),
            goal: self.goal.into(),
            commit: crate::command::shell("git rev-parse --short HEAD")?.trim().into(),
            command: format!("make bench ROWS={} FILES={} RUNS={}", self.id, settings.files, settings.runs),
            files: self.files.unwrap_or(settings.files),
            machine: Some(Machine::here()?),
            sides,
        })
    }
}
