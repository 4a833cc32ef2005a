//! What two walks differ in, for a person to read.

use std::collections::BTreeMap;
use std::fmt;

/// How many differences are written out; the rest is only counted.
const MAX_SHOWN: usize = 20;

/// Two walks that are not equal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Difference {
    /// One line or more for each entry that differs, at most [`MAX_SHOWN`] entries.
    pub shown: Vec<String>,
    /// How many entries differ.
    pub count: usize,
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{} entries differ:", self.count)?;
        for line in &self.shown {
            writeln!(formatter, "  {line}")?;
        }
        let more = self.count - self.shown.len();
        if more > 0 {
            writeln!(formatter, "  … and {more} more")?;
        }
        Ok(())
    }
}

/// Compares two rendered walks entry by entry.
pub fn compare(expected: &str, actual: &str) -> Result<(), Difference> {
    if expected == actual {
        return Ok(());
    }
    let (left, right) = (by_path(expected), by_path(actual));
    let mut found = Vec::new();
    for (path, line) in &left {
        match right.get(path) {
            None => found.push(format!("missing  {line}")),
            Some(other) if other != line => found.push(fields(path, line, other)),
            Some(_) => {}
        }
    }
    found.extend(
        right
            .iter()
            .filter(|(path, _)| !left.contains_key(*path))
            .map(|(_, line)| format!("extra    {line}")),
    );
    if found.is_empty() {
        found.push("the same entries in another order".to_owned());
    }
    let count = found.len();
    found.truncate(MAX_SHOWN);
    Err(Difference { shown: found, count })
}

fn by_path(walk: &str) -> BTreeMap<&str, &str> {
    walk.lines().map(|line| (line.split('|').next().unwrap_or_default(), line)).collect()
}

/// Names the fields that differ.
fn fields(path: &str, expected: &str, actual: &str) -> String {
    const NAMES: [&str; 8] = ["path", "mode", "uid", "gid", "links", "mtime", "size", "first path"];
    let (left, right): (Vec<&str>, Vec<&str>) = (expected.split('|').collect(), actual.split('|').collect());
    let mut text = format!("differs  {path}:");
    for position in 0..left.len().max(right.len()) {
        let (left, right) = (left.get(position).unwrap_or(&"-"), right.get(position).unwrap_or(&"-"));
        if left != right {
            let name = NAMES.get(position).copied().unwrap_or("target, xattr or content");
            text += &format!(" {name} {left} expected, {right} found;");
        }
    }
    text
}
