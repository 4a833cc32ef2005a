//! The page: a table for each family of rows, and growth by size.

use std::fmt::Write as _;

use super::words::{memory, ratio, time, wrapped};
use crate::goals::{self, Family, Goal};
use crate::row::{RowResult, SideResult};

const INTRODUCTION: &str = "# Benchmarks

Made by `make report` of the JSON files beside this page. Times are medians; both sides alternate in one run,
from the same state to a durable end, with images on tmpfs; what takes longer than a minute is run once. A
ratio is the peer's time by vlinder's: above 1, vlinder is faster. [Rows](rows.md) has every side, memory,
counts, commit and command of each row; [workloads](workloads.md) tells what is done. A goal that is missed
has a profile beside it, or a line in [status.toml](../status.toml) that says where the time goes.

![times of the best peers by those of vlinder](ratios.svg)

";
const GROWTH: &str = "Time by number of items; the goal bounds how it grows.

![time for each item, by the number of items](growth.svg)

";

/// The page, of all results.
pub fn page(results: &[RowResult]) -> String {
    let mut page = INTRODUCTION.to_owned();
    page += &machines(results);
    for (family, heading) in Family::ALL {
        let _ = write!(page, "\n## {heading}\n\n");
        let rows = goals::GOALS.iter().filter(|goal| goal.family == family);
        let rows = rows.filter_map(|goal| Some((goal, results.iter().find(|result| result.id == goal.id)?)));
        if family == Family::Growth {
            page += GROWTH;
            page += "| row | work | by size | goal | met |\n|---|---|---|---|---|\n";
            rows.for_each(|(goal, result)| page += &growth_row(goal, result));
        } else {
            page +=
                "| row | work | vlinder | best peer | ratio | goal | met |\n|---|---|---|---|---|---|---|\n";
            rows.for_each(|(goal, result)| page += &row(goal, result));
        }
    }
    page
}

/// What the rows were measured on, as far as they tell.
fn machines(results: &[RowResult]) -> String {
    let mut commits: Vec<&str> = results.iter().map(|result| result.commit.as_str()).collect();
    commits.sort_unstable();
    commits.dedup();
    let mut text = format!("Measured at {}", commits.join(", "));
    let mut machines: Vec<String> =
        results.iter().filter_map(|result| result.machine.as_ref()).map(ToString::to_string).collect();
    machines.sort_unstable();
    machines.dedup();
    for machine in machines {
        let _ = write!(text, "; {machine}");
    }
    wrapped(&(text + ".")) + "\n"
}

/// The fastest of the sides that are compared.
pub fn best_peer<'a>(goal: &Goal, result: &'a RowResult) -> Option<&'a SideResult> {
    let peers = result.sides.iter().filter(|side| goal.peers.contains(&side.name.as_str()));
    peers.min_by(|left, right| left.median_seconds.total_cmp(&right.median_seconds))
}

fn row(goal: &Goal, result: &RowResult) -> String {
    let own = result.sides.first().map_or(String::new(), |own| {
        // Of a row without peers the memory is what counts.
        if goal.peers.is_empty() { memory(own) } else { time(own.median_seconds) }
    });
    let peer = best_peer(goal, result);
    let shown = peer.map_or(String::new(), |peer| format!("{} {}", peer.name, time(peer.median_seconds)));
    let factor = peer.map_or(String::new(), |peer| ratio(peer.ratio));
    cells(&[&link(goal), goal.title, &own, &shown, &factor, &result.goal, met(goal, result)])
}

fn growth_row(goal: &Goal, result: &RowResult) -> String {
    let sizes = result.sides.iter().filter(|side| !is_peer(side));
    let sizes: Vec<String> =
        sizes.map(|side| format!("{}: {}", side.name, time(side.median_seconds))).collect();
    cells(&[&link(goal), goal.title, &sizes.join("; "), &result.goal, met(goal, result)])
}

/// Whether a side of a growth row is another program's.
pub fn is_peer(side: &SideResult) -> bool {
    side.name.starts_with("kernel") || side.name.starts_with("btrfs ")
}

fn link(goal: &Goal) -> String {
    format!("[{}](rows.md#{})", goal.id, goal.id.to_lowercase())
}

fn met(goal: &Goal, result: &RowResult) -> &'static str {
    match goal.is_met(result) {
        Some(true) => "✓",
        Some(false) => "✗",
        None => "?",
    }
}

/// A row of a table. A bar in a cell (a workload is often a pipeline) would begin another one.
fn cells(cells: &[&str]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_as_many_cells_as_its_table_whatever_is_in_them() {
        assert_eq!(cells(&["X", "tar | cat", ""]), "| X | tar \\| cat |  |\n");
    }

    #[test]
    fn the_best_peer_is_the_fastest_that_is_compared() {
        let stored = r#"{"id": "F1", "workload": "", "goal": "", "commit": "", "command": "", "files": 7, "sides": [
            {"name": "vlinder mount", "seconds": [1.0], "median_seconds": 1.0, "peak_bytes": 0, "ratio": 1.0},
            {"name": "fuse2fs", "seconds": [3.0], "median_seconds": 3.0, "peak_bytes": 0, "ratio": 3.0},
            {"name": "kernel", "seconds": [2.0], "median_seconds": 2.0, "peak_bytes": 0, "ratio": 2.0},
            {"name": "empty server", "seconds": [0.5], "median_seconds": 0.5, "peak_bytes": 0, "ratio": 0.5}]}"#;
        let result: RowResult = serde_json::from_str(stored).unwrap();
        let goal = goals::of("F1").unwrap();
        assert_eq!(best_peer(goal, &result).unwrap().name, "kernel");
        assert!(
            row(goal, &result).ends_with("| kernel 2.000 s | × 2.00 |  | ✓ |\n"),
            "{}",
            row(goal, &result)
        );
    }
}
