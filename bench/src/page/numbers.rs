//! All numbers of each row.

use std::fmt::Write as _;

use super::words::{counts, memory, ratio, time, wrapped};
use crate::row::{RowResult, SideResult};

const INTRODUCTION: &str = "# Rows

Every side of each row, with what it counted. [The page](README.md) has the rows in short.
";

/// The page, of all results.
pub fn page(results: &[RowResult]) -> String {
    results.iter().fold(INTRODUCTION.to_owned(), |page, result| page + &section(result))
}

fn section(result: &RowResult) -> String {
    let RowResult { id, workload, goal, commit, command, files, machine, sides } = result;
    let mut text = format!("\n## {id}\n\n{}\n\n", wrapped(&format!("{workload}. Goal: {goal}.")));
    let machine = machine.as_ref().map_or(String::new(), |machine| format!(", {machine}"));
    text += &wrapped(&format!("`{command}` at {commit}{machine}; {files} files."));
    text += "\n\n";
    text += "| side | time | runs | ratio | memory |\n|---|---|---|---|---|\n";
    for side in sides {
        let SideResult { name, seconds, median_seconds, .. } = side;
        let (time, ratio, memory) = (time(*median_seconds), ratio(side.ratio), memory(side));
        let _ = writeln!(text, "| {name} | {time} | {} | {ratio} | {memory} |", seconds.len());
    }
    for side in sides.iter().filter(|side| !side.counts.is_empty()) {
        let _ = write!(text, "\n{}:\n\n", side.name);
        counts(side).iter().for_each(|count| text += &format!("- {count}\n"));
    }
    text
}
