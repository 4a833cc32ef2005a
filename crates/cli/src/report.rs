//! What a verb prints on standard output: text, or one JSON object.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::failure::Failure;

/// A name as JSON: a string, or `{"hex": …}` where the bytes are not UTF-8.
pub fn name(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => json!({ "hex": hexadecimal(bytes) }),
    }
}

/// Lower-case hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One object of the schema `vlinder.VERB/1` with these fields.
pub fn object(verb: &str, fields: Value) -> Value {
    let mut object = Map::new();
    object.insert("schema".to_owned(), Value::from(format!("vlinder.{verb}/1")));
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    Value::Object(object)
}

/// The object that stands for a failure.
pub fn error(verb: &str, failure: &Failure) -> Value {
    object(verb, json!({ "error": error_fields(failure) }))
}

/// One failure.
pub fn error_fields(failure: &Failure) -> Value {
    json!({
        "kind": failure.kind.name(),
        "place": failure.place,
        "message": failure.message,
        "hint": failure.hint,
    })
}

/// Whether a character is an order to a terminal rather than something to see: control characters, those that change the
/// direction of what follows, and separators of lines and paragraphs.
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
pub fn lines_escaped(text: &str) -> String {
    text.split('\n').map(|line| escaped(line.as_bytes())).collect::<Vec<_>>().join("\n")
}

/// Standard output; a reader that went away (`| head`) ends the output, not the verb.
pub struct Output {
    inner: Option<io::BufWriter<io::Stdout>>,
    list: List,
}

/// A list that is written item by item, as the first field of the verb's object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    None,
    Empty,
    Begun,
}

impl Output {
    /// Standard output with a buffer.
    pub fn new() -> Self {
        Self { inner: Some(io::BufWriter::with_capacity(1 << 16, io::stdout())), list: List::None }
    }

    fn settle(&mut self, result: io::Result<()>) -> Result<(), Failure> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                // What is left in the buffer can't be written either, and a drop would try.
                if let Some(writer) = self.inner.take() {
                    drop(writer.into_parts());
                }
                Ok(())
            }
            Err(error) => Err(Failure::host(&error, "standard output")),
            Ok(()) => Ok(()),
        }
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let result = self.inner.as_mut().map_or(Ok(()), |writer| writer.write_all(bytes));
        self.settle(result)
    }

    /// Writes a line.
    pub fn line(&mut self, text: impl AsRef<str>) -> Result<(), Failure> {
        self.bytes(text.as_ref().as_bytes())?;
        self.bytes(b"\n")
    }

    /// Begins the verb's object with a list, whose items follow one by one: so a long list takes no memory.
    pub fn begin_list(&mut self, name: &str) -> Result<(), Failure> {
        self.list = List::Empty;
        self.bytes(format!("{{{}:[", Value::from(name)).as_bytes())
    }

    /// Writes an item of the list.
    pub fn list_item(&mut self, value: &Value) -> Result<(), Failure> {
        let separator: &[u8] = if self.list == List::Begun { b"," } else { b"" };
        self.list = List::Begun;
        self.bytes(separator)?;
        self.bytes(value.to_string().as_bytes())
    }

    /// Writes a JSON object on a line of its own. A list that was begun ends, and the object's fields come behind it.
    pub fn json(&mut self, value: &Value) -> Result<(), Failure> {
        let text = value.to_string();
        if std::mem::replace(&mut self.list, List::None) == List::None {
            return self.line(text);
        }
        self.bytes(b"],")?;
        self.line(text.strip_prefix('{').unwrap_or(&text))
    }

    /// True once nobody reads any more.
    pub fn is_closed(&self) -> bool {
        self.inner.is_none()
    }

    /// Hands everything to the system.
    pub fn flush(&mut self) -> Result<(), Failure> {
        let result = self.inner.as_mut().map_or(Ok(()), Write::flush);
        self.settle(result)
    }
}

/// A number with the noun behind it: `1 file`, `2 files`.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Kind;

    #[test]
    fn names_are_strings_or_hexadecimal() {
        assert_eq!(name("ä".as_bytes()), Value::from("ä"));
        assert_eq!(name(b"\xff\x00"), json!({ "hex": "ff00" }));
    }

    #[test]
    fn terminals_see_no_control_characters() {
        assert_eq!(escaped(b"a\x1b[31m\xffb\xc3\xa4"), "a\\033[31m\\377bä");
        // A name that would be read backwards: `gpj.exe` behind the order to turn.
        assert_eq!(escaped("a\u{202e}gpj.exe".as_bytes()), "a\\342\\200\\256gpj.exe");
    }

    #[test]
    fn an_error_is_an_object_with_four_fields() {
        let failure = Failure::new(Kind::NotFound, "no such file").at("a.img:/b");
        let expected = json!({
            "schema": "vlinder.ls/1",
            "error": { "kind": "not-found", "place": "a.img:/b", "message": "no such file", "hint": null },
        });
        assert_eq!(error("ls", &failure), expected);
    }
}
