//! `cargo xtask long JOB`: long runs that `.ci/run` has no time for, each judged strictly by a program of its
//! own.
//!
//! A job is rows of a table; a run is a row and a seed. Results are appended to `target/long/JOB.jsonl`.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::workspace;

/// The job that is a seeded slice of all others.
const EVERY_JOB: &str = "full";
/// Minutes of that job if `MINUTES` doesn't say.
const DEFAULT_MINUTES: u64 = 10;
/// Corpus images, from the root of the repository.
const CORPUS: &str = "../shared/corpus/full";
/// What stands in an argument for the directory of the corpus.
const CORPUS_MARK: &str = "CORPUS";

/// A job's name and the arguments of `tools/full/run.py` of each of its runs.
struct Job {
    name: &'static str,
    rows: &'static [&'static str],
}

const JOBS: &[Job] = &[
    Job {
        name: "full-fill",
        rows: &[
            "fill --size 128M --bytes 1800",
            "fill --size 256M --bytes 1800 --opts commit=5",
            "fill --size 256M --bytes 1800 --opts writeback=off",
            "fill --size 128M --bytes 1400",
            "fill --size 128M --bytes 4096",
            "fill --size 512M --bytes 65536",
            "fill --size 1G --bytes 1800",
        ],
    },
    Job {
        name: "full-one-process",
        rows: &[
            "one-process --size 200M --refusals 10000",
            "one-process --size 200M --opts compress=zstd",
            "one-process --size 200M --opts writeback=off",
            "one-process --size 400M --opts compress=zstd",
        ],
    },
    Job {
        name: "full-snapshots",
        rows: &[
            "snapshot-then-fill --size 200M --half 3000 --extents 10000",
            "snapshot-then-fill --size 200M",
            "snapshot-then-fill --size 512M --half 20000",
            "remove-then-snapshot --size 256M",
            "remove-then-snapshot --size 256M --remove 50 --extents 10000",
        ],
    },
    Job {
        name: "full-scatter",
        rows: &[
            "scatter --size 512M",
            "scatter --size 512M --leave 2000",
            "scatter --size 256M --extents 28000 --touch 100",
        ],
    },
    Job {
        name: "full-stress",
        rows: &[
            "stress --size 200M --seconds 75 --renew 3 --profile meta",
            "stress --size 200M --seconds 45 --renew 4 --profile meta --opts writeback=off",
            "stress --size 256M --seconds 60 --renew 10 --profile dbmix --opts writeback=off",
            "stress --size 200M --seconds 60 --profile all",
            "stress --size 200M --seconds 60 --profile extents --opts compress=zstd",
            "stress --size 200M --seconds 60 --renew 0 --profile names",
        ],
    },
    Job {
        name: "full-images",
        rows: &["image --image CORPUS/forever.img.zst", "image --image CORPUS/c-commit-fails.img.zst"],
    },
];

/// What became of the runs.
#[derive(Default)]
struct Count {
    passed: u64,
    failed: u64,
    skipped: u64,
}

/// What all runs of one call share.
struct Session {
    seed: u64,
    commit: String,
    target: PathBuf,
    results: PathBuf,
    count: Count,
}

/// `cargo xtask long JOB`; false if a run failed.
pub fn run(job: &str) -> Result<bool> {
    let rows = rows_of(job)?;
    let minutes = number("MINUTES")?.or((job == EVERY_JOB).then_some(DEFAULT_MINUTES));
    let target = workspace::target_directory()?;
    let results = target.join("long").join(format!("{job}.jsonl"));
    std::fs::create_dir_all(target.join("long"))?;
    let seed = number("SEED")?.unwrap_or(1);
    let mut session = Session { seed, commit: commit()?, target, results, count: Count::default() };
    let missing = missing_things();
    let mut runnable = Vec::new();
    for row in rows {
        let lacking = missing.first().cloned().or_else(|| missing_image(row));
        match lacking {
            Some(lacking) => session.count.skip(row, &lacking),
            None => runnable.push(row),
        }
    }
    if !runnable.is_empty() {
        build()?;
        session.all(&runnable, minutes)?;
    }
    let Count { passed, failed, skipped } = session.count;
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(failed == 0)
}

impl Count {
    /// Names a run that can't be made; a failure where everything is required.
    fn skip(&mut self, row: &str, lacking: &str) {
        if std::env::var("VLINDER_REQUIRE").is_ok_and(|value| value == "all") {
            self.failed += 1;
            println!("FAILED {row}: needs {lacking}");
        } else {
            self.skipped += 1;
            println!("SKIPPED {row}: needs {lacking}");
        }
    }
}

impl Session {
    /// Every row once; with a number of minutes in an order that the seed chooses, again and again with
    /// further seeds, and no run begins after the minutes.
    fn all(&mut self, rows: &[&str], minutes: Option<u64>) -> Result<()> {
        let Some(minutes) = minutes else {
            return rows.iter().try_for_each(|row| self.one(row, self.seed));
        };
        let end = Instant::now() + Duration::from_secs(minutes.saturating_mul(60));
        for turn in 0.. {
            let seed = self.seed.wrapping_add(turn);
            for row in shuffled(rows, seed) {
                if Instant::now() >= end {
                    return Ok(());
                }
                self.one(row, seed)?;
            }
        }
        Ok(())
    }

