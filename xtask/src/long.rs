//! `cargo xtask long JOB`: long runs that `.ci/run` has no time for, each judged strictly by a program of its
//! own.
//!
//! A job has a tool and a matrix of rows; a run is a row and a seed. Without `MINUTES` a job runs its whole
//! matrix; with it, runs in an order that the seed chooses, until the minutes are over. Results are appended
//! to `target/long/JOB.jsonl`, and after them what failed. With `RESUME=1` runs are left out that passed
//! there already, at whichever commit, so that a whole matrix may take several evenings. `LIST=1` prints the
//! runs of the matrix and makes none.

use std::collections::{BTreeSet, HashSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use self::scrambled::scrambled;
use self::tables::{JOBS, Job, Planned, Tool, missing_image, with_corpus};
use crate::workspace;

mod scrambled;
mod tables;

/// The job that is a seeded slice of all that fill disks.
const EVERY_JOB: &str = "full";
/// Minutes of that job if `MINUTES` doesn't say.
const DEFAULT_MINUTES: u64 = 10;
/// Seconds until a run of that job counts as hanging: its rows are short, but Linux may take its time to
/// empty a copy.
const SLICE_LIMIT: &str = "1200";

/// What became of the runs.
#[derive(Default)]
struct Count {
    passed: u64,
    passed_earlier: u64,
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
    /// Arguments that each run gets besides its row's.
    more: &'static [&'static str],
    /// The command lines of runs that passed earlier and are left out.
    earlier: HashSet<String>,
    /// The command lines of the runs that failed.
    failed: Vec<String>,
}

/// `cargo xtask long JOB`; false if a run failed.
pub fn run(name: &str) -> Result<bool> {
    let jobs = jobs_of(name)?;
    let is_slice = name == EVERY_JOB;
    let minutes = number("MINUTES")?.or(is_slice.then_some(DEFAULT_MINUTES));
    let more: &[&str] = if is_slice { &["--limit", SLICE_LIMIT] } else { &[] };
    let is_wanted = |name| anyhow::Ok(number(name)?.is_some_and(|number| number != 0));
    let resumes = is_wanted("RESUME")?;
    let seed = number("SEED")?.unwrap_or(1);
    if is_wanted("LIST")? {
        for Planned { row, seed, .. } in runs_of(&jobs, is_slice, seed) {
            println!("{row} --seed {seed}");
        }
        return Ok(true);
    }
    let target = workspace::target_directory()?;
    let results = target.join("long").join(format!("{name}.jsonl"));
    std::fs::create_dir_all(target.join("long"))?;
    let mut session = Session {
        seed,
        earlier: if resumes {
            passed_in(&std::fs::read_to_string(&results).unwrap_or_default())
        } else {
            HashSet::new()
        },
        commit: commit()?,
        target,
        results,
        count: Count::default(),
        more,
        failed: Vec::new(),
    };
    let tools: BTreeSet<&Tool> = jobs.iter().map(|job| job.tool).collect();
    if let Some(lacking) = tools.iter().flat_map(|tool| missing_things(tool)).next() {
        session.count.skip(name, &lacking);
    } else {
        tools.iter().try_for_each(|tool| try_judge(tool))?;
        build()?;
        session.all(&jobs, is_slice, minutes)?;
    }
    session.tell_failures()?;
    let Count { passed, passed_earlier, failed, skipped } = session.count;
    println!("{passed} passed, {passed_earlier} earlier, {failed} failed, {skipped} skipped");
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
    /// The whole matrix once; with a number of minutes in an order that the seed chooses, again and again
    /// with further seeds, and no run begins after the minutes.
    fn all(&mut self, jobs: &[&Job], is_slice: bool, minutes: Option<u64>) -> Result<()> {
        let Some(minutes) = minutes else {
            return runs_of(jobs, is_slice, self.seed).iter().try_for_each(|run| self.one(run));
        };
        let end = Instant::now() + Duration::from_secs(minutes.saturating_mul(60));
        let most_seeds = jobs.iter().map(|job| job.most_seeds()).max().unwrap_or(1);
        for turn in 0.. {
            let seed = self.seed.wrapping_add(most_seeds.wrapping_mul(turn));
            for run in shuffled(runs_of(jobs, is_slice, seed), seed) {
                if Instant::now() >= end {
                    return Ok(());
                }
                self.one(&run)?;
            }
        }
        Ok(())
    }

    /// Says again, here and in the results, what failed.
    fn tell_failures(&self) -> Result<()> {
        if self.failed.is_empty() {
            return Ok(());
        }
        println!("failed:");
        for command in &self.failed {
            println!("| {command}");
        }
        self.append(&json!({ "commit": self.commit, "failed": self.failed }))
    }

    fn append(&self, line: &Value) -> Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.results)?;
        writeln!(file, "{line}").with_context(|| self.results.display().to_string())
    }

    /// One run: its verdict is counted, its line of JSON kept.
    fn one(&mut self, Planned { tool, row, seed }: &Planned) -> Result<()> {
        if let Some(lacking) = missing_image(row) {
            self.count.skip(row, &lacking);
            return Ok(());
        }
        let seed = seed.to_string();
        let vlinder = self.target.join("release/vlinder");
        let mut command = Command::new(workspace::root().join(tool.program));
        command.args(row.split(' ').map(with_corpus)).args(["--seed", &seed]).args(self.more);
        command.arg("--vlinder").arg(vlinder);
        let words: Vec<String> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        if self.earlier.contains(&words.join(" ")) {
            self.count.passed_earlier += 1;
            return Ok(());
        }
        let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context(tool.program)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (said, result) = split_result(&text);
        let is_good = output.status.success() && result["verdict"] == "pass";
        self.append(&json!({
            "commit": self.commit, "seed": seed, "command": words, "passed": is_good, "result": result,
        }))?;
        if result["verdict"] == "skip" {
            self.count.skip(row, result["reason"].as_str().unwrap_or("what it does not say"));
            return Ok(());
        }
        println!("{} {row} --seed {seed}", if is_good { "passed" } else { "FAILED" });
        if is_good {
            self.count.passed += 1;
            return Ok(());
        }
        self.count.failed += 1;
        self.failed.push(words.join(" "));
        let reasons = result["violations"].as_array().into_iter().flatten().chain(result.get("reason"));
        for line in said.lines().chain(reasons.filter_map(Value::as_str)) {
            println!("| {line}");
        }
        Ok(())
    }
}

