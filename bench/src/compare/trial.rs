//! One run of one row with one build, in a process of its own.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::build;
use crate::command;
use crate::host::Host;
use crate::row::{Row, Settings};
use crate::span::Observation;

/// The option before an order on this program's command line.
pub const OPTION: &str = "--trial";

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
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

/// Runs an order in a process that is killed if it takes longer than `limit`.
///
/// # Errors
/// If the process can't be started, fails, or is killed.
pub fn start(order: &Order, limit: Duration) -> Result<TrialResult> {
    use std::os::unix::process::CommandExt;

    let process = Command::new(std::env::current_exe()?)
        .args([OPTION, &serde_json::to_string(order)?])
        // What `cargo run` puts in front of a library's own way to its parts.
        .env_remove("LD_LIBRARY_PATH")
        // An error is told in words, once.
        .env_remove("RUST_BACKTRACE")
        // With all that it starts but a mount's server, so that they can be ended together.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let group = rustix::process::Pid::from_child(&process);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(process.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(limit) else {
        // Already gone is as good.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        bail!("it took longer than {} s and was killed; LIMIT=seconds allows more", limit.as_secs());
    };
    let output = output?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{}: {}", output.status, said.trim());
    }
    serde_json::from_slice(&output.stdout).context("the run's report")
}