    /// One run: its verdict is counted, its line of JSON kept.
    fn one(&mut self, row: &str, seed: u64) -> Result<()> {
        let seed = seed.to_string();
        let vlinder = self.target.join("release/vlinder");
        let mut command = Command::new(workspace::root().join("tools/full/run.py"));
        command.args(row.split(' ').map(with_corpus)).args(["--seed", &seed]).arg("--vlinder").arg(vlinder);
        let words: Vec<String> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let output =
            command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("tools/full/run.py")?;
        let text = String::from_utf8_lossy(&output.stdout);
        let result: Value = serde_json::from_str(text.trim()).unwrap_or_default();
        let is_good = output.status.success() && result["verdict"] == "pass";
        let line = json!({
            "commit": self.commit, "seed": seed, "command": words, "passed": is_good, "result": result,
        });
        let mut file = OpenOptions::new().create(true).append(true).open(&self.results)?;
        writeln!(file, "{line}").with_context(|| self.results.display().to_string())?;
        println!("{} {row} --seed {seed}", if is_good { "passed" } else { "FAILED" });
        if is_good {
            self.count.passed += 1;
            return Ok(());
        }
        self.count.failed += 1;
        for violation in result["violations"].as_array().into_iter().flatten() {
            println!("| {}", violation.as_str().unwrap_or_default());
        }
        Ok(())
    }
}

/// The rows of a job; an error names all jobs.
fn rows_of(name: &str) -> Result<Vec<&'static str>> {
    let rows: Vec<&str> = JOBS
        .iter()
        .filter(|job| name == EVERY_JOB || job.name == name)
        .flat_map(|job| job.rows.iter().copied())
        .collect();
    if rows.is_empty() {
        let names: Vec<&str> = JOBS.iter().map(|job| job.name).collect();
        bail!("there is no job {name}: {EVERY_JOB}, {}", names.join(", "));
    }
    Ok(rows)
}

/// The rows in an order that the seed chooses.
fn shuffled<'a>(rows: &[&'a str], seed: u64) -> Vec<&'a str> {
    let mut keyed: Vec<(u64, &str)> =
        (0_u64..).zip(rows).map(|(index, row)| (scrambled(seed ^ scrambled(index)), *row)).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, row)| row).collect()
}

/// SplitMix64's output for a state.
fn scrambled(state: u64) -> u64 {
    let mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn with_corpus(word: &str) -> String {
    let Some(image) = word.strip_prefix(CORPUS_MARK) else { return word.to_owned() };
    format!("{}{image}", workspace::root().join(CORPUS).display())
}

/// The image that a row wants and that isn't there.
fn missing_image(row: &str) -> Option<String> {
    let image = row.split(' ').find(|word| word.starts_with(CORPUS_MARK)).map(with_corpus)?;
    (!Path::new(&image).exists()).then_some(image)
}

/// What every run needs and this machine lacks.
fn missing_things() -> Vec<String> {
    let succeeds = |program: &str, argument: &str| {
        let done = Command::new(program).arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    let user = Command::new("id").arg("-u").output().map(|output| output.stdout).unwrap_or_default();
    let needs = [
        ("root", user.trim_ascii() == b"0"),
        ("/dev/fuse", Path::new("/dev/fuse").exists()),
        ("the tool btrfs", succeeds("btrfs", "--version")),
        ("the tool python3", succeeds("python3", "--version")),
        ("the tool zstd", succeeds("zstd", "--version")),
    ];
    needs.into_iter().filter(|(_, is_there)| !is_there).map(|(name, _)| name.to_owned()).collect()
}

/// Builds the program that the runs try.
fn build() -> Result<()> {
    let arguments = ["build", "--release", "--quiet", "--package", "vlinder-cli"];
    let status = Command::new("cargo").args(arguments).current_dir(workspace::root()).status()?;
    ensure!(status.success(), "the release build fails");
    Ok(())
}

/// The commit of the checkout, with a mark if it was changed since.
fn commit() -> Result<String> {
    let arguments = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"];
    let output = Command::new("git").args(arguments).current_dir(workspace::root()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A number that the environment gives.
fn number(name: &str) -> Result<Option<u64>> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => {
            Ok(Some(text.parse().with_context(|| format!("{name} is no number: {text}"))?))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_of_all_jobs_has_every_row_once_in_each_order() {
        let rows = rows_of(EVERY_JOB).unwrap();
        let (one, other) = (shuffled(&rows, 1), shuffled(&rows, 2));
        assert_ne!(one, other);
        assert_eq!(one, shuffled(&rows, 1));
        let sorted = |mut rows: Vec<&'static str>| {
            rows.sort_unstable();
            rows
        };
        assert_eq!(sorted(one), sorted(rows));
    }

    #[test]
    fn a_job_that_is_not_there_is_an_error() {
        assert!(rows_of("full-nothing").is_err());
    }
}