/// What a run said before its result, which is the last line; all that it said, and null, if that is no JSON.
fn split_result(text: &str) -> (&str, Value) {
    let text = text.trim_end();
    let (said, last) = text.rsplit_once('\n').unwrap_or(("", text));
    serde_json::from_str(last).map_or((text, Value::Null), |result| (said, result))
}

/// The command lines of the runs that passed when they were made last, by the lines of results.
fn passed_in(results: &str) -> HashSet<String> {
    let mut passed = HashSet::new();
    for line in results.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let Some(words) = line["command"].as_array() else { continue };
        let command = words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
        if line["passed"] == true {
            passed.insert(command);
        } else {
            passed.remove(&command);
        }
    }
    passed
}

/// The jobs of a name; an error names all jobs.
fn jobs_of(name: &str) -> Result<Vec<&'static Job>> {
    let is_meant = |job: &&Job| if name == EVERY_JOB { job.is_sliced() } else { job.name == name };
    let jobs: Vec<&Job> = JOBS.iter().filter(is_meant).collect();
    if jobs.is_empty() {
        let names: Vec<&str> = JOBS.iter().map(|job| job.name).collect();
        bail!("there is no job {name}: {EVERY_JOB}, {}", names.join(", "));
    }
    Ok(jobs)
}

/// The runs of these jobs from a seed on: of the slice or of the whole matrix.
fn runs_of(jobs: &[&Job], is_slice: bool, seed: u64) -> Vec<Planned> {
    jobs.iter().flat_map(|job| if is_slice { job.slice(seed) } else { job.whole(seed) }).collect()
}

