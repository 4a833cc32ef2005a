//! What an argument names: a path in an image, or a path of the host.
//!
//! The argument is split at the first colon that is followed by `/` and not escaped: `disk.img:/etc/fstab` is
//! `/etc/fstab` in the image `disk.img`. Before that colon `\:` is a colon and `\\` a backslash; any other
//! backslash is itself. What follows the colon is taken as it is. An argument without such a colon is a path
//! of the host, taken as it is too, unless it holds an escaped colon followed by `/`: then its escapes are
//! undone, so that every path of the host can be named ([`escape_host`]).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::text::escaped;

/// What an argument names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A path in an image.
    Image {
        /// The image, a path of the host.
        image: PathBuf,
        /// The path in it, from the default subvolume; it begins with `/`.
        path: Vec<u8>,
    },
    /// A path of the host, which may lie in a mounted file system.
    Host(PathBuf),
}

/// Whether a symbolic link at the end of a path is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// It is.
    Yes,
    /// The link itself is meant.
    No,
}

/// Why an argument names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetFault {
    /// Nothing at all.
    #[error("an empty path; give IMAGE:/PATH or a path of the host")]
    Empty,
    /// `:/…`.
    #[error("no image before the colon; give IMAGE:/PATH, or ./:/… for a path of the host")]
    NoImage,
}

/// Undoes `\:` and `\\`.
fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        match rest.peek() {
            Some(next @ (b':' | b'\\')) if byte == b'\\' => {
                result.push(*next);
                rest.next();
            }
            _ => result.push(byte),
        }
    }
    result
}

/// Where the first unescaped colon before `/` stands, and whether an escaped one stands before that.
fn find_split(bytes: &[u8]) -> (Option<usize>, bool) {
    let mut position = 0;
    let mut has_escaped = false;
    while position < bytes.len() {
        match bytes[position..] {
            [b'\\', b':', b'/', ..] => {
                has_escaped = true;
                position += 2;
            }
            [b'\\', b':' | b'\\', ..] => position += 2,
            [b':', b'/', ..] => return (Some(position), has_escaped),
            _ => position += 1,
        }
    }
    (None, has_escaped)
}

impl Target {
    /// What the argument names.
    ///
    /// # Errors
    /// [`TargetFault`].
    pub fn parse(argument: &OsStr) -> Result<Self, TargetFault> {
        let bytes = argument.as_bytes();
        if bytes.is_empty() {
            return Err(TargetFault::Empty);
        }
        match find_split(bytes) {
            (Some(0), _) => Err(TargetFault::NoImage),
            (Some(colon), _) => {
                let image = PathBuf::from(OsString::from_vec(unescape(&bytes[..colon])));
                Ok(Self::Image { image, path: bytes[colon + 1..].to_vec() })
            }
            (None, true) => Ok(Self::Host(PathBuf::from(OsString::from_vec(unescape(bytes))))),
            (None, false) => Ok(Self::Host(PathBuf::from(argument))),
        }
    }
}

/// How the path in an image is written that a path of the host seems to mean: `disk.img/etc` and
/// `disk.img:etc`, where `disk.img` is a regular file. None where nothing speaks for an image.
pub fn meant_in_image(path: &Path) -> Option<Target> {
    let mut above = path.ancestors().skip(1).filter(|ancestor| !ancestor.as_os_str().is_empty());
    if let Some(image) = above.find(|ancestor| ancestor.is_file()) {
        let below = path.strip_prefix(image).ok()?;
        return Some(Target::Image { image: image.to_owned(), path: in_root(below.as_os_str().as_bytes()) });
    }
    let bytes = path.as_os_str().as_bytes();
    let colons = bytes.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(position, _)| position);
    colons.filter_map(|colon| bytes.split_at_checked(colon)).find_map(|(image, rest)| {
        let image = PathBuf::from(OsStr::from_bytes(image));
        image.is_file().then(|| Target::Image { image, path: in_root(&rest[1..]) })
    })
}

fn in_root(path: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if path.starts_with(b"/") { b"" } else { b"/" };
    [slash, path].concat()
}

/// The form in which an argument names this path of the host.
pub fn escape_host(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_bytes();
    match find_split(bytes) {
        (None, false) => path.as_os_str().to_owned(),
        _ => escape(bytes),
    }
}

/// The form in which an argument names this path in this image.
pub fn escape_image(image: &Path, path: &[u8]) -> OsString {
    let mut argument = escape(image.as_os_str().as_bytes()).into_vec();
    argument.push(b':');
    argument.extend_from_slice(path);
    OsString::from_vec(argument)
}

