//! A comparison as files: the numbers as JSON, and tables that a document can take over.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use serde::Serialize;

use super::verdict::{Count, JUDGED, Judgement, Ratio, Verdict};
use crate::row::Settings;

/// All rows of one call.
#[derive(Serialize)]
pub struct Report {
    /// The earlier commit.
    pub before: String,
    /// This checkout's.
    pub after: String,
    /// How often, and how large.
    pub settings: Settings,
    /// Of the orders and the intervals.
    pub seed: u64,
    /// The rows in the order of their runs.
    pub rows: Vec<Verdict>,
}

impl Report {
    /// Writes the JSON and the page into `results` below the earlier commit's directory, under names that no
    /// other call has; gives the JSON's.
    pub fn store(&self, directory: &Path) -> Result<PathBuf> {
        let directory = directory.join("results");
        std::fs::create_dir_all(&directory)?;
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let path = directory.join(format!("{seconds}-{}.json", std::process::id()));
        std::fs::write(&path, serde_json::to_string_pretty(self)? + "\n")?;
        std::fs::write(path.with_extension("md"), self.page())?;
        Ok(path)
    }

    /// A table of the rows, and one of the counts of each.
    pub fn page(&self) -> String {
        let Settings { runs, files } = &self.settings;
        let mut page = format!(
            "Before: {}. After: {}. {runs} counted rounds, FILES={files}, SEED={}.\n\n\
             | row | before | after | after ÷ before (95 %) | before again ÷ before (95 %) | time | requests | tree.descents | allocations | counts |\n\
             |---|---|---|---|---|---|---|---|---|---|\n",
            self.before, self.after, self.seed
        );
        for row in &self.rows {
            page += &table_row(row);
        }
        for row in &self.rows {
            page += &counts(row);
        }
        page
    }
}

fn ratio(ratio: Ratio) -> String {
    format!("{:.3} ({:.3}–{:.3})", ratio.value, ratio.interval.low, ratio.interval.high)
}

/// A count, or a dash where there is none.
fn number(value: Option<f64>) -> String {
    value.map_or("–".into(), |value| ((value * 1000.0).round() / 1000.0).to_string())
}

/// A count before and after, and by what the earlier program's runs differ.
fn pair(count: Option<&Count>) -> String {
    let Some(count) = count else { return "–".into() };
    if count.medians == [None; 3] {
        return "missing".into();
    }
    let [before, after, _] = count.medians.map(number);
    format!("{before} → {after} (± {})", number(count.spread))
}

fn table_row(row: &Verdict) -> String {
    let Some(time) = &row.time else {
        return format!("| {} | failed | | | | **not kept** | | | | |\n", row.id);
    };
    let [before, after, _] = time.medians.map(|seconds| format!("{seconds:.3} s"));
    let [requests, descents, allocations] = JUDGED.map(|name| pair(row.count(name)));
    let cells = [
        row.id.clone(),
        before,
        after,
        ratio(time.ratio),
        ratio(time.own_ratio),
        time.judgement.word().into(),
        requests,
        descents,
        allocations,
        row.counts_judgement().map_or("–", Judgement::word).into(),
    ];
    format!("| {} |\n", cells.join(" | "))
}

/// Everything that was counted of a row and was not nothing.
fn counts(row: &Verdict) -> String {
    let mut text = format!("\n{}: {}\n", row.id, row.workload);
    if let Some(error) = &row.error {
        let _ = write!(text, "\nIt failed: {error}\n");
    }
    if let Some(why) = row.measured.as_ref().and_then(|measured| measured.without_allocations.as_ref()) {
        let _ = write!(text, "\nAllocations are not known: {why}.\n");
    }
    let is_shown = |count: &&Count| {
        count.medians.iter().flatten().any(|value| *value != 0.0)
            || count.judgement.is_some_and(|judgement| judgement != Judgement::Kept)
    };
    let seen: Vec<&Count> = row.counts.iter().filter(is_shown).collect();
    if seen.is_empty() {
        return text + "\nNothing was counted.\n";
    }
    text += "\n| count | before | after | before again | the runs before differ by | |\n|---|---|---|---|---|---|\n";
    for count in seen {
        let [before, after, again] = count.medians.map(number);
        let (spread, verdict) = (number(count.spread), count.judgement.map_or("", Judgement::word));
        let _ = writeln!(text, "| {} | {before} | {after} | {again} | {spread} | {verdict} |", count.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::measured::Measured;
    use crate::span::{ALLOCATIONS, REQUESTS};

    fn report(measured: Result<Measured>) -> Report {
        let row = &crate::rows::all()[0];
        let settings = Settings { runs: 1, files: 7 };
        Report {
            before: "a".into(),
            after: "b".into(),
            settings,
            seed: 1,
            rows: vec![Verdict::new(row, measured, 1)],
        }
    }

    #[test]
    fn a_row_has_ten_cells_and_its_counts_follow() {
        let seconds = [2.0, 3.0, 2.0].map(|seconds| vec![seconds; 15]);
        let mut measured = Measured { seconds, expected: [ALLOCATIONS.into()].into(), ..Measured::default() };
        measured.counts.insert(REQUESTS.into(), [vec![10.0], vec![11.0], vec![10.0]]);
        measured.counts.insert("tree.merges".into(), [vec![0.0], vec![0.0], vec![0.0]]);
        let page = report(Ok(measured)).page();
        assert!(page.contains(
            "| F1 | 2.000 s | 3.000 s | 1.500 (1.500–1.500) | 1.000 (1.000–1.000) | **not kept** | 10 → 11 (± 0) | – | missing | **not kept** |\n"
        ), "{page}");
        assert!(page.contains("| requests | 10 | 11 | 10 | 0 | **not kept** |\n"), "{page}");
        assert!(page.contains("| allocations | – | – | – | – | **not kept** |\n"), "{page}");
        assert!(!page.contains("tree.merges"), "{page}");
    }

    #[test]
    fn a_row_that_failed_is_not_kept_and_says_why() {
        let report = report(Err(anyhow::anyhow!("no fio")));
        assert!(
            report.rows[0].judgement() == Judgement::NotKept && report.page().contains("It failed: no fio")
        );
    }

    #[test]
    fn a_row_that_nothing_was_decided_of_says_so() {
        let seconds = [2.0, 2.0, 3.0].map(|seconds| vec![seconds; 15]);
        let report = report(Ok(Measured { seconds, ..Measured::default() }));
        assert_eq!(
            report.rows[0].judgement(),
            Judgement::Kept,
            "it took no longer, whatever the harness varies"
        );
        let seconds = [2.0, 2.2, 3.0].map(|seconds| vec![seconds; 15]);
        let report = self::report(Ok(Measured { seconds, ..Measured::default() }));
        assert_eq!(report.rows[0].judgement(), Judgement::Undecided);
        let page = report.page();
        assert!(page.contains("| **undecided** | – | – | – | – |\n"), "{page}");
    }
}
