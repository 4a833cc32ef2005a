//! The state map alone, against splitting and removing, and against the interval map of a crate: the program
//! `state-map` plays a sequence of changes on each.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::program;
use crate::host::Host;
use crate::row::{Outcome, Row, Side};

/// Bits set and cleared in a run.
const CHANGES: u64 = 3_000_000;

pub fn rows() -> Vec<Row> {
    macro_rules! row {
        ($id:literal, $workload:literal, $sequence:literal, $threads:literal) => {
            Row {
                id: $id,
                workload: $workload,
                goal: "≤ 200 ns a change on one thread, nothing allocated by a clear that trims, ≥ 2 × both peers",
                files: Some(CHANGES),
                prepare: |_, _| Ok(()),
                sides: vec![
                    Side {
                        name: "state map",
                        needs: "state-map",
                        run: |host, _| play(host, $sequence, "trim", $threads),
                    },
                    Side {
                        name: "split and remove",
                        needs: "state-map",
                        run: |host, _| play(host, $sequence, "split", $threads),
                    },
                    Side {
                        name: "rangemap",
                        needs: "state-map",
                        run: |host, _| play(host, $sequence, "rangemap", $threads),
                    },
                ],
            }
        };
    }
    vec![
        row!(
            "S5B-1",
            "3,000,000 changes of the state map as 12 jobs of 64 random 4 KiB writes make them, by one thread (processor time)",
            "fio",
            1
        ),
        row!("S5B-12", "the same by 12 threads (processor time)", "fio", 12),
        row!(
            "S5B-FLUSH-1",
            "3,000,000 changes as flushes of long runs make them, 128 KiB at a time, by one thread (processor time)",
            "flush",
            1
        ),
        row!("S5B-FLUSH-12", "the same by 12 threads (processor time)", "flush", 12),
    ]
}

fn play(host: &Host, sequence: &str, variant: &str, threads: u64) -> Result<Outcome> {
    let output = Command::new(program("state-map")?)
        .args([sequence, variant, &threads.to_string(), &CHANGES.to_string()])
        .output()
        .context("running state-map")?;
    if !output.status.success() {
        bail!("state-map: {}", String::from_utf8_lossy(&output.stderr));
    }
    let result: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let number = |name: &str| result[name].as_f64().with_context(|| format!("no {name} in {result}"));
    for name in ["mean_ns", "clear_mean_ns", "clear_median_ns", "clear_p99_ns", "allocations"] {
        host.note(name, number(name)?);
    }
    if variant == "trim" && threads == 1 {
        if number("trims_counted")? == 0.0 || number("allocations_in_trims")? != 0.0 {
            bail!("clears that trim asked for memory, or there were none: {result}");
        }
        host.note("trims_counted", number("trims_counted")?);
    }
    Ok(Outcome { time: Duration::from_secs_f64(number("processor_seconds")?), peak_bytes: 0 })
}
