//! Files, functions and crates that grew past the sizes of CONTRIBUTING.md.

use std::collections::BTreeMap;

use super::baseline::Measure;
use super::lexer::is_word;
use super::prose::crate_of;
use super::source::Source;

const MAX_FILE_LINES: usize = 600;
const MAX_FUNCTION_LINES: usize = 70;
const MAX_CRATE_LINES: usize = 12_000;
const ADVICE: &str = "lines are too many: split it by concept";

/// Lines of what is past its limit: files without their tests, and functions; and those of all crates.
pub fn measures(sources: &[Source]) -> Vec<Measure> {
    let measure = |(name, size, limit)| Measure { name, size, limit, advice: ADVICE };
    let mut measures: Vec<Measure> = sources.iter().flat_map(oversized).map(measure).collect();
    measures.extend(crate_lines(sources).into_iter().map(|(name, size)| Measure {
        name: format!("{name}: lines of code"),
        size,
        limit: MAX_CRATE_LINES,
        advice: "cut the crate along its layers",
    }));
    measures
}

/// What is said of the crate with the most lines of code.
pub fn biggest_crate(sources: &[Source]) -> String {
    let biggest = crate_lines(sources).into_iter().max_by_key(|(_, size)| *size);
    let (name, size) = biggest.unwrap_or_default();
    format!("{name}, {size} lines without comments, blank lines and tests (at most {MAX_CRATE_LINES})")
}

/// Lines of code by the directory of the crate.
fn crate_lines(sources: &[Source]) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test_file()) {
        let name = crate_of(&source.path);
        // Examples are programs of their own.
        if source.is_in(&format!("{name}/src")) {
            *lines.entry(name).or_default() += code_lines(source);
        }
    }
    lines
}

/// Lines of a file without its tests that hold more than blanks and comments; lines inside of a literal
/// count.
fn code_lines(source: &Source) -> usize {
    let code = without_tests(&source.code);
    let is_code = |(code, text): &(&str, &str)| {
        !code.trim().is_empty() || !text.trim().is_empty() && !text.trim_start().starts_with("//")
    };
    code.lines().zip(source.text.lines()).filter(is_code).count()
}

/// Name, size and limit of what is past its limit in a file.
fn oversized(source: &Source) -> Vec<(String, usize, usize)> {
    if source.is_test_file() {
        return Vec::new();
    }
    let path = source.path.display().to_string();
    let code = without_tests(&source.code);
    let mut found = Vec::new();
    if code.lines().count() > MAX_FILE_LINES {
        found.push((path.clone(), code.lines().count(), MAX_FILE_LINES));
    }
    let functions = functions(code).into_iter().filter(|(_, size)| *size > MAX_FUNCTION_LINES);
    found.extend(functions.map(|(name, size)| (format!("{path}::{name}"), size, MAX_FUNCTION_LINES)));
    found
}

/// Up to the test module, which by custom ends a file.
fn without_tests(code: &str) -> &str {
    let marks = ["\nmod tests {", "\npub mod tests {"];
    let start = marks.iter().filter_map(|mark| code.find(mark)).min();
    &code[..start.unwrap_or(code.len())]
}

/// Names and lengths (from `fn` to the closing brace) of all functions with a body.
fn functions(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (start, _) in code.match_indices("fn ") {
        if code[..start].chars().next_back().is_some_and(is_word) {
            continue;
        }
        let name: String = code[start + 3..].chars().take_while(|character| is_word(*character)).collect();
        if let Some(length) = body_end(&code[start..]).filter(|_| !name.is_empty()) {
            found.push((name, code[start..start + length].lines().count()));
        }
    }
    found
}

/// Where the body of the function that begins here ends; none if it has no body.
fn body_end(code: &str) -> Option<usize> {
    let (mut braces, mut brackets) = (0_usize, 0_usize);
    for (position, character) in code.char_indices() {
        match character {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            ';' if braces == 0 && brackets == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces = braces.saturating_sub(1);
                if braces == 0 {
                    return Some(position + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(lines: usize, tail: &str) -> Source {
        let text = format!(
            "fn long(a: [u8; 3]) {{\n{}}}\nfn short() {{}}\ntrait T {{ fn none(&self); }}\n{tail}",
            "a();\n".repeat(lines)
        );
        Source::new("crates/x/src/y.rs".into(), text)
    }

    #[test]
    fn a_crate_is_measured_by_its_lines_of_code() {
        let file = |path: &str, lines: usize| {
            let text = format!(
                "//! Head.\n\n{}/// A constant.\nconst A: &str = \"\nb\n\"; // b\n\nmod tests {{\n    a();\n}}\n",
                "a();\n".repeat(lines)
            );
            Source::new(path.into(), text)
        };
        let sources = [
            file("crates/x/src/y.rs", 5),
            file("crates/x/src/z/w.rs", 11_989),
            file("crates/x/src/z/tests.rs", 20),
            file("crates/x/tests/it/z.rs", 20),
            file("crates/x/examples/z.rs", 20),
            file("xtask/src/y.rs", 7),
        ];
        let excess = |sources: &[Source]| {
            let crates =
                measures(sources).into_iter().filter(|measure| measure.name.ends_with("lines of code"));
            crates
                .map(|measure| (measure.name, measure.size as isize - measure.limit as isize))
                .collect::<Vec<_>>()
        };
        let expected = |of_x| {
            [("crates/x: lines of code".to_owned(), of_x), ("xtask: lines of code".to_owned(), -11_990)]
        };
        assert_eq!(excess(&sources), expected(0));
        assert_eq!(
            biggest_crate(&sources),
            "crates/x, 12000 lines without comments, blank lines and tests (at most 12000)"
        );
        let grown: Vec<Source> = sources.into_iter().chain([file("crates/x/src/v.rs", 0)]).collect();
        assert_eq!(excess(&grown), expected(3));
    }

    #[test]
    fn functions_and_files_are_measured_without_their_tests() {
        assert_eq!(oversized(&source(68, "")), []);
        let found = oversized(&source(69, ""));
        assert_eq!(found, [("crates/x/src/y.rs::long".to_owned(), 71, MAX_FUNCTION_LINES)]);
        let tests = format!("\nmod tests {{\n{}}}\n", "a();\n".repeat(700));
        assert_eq!(oversized(&source(3, &tests)), []);
        assert_eq!(oversized(&source(3, &"a();\n".repeat(700))).len(), 1);
    }
}
