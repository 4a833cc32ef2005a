//! Files and functions that grew past the sizes of CONTRIBUTING.md.

use super::baseline::Measure;
use super::lexer::is_word;
use super::source::Source;

const MAX_FILE_LINES: usize = 600;
const MAX_FUNCTION_LINES: usize = 70;
const ADVICE: &str = "lines are too many: split it by concept";

/// Lines of what is past its limit: files without their tests, and functions.
pub fn measures(sources: &[Source]) -> Vec<Measure> {
    let measure = |(name, size, limit)| Measure { name, size, limit, advice: ADVICE };
    sources.iter().flat_map(oversized).map(measure).collect()
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
    fn functions_and_files_are_measured_without_their_tests() {
        assert_eq!(oversized(&source(68, "")), []);
        let found = oversized(&source(69, ""));
        assert_eq!(found, [("crates/x/src/y.rs::long".to_owned(), 71, MAX_FUNCTION_LINES)]);
        let tests = format!("\nmod tests {{\n{}}}\n", "a();\n".repeat(700));
        assert_eq!(oversized(&source(3, &tests)), []);
        assert_eq!(oversized(&source(3, &"a();\n".repeat(700))).len(), 1);
    }
}
