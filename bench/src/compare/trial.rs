//! One run of one row with one build, in a process of its own.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use super::build;
use crate::command;
use crate::host::Host;
use crate::observation::Observation;
use crate::row::{Row, Settings};

/// The option before an order on this program's command line.
pub const OPTION: &str = "--trial";

/// How often the processes that a run left are looked for, and ended, and what lies between.
const MAX_ROUNDS_OF_KILLING: usize = 500;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(10);
/// So many rounds in a row must find none: a process shows no environment while it begins another program
/// (execve).
const ROUNDS_WITHOUT_ANY: usize = 3;

/// What a process is to run.
#[derive(Serialize, Deserialize)]
pub struct Order {
    /// The row's id.
    pub row: String,
    /// Where the row was prepared.
    pub directory: PathBuf,
    /// The directory of the programs that it measures.
    pub programs: PathBuf,
    /// How large.
    pub settings: Settings,
    /// What is counted beside the time.
    pub observation: Observation,
}

/// What it gave.
#[derive(Serialize, Deserialize)]
pub struct TrialResult {
    /// The time from the common start state to the durable end.
    pub seconds: f64,
    /// The peak resident memory; 0 where that can't be told.
    pub peak_bytes: u64,
    /// What was counted beside the time.
    pub counts: Vec<(String, f64)>,
    /// What is to be counted of the row, in this run or in another.
    pub expected: BTreeSet<String>,
}

/// Runs an order in this process, and prints its report.
///
/// # Errors
/// If the order can't be read, the row can't be run with the order's programs, or its run fails.
pub fn run(order: &str, known: &[Row]) -> Result<()> {
    let order: Order = serde_json::from_str(order).with_context(|| format!("the order: {order}"))?;
    let row = known.iter().find(|row| row.id == order.row);
    let row = row.with_context(|| format!("there is no row {}", order.row))?;
    let side = row.sides.first().with_context(|| format!("row {} has no side", row.id))?;
    command::swap(&order.programs)?;
    build::ensure_swapped(row, &order.programs)?;
    let host = Host::borrow(order.directory, order.observation);
    let outcome = (side.run)(&host, &order.settings).context(side.name)?;
    let report = TrialResult {
        seconds: outcome.time.as_secs_f64(),
        peak_bytes: outcome.peak_bytes,
        counts: host.take_notes(),
        expected: host.expected(),
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// The environment of every process that belongs to a trial has this, with a value of the trial's own.
const MARK: &str = "VLINDER_BENCH_TRIAL";

/// Runs an order in a process that is killed if it takes longer than `limit`.
///
/// # Errors
/// If the process can't be started, fails, or is killed.
pub fn start(order: &Order, limit: Duration) -> Result<TrialResult> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args([OPTION, &serde_json::to_string(order)?])
        // What `cargo run` puts in front of a library's own way to its parts.
        .env_remove("LD_LIBRARY_PATH")
        // An error is told in words, once.
        .env_remove("RUST_BACKTRACE");
    let output = run_limited(command, limit)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{}: {}", output.status, said.trim());
    }
    serde_json::from_slice(&output.stdout).context("the run's report")
}

/// Runs a command, and ends all that it started when it ends or has taken longer than `limit`: a mount's
/// server too, which has a session of its own.
fn run_limited(mut command: Command, limit: Duration) -> Result<Output> {
    use std::os::unix::process::CommandExt;

    let marked = Marked::new();
    let process = command
        .env(MARK, &marked.0)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(process.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(limit) else {
        bail!("it took longer than {} s and was killed; LIMIT=seconds allows more", limit.as_secs());
    };
    Ok(output?)
}

/// The processes of one trial, wherever they are in the tree of processes. They end with this.
struct Marked(String);

impl Marked {
    fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // A number of a process alone may have been another harness's, whose processes are left.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        Self(format!("{}-{now}-{}", std::process::id(), LAST.fetch_add(1, Ordering::Relaxed)))
    }

    /// Those that live.
    fn processes(&self) -> Vec<Pid> {
        let entry = format!("{MARK}={}", self.0).into_bytes();
        let Ok(listed) = std::fs::read_dir("/proc") else { return Vec::new() };
        let numbers = listed.flatten().filter_map(|listed| listed.file_name().to_str()?.parse::<i32>().ok());
        // The environment of one that has ended is empty, also while nobody has waited for it.
        let is_marked = |number: &i32| {
            let environment = std::fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|found| found == entry)
        };
        numbers.filter(is_marked).filter_map(Pid::from_raw).collect()
    }
}

impl Drop for Marked {
    /// Again and again, since one may have started another meanwhile.
    fn drop(&mut self) {
        let mut without_any = 0;
        for _ in 0..MAX_ROUNDS_OF_KILLING {
            let processes = self.processes();
            without_any = if processes.is_empty() { without_any + 1 } else { 0 };
            if without_any == ROUNDS_WITHOUT_ANY {
                return;
            }
            for process in processes {
                // Already gone is as good.
                let _ = rustix::process::kill_process(process, Signal::KILL);
            }
            std::thread::sleep(BETWEEN_ROUNDS);
        }
        eprintln!("processes of a run could not be ended: {:?}", self.processes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", script]);
        command
    }

    /// As `vlinder mount` and `empty-server` do, in a session of its own.
    const SERVER: &str = "setsid bash -c 'echo $$; exec sleep 600 > /dev/null 2>&1' & ";

    fn is_alive(process: &str) -> bool {
        let command = std::fs::read(format!("/proc/{}/cmdline", process.trim())).unwrap_or_default();
        command.starts_with(b"sleep")
    }

    #[test]
    fn a_run_that_takes_too_long_leaves_no_server_behind() {
        let file = std::env::temp_dir().join(format!("vlinder-bench-trial-{}", std::process::id()));
        let script = format!("exec > {}; {SERVER} wait", file.display());
        let error = run_limited(shell(&script), Duration::from_secs(2)).unwrap_err();
        assert!(error.to_string().contains("took longer than 2 s"), "{error}");
        let server = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert!(!server.trim().is_empty() && !is_alive(&server), "{server}");
    }

    #[test]
    fn a_run_that_fails_or_ends_leaves_no_server_behind_either() {
        for status in [0, 3] {
            let script = format!("{SERVER} sleep 0.5; exit {status}");
            let output = run_limited(shell(&script), Duration::from_secs(60)).unwrap();
            assert_eq!(output.status.code(), Some(status));
            let server = String::from_utf8(output.stdout).unwrap();
            assert!(!server.trim().is_empty() && !is_alive(&server), "{server}");
        }
    }

    #[test]
    fn another_trial_goes_on() {
        let (own, other) = (Marked::new(), Marked::new());
        let mut process = shell("exec sleep 600").env(MARK, &own.0).spawn().unwrap();
        drop(other);
        // Whether it is seen depends on when it is looked for: not while bash becomes sleep.
        assert!(own.processes().iter().all(|found| *found == Pid::from_child(&process)));
        assert!(process.try_wait().unwrap().is_none(), "the end of another trial ended it");
        drop(own);
        assert!(!process.wait().unwrap().success());
    }

    #[test]
    fn a_process_that_goes_from_program_to_program_is_ended() {
        let own = Marked::new();
        let again = "[ $0 = 0 ] && exec sleep 600; exec bash -c \"$1\" $(($0 - 1)) \"$1\"";
        let mut process = Command::new("bash");
        let mut process = process.args(["-c", again, "400", again]).env(MARK, &own.0).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        drop(own);
        assert!(!process.wait().unwrap().success());
    }
}
