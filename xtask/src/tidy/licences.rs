//! Everything that is linked comes from crates.io under a licence that deny.toml allows, so that the rule
//! holds where cargo-deny is not installed.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

use crate::workspace::{self, Foreign};

/// What foreign packages do not comply with.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let rules = std::fs::read_to_string(root.join("deny.toml")).context("deny.toml can't be read")?;
    let allowed = allowed(&rules).context("deny.toml has no list of allowed licences")?;
    Ok(workspace::foreign_packages()?.iter().filter_map(|package| judge(package, &allowed)).collect())
}

/// The list `allow` of the section `[licenses]`.
fn allowed(rules: &str) -> Option<BTreeSet<String>> {
    let section = rules.split("[licenses]").nth(1)?.split("\n[").next()?;
    let list = section.split("allow = [").nth(1)?.split(']').next()?;
    Some(list.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

fn judge(package: &Foreign, allowed: &BTreeSet<String>) -> Option<String> {
    let Foreign { name, licence, source } = package;
    // What address the index has is cargo's business; Cargo.lock has the checksums.
    if !(source.starts_with("registry+") && source.ends_with("/crates.io-index")) {
        return Some(format!("{name} comes from {source}, not from crates.io"));
    }
    let Some(licence) = licence else { return Some(format!("{name} names no licence")) };
    let is_allowed = Expression::new(licence).can_satisfy(allowed);
    (!is_allowed).then(|| format!("{name} is licensed under {licence}, which deny.toml does not allow"))
}

/// A licence expression (SPDX), with `/` for OR as older packages write it.
struct Expression {
    tokens: Vec<String>,
    at: usize,
}

impl Expression {
    fn new(text: &str) -> Self {
        let spaced = text.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
        let mut tokens: Vec<String> = Vec::new();
        let mut joins = false;
        for word in spaced.split_whitespace() {
            // An exception belongs to its licence.
            match tokens.last_mut() {
                Some(last) if joins || word == "WITH" => *last = format!("{last} {word}"),
                _ => tokens.push(word.to_owned()),
            }
            joins = word == "WITH";
        }
        Self { tokens, at: 0 }
    }

    fn take(&mut self, word: &str) -> bool {
        let is_next = self.tokens.get(self.at).is_some_and(|token| token == word);
        self.at += usize::from(is_next);
        is_next
    }

    /// Whether allowed licences fulfil it; not for what is no expression.
    fn can_satisfy(mut self, allowed: &BTreeSet<String>) -> bool {
        let value = self.alternatives(allowed);
        value && self.at == self.tokens.len()
    }

    fn alternatives(&mut self, allowed: &BTreeSet<String>) -> bool {
        let mut value = self.conditions(allowed);
        while self.take("OR") {
            value |= self.conditions(allowed);
        }
        value
    }

    fn conditions(&mut self, allowed: &BTreeSet<String>) -> bool {
        let mut value = self.licence(allowed);
        while self.take("AND") {
            value &= self.licence(allowed);
        }
        value
    }

    fn licence(&mut self, allowed: &BTreeSet<String>) -> bool {
        if self.take("(") {
            let value = self.alternatives(allowed);
            return self.take(")") && value;
        }
        let is_allowed = self.tokens.get(self.at).is_some_and(|token| allowed.contains(token));
        self.at += 1;
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_judged_as_a_whole() {
        let rules =
            "[licenses]\nallow = [\"MIT\", \"Apache-2.0\",\n \"Apache-2.0 WITH LLVM-exception\"]\n[bans]\n";
        let allowed = allowed(rules).unwrap();
        assert_eq!(allowed.len(), 3);
        let judge = |text: &str| Expression::new(text).can_satisfy(&allowed);
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/GPL-2.0",
            "(GPL-2.0 OR MIT) AND Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(judge(good), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT",
            "MIT)",
            "MIT MIT",
            "MIT WITH Odd-exception",
            "GPL-2.0 OR (MIT AND LGPL-2.1)",
        ] {
            assert!(!judge(bad), "{bad}");
        }
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        let allowed = BTreeSet::from(["MIT".to_owned()]);
        let package = |licence: Option<&str>, source: &str| Foreign {
            name: "one".to_owned(),
            licence: licence.map(str::to_owned),
            source: source.to_owned(),
        };
        let registry = "registry+https://example/crates.io-index";
        assert_eq!(judge(&package(Some("MIT"), registry), &allowed), None);
        assert!(judge(&package(Some("GPL-3.0"), registry), &allowed).unwrap().contains("GPL-3.0"));
        assert!(judge(&package(None, registry), &allowed).unwrap().contains("no licence"));
        assert!(judge(&package(Some("MIT"), "git+https://example"), &allowed).unwrap().contains("crates.io"));
    }
}
