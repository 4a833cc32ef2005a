//! What a source file may name.
//!
//! An exception stands on the line itself or the one above: `// tidy-allow(WORD): why`.

use std::path::Path;

use super::lexer::has_word;
use super::source::Source;

/// What only `crates/base` may name: everything that is not deterministic goes through it.
const ONLY_IN_BASE: [&str; 7] =
    ["std::sync", "std::thread", "SystemTime::now", "Instant", "parking_lot", "rayon", "quick_cache"];

/// Where `unsafe` may stand, each use with its proof.
const UNSAFE_ALLOWED: [&str; 6] =
    ["crates/device", "crates/fuse", "crates/capi", "crates/codec", "testkit", "bench"];

/// What the head of each crate says that has no users but ours.
const INNER: &str =
    "This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.";
/// Crates that others use.
const OUTER: [&str; 3] = ["crates/vlinder", "crates/capi", "crates/cli"];

/// Unfinished work, wherever it hides. Written in parts so that this file does not find itself.
const UNFINISHED: [&str; 4] =
    [concat!("to", "do!"), concat!("unimplemen", "ted!"), concat!("FIX", "ME"), concat!("XX", "X")];

/// What is wrong with a file.
pub fn check(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    let mut report = |line: usize, text: String| {
        findings.push(format!("{}:{}: {text}", source.path.display(), line + 1));
    };
    let lines: Vec<&str> = source.text.lines().collect();
    let is_allowed = |line: usize, word: &str| {
        let marker = format!("tidy-allow({word}): ");
        let above = line.checked_sub(1).map_or("", |above| lines[above]);
        [lines[line], above].iter().any(|text| text.contains(&marker))
    };
    for (number, line) in source.text.lines().enumerate() {
        for word in UNFINISHED {
            if has_word(line, word) {
                report(
                    number,
                    format!("{word}: finish it, or open an issue and say what happens until then"),
                );
            }
        }
    }
    // What is measured from outside, by a program of its own, is never part of a model run.
    let is_example = source.path.components().any(|part| part.as_os_str() == "examples");
    let may_name_threads =
        source.is_in("crates/base") || source.is_in("xtask") || source.is_in("bench") || is_example;
    for (number, line) in source.code.lines().enumerate() {
        let named = ONLY_IN_BASE.iter().filter(|word| has_word(line, word));
        for word in named.filter(|word| !may_name_threads && !is_allowed(number, word)) {
            report(number, format!("{word} is named: use vlinder_base's, or a model run can't see it"));
        }
        let may_be_unsafe = UNSAFE_ALLOWED.iter().any(|directory| source.is_in(directory));
        if has_word(line, "unsafe") && !may_be_unsafe {
            report(number, format!("unsafe is allowed only in {UNSAFE_ALLOWED:?}"));
        }
    }
    if !may_name_threads {
        for (number, word) in grouped_imports(&source.code) {
            if !is_allowed(number, word) {
                report(
                    number,
                    format!("std::{word} is imported: use vlinder_base's, or a model run can't see it"),
                );
            }
        }
    }
    if is_crate_head(&source.path) && !is_introduced(&source.text) {
        report(
            0,
            "a crate's head opens with what it does and a sentence on what it \"must not know\"".to_owned(),
        );
    }
    let is_inner = is_crate_head(&source.path) && !OUTER.iter().any(|directory| source.is_in(directory));
    if is_inner && !source.text.contains(&format!("\n//! {INNER}\n")) {
        report(0, format!("an inner crate's head has the sentence: {INNER}"));
    }
    findings
}

/// `use std::{sync::Arc, thread}`, which no path shows: the line and the module.
fn grouped_imports(code: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for (start, opening) in code.match_indices("use std::{") {
        let end = code[start..].find(';').map_or(code.len(), |end| start + end);
        let group = &code[start + opening.len()..end];
        let line = code[..start].matches('\n').count();
        found.extend(
            ["sync", "thread"].into_iter().filter(|word| has_word(group, word)).map(|word| (line, word)),
        );
    }
    found
}

fn is_crate_head(path: &Path) -> bool {
    path.starts_with("crates") && path.ends_with("src/lib.rs")
}

fn is_introduced(text: &str) -> bool {
    let head: Vec<&str> = text.lines().take_while(|line| line.starts_with("//!")).collect();
    head.join(" ").replace("//!", "").contains("must not know")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> usize {
        check(&Source::new(path.into(), text.to_owned())).len()
    }

    #[test]
    fn forbidden_names_are_found_in_code_only() {
        let path = "crates/tree/src/a.rs";
        assert_eq!(findings(path, "// std::sync is not for us\nlet a = \"Instant\";\n"), 0);
        assert_eq!(findings(path, "use std::sync::Arc;\nlet a = Instant::now();\n"), 2);
        assert_eq!(findings(path, "use std::{fmt,\n  sync::Arc};\n"), 1);
        assert_eq!(findings("crates/base/src/a.rs", "use std::sync::Arc;\n"), 0);
        assert_eq!(
            findings(path, "// tidy-allow(SystemTime::now): a reason\nlet a = SystemTime::now();\n"),
            0
        );
        assert_eq!(findings(path, "unsafe { a() }\n"), 1);
        assert_eq!(findings("crates/device/src/a.rs", "unsafe { a() }\n"), 0);
    }

    #[test]
    fn unfinished_work_is_found_in_comments_too() {
        for word in UNFINISHED {
            assert_eq!(findings("crates/tree/src/a.rs", &format!("// {word} later\n")), 1, "{word}");
        }
        assert_eq!(findings("crates/tree/src/a.rs", concat!("let template = \"XX", "XXXX\";\n")), 0);
    }

    #[test]
    fn a_crate_says_what_it_must_not_know() {
        assert_eq!(
            findings("crates/vlinder/src/lib.rs", "//! Trees. This crate must not\n//! know paths.\n"),
            1
        );
        assert_eq!(findings("crates/vlinder/src/lib.rs", "//! Trees. It must not know paths.\n"), 0);
    }

    #[test]
    fn an_inner_crate_says_that_it_is_one() {
        let head = "//! Trees. It must not know paths.\n";
        assert_eq!(findings("crates/tree/src/lib.rs", head), 1);
        assert_eq!(findings("crates/tree/src/lib.rs", &format!("{head}//!\n//! {INNER}\n")), 0);
    }
}
