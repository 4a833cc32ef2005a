//! Dependencies that nobody uses: they cost building time, and tell of an order between crates that is not
//! there. Public items that nobody names: the compiler, which sees one crate at a time, does not tell of
//! them.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};

use super::lexer::{has_word, is_word};
use super::source::Source;
use crate::workspace::{Dependency, Package};

/// Dependencies of packages that none of their sources names, and those of the workspace that no package
/// takes.
pub fn check(root: &Path, packages: &[Package], sources: &[Source]) -> Result<Vec<String>> {
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).context("Cargo.toml can't be read")?;
    let mut findings: Vec<String> =
        packages.iter().flat_map(|package| in_package(package, sources)).collect();
    findings.extend(in_workspace(&manifest, packages));
    findings.extend(public_items(sources));
    Ok(findings)
}

fn in_package(package: &Package, sources: &[Source]) -> Vec<String> {
    let own: Vec<&Source> =
        sources.iter().filter(|source| source.path.starts_with(&package.directory)).collect();
    let is_named = |dependency: &str| {
        let name = dependency.replace('-', "_");
        own.iter().any(|source| has_word(&source.code, &name))
    };
    // A program turns on what an inner crate of ours may be built without, and need not call it by itself.
    let turns_on = |dependency: &Dependency| {
        dependency.name.starts_with("vlinder-") && !dependency.is_for_tests && !dependency.features.is_empty()
    };
    let unused =
        package.dependencies.iter().filter(|dependency| !is_named(&dependency.name) && !turns_on(dependency));
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

/// Public items whose name stands nowhere but where they are made. Constants of `format` are excepted: they
/// are tables of what a field may hold, whole whether somebody asks for each entry or not.
fn public_items(sources: &[Source]) -> Vec<String> {
    let mut occurrences: HashMap<&str, u32> = HashMap::new();
    for source in sources {
        for word in source.code.split(|character| !is_word(character)) {
            *occurrences.entry(word).or_default() += 1;
        }
    }
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| !source.is_test_file()) {
        for line in source.code.lines() {
            let Some(name) = public_name(line, source.is_in("crates/format")) else { continue };
            if occurrences.get(name) == Some(&1) {
                findings.push(format!("{}: nobody names {name}: remove it", source.path.display()));
            }
        }
    }
    findings
}

/// The name of the public item that is made in this line.
fn public_name(line: &str, is_of_format: bool) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let mut words = rest.split(|character| !is_word(character)).filter(|word| !word.is_empty());
    let kind = words.find(|word| !matches!(*word, "unsafe" | "extern" | "C"))?;
    let name = words.next()?;
    match (kind, name) {
        // `pub const fn name` and the like.
        ("const", "fn" | "unsafe") => words.next(),
        ("const", _) if is_of_format => None,
        ("fn" | "struct" | "enum" | "trait" | "type" | "const" | "static", _) => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(uses: &[&str]) -> Package {
        let dependency =
            |name: &&str| Dependency { name: (*name).to_owned(), is_for_tests: false, features: Vec::new() };
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
        let mut turns_on = package(&["vlinder-codec"]);
        assert_eq!(in_package(&turns_on, &sources).len(), 1);
        turns_on.dependencies[0].features.push("zstd".to_owned());
        assert_eq!(in_package(&turns_on, &sources), Vec::<String>::new());
    }

    #[test]
    fn a_public_item_is_named_somewhere_else() {
        let source = |path: &str, text: &str| Source::new(path.into(), text.to_owned());
        let sources = [
            source(
                "crates/tree/src/a.rs",
                "pub fn used() {}\n    pub const fn left() {} // left\npub struct Alone;\npub mod whole;\n\
                 pub(crate) fn own() {}\npub const BIT: u64 = 1;\n",
            ),
            source("crates/format/src/a.rs", "pub const TABLED: u64 = 1;\npub const fn judge() {}\n"),
            source("crates/tree/tests/b.rs", "pub fn helper() {}\nfn f() { used(); }\n"),
        ];
        let found = public_items(&sources);
        let names = ["left", "Alone", "BIT", "judge"];
        assert_eq!(found.len(), names.len(), "{found:?}");
        assert!(
            found.iter().zip(names).all(|(finding, name)| finding.contains(&format!(" {name}:"))),
            "{found:?}"
        );
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
