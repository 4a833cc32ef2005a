//! Expressions for paths and names.

use regex::bytes::{Regex, RegexBuilder};

/// An expression that paths have to match. Paths are bytes, and names in them need not be UTF-8.
pub struct PathFilter {
    /// Reads letters; what is no UTF-8 is none.
    letters: Regex,
    /// Reads bytes; none where the expression has classes of letters, which only the other way can read.
    bytes: Option<Regex>,
}

impl PathFilter {
    /// Reads an expression.
    ///
    /// # Errors
    /// Where it is none.
    pub fn new(expression: &str, ignores_case: bool) -> Result<Self, regex::Error> {
        let build = |unicode: bool| {
            // As with the expressions of POSIX: a newline in a name is a byte like others.
            RegexBuilder::new(expression)
                .case_insensitive(ignores_case)
                .dot_matches_new_line(true)
                .unicode(unicode)
                .build()
        };
        Ok(Self { letters: build(true)?, bytes: build(false).ok() })
    }

    /// Whether a path, its slashes included, or a name matches.
    pub fn is_match(&self, path: &[u8]) -> bool {
        self.letters.is_match(path) || self.bytes.as_ref().is_some_and(|bytes| bytes.is_match(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_byte_of_a_name_matches_a_dot() {
        let is_match =
            |expression: &str, path: &[u8]| PathFilter::new(expression, false).unwrap().is_match(path);
        for name in [&b"/\xff\xfe"[..], b"/a\nb", b"/a\x01b", "/\u{e9}".as_bytes()] {
            assert!(is_match("^/(|.*)$", name), "{name:?}");
            assert!(!is_match("^/$", name), "{name:?}");
        }
        assert!(is_match("^/caf.$", "/caf\u{e9}".as_bytes()));
        assert!(is_match("^/caf[\u{e9}\u{e8}]$", "/caf\u{e9}".as_bytes()));
        assert!(is_match("^/a\nb$", b"/a\nb"));
        assert!(is_match(r"^/(?-u:\xff\xfe)$", b"/\xff\xfe"));
        assert!(!is_match("^/a$", b"/a\n"));
        assert!(PathFilter::new("^/\u{e9}$", true).unwrap().is_match("/\u{c9}".as_bytes()));
    }
}
