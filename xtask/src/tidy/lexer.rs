//! Just enough of Rust's lexical rules to tell code from comments and literals.

/// The text with comments and the insides of literals replaced by blanks; lines stay where they are.
pub fn code_of(text: &str) -> String {
    kept(text, |part| part == Part::Code)
}

/// The text with everything but line comments replaced by blanks.
pub fn comments_of(text: &str) -> String {
    kept(text, |part| part == Part::LineComment)
}

/// What a part of a text is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Code,
    LineComment,
    BlockComment,
    Literal,
}

fn kept(text: &str, is_kept: impl Fn(Part) -> bool) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut kept = String::with_capacity(text.len());
    let mut position = 0;
    while position < characters.len() {
        let rest = &characters[position..];
        let before = position.checked_sub(1).map(|before| characters[before]);
        let (part, length) = next_part(rest, before);
        let shown = |character: &char| if is_kept(part) || *character == '\n' { *character } else { ' ' };
        kept.extend(rest[..length].iter().map(shown));
        position += length;
    }
    kept
}

/// The part that a text begins with, and its length; code comes a character at a time.
fn next_part(rest: &[char], before: Option<char>) -> (Part, usize) {
    let (part, length) = match rest {
        ['/', '/', ..] => {
            (Part::LineComment, rest.iter().take_while(|character| **character != '\n').count())
        }
        ['/', '*', ..] => (Part::BlockComment, block_comment(rest)),
        ['"', ..] => (Part::Literal, string(rest)),
        ['r' | 'b' | 'c', ..] if !before.is_some_and(is_word) => (Part::Literal, prefixed_string(rest)),
        ['\'', ..] => (Part::Literal, character(rest)),
        _ => (Part::Code, 1),
    };
    if length == 0 { (Part::Code, 1) } else { (part, length.min(rest.len())) }
}

/// Part of an identifier.
pub fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// True if the text holds this word (or path) with nothing of an identifier before or after it.
pub fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let after = text[start + word.len()..].chars().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Block comments nest.
fn block_comment(text: &[char]) -> usize {
    let mut depth = 0_usize;
    let mut position = 0;
    while position < text.len() {
        match &text[position..] {
            ['/', '*', ..] => (depth, position) = (depth + 1, position + 2),
            ['*', '/', ..] => (depth, position) = (depth - 1, position + 2),
            _ => position += 1,
        }
        if depth == 0 {
            break;
        }
    }
    position
}

/// A string from its opening quote.
fn string(text: &[char]) -> usize {
    let mut position = 1;
    while position < text.len() {
        match text[position] {
            '\\' => position += 2,
            '"' => return position + 1,
            _ => position += 1,
        }
    }
    text.len()
}

/// `b"…"`, `r"…"`, `br#"…"#`, `c"…"` and byte characters; 0 if it is none of these.
fn prefixed_string(text: &[char]) -> usize {
    let prefix = text.iter().take_while(|character| matches!(character, 'r' | 'b' | 'c')).count();
    let hashes = text[prefix..].iter().take_while(|character| **character == '#').count();
    let is_raw = text[..prefix].contains(&'r');
    match text.get(prefix + hashes) {
        Some('"') if is_raw => {
            let start = prefix + hashes + 1;
            let is_end = |position: &usize| {
                text[*position] == '"'
                    && text[position + 1..].iter().take_while(|one| **one == '#').count() >= hashes
            };
            (start..text.len()).find(is_end).map_or(text.len(), |end| end + 1 + hashes)
        }
        Some('"') if hashes == 0 && prefix == 1 => prefix + string(&text[prefix..]),
        Some('\'') if hashes == 0 && text[..prefix] == ['b'] => prefix + character(&text[prefix..]),
        _ => 0,
    }
}

/// A character literal; 0 for a lifetime.
fn character(text: &[char]) -> usize {
    match text {
        ['\'', '\\', ..] => {
            let end = text.iter().skip(3).position(|character| *character == '\'');
            end.map_or(0, |end| end + 4)
        }
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_go_and_code_stays() {
        let text = "let a = \"x // y\"; // std::sync\n/* a /* b */ c */let r = r#\"q\"u\"#; 'l: loop { '\\'' } b'\"' &'a str";
        let code = code_of(text);
        assert_eq!(code.lines().count(), 2);
        for gone in ["x // y", "std::sync", " b ", "q\"u", "c */"] {
            assert!(!code.contains(gone), "{code}");
        }
        for kept in ["let a =", "let r =", "'l: loop {", "&'a str"] {
            assert!(code.contains(kept), "{code}");
        }
    }

    #[test]
    fn comments_are_told_from_strings_that_look_like_some() {
        let text = "let a = \"\n// x\n\"; // y\n/// z";
        let comments = comments_of(text);
        let lines: Vec<&str> = comments.lines().map(str::trim).collect();
        assert_eq!(lines, ["", "", "// y", "/// z"]);
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("use std::sync::Arc", "std::sync") && !has_word("my_std::sync", "std::sync"));
        assert!(!has_word("Instantly", "Instant"));
    }
}
