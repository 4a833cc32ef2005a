//! Names of tests: sentences that a list of failures shows whole.

use super::lexer::is_word;
use super::source::Source;

const MAX_NAME_CHARACTERS: usize = 60;

/// Tests whose names are too long.
pub fn check(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for name in test_names(&source.code).filter(|name| name.chars().count() > MAX_NAME_CHARACTERS) {
        let path = source.path.display();
        findings.push(format!(
            "{path}: the test name {name} has more than {MAX_NAME_CHARACTERS} characters: the module \
             carries the subject, the name one sentence"
        ));
    }
    findings
}

/// Names of the functions that follow a test's mark.
fn test_names(code: &str) -> impl Iterator<Item = &str> {
    code.match_indices("#[test]").filter_map(|(mark, _)| {
        let rest = &code[mark..];
        let name = &rest[rest.find("fn ")? + "fn ".len()..];
        Some(&name[..name.find(|character| !is_word(character))?])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tests_alone_are_measured() {
        let long = "a".repeat(MAX_NAME_CHARACTERS + 1);
        let findings = |text: String| check(&Source::new("crates/tree/src/a.rs".into(), text)).len();
        assert_eq!(findings(format!("#[test]\n#[ignore = \"fn b\"]\nfn {long}() {{}}\n")), 1);
        assert_eq!(findings(format!("#[test]\nfn {}() {{}}\n", &long[1..])), 0);
        assert_eq!(findings(format!("fn {long}() {{}}\n")), 0);
    }
}
