//! What documents point at: links, files named in code spans, and test programs must be there.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use anyhow::{Context, Result};

use super::source::documents;

/// Directories at the root of which documents name files.
const ROOMS: [&str; 8] = ["crates", "docs", "testkit", "bench", "xtask", "fuzz", "tools", "tests"];

/// What documents point at in vain.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let mut findings = Vec::new();
    for path in &documents(root)? {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let shown = path.strip_prefix(root)?.display().to_string();
        let directory = path.parent().unwrap_or(root);
        let missing = links(&text).into_iter().filter(|link| !is_there(path, directory, link));
        findings.extend(missing.map(|link| format!("{shown}: the link to {link} leads nowhere")));
        let missing = files(&text).into_iter().filter(|name| !root.join(name).exists());
        findings.extend(missing.map(|name| format!("{shown}: there is no {name}")));
        let missing = test_programs(&text).into_iter().filter(|name| !has_test_program(root, name));
        findings.extend(missing.map(|name| format!("{shown}: no package has a test program {name}")));
    }
    Ok(findings)
}

/// The text without its fenced blocks.
fn without_fences(text: &str) -> String {
    let mut is_fenced = false;
    let mut outside = String::new();
    for line in text.lines() {
        let is_fence = line.trim_start().starts_with("```");
        if !is_fenced && !is_fence {
            outside.push_str(line);
            outside.push('\n');
        }
        is_fenced ^= is_fence;
    }
    outside
}

/// The code spans of a text without fences, which may go over the end of a line.
fn spans(text: &str) -> Vec<&str> {
    text.split("\n\n").flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2)).collect()
}

/// Where the links of a document lead that stay in the tree: `PATH`, `PATH#HEADING` or `#HEADING`.
fn links(text: &str) -> BTreeSet<String> {
    let outside = without_fences(text);
    let targets = outside.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.contains(' ')).map(str::to_owned).collect()
}

fn is_there(document: &Path, directory: &Path, link: &str) -> bool {
    let (path, heading) = link.split_once('#').map_or((link, None), |(path, heading)| (path, Some(heading)));
    let target = if path.is_empty() { document.to_owned() } else { directory.join(path) };
    match heading {
        None => target.exists(),
        Some(heading) => std::fs::read_to_string(target).is_ok_and(|text| headings(&text).contains(heading)),
    }
}

/// The names by which a document's headings are linked to.
fn headings(text: &str) -> BTreeSet<String> {
    let outside = without_fences(text);
    let titles = outside.lines().filter(|line| line.starts_with('#'));
    let titles = titles.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    titles
        .map(|title| {
            let kept =
                title.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
            kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
        })
        .collect()
}

/// Files of the tree that code spans name by their path from the root.
fn files(text: &str) -> BTreeSet<String> {
    let outside = without_fences(text);
    let words = spans(&outside).into_iter().flat_map(str::split_whitespace);
    // `FILE::TEST` names a test in a file.
    let paths = words.map(|word| word.split("::").next().unwrap_or(word).trim_end_matches([',', ';', '.']));
    let is_path = |path: &&str| {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '/' | '.' | '_' | '-');
        let room = Path::new(path).components().next();
        let room =
            room.and_then(|room| if let Component::Normal(name) = room { name.to_str() } else { None });
        // A name in capitals stands for one that the reader has.
        let stands_for_another = path.split('/').any(|part| part.len() > 2 && part == part.to_uppercase());
        path.contains('/')
            && !stands_for_another
            && path.chars().all(plain)
            && room.is_some_and(|room| ROOMS.contains(&room))
    };
    paths.filter(is_path).map(str::to_owned).collect()
}

/// The test programs that commands in a document run: `--test NAME`.
fn test_programs(text: &str) -> BTreeSet<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let named = words.windows(2).filter_map(|pair| match pair {
        ["--test", name] => Some(name.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric())),
        _ => None,
    });
    named.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn has_test_program(root: &Path, name: &str) -> bool {
    let crates = std::fs::read_dir(root.join("crates")).into_iter().flatten().filter_map(Result::ok);
    let packages = crates.map(|entry| entry.path()).chain(ROOMS.map(|room| root.join(room)));
    packages.into_iter().any(|package| {
        let tests = package.join("tests");
        tests.join(name).with_extension("rs").exists() || tests.join(name).join("main.rs").exists()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# A page: what it has\n\
        See [one](xtask/Cargo.toml), [two](https://example.org/x), [gone](no/such.md), [here](#a-page-what-it-has),\n\
        [astray](#another) and\n[three](README.md#finding-the-way). `crates/no/such.rs::a_test` and `xtask/src/main.rs`,\n\
        `docs/…`, `target/x`, `fuzz/corpus/TARGET`; `cargo test -p x --test no_such_test`, `cargo test\n--test golden`.\n\
        ```sh\n[no](link) crates/neither/this\n```\n";

    #[test]
    fn links_and_names_are_found_outside_of_blocks() {
        let all = |found: BTreeSet<String>| found.into_iter().collect::<Vec<_>>();
        let expected = [
            "#a-page-what-it-has",
            "#another",
            "README.md#finding-the-way",
            "no/such.md",
            "xtask/Cargo.toml",
        ];
        assert_eq!(all(links(DOCUMENT)), expected);
        assert_eq!(all(files(DOCUMENT)), ["crates/no/such.rs", "xtask/src/main.rs"]);
        assert_eq!(all(test_programs(DOCUMENT)), ["golden", "no_such_test"]);
    }

    #[test]
    fn what_is_not_there_is_told() {
        let root = crate::workspace::root();
        let readme = root.join("README.md");
        let is_there = |link: &str| is_there(&readme, root, link);
        assert!(is_there("xtask/Cargo.toml") && is_there("#finding-the-way"));
        assert!(is_there("docs/format/chunks.md#devices") && is_there("docs/format"));
        assert!(
            !is_there("no/such.md") && !is_there("#another") && !is_there("docs/format/chunks.md#another")
        );
        assert!(has_test_program(root, "differential") && !has_test_program(root, "no_such_test"));
    }
}
