//! Sizes that were past their limit when their rule came. They stand in `xtask/baseline.txt`, and may only
//! shrink.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::workspace;

const HEAD: &str = "# What was past its limit when the rule came, with its size. `cargo xtask tidy --bless` lowers the sizes; nothing raises them.\n";

/// A size of something in the sources that has a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measure {
    /// What is measured: a name that tells one measure from all others and stays the same from commit to
    /// commit.
    pub name: String,
    /// Its size today.
    pub size: usize,
    /// The largest size that the rule allows.
    pub limit: usize,
    /// What to do about a size past the limit.
    pub advice: &'static str,
}

/// Accepted sizes by the names of measures.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Baseline(BTreeMap<String, usize>);

impl Baseline {
    /// Reads the file; a file that is not there accepts nothing.
    pub fn load() -> Result<Self> {
        let path = path();
        if !path.exists() {
            return Ok(Self::default());
        }
        Self::parse(&std::fs::read_to_string(&path)?)
    }

    fn parse(text: &str) -> Result<Self> {
        let entry = |line: &str| {
            let (name, size) =
                line.rsplit_once(' ').with_context(|| format!("no size in the baseline: {line}"))?;
            Ok((name.to_owned(), size.parse().with_context(|| format!("no size in the baseline: {line}"))?))
        };
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines.map(entry).collect::<Result<_>>().map(Self)
    }

    /// What is past its limit and not accepted, and what is accepted and smaller by now.
    pub fn check(&self, measures: &[Measure]) -> Vec<String> {
        let mut findings = Vec::new();
        for Measure { name, size, limit, advice } in measures.iter().filter(|measure| measure.is_excess()) {
            match self.0.get(name) {
                Some(accepted) if size <= accepted => {}
                _ => findings.push(format!("{name}: {size} (at most {limit}): {advice}")),
            }
        }
        if *self != self.lowered(measures) {
            findings.push(
                "xtask/baseline.txt accepts more than there is: run cargo xtask tidy --bless".to_owned(),
            );
        }
        findings
    }

    /// The same baseline with the sizes of today where they are smaller, and without what kept its limit.
    fn lowered(&self, measures: &[Measure]) -> Self {
        let lowered = measures.iter().filter(|measure| measure.is_excess()).filter_map(|measure| {
            let accepted = *self.0.get(&measure.name)?;
            Some((measure.name.clone(), accepted.min(measure.size)))
        });
        Self(lowered.collect())
    }

    /// Lowers the accepted sizes to those of today, in the file too.
    pub fn bless(&self, measures: &[Measure]) -> Result<()> {
        let mut text = String::from(HEAD);
        for (name, size) in self.lowered(measures).0 {
            text += &format!("{name} {size}\n");
        }
        Ok(std::fs::write(path(), text)?)
    }
}

impl Measure {
    fn is_excess(&self) -> bool {
        self.size > self.limit
    }
}

fn path() -> PathBuf {
    workspace::root().join("xtask/baseline.txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(name: &str, size: usize) -> Measure {
        Measure { name: name.to_owned(), size, limit: 10, advice: "split it" }
    }

    #[test]
    fn accepted_sizes_shrink_and_never_grow() {
        let baseline = Baseline::parse("# head\n\na file 20\nb 12\n").unwrap();
        assert_eq!(baseline.check(&[measure("a file", 20), measure("b", 12)]), Vec::<String>::new());
        let grown = baseline.check(&[measure("a file", 21), measure("b", 12)]);
        assert!(grown.len() == 1 && grown[0].starts_with("a file: 21"), "{grown:?}");
        // A size below the accepted one is told, until the file says so, too.
        assert_eq!(baseline.check(&[measure("a file", 20), measure("b", 11)]).len(), 1);
        let lowered = baseline.lowered(&[measure("a file", 30), measure("b", 10), measure("c", 11)]);
        assert_eq!(lowered, Baseline::parse("a file 20").unwrap());
    }

    #[test]
    fn what_keeps_its_limit_needs_no_entry() {
        assert_eq!(Baseline::default().check(&[measure("a", 10)]), Vec::<String>::new());
        assert_eq!(Baseline::default().check(&[measure("a", 11)]).len(), 1);
    }
}
