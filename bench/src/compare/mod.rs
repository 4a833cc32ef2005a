//! vlinder against an earlier vlinder: `make bench BEFORE=COMMIT ROWS=…`.
//!
//! The rows' code is this checkout's. What is swapped is the programs that they measure: those built at the
//! earlier commit (A), those of this checkout (B), and the earlier ones once more (A′), which tells how much
//! the harness itself varies. Each run is a process of its own that knows one build alone, so it can't mix
//! two, and it can be ended when it hangs.

mod build;
mod measured;
mod report;
mod trial;
mod verdict;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::host::Host;
use crate::observation::Observation;
use crate::row::{Row, Settings, number};
use crate::span::ALLOCATIONS;
use crate::statistics;
use build::{Build, Program};
use measured::{AFTER, Measured, NAMES};
pub use trial::{OPTION as TRIAL, run as run_trial};
use trial::{Order, TrialResult};
use verdict::{Judgement, Verdict};

/// Counted rounds, unless RUNS says otherwise.
const RUNS: u64 = 15;
/// Rounds in which allocations are counted, and nothing is timed.
const TRACED_ROUNDS: usize = 2;
/// Seconds that a run may take, unless LIMIT says otherwise.
const LIMIT_SECONDS: u64 = 600;

/// How all rows are run.
struct Comparison {
    host: Host,
    settings: Settings,
    builds: [Build; 2],
    limit: Duration,
    seed: u64,
}

/// Compares the rows' first sides; the tables go to standard output and into files under the target
/// directory. Returns whether every row was kept: a row that fails is not kept, nor is one of which nothing
/// is decided. The rows after it are run all the same.
///
/// # Errors
/// If the earlier commit or a program can't be built, or a row can't be compared.
pub fn run(before: &str, rows: &[&Row]) -> Result<bool> {
    let settings = Settings::from_environment(RUNS)?;
    if settings.runs == 0 {
        bail!("RUNS=0 measures nothing; give a number of at least 1");
    }
    let programs: Vec<Program> =
        rows.iter().map(|row| build::programs(row)).collect::<Result<Vec<_>>>()?.concat();
    let (earlier, directory) = Build::earlier(before, &programs)?;
    let builds = [earlier, Build::own(&programs)?];
    for row in rows {
        let needs = row.sides[0].needs;
        ensure!(crate::command::have(needs), "row {} needs {needs}; install it", row.id);
    }
    let host = Host::prepare().context("preparing a directory on tmpfs")?;
    let limit = Duration::from_secs(number("LIMIT", LIMIT_SECONDS)?);
    let comparison = Comparison { host, settings, builds, limit, seed: number("SEED", 1)? };
    let mut verdicts = Vec::new();
    for row in rows {
        eprintln!("{}: {}", row.id, row.workload);
        let measured = comparison.measure(row).with_context(|| format!("row {}", row.id));
        comparison.host.clear_mounts();
        let verdict = Verdict::new(row, measured, comparison.seed);
        eprintln!("  {}", verdict.line());
        verdicts.push(verdict);
    }
    let Comparison { settings, builds: [before, after], seed, .. } = comparison;
    let report =
        report::Report { before: before.commit, after: after.commit, settings, seed, rows: verdicts };
    println!("{}", report.page());
    eprintln!("kept in {}", report.store(&directory)?.display());
    Ok(tell(&report.rows))
}

/// Names the rows that were not kept, and those of which nothing is decided; whether there are none.
fn tell(rows: &[Verdict]) -> bool {
    let with = |wanted| -> Vec<&str> {
        rows.iter().filter(|row| row.judgement() == wanted).map(|row| row.id.as_str()).collect()
    };
    let (lost, undecided) = (with(Judgement::NotKept), with(Judgement::Undecided));
    if !lost.is_empty() {
        eprintln!("not kept: {}", lost.join(", "));
    }
    if !undecided.is_empty() {
        eprintln!("undecided: {}; give the machine rest, or more rounds with RUNS", undecided.join(", "));
    }
    lost.is_empty() && undecided.is_empty()
}

impl Comparison {
    fn measure(&self, row: &Row) -> Result<Measured> {
        (row.prepare)(&self.host, &self.settings).context("preparing what all runs start from")?;
        let mut measured = Measured::default();
        for round in 0..=self.settings.runs {
            for role in statistics::order::<3>(self.seed, round) {
                let report = self.trial(row, role, Observation::Counters)?;
                eprintln!("  {} {:.3} s", NAMES[role], report.seconds);
                measured.expected.extend(report.expected);
                if round == 0 {
                    continue;
                }
                measured.seconds[role].push(report.seconds);
                measured.peak_bytes[role] = measured.peak_bytes[role].max(report.peak_bytes);
                measured.add_counts(role, report.counts, &[]);
            }
        }
        if !measured.counts.contains_key(ALLOCATIONS) {
            let counted = self.count_allocations(row, &mut measured);
            measured.without_allocations = counted.err().map(|error| format!("{error:#}"));
        }
        Ok(measured)
    }

    /// Runs the row again under a counter of allocations, which would spoil the time.
    fn count_allocations(&self, row: &Row, measured: &mut Measured) -> Result<()> {
        if !measured.expected.contains(ALLOCATIONS) {
            bail!("the row's code does not mark the part that is timed");
        }
        if !crate::command::have("bpftrace") {
            bail!("bpftrace is not installed");
        }
        let known: Vec<String> = measured.counts.keys().cloned().collect();
        for round in 0..TRACED_ROUNDS {
            for role in statistics::order::<3>(self.seed, round) {
                let paths = build::traced(row, &self.build(role).directory)?;
                let report = self.trial(row, role, Observation::Allocations(paths))?;
                if !report.counts.iter().any(|(name, _)| name == ALLOCATIONS) {
                    bail!("the part that is timed was not traced");
                }
                measured.add_counts(role, report.counts, &known);
            }
        }
        Ok(())
    }

    fn build(&self, role: usize) -> &Build {
        &self.builds[usize::from(role == AFTER)]
    }

    fn trial(&self, row: &Row, role: usize, observation: Observation) -> Result<TrialResult> {
        let order = Order {
            row: row.id.into(),
            directory: self.host.directory().to_owned(),
            programs: self.build(role).directory.clone(),
            settings: self.settings.clone(),
            observation,
        };
        trial::start(&order, self.limit).with_context(|| NAMES[role].to_owned())
    }
}
