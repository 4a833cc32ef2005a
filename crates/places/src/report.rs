//! A verb's JSON object, and what stands in it.

use serde_json::{Map, Value, json};

use crate::failure::Failure;
use crate::text::hexadecimal;

/// A name as JSON: a string, or `{"hex": …}` where the bytes are not UTF-8.
pub fn name(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => json!({ "hex": hexadecimal(bytes) }),
    }
}

/// One object of the schema `vlinder.VERB/1` with these fields.
pub(crate) fn object(verb: &str, fields: Value) -> Value {
    let mut object = Map::new();
    object.insert("schema".to_owned(), Value::from(format!("vlinder.{verb}/1")));
    if let Value::Object(fields) = fields {
        object.extend(fields);
    }
    Value::Object(object)
}

/// The object that stands for a failure.
pub(crate) fn error(verb: &str, failure: &Failure) -> Value {
    object(verb, json!({ "error": error_fields(failure) }))
}

/// One failure.
pub(crate) fn error_fields(failure: &Failure) -> Value {
    json!({
        "kind": failure.kind.name(),
        "place": failure.place,
        "message": failure.message,
        "hint": failure.hint,
    })
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
    fn an_error_is_an_object_with_four_fields() {
        let failure = Failure::new(Kind::NotFound, "no such file").at("a.img:/b");
        let expected = json!({
            "schema": "vlinder.ls/1",
            "error": { "kind": "not-found", "place": "a.img:/b", "message": "no such file", "hint": null },
        });
        assert_eq!(error("ls", &failure), expected);
    }
}
