//! How names, bytes and numbers are written for people.

/// Lower-case hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a character is an order to a terminal rather than something to see: control characters, those that
/// change the direction of what follows, and separators of lines and paragraphs.
pub fn is_order(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes a name for a terminal: control characters and what is not UTF-8 as `\ooo`, all else as it is.
pub fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_order(character) {
                let mut encoded = [0; 4];
                for byte in character.encode_utf8(&mut encoded).bytes() {
                    text.push_str(&format!("\\{byte:03o}"));
                }
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\{byte:03o}"));
        }
    }
    text
}

/// As [`escaped`], for a text of several lines.
pub(crate) fn lines_escaped(text: &str) -> String {
    text.split('\n').map(|line| escaped(line.as_bytes())).collect::<Vec<_>>().join("\n")
}

/// A number with the noun behind it: `1 file`, `2 files`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_see_no_control_characters() {
        assert_eq!(escaped(b"a\x1b[31m\xffb\xc3\xa4"), "a\\033[31m\\377bä");
        // A name that would be read backwards: `gpj.exe` behind the order to turn.
        assert_eq!(escaped("a\u{202e}gpj.exe".as_bytes()), "a\\342\\200\\256gpj.exe");
    }
}
