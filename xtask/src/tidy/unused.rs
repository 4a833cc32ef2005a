//! Dependencies that nobody uses: they cost building time, and tell of an order between crates that is not there.

use std::path::Path;

use anyhow::{Context, Result};

use super::Source;
use super::lexer::has_word;
use crate::workspace::Package;

/// Dependencies of packages that none of their sources names, and those of the workspace that no package takes.
pub fn check(root: &Path, packages: &[Package], sources: &[Source]) -> Result<Vec<String>> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).context("Cargo.toml can't be read")?;
    let mut findings: Vec<String> =
        packages.iter().flat_map(|package| in_package(package, sources)).collect();
    findings.extend(in_workspace(&manifest, packages));
    Ok(findings)
}

fn in_package(package: &Package, sources: &[Source]) -> Vec<String> {
    let own: Vec<&Source> =
        sources.iter().filter(|source| source.path.starts_with(&package.directory)).collect();
    let is_named = |dependency: &str| {
        let name = dependency.replace('-', "_");
        own.iter().any(|source| has_word(&source.code, &name))
    };
    let unused = package.dependencies.iter().filter(|dependency| !is_named(&dependency.name));
    unused
        .map(|dependency| {
            format!("{} depends on {} and never names it: remove it", package.name, dependency.name)
        })
        .collect()
}

fn in_workspace(manifest: &str, packages: &[Package]) -> Vec<String> {
    let section = manifest.split("[workspace.dependencies]").nth(1).unwrap_or_default();
    let section = section.split("\n[").next().unwrap_or_default();
    let names = section.lines().filter_map(|line| line.split_once(" = ")).map(|(name, _)| name);
    let is_taken = |name: &str| {
        packages.iter().any(|package| package.dependencies.iter().any(|dependency| dependency.name == name))
    };
    names
        .filter(|name| !is_taken(name))
        .map(|name| format!("Cargo.toml offers {name}, which no package depends on: remove it"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Dependency;

    fn package(uses: &[&str]) -> Package {
        let dependency = |name: &&str| Dependency { name: (*name).to_owned(), is_for_tests: false };
        Package {
            name: "vlinder-tree".to_owned(),
            directory: "crates/tree".into(),
            floor: None,
            dependencies: uses.iter().map(dependency).collect(),
            features: Vec::new(),
        }
    }

    #[test]
    fn a_dependency_is_named_in_the_code_of_its_own_package() {
        let source = |path: &str, text: &str| Source::new(path.into(), text.to_owned());
        let sources = [
            source("crates/tree/src/a.rs", "use vlinder_base::sync; // io_uring\n"),
            source("crates/treetop/src/a.rs", "use tracing::warn;\n"),
        ];
        assert_eq!(in_package(&package(&["vlinder-base"]), &sources), Vec::<String>::new());
        for unused in ["io-uring", "tracing", "base"] {
            assert_eq!(in_package(&package(&["vlinder-base", unused]), &sources).len(), 1, "{unused}");
        }
    }

    #[test]
    fn the_workspace_offers_only_what_is_taken() {
        let manifest = "[workspace]\nresolver = \"3\"\n\n[workspace.dependencies]\ntaken = \"1\"\n\
                        left = { version = \"1\" }\n\n[workspace.lints.rust]\nnot_one = \"deny\"\n";
        let found = in_workspace(manifest, &[package(&["taken"])]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("left"), "{found:?}");
    }
}
