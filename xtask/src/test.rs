//! Runs everything fast and counts it.
//!
//! A test that could not run says so itself, with a line in the file that `VLINDER_SKIP_LOG` names; to the
//! test runner it looks passed, so it is counted over here.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::{tidy, workspace};

/// Lines of each failed test program that are said again at the end: so many of the first and of the last
/// ones, where what the test said before it failed begins, and where it failed.
const FIRST_LINES: usize = 20;
const LAST_LINES: usize = 60;

/// What came of all tests so far.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// What the runners said about failures, shortened.
    failures: Vec<String>,
}

impl Tally {
    /// A check that is not a test counts as one.
    fn step(&mut self, name: &str, is_good: bool) {
        if is_good {
            self.passed += 1;
        } else {
            self.failed += 1;
            println!("FAILED {name}");
            self.failures.push(format!("FAILED {name}"));
        }
    }

    /// Adds a runner's summary:
    /// `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; …`.
    fn add_line(&mut self, line: &str) {
        let Some(summary) = line.trim().strip_prefix("test result: ") else { return };
        let counts = summary.split_once(". ").map_or("", |(_, counts)| counts);
        for part in counts.split("; ") {
            match part.split_once(' ').and_then(|(count, what)| Some((count.parse::<u64>().ok()?, what))) {
                Some((count, "passed")) => self.passed += count,
                Some((count, "failed")) => self.failed += count,
                Some((count, "ignored")) => self.ignored += count,
                _ => {}
            }
        }
    }

    /// Runs a command that runs tests; shows and counts its output. A command that fails without a failed
    /// test (it did not compile, or a test process died) counts as one failure.
    fn run(&mut self, name: &str, command: &mut Command) -> Result<()> {
        println!("--- {name}");
        let before = self.failed;
        let mut child =
            command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().context(name.to_owned())?;
        let output = child.stdout.take().context("no pipe to the child")?;
        let mut repeated = None;
        for line in BufReader::new(output).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            println!("{line}");
            self.add_line(&line);
            // A runner repeats what failed tests printed between this line and its summary.
            match line.as_str() {
                "failures:" if repeated.is_none() => repeated = Some(Vec::new()),
                _ if line.starts_with("test result: ") => {
                    self.failures.extend(shortened(repeated.take().unwrap_or_default()));
                }
                "" | "failures:" => {}
                _ => repeated.iter_mut().for_each(|lines| lines.push(line.clone())),
            }
        }
        self.failures.extend(shortened(repeated.unwrap_or_default()));
        if !child.wait()?.success() && self.failed == before {
            self.step(name, false);
        }
        Ok(())
    }

    /// The last words. Skipped tests are named by their log.
    fn finish(mut self, skip_log: &Path, names_skipped: bool) -> Result<bool> {
        let log = std::fs::read_to_string(skip_log).unwrap_or_default();
        let skipped = skipped_tests(&log);
        for (test, reason) in skipped.iter().filter(|_| names_skipped) {
            println!("SKIPPED {test}: {reason}");
        }
        for line in &self.failures {
            println!("| {line}");
        }
        // Each of them passed as far as its runner knows.
        let skipped_count = skipped.len() as u64;
        self.passed = self.passed.saturating_sub(skipped_count);
        let skipped_count = skipped_count + self.ignored;
        println!("{} passed, {} failed, {skipped_count} skipped", self.passed, self.failed);
        Ok(self.failed == 0)
    }
}

/// The first and the last of many lines.
fn shortened(mut lines: Vec<String>) -> Vec<String> {
    if lines.len() > FIRST_LINES + LAST_LINES {
        let left_out = lines.len() - FIRST_LINES - LAST_LINES;
        lines.splice(FIRST_LINES..FIRST_LINES + left_out, [format!("… {left_out} lines …")]);
    }
    lines
}

/// Tests and reasons of a skip log, each test once.
fn skipped_tests(log: &str) -> BTreeMap<&str, &str> {
    log.lines().filter_map(|line| line.strip_prefix("SKIPPED ")?.split_once(": ")).collect()
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(workspace::root()).stdin(Stdio::null());
    command
}

fn new_skip_log(name: &str) -> Result<PathBuf> {
    let path = workspace::target_directory()?.join(name);
    std::fs::write(&path, "").with_context(|| path.display().to_string())?;
    Ok(path)
}

/// `cargo xtask test`.
pub fn run() -> Result<bool> {
    let skip_log = new_skip_log("skipped.log")?;
    let mut tally = Tally::default();
    println!("--- format");
    tally.step("cargo fmt --all --check", cargo(&["fmt", "--all", "--check"]).status()?.success());
    println!("--- clippy");
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    tally.step("cargo clippy", cargo(&clippy).status()?.success());
    println!("--- tidy");
    tally.step("cargo xtask tidy", tidy::run()?);
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast"]);
    tally.run("tests", tests.env("VLINDER_SKIP_LOG", &skip_log))?;
    model_runs(&mut tally, &skip_log)?;
    tally.finish(&skip_log, true)
}

/// `cargo xtask test quick`: what a change is tried by at every edit. Tests skip themselves that need root,
/// the kernel's mounts or much time; there are no model runs and no lints.
pub fn run_quick() -> Result<bool> {
    let skip_log = new_skip_log("skipped-quick.log")?;
    let mut tally = Tally::default();
    tally.step("cargo fmt --all --check", cargo(&["fmt", "--all", "--check"]).status()?.success());
    tally.step("cargo xtask tidy", tidy::run()?);
    let mut tests =
        cargo(&["test", "--workspace", "--no-fail-fast", "--quiet", "--lib", "--bins", "--tests"]);
    tests.env("VLINDER_QUICK", "1").env_remove("VLINDER_REQUIRE").env("VLINDER_SKIP_LOG", &skip_log);
    tally.run("quick tests", &mut tests)?;
    tally.finish(&skip_log, false)
}

