//! Names as they travel.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A name, path or label: bytes. In JSON a string, or `{"hex": …}` where the bytes are not UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(pub Vec<u8>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum NameForm {
    Text(String),
    Hex { hex: String },
}

impl Name {
    /// The bytes of a path.
    pub(crate) fn of_path(path: &Path) -> Self {
        Self(path.as_os_str().as_bytes().to_vec())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let form = match std::str::from_utf8(&self.0) {
            Ok(text) => NameForm::Text(text.to_owned()),
            Err(_) => NameForm::Hex { hex: self.0.iter().map(|byte| format!("{byte:02x}")).collect() },
        };
        form.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match NameForm::deserialize(deserializer)? {
            NameForm::Text(text) => Ok(Self(text.into_bytes())),
            NameForm::Hex { hex } => {
                let digits: Option<Vec<u8>> = hex
                    .bytes()
                    .map(|digit| char::from(digit).to_digit(16).and_then(|digit| digit.try_into().ok()))
                    .collect();
                let digits = digits.filter(|digits| digits.len().is_multiple_of(2));
                let digits =
                    digits.ok_or_else(|| serde::de::Error::custom("hex: no pairs of hexadecimal digits"))?;
                Ok(Self(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()))
            }
        }
    }
}

impl From<&[u8]> for Name {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().to_vec())
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}", String::from_utf8_lossy(&self.0).escape_debug())
    }
}
