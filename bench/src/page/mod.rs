//! The results: one JSON a row under docs/benchmarks/, and what is made of the newest of each: the page, all
//! numbers by row, and two pictures.

mod numbers;
mod pictures;
mod tables;
mod words;

use std::path::PathBuf;

use anyhow::Result;

use crate::row::{Row, RowResult};

pub use words::line;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks")
}

/// Keeps a row's result.
pub fn store(result: &RowResult) -> Result<()> {
    std::fs::create_dir_all(directory())?;
    let text = serde_json::to_string_pretty(result)? + "\n";
    Ok(std::fs::write(directory().join(format!("{}.json", result.id)), text)?)
}

/// Makes the pages anew. What is wanted of a row is what its code says now, not what it said when the row was
/// run.
pub fn render(known: &[Row]) -> Result<()> {
    let results = load(known)?;
    let files = [
        ("README.md", tables::page(&results)),
        ("rows.md", numbers::page(&results)),
        ("ratios.svg", pictures::ratios(&results)),
        ("growth.svg", pictures::growth(&results)),
    ];
    for (name, text) in files {
        std::fs::write(directory().join(name), text)?;
    }
    Ok(())
}

/// The newest result of each row, in the order of their ids.
fn load(known: &[Row]) -> Result<Vec<RowResult>> {
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
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_are_made_of_the_results_as_they_are() {
        let results = load(&crate::rows::all()).unwrap();
        for (name, text) in [("README.md", tables::page(&results)), ("rows.md", numbers::page(&results))] {
            let kept = std::fs::read_to_string(directory().join(name)).unwrap();
            assert!(kept == text, "{name} is older than its rows: make report");
        }
    }
}
