//! docs/metrics.md, for the tests that compare its tables with the code, row by row.

use std::path::Path;

use vlinder_base::metrics::{Sample, Value};

/// The rows of the tables under the heading that begins so, as they stand there.
///
/// # Panics
/// Without the page or the heading.
#[must_use]
pub fn rows(heading: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
    section.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect()
}

/// The row of a counter, gauge or histogram.
#[must_use]
pub fn row_of(sample: &Sample) -> String {
    let kind = match sample.value {
        Value::Counter(_) => "counter",
        Value::Gauge(_) => "gauge",
        Value::Histogram(_) => "histogram",
    };
    let unit = match sample.unit.name() {
        "" => "–",
        unit => unit,
    };
    format!("| `{}` | {kind} | {unit} | {} |", sample.name, sample.help)
}