fn escape(bytes: &[u8]) -> OsString {
    let mut escaped = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if matches!(byte, b':' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    OsString::from_vec(escaped)
}

impl std::fmt::Display for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (argument, plain) = match self {
            Self::Image { image, path } => (escape_image(image, path), Some((image, path))),
            Self::Host(path) => (path.as_os_str().to_owned(), None),
        };
        // A place is for reading: the escapes only stand where the plain form would mean something else.
        if let Some((image, path)) = plain {
            let mut simple = image.as_os_str().as_bytes().to_vec();
            simple.push(b':');
            simple.extend_from_slice(path);
            if Self::parse(OsStr::from_bytes(&simple)).as_ref() == Ok(self) {
                return formatter.write_str(&escaped(&simple));
            }
        }
        formatter.write_str(&escaped(argument.as_bytes()))
    }
}

impl std::str::FromStr for Target {
    type Err = TargetFault;

    fn from_str(text: &str) -> Result<Self, TargetFault> {
        Self::parse(OsStr::new(text))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Target, TargetFault> {
        Target::parse(OsStr::new(text))
    }

    fn image(image: &str, path: &str) -> Result<Target, TargetFault> {
        Ok(Target::Image { image: PathBuf::from(image), path: path.as_bytes().to_vec() })
    }

    fn host(path: &str) -> Result<Target, TargetFault> {
        Ok(Target::Host(PathBuf::from(path)))
    }

    #[test]
    fn the_first_colon_before_a_slash_splits() {
        assert_eq!(parse("a.img:/"), image("a.img", "/"));
        assert_eq!(parse("/x/a.img:/etc:/b"), image("/x/a.img", "/etc:/b"));
        assert_eq!(parse("a:b.img:/c"), image("a:b.img", "/c"));
        assert_eq!(parse(r"a\:/b.img:/c\:d"), image("a:/b.img", r"/c\:d"));
        assert_eq!(parse(r"a\\:/c"), image(r"a\", "/c"));
        assert_eq!(parse(r"a\x:/c"), image(r"a\x", "/c"));
    }

    #[test]
    fn all_else_is_a_path_of_the_host() {
        assert_eq!(parse("a.img"), host("a.img"));
        assert_eq!(parse("a:b"), host("a:b"));
        assert_eq!(parse("a:"), host("a:"));
        assert_eq!(parse(r"C\:x\\y"), host(r"C\:x\\y"));
        assert_eq!(parse(r"a\:/b"), host("a:/b"));
        assert_eq!(parse(r"a\:/b\\c"), host(r"a:/b\c"));
    }

    #[test]
    fn nothing_is_named_by_nothing() {
        assert_eq!(parse(""), Err(TargetFault::Empty));
        assert_eq!(parse(":/x"), Err(TargetFault::NoImage));
    }

    /// Bytes among which the grammar's own are frequent.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![Just(b':'), Just(b'/'), Just(b'\\'), Just(b'a'), 1u8..];
        proptest::collection::vec(byte, 1..12)
    }

    proptest! {
        #[test]
        fn every_path_of_the_host_can_be_named(bytes in bytes()) {
            let path = PathBuf::from(OsString::from_vec(bytes));
            prop_assert_eq!(Target::parse(&escape_host(&path)), Ok(Target::Host(path)));
        }

        #[test]
        fn every_path_in_every_image_can_be_named(image in bytes(), rest in bytes()) {
            let image = PathBuf::from(OsString::from_vec(image));
            let path = [b"/".as_slice(), &rest].concat();
            let argument = escape_image(&image, &path);
            prop_assert_eq!(Target::parse(&argument), Ok(Target::Image { image, path }));
        }

        #[test]
        fn an_argument_splits_at_the_first_colon_slash(bytes in bytes()) {
            prop_assume!(!bytes.contains(&b'\\'));
            let split = bytes.windows(2).position(|pair| pair == b":/");
            let argument = OsString::from_vec(bytes.clone());
            match (Target::parse(&argument), split) {
                (Ok(Target::Host(path)), None) => prop_assert_eq!(path.as_os_str(), argument.as_os_str()),
                (Err(TargetFault::NoImage), Some(0)) => {}
                (Ok(Target::Image { image, path }), Some(split)) => {
                    prop_assert_eq!(image.as_os_str().as_bytes(), &bytes[..split]);
                    prop_assert_eq!(&path[..], &bytes[split + 1..]);
                }
                (parsed, split) => prop_assert!(false, "{parsed:?} with the split at {split:?}"),
            }
        }
    }
}