/// The runs in an order that the seed chooses.
fn shuffled(runs: Vec<Planned>, seed: u64) -> Vec<Planned> {
    let mut keyed: Vec<(u64, Planned)> =
        (0_u64..).map(|index| scrambled(seed ^ scrambled(index))).zip(runs).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, run)| run).collect()
}

/// What every run of a tool needs and this machine lacks.
fn missing_things(tool: &Tool) -> Vec<String> {
    let succeeds = |program: &str, argument: &str| {
        let done = Command::new(program).arg(argument).stdin(Stdio::null()).stdout(Stdio::null()).status();
        done.is_ok_and(|status| status.success())
    };
    let user = Command::new("id").arg("-u").output().map(|output| output.stdout).unwrap_or_default();
    let mut missing = Vec::new();
    if user.trim_ascii() != b"0" {
        missing.push("root".to_owned());
    }
    if !Path::new("/dev/fuse").exists() {
        missing.push("/dev/fuse".to_owned());
    }
    let commands = tool.needs.iter().filter(|name| !succeeds(name, "--version"));
    missing.extend(commands.map(|name| format!("the tool {name}")));
    missing
}

/// Runs the tests of what judges a tool's runs: a judge that finds nothing must not pass anything.
fn try_judge(tool: &Tool) -> Result<()> {
    let Some(tests) = tool.tests else { return Ok(()) };
    let arguments = ["-m", "unittest", "discover", "-s", tests];
    let mut command = Command::new("python3");
    command.args(arguments).current_dir(workspace::root()).stdin(Stdio::null());
    let output = command.output().context("python3")?;
    ensure!(output.status.success(), "{tests}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
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
    fn the_order_has_every_run_once_and_depends_on_the_seed() {
        let jobs = jobs_of(EVERY_JOB).unwrap();
        for is_slice in [true, false] {
            let runs = runs_of(&jobs, is_slice, 5);
            let (one, other) = (shuffled(runs.clone(), 1), shuffled(runs.clone(), 2));
            assert_ne!(one, other);
            assert_eq!(one, shuffled(runs.clone(), 1));
            let sorted = |mut runs: Vec<Planned>| {
                runs.sort_unstable();
                runs
            };
            assert_eq!(sorted(one), sorted(runs));
        }
    }

    #[test]
    fn the_slice_has_runs_of_every_job_that_fills_disks() {
        for job in JOBS {
            assert_eq!(runs_of(&[job], true, 1).is_empty(), !job.name.starts_with("full-"), "{}", job.name);
        }
        let jobs = jobs_of(EVERY_JOB).unwrap();
        assert!(jobs.iter().all(|job| job.is_sliced()));
    }

    #[test]
    fn the_last_line_is_the_result_and_those_before_it_are_shown() {
        let (said, result) = split_result("FAILED one\nFAILED two\n{\"verdict\": \"fail\"}\n");
        assert_eq!((said, result["verdict"].as_str()), ("FAILED one\nFAILED two", Some("fail")));
        assert_eq!(split_result("{\"verdict\": \"pass\"}").1["verdict"], "pass");
        assert_eq!(split_result("no\nresult\n"), ("no\nresult", Value::Null));
        assert_eq!(split_result(""), ("", Value::Null));
    }

    #[test]
    fn what_passed_last_is_left_out_and_what_failed_since_is_not() {
        let results = r#"{"command":["run.py","fill","--seed","1"],"passed":true}
{"command":["run.py","fill","--seed","2"],"passed":true}
{"failed":["run.py fill --seed 2"]}
{"command":["run.py","fill","--seed","2"],"passed":false}
{"command":["run.py","fill","--seed","3"],"passed":fal"#;
        assert_eq!(passed_in(results), HashSet::from(["run.py fill --seed 1".to_owned()]));
    }

    #[test]
    fn a_job_that_is_not_there_is_an_error() {
        assert!(jobs_of("full-nothing").is_err());
        for name in ["full-fill", "programs", "memory", "unmount", "hostile", "strangers", "setid"] {
            assert_eq!(jobs_of(name).unwrap().len(), 1);
        }
    }
}
