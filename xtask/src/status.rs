//! docs/status.md, made of docs/status.toml: what vlinder can do, at a glance. What each claim was shown by
//! stays in the data.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use toml_edit::{Document, TableLike};

use crate::workspace;

const DATA: &str = "docs/status.toml";
const PAGE: &str = "docs/status.md";
const INTRODUCTION: &str = "# What works

Made by `cargo xtask status` of [status.toml](status.toml), where each claim of the project stands with the
command that shows it, what that gave, and what is missing. ✓ is shown, ✗ is not there, – has no meaning.

| what | read | write | limits | more |
|---|---|---|---|---|
";

/// What the data say.
struct Status {
    capabilities: Vec<Capability>,
    claims: Vec<Claim>,
}

/// A row of the page.
struct Capability {
    name: String,
    read: String,
    write: String,
    limits: String,
    /// Paths from the root of the project.
    see: Vec<String>,
}

/// Something that vlinder has to do.
struct Claim {
    id: String,
    command: String,
    result: String,
}

/// Writes the page.
pub fn write() -> Result<()> {
    let page = load(workspace::root())?.page();
    std::fs::write(workspace::root().join(PAGE), page).with_context(|| format!("{PAGE} can't be written"))
}

/// What is wrong with the data, or with the page.
pub fn check(root: &Path) -> Vec<String> {
    let status = match load(root) {
        Ok(status) => status,
        Err(error) => return vec![format!("{error:#}")],
    };
    let mut findings = status.faults(root);
    if std::fs::read_to_string(root.join(PAGE)).ok() != Some(status.page()) {
        findings.push(format!("{PAGE} is not made of {DATA} as it is: run cargo xtask status"));
    }
    findings
}

fn load(root: &Path) -> Result<Status> {
    let text = std::fs::read_to_string(root.join(DATA)).with_context(|| format!("{DATA} can't be read"))?;
    Status::parse(&text).with_context(|| DATA.to_owned())
}

impl Status {
    fn parse(text: &str) -> Result<Self> {
        let document = Document::parse(text)?;
        let tables = |name: &str| -> Result<Vec<&dyn TableLike>> {
            let array = document.get(name).and_then(|item| item.as_array_of_tables());
            let array = array.with_context(|| format!("there is no [[{name}]]"))?;
            Ok(array.iter().map(|table| table as &dyn TableLike).collect())
        };
        let capabilities = tables("capability")?.into_iter().map(Capability::of);
        let claims = tables("claim")?.into_iter().map(Claim::of);
        Ok(Self {
            capabilities: capabilities.collect::<Result<_>>()?,
            claims: claims.collect::<Result<_>>()?,
        })
    }

    fn faults(&self, root: &Path) -> Vec<String> {
        let mut faults = Vec::new();
        for capability in &self.capabilities {
            let absent = capability.see.iter().filter(|path| !root.join(path).exists());
            faults.extend(absent.map(|path| format!("{DATA}: `{}` leads to {path}", capability.name)));
        }
        for (number, claim) in self.claims.iter().enumerate() {
            if self.claims.iter().take(number).any(|other| other.id == claim.id) {
                faults.push(format!("{DATA}: claim {} stands there twice", claim.id));
            }
            if claim.command.is_empty() || claim.result.is_empty() {
                faults.push(format!("{DATA}: claim {} has no command or no result", claim.id));
            }
        }
        faults
    }

    fn page(&self) -> String {
        let mut page = INTRODUCTION.to_owned();
        for Capability { name, read, write, limits, see } in &self.capabilities {
            let links: Vec<String> = see.iter().map(|path| link(path)).collect();
            let (read, write) = (sign(read), sign(write));
            // Writing to a string can't fail.
            let _ = writeln!(page, "| {name} | {read} | {write} | {limits} | {} |", links.join(", "));
        }
        page
    }
}

impl Capability {
    fn of(table: &dyn TableLike) -> Result<Self> {
        let name = text(table, "name")?;
        let see = table.get("see").and_then(|item| item.as_array());
        let see = see.with_context(|| format!("`{name}` has no array `see`"))?;
        let see: Vec<String> = see.iter().filter_map(|path| path.as_str().map(str::to_owned)).collect();
        ensure!(!see.is_empty(), "`{name}` leads nowhere");
        let (read, write) = (text(table, "read")?, text(table, "write")?);
        Ok(Self { limits: text(table, "limits")?, name, read, write, see })
    }
}

impl Claim {
    fn of(table: &dyn TableLike) -> Result<Self> {
        let id = text(table, "id")?;
        let kind = id.split(' ').next().unwrap_or_default();
        if !["order", "done", "whole"].contains(&kind) {
            bail!("claim `{id}` is of no kind: order, done or whole");
        }
        for field in ["name", "commit", "missing"] {
            text(table, field).with_context(|| format!("claim {id}"))?;
        }
        Ok(Self { command: text(table, "command")?, result: text(table, "result")?, id })
    }
}

fn text(table: &dyn TableLike, field: &str) -> Result<String> {
    let found = table.get(field).and_then(|item| item.as_str());
    found.map(str::to_owned).with_context(|| format!("the text `{field}` is missing"))
}

fn sign(word: &str) -> &str {
    match word {
        "yes" => "✓",
        "no" => "✗",
        other => other,
    }
}

/// A link from the page, by the last part of the path.
fn link(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let stem = name.split('.').next().unwrap_or(name);
    let target = path.strip_prefix("docs/").map_or_else(|| format!("../{path}"), str::to_owned);
    format!("[{stem}]({target})")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: &str = "
[[capability]]
name = 'files'
read = 'yes'
write = 'no'
limits = 'small ones'
see = ['docs/a.md', 'crates/b/tests/c.rs']
[[claim]]
id = 'order S1'
name = 'n'
command = 'true'
result = 'seen'
commit = ''
missing = ''
";

    #[test]
    fn a_capability_is_a_row() {
        let page = Status::parse(DATA).unwrap().page();
        let row = "| files | ✓ | ✗ | small ones | [a](a.md), [c](../crates/b/tests/c.rs) |";
        assert_eq!(page.lines().last(), Some(row));
    }

    #[test]
    fn faults_are_named() {
        let status = Status::parse(&format!("{DATA}{}", &DATA[DATA.find("[[claim]]").unwrap()..])).unwrap();
        let faults = status.faults(Path::new("/nowhere"));
        let expected = ["leads to docs/a.md", "leads to crates/b/tests/c.rs", "order S1 stands there twice"];
        assert_eq!(faults.len(), expected.len(), "{faults:?}");
        assert!(faults.iter().zip(expected).all(|(fault, part)| fault.contains(part)), "{faults:?}");
        for (part, other) in
            [("order S1", "S1"), ("missing = ''", ""), ("see = ['docs/a.md', 'crates/b/tests/c.rs']", "")]
        {
            assert!(Status::parse(&DATA.replace(part, other)).is_err(), "{part}");
        }
    }
}