/// Every package with the feature `shuttle` shows its interleavings: its tests in modules whose names begin
/// with `model_`, built with that feature. Ordinary tests can't run so.
fn model_runs(tally: &mut Tally, skip_log: &Path) -> Result<()> {
    let is_model = |package: &workspace::Package| package.features.iter().any(|name| name == "shuttle");
    for package in workspace::packages()?.into_iter().filter(is_model) {
        let name = format!("model runs of {}", package.name);
        let before = tally.passed + tally.failed;
        let chosen = ["test", "--no-fail-fast", "--lib", "--tests", "--features", "shuttle", "--package"];
        let mut command = cargo(&chosen);
        command.args([&package.name, "--", "model_"]).env("VLINDER_SKIP_LOG", skip_log);
        tally.run(&name, &mut command)?;
        if tally.passed + tally.failed == before {
            tally.step(&format!("{name}: there are none"), false);
        }
    }
    Ok(())
}

/// `cargo xtask user-test USER`: the test programs that root has built, run by somebody who may do less.
pub fn run_as(user: &str) -> Result<bool> {
    let home = home_of(user)?;
    let skip_log = new_skip_log("skipped-by-user.log")?;
    // The user appends to a log that root made.
    std::fs::set_permissions(&skip_log, std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
    let mut tally = Tally::default();
    for program in test_programs()? {
        let mut command = Command::new("runuser");
        command.args(["-u", user, "--"]).arg(&program.path).current_dir(&program.directory).env_clear();
        for name in ["PATH", "TMPDIR", "LANG"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.envs([("HOME", home.as_str()), ("USER", user), ("LOGNAME", user)]);
        command.env("CARGO_MANIFEST_DIR", &program.directory).env("VLINDER_SKIP_LOG", &skip_log);
        tally.run(&format!("{} as {user}", program.path.display()), &mut command)?;
    }
    tally.finish(&skip_log, true)
}

fn home_of(user: &str) -> Result<String> {
    let passwd = std::fs::read_to_string("/etc/passwd")?;
    let line = passwd.lines().find(|line| line.split(':').next() == Some(user));
    let home = line.and_then(|line| line.split(':').nth(5));
    Ok(home.with_context(|| format!("there is no user {user}"))?.to_owned())
}

struct TestProgram {
    path: PathBuf,
    /// The directory of its package, in which tests run.
    directory: PathBuf,
}

/// Builds all tests and lists their programs.
fn test_programs() -> Result<Vec<TestProgram>> {
    let output = cargo(&["test", "--workspace", "--no-run", "--quiet", "--message-format", "json"])
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "the tests don't build");
    let mut programs = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let message: Value = serde_json::from_str(line).unwrap_or_default();
        let is_test = message["profile"]["test"].as_bool() == Some(true);
        if let (true, Some(path), Some(manifest)) =
            (is_test, message["executable"].as_str(), message["manifest_path"].as_str())
        {
            let directory = Path::new(manifest).parent().context("a manifest without a directory")?;
            programs.push(TestProgram { path: path.into(), directory: directory.to_owned() });
        }
    }
    ensure!(!programs.is_empty(), "cargo built no test program");
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_added_up() {
        let mut tally = Tally::default();
        for line in [
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.10s",
            "test result: FAILED. 10 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s",
            "test some::test ... ok",
        ] {
            tally.add_line(line);
        }
        assert_eq!(tally, Tally { passed: 13, failed: 2, ignored: 1, failures: Vec::new() });
    }

    #[test]
    fn a_command_that_dies_without_a_summary_is_a_failure() {
        let mut tally = Tally::default();
        tally.run("dies", Command::new("sh").args(["-c", "kill -9 $$"])).unwrap();
        tally
            .run(
                "fails",
                Command::new("sh").args(["-c", "echo 'test result: FAILED. 1 passed; 1 failed'; exit 1"]),
            )
            .unwrap();
        assert_eq!((tally.passed, tally.failed), (1, 2));
    }

    #[test]
    fn what_failed_is_said_again_without_the_rest() {
        let mut tally = Tally::default();
        let output = "test a ... ok\n\nfailures:\n\n---- b stdout ----\nwhy\n\nfailures:\n    b\n\n\
            test result: FAILED. 1 passed; 1 failed\nmore\n";
        tally.run("fails", Command::new("printf").args(["%s", output])).unwrap();
        assert_eq!(tally.failures, ["---- b stdout ----", "why", "    b"]);
    }

    #[test]
    fn of_much_that_is_said_again_the_end_stays() {
        let lines = |count: usize| (0..count).map(|line| line.to_string()).collect::<Vec<_>>();
        assert_eq!(shortened(lines(80)), lines(80));
        let shortened = shortened(lines(1000));
        assert_eq!(shortened[FIRST_LINES - 1..=FIRST_LINES + 1], ["19", "… 920 lines …", "940"]);
        assert_eq!((shortened.len(), shortened.last().unwrap().as_str()), (81, "999"));
    }

    #[test]
    fn a_test_that_skips_twice_counts_once() {
        let log =
            "SKIPPED a::b: needs root\nSKIPPED a::b: needs root\nSKIPPED c: needs the tool fio\nnoise\n";
        assert_eq!(skipped_tests(log).len(), 2);
    }
}
