//! The rules that the compiler does not check.

mod baseline;
mod documents;
mod growth;
mod lexer;
mod licences;
mod links;
mod manifests;
mod sources;
mod structure;
mod unused;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use self::baseline::{Baseline, Measure};
use crate::workspace::{self, Package};

/// A source file of the workspace.
pub struct Source {
    /// Path below the root.
    pub path: PathBuf,
    /// Its text.
    pub text: String,
    /// Its text with comments and literals blanked out, line for line.
    pub code: String,
}

impl Source {
    /// From a text, for a path below the root.
    pub fn new(path: PathBuf, text: String) -> Self {
        let code = lexer::code_of(&text);
        Source { path, text, code }
    }

    /// True for `crates/NAME/…`.
    pub fn is_in(&self, directory: &str) -> bool {
        self.path.starts_with(directory)
    }

    /// True for files that hold only tests.
    pub fn is_test_file(&self) -> bool {
        let is_test_name =
            |name: &std::ffi::OsStr| name == "tests" || name == "tests.rs" || name == "benches";
        self.path.iter().any(is_test_name)
    }
}

/// Runs all rules; true if nothing was found.
pub fn run() -> Result<bool> {
    let sources = sources()?;
    let packages = workspace::packages()?;
    let mut findings = manifests::check(&packages);
    findings.extend(unused::check(workspace::root(), &packages, &sources)?);
    findings.extend(sources.iter().flat_map(sources::check));
    findings.extend(Baseline::load()?.check(&measures(&packages, &sources)?));
    findings.extend(documents::check(workspace::root()));
    findings.extend(links::check(workspace::root())?);
    findings.extend(licences::check(workspace::root())?);
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    println!("tidy: {} files, {} findings", sources.len(), findings.len());
    Ok(findings.is_empty())
}

/// Lowers the accepted sizes to those of today.
pub fn bless() -> Result<()> {
    Baseline::load()?.bless(&measures(&workspace::packages()?, &sources()?)?)
}

/// Prints what ties the files of each circle together; true if there is no circle.
pub fn circles() -> Result<bool> {
    let lines = structure::describe_circles(&workspace::packages()?, &sources()?)?;
    lines.iter().for_each(|line| println!("{line}"));
    Ok(lines.is_empty())
}

fn measures(packages: &[Package], sources: &[Source]) -> Result<Vec<Measure>> {
    let mut measures = growth::measures(sources);
    measures.extend(structure::measures(packages, sources)?);
    Ok(measures)
}

fn sources() -> Result<Vec<Source>> {
    let root = workspace::root();
    let mut paths = Vec::new();
    for directory in ["crates", "testkit", "bench", "xtask", "fuzz"] {
        collect(&root.join(directory), &mut paths)?;
    }
    paths.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Ok(Source::new(path.strip_prefix(root)?.to_owned(), text))
    };
    paths.iter().map(read).collect()
}

fn collect(directory: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    if !directory.is_dir() {
        return Ok(());
    }
    for entry in std::fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("target") {
            collect(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
    Ok(())
}
