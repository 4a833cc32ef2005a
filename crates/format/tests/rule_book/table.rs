//! The tables of docs/reliability.md, against what was proven and against the code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::book::Book;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(project().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A row: its number, the faults or findings in its fourth cell, the tests in its fifth.
struct Row {
    rule: String,
    faults: BTreeSet<String>,
    tests: Option<Vec<String>>,
}

/// What stands between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = String> + '_ {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

fn rows() -> Vec<Row> {
    let is_rule = |cell: &str| {
        let (letter, number) = cell.split_at(cell.len().min(1));
        letter.starts_with(|first: char| first.is_ascii_uppercase()) && number.parse::<u32>().is_ok()
    };
    let text = read("docs/reliability.md");
    let rows = text.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
        let (rule, faults) = (*cells.first()?, cells.get(3)?);
        is_rule(rule).then(|| Row {
            rule: rule.to_owned(),
            faults: quoted(faults).collect(),
            tests: (cells.len() > 5).then(|| quoted(cells[4]).collect()),
        })
    });
    let rows: Vec<Row> = rows.collect();
    let numbers: BTreeSet<&str> = rows.iter().map(|row| row.rule.as_str()).collect();
    assert_eq!(numbers.len(), rows.len(), "a rule's number stands for one rule");
    rows
}

/// The rules without a test of their own are exactly those that were proven, each by the faults that it
/// names.
pub fn compare(book: &Book) {
    let rows = rows();
    let written: BTreeMap<&str, &BTreeSet<String>> =
        rows.iter().filter(|row| row.tests.is_none()).map(|row| (row.rule.as_str(), &row.faults)).collect();
    let proven: BTreeMap<&str, &BTreeSet<String>> =
        book.rules().iter().map(|(rule, faults)| (*rule, faults)).collect();
    assert_eq!(written, proven, "the table (left) against the cases (right)");
}

/// Every source file below a directory.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// `Family::Variant` for each fault of the crate. (`Fault` itself, and variants that only wrap another enum,
/// are left out.)
fn faults_in_code() -> BTreeSet<String> {
    let mut files = Vec::new();
    sources(&project().join("crates/format/src"), &mut files);
    let mut faults = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        let mut family = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("pub enum ") {
                family =
                    rest.split([' ', '<']).next().filter(|name| name.ends_with("Fault") && *name != "Fault");
            } else if line == "}" {
                family = None;
            }
            let variant = line.strip_prefix("    ").filter(|rest| rest.starts_with(char::is_uppercase));
            if let (Some(family), Some(variant)) = (family, variant) {
                let end = variant.find(|letter: char| !letter.is_alphanumeric()).unwrap_or(variant.len());
                if !variant[end..].starts_with('(') {
                    faults.insert(format!("{family}::{}", &variant[..end]));
                }
            }
        }
    }
    assert!(faults.len() > 100, "{}", faults.len());
    faults
}

/// The findings of a check: identifiers, and the variants that they are in the code.
fn findings_in_code() -> BTreeMap<String, String> {
    let text = read("crates/check/src/finding.rs");
    let finding = |line: &str| {
        let rest = ["    Error \"", "    Warning \""].into_iter().find_map(|start| line.strip_prefix(start));
        let (id, rest) = rest?.split_once('"')?;
        Some((id.to_owned(), rest.split_whitespace().next()?.to_owned()))
    };
    let found: BTreeMap<String, String> = text.lines().filter_map(finding).collect();
    assert!(found.len() > 40, "{}", found.len());
    found
}

/// Findings and faults that are no rule but say that a bound was met, or that only a reader tells who knows
/// the inode's type: the page says so.
const NOT_RULES: [&str; 7] = [
    "ExtentFault::TooManyReferences",
    "FileExtentFault::LinkNotInline",
    "names-not-listed",
    "references-not-listed",
    "directories-not-followed",
    "roots-not-followed",
    "quota-not-counted",
];

pub fn compare_with_the_code() {
    let rows = rows();
    let written: BTreeSet<String> = rows.iter().flat_map(|row| row.faults.iter().cloned()).collect();
    let findings = findings_in_code();
    let code: BTreeSet<String> = faults_in_code().into_iter().chain(findings.keys().cloned()).collect();
    let is_rule = |name: &&String| !NOT_RULES.contains(&name.as_str());
    let missing: Vec<&String> = code.difference(&written).filter(is_rule).collect();
    let invented: Vec<&String> = written.difference(&code).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "not in the table: {missing:#?}; not in the code: {invented:#?}"
    );
    for row in &rows {
        assert!(!row.faults.is_empty(), "rule {} names no fault", row.rule);
        for test in row.tests.iter().flatten() {
            let (file, function) = test.split_once("::").unwrap_or_else(|| panic!("{}: {test}", row.rule));
            assert!(read(file).contains(&format!("fn {function}(")), "rule {}: no {test}", row.rule);
        }
        assert!(row.tests.as_ref().is_none_or(|tests| !tests.is_empty()), "rule {} has no test", row.rule);
        assert_findings_are_named(row, &findings);
    }
}

/// The tests of a row name each of its findings by its variant, which takes its fields: else a finding could
/// stand there that no test ever meets, or that it knows by its identifier alone.
fn assert_findings_are_named(row: &Row, findings: &BTreeMap<String, String>) {
    let files = row.tests.iter().flatten().filter_map(|test| test.split_once("::"));
    let texts: String = files.map(|(file, _)| read(file)).collect();
    for finding in row.faults.iter().filter(|fault| !fault.contains("::")) {
        let is_named = texts.contains(&format!("FindingKind::{} {{", findings[finding]));
        assert!(is_named, "rule {}: its tests never name {finding}", row.rule);
    }
}
