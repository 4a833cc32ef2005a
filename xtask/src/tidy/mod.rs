//! The rules that the compiler does not check.

mod baseline;
mod forbidden_names;
mod growth;
mod lexer;
mod licences;
mod links;
mod manifests;
mod prose;
mod source;
mod structure;
mod test_names;
mod unused;
mod workflows;

use anyhow::Result;

use self::baseline::{Baseline, Measure};
use self::source::{Source, sources};
use crate::status;
use crate::workspace::{self, Package};

/// Runs all rules; true if nothing was found.
pub fn run() -> Result<bool> {
    let sources = sources()?;
    let packages = workspace::packages()?;
    let mut findings = manifests::check(&packages);
    findings.extend(unused::check(workspace::root(), &packages, &sources)?);
    findings.extend(sources.iter().flat_map(forbidden_names::check));
    findings.extend(sources.iter().flat_map(test_names::check));
    findings.extend(Baseline::load()?.check(&measures(&packages, &sources)?));
    findings.extend(status::check(workspace::root()));
    findings.extend(links::check(workspace::root())?);
    findings.extend(licences::check(workspace::root())?);
    findings.extend(workflows::check(workspace::root())?);
    for finding in &findings {
        eprintln!("tidy: {finding}");
    }
    let wide = structure::wide_types(&packages, &sources)?;
    println!("tidy: structs with more than 12 fields: {}", wide.join(", "));
    println!("tidy: biggest crate: {}", growth::biggest_crate(&sources));
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
    measures.extend(prose::measures(workspace::root(), sources)?);
    Ok(measures)
}
