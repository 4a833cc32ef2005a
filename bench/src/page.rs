//! The results: one JSON a row under docs/benchmarks/, and the page made of the newest of each.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;

use crate::row::{Row, RowResult, SideResult};

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks")
}

/// Keeps a row's result.
pub fn store(result: &RowResult) -> Result<()> {
    std::fs::create_dir_all(directory())?;
    let text = serde_json::to_string_pretty(result)? + "\n";
    Ok(std::fs::write(directory().join(format!("{}.json", result.id)), text)?)
}

/// A row in one line.
pub fn line(result: &RowResult) -> String {
    let mut line = format!("{}:", result.id);
    for side in &result.sides {
        let peak = side.peak_bytes >> 20;
        let time = shown(side.median_seconds);
        let _ = write!(line, " {} {time} (× {:.2}, {peak} MiB)", side.name, side.ratio);
        line += &counts(side);
    }
    line
}

/// A time, in a unit that leaves something of it.
fn shown(seconds: f64) -> String {
    if seconds < 0.01 { format!("{:.3} ms", seconds * 1000.0) } else { format!("{seconds:.3} s") }
}

/// What a side counted, in words; nothing if it counted nothing.
fn counts(side: &SideResult) -> String {
    let counts: Vec<String> = side
        .counts
        .iter()
        .map(|(name, value)| format!("{name} {}", (value * 1000.0).round() / 1000.0))
        .collect();
    if counts.is_empty() { String::new() } else { format!(" [{}]", counts.join(", ")) }
}

/// Makes the page anew. What is wanted of a row is what its code says now, not what it said when the row was
/// run.
pub fn render(known: &[Row]) -> Result<()> {
    let mut results: Vec<RowResult> = Vec::new();
    for entry in std::fs::read_dir(directory())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            results.push(serde_json::from_str(&std::fs::read_to_string(&path)?)?);
        }
    }
    for result in &mut results {
        if let Some(row) = known.iter().find(|row| row.id == result.id) {
            result.goal = row.goal.into();
        }
    }
    results.sort_by(|left, right| left.id.cmp(&right.id));
    let mut page = String::from(
        "# Benchmarks\n\nMedians; both sides alternate in one run, from the same state to a durable end, images on tmpfs; \
         what takes longer than a minute is run once. The ratio is peer ÷ vlinder: above 1, vlinder is faster. Each row is made by the command in its JSON file beside \
         this page; what the ids stand for is in [workloads](workloads.md).\n\n| row | workload | vlinder | peers (ratio) | goal | commit |\n|---|---|---|---|---|---|\n",
    );
    for result in &results {
        page += &table_row(result);
    }
    Ok(std::fs::write(directory().join("README.md"), page)?)
}

/// A row's line of the table.
fn table_row(result: &RowResult) -> String {
    let own = result.sides.first();
    let own = own.map_or(String::new(), |own| {
        format!("{}, {} MiB{}", shown(own.median_seconds), own.peak_bytes >> 20, counts(own))
    });
    let peers = result.sides.iter().skip(1).map(|side| {
        let runs = if side.seconds.len() == 1 { ", one run" } else { "" };
        let (median, ratio) = (shown(side.median_seconds), side.ratio);
        format!("{} {median} (× {ratio:.2}{runs}){}", side.name, counts(side))
    });
    let cells = [
        result.id.clone(),
        format!("{} ({} files)", result.workload, result.files),
        own,
        peers.collect::<Vec<_>>().join("; "),
        result.goal.clone(),
        result.commit.clone(),
    ];
    // A bar in a cell (a workload is often a pipeline) would begin another one.
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_times_are_shown_in_milliseconds() {
        assert_eq!((shown(0.000_317_4), shown(0.0123)), ("0.317 ms".into(), "0.012 s".into()));
    }

    #[test]
    fn a_row_has_six_cells_whatever_is_in_them() {
        let stored = r#"{"id": "X", "workload": "tar | cat", "goal": "", "commit": "", "command": "", "files": 7, "sides": []}"#;
        let result = serde_json::from_str(stored).unwrap();
        assert_eq!(table_row(&result), "| X | tar \\| cat (7 files) |  |  |  |  |\n");
    }
}
