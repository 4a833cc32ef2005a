//! Patterns in the path of an argument, which the shell can't expand where the path lies in an image.
//!
//! Each name of the path is a pattern by itself, as in a shell: `*` and `?` stand for no slash, and a name
//! that begins with a dot is fitted only by a pattern that does. A path that is there as it was given is no
//! pattern: names in images may hold any byte.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use vlinder_format::inode::FileType;

use crate::devices::Purpose;
use crate::failure::{Failure, Kind};
use crate::image::Images;
use crate::path_filter::PathFilter;
use crate::target::{Follow, Target, escape_image};
use crate::text::escaped;

/// What makes a name a pattern.
const SIGNS: &[u8] = b"*?[";

/// All that these arguments stand for, in their order; `refuse` is told of those that stand for nothing.
pub fn expand_all(
    images: &Images<'_>,
    arguments: &[OsString],
    purpose: Purpose,
    refuse: &mut dyn FnMut(Failure),
) -> Vec<OsString> {
    let mut all = Vec::with_capacity(arguments.len());
    for argument in arguments {
        match expand(images, argument, purpose) {
            Ok(mut found) => all.append(&mut found),
            Err(failure) => refuse(failure),
        }
    }
    all
}

/// The arguments that an argument stands for, by name: itself, or the paths that its pattern fits.
///
/// # Errors
/// Where the image can't be opened, or a directory can't be read; a pattern that can't be read, or that
/// nothing fits.
fn expand(images: &Images<'_>, argument: &OsStr, purpose: Purpose) -> Result<Vec<OsString>, Failure> {
    let itself = || Ok(vec![argument.to_owned()]);
    let Ok(Target::Image { image, path }) = Target::parse(argument) else { return itself() };
    if !is_pattern(&path) {
        return itself();
    }
    // An image that is not there must not look like a pattern that nothing fits.
    images.locate(&escape_image(&image, b"/"), purpose, Follow::Yes)?;
    if is_there(images, argument, purpose)? {
        return itself();
    }
    let mut found = vec![Vec::new()];
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        let of_name = Name::new(name).map_err(|failure| failure.at(escaped(argument.as_bytes())))?;
        let mut next = Vec::new();
        for above in &found {
            of_name.extend(&Above { images, purpose, image: &image, path: above }, &mut next)?;
        }
        found = next;
    }
    if found.is_empty() {
        let failure = Failure::new(Kind::NotFound, "nothing there fits this pattern");
        return Err(failure.at(escaped(argument.as_bytes())).hint("list the directory with ls"));
    }
    let slash: &[u8] = if path.ends_with(b"/") { b"/" } else { b"" };
    Ok(found.iter().map(|path| escape_image(&image, &[path, slash].concat())).collect())
}

/// Where an argument holds the sign of a pattern and names nothing, how it can be meant as a pattern.
pub fn advise(failure: Failure, argument: &OsStr) -> Failure {
    let of_image = matches!(Target::parse(argument), Ok(Target::Image { path, .. }) if is_pattern(&path));
    if of_image && failure.kind == Kind::NotFound {
        failure.hint("with --glob it is a pattern for names")
    } else {
        failure
    }
}

fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| SIGNS.contains(byte))
}

/// Whether there is something of just this name.
fn is_there(images: &Images<'_>, argument: &OsStr, purpose: Purpose) -> Result<bool, Failure> {
    let found = images.locate(argument, purpose, Follow::No).and_then(|location| location.look());
    match found {
        Ok(found) => Ok(found.is_some()),
        Err(failure) if matches!(failure.kind, Kind::NotFound | Kind::Invalid) => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// A directory that may hold what fits, by its path in an image.
struct Above<'a> {
    images: &'a Images<'a>,
    purpose: Purpose,
    image: &'a Path,
    path: &'a [u8],
}

/// A name of a path with patterns.
enum Name<'a> {
    Literal(&'a [u8]),
    Pattern { matcher: PathFilter, fits_hidden: bool },
}

impl<'a> Name<'a> {
    fn new(name: &'a [u8]) -> Result<Self, Failure> {
        if !is_pattern(name) {
            return Ok(Self::Literal(name));
        }
        let faulty = |text: &str| {
            let failure = Failure::usage(format!("this pattern can't be read: {text}"));
            failure.hint("write \\ before a sign of a pattern that is meant as itself")
        };
        let text = std::str::from_utf8(name).map_err(|_| faulty("it is no UTF-8"))?;
        let matcher = expression(text).and_then(|expression| PathFilter::new(&expression, false).ok());
        let matcher = matcher.ok_or_else(|| faulty("a [ has no end, or nothing in it"))?;
        let fits_hidden = name.strip_prefix(b"\\").unwrap_or(name).starts_with(b".");
        Ok(Self::Pattern { matcher, fits_hidden })
    }

    /// Adds the paths of what this name fits in a directory.
    fn extend(&self, above: &Above<'_>, paths: &mut Vec<Vec<u8>>) -> Result<(), Failure> {
        let below = |name: &[u8]| [above.path, b"/", name].concat();
        let (matcher, fits_hidden) = match self {
            Self::Literal(name) => {
                let path = below(name);
                if is_there(above.images, &escape_image(above.image, &path), above.purpose)? {
                    paths.push(path);
                }
                return Ok(());
            }
            Self::Pattern { matcher, fits_hidden } => (matcher, *fits_hidden),
        };
        let argument = escape_image(above.image, &below(b""));
        let location = above.images.locate(&argument, above.purpose, Follow::Yes);
        let location = match location.and_then(|location| Ok((location.look()?, location))) {
            Ok((Some(status), location)) if status.file_type == FileType::Directory => location,
            // What leads to no directory holds nothing.
            Ok(_) => return Ok(()),
            Err(failure) if matches!(failure.kind, Kind::NotFound | Kind::Invalid) => return Ok(()),
            Err(failure) => return Err(failure),
        };
        let mut names = location.directory.enter(&location.name)?.list()?.entries;
        names.sort();
        let fits = |name: &[u8]| (fits_hidden || !name.starts_with(b".")) && matcher.is_match(name);
        paths.extend(names.map(|entry| entry.name).filter(|name| fits(name)).map(|name| below(&name)));
        Ok(())
    }
}

/// The expression for what a pattern fits, after the pattern matching notation of POSIX.1-2017 (2.13.1); none
/// where it can't be read. A byte that belongs to no letter counts as a letter ([`PathFilter`]).
fn expression(pattern: &str) -> Option<String> {
    let mut expression = String::from("^");
    let mut rest = pattern.chars();
    while let Some(sign) = rest.next() {
        match sign {
            '*' => expression.push_str(".*"),
            '?' => expression.push('.'),
            '[' => expression.push_str(&set(&mut rest)?),
            '\\' => push_literal(&mut expression, rest.next().unwrap_or('\\')),
            other => push_literal(&mut expression, other),
        }
    }
    expression.push('$');
    Some(expression)
}

fn push_literal(expression: &mut String, letter: char) {
    expression.push_str(&regex::escape(letter.encode_utf8(&mut [0; 4])));
}

/// The set whose `[` was read: `[abc]`, `[a-z]`, `[!a]`; a `]` that comes first belongs to it.
fn set(rest: &mut std::str::Chars<'_>) -> Option<String> {
    let mut letters = Vec::new();
    let mut excludes = false;
    if let Some('!' | '^') = rest.clone().next() {
        (excludes, _) = (true, rest.next());
    }
    loop {
        match rest.next()? {
            ']' if !letters.is_empty() => break,
            '\\' => letters.push((rest.next()?, true)),
            letter => letters.push((letter, false)),
        }
    }
    let mut set = String::from(if excludes { "[^" } else { "[" });
    for (position, (letter, is_escaped)) in letters.iter().enumerate() {
        let is_range = *letter == '-' && !is_escaped && position > 0 && position + 1 < letters.len();
        if is_range { set.push('-') } else { set.push_str(&format!("\\u{{{:x}}}", u32::from(*letter))) }
    }
    set.push(']');
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, name: impl AsRef<[u8]>) -> bool {
        PathFilter::new(&expression(pattern).unwrap(), false).unwrap().is_match(name.as_ref())
    }

    #[test]
    fn patterns_fit_as_in_a_shell() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("a*", &["a", "ab", "a\nb", "a.é"], &["ba", ""]),
            ("?", &["a", "é", "\n"], &["", "ab"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "-x"]),
            ("[!a-c]", &["d", "é", "-"], &["a", "b"]),
            ("[]a]", &["]", "a"], &["b"]),
            ("[a-]", &["a", "-"], &["b"]),
            ("[\\]\\-a]", &["]", "-", "a"], &["\\"]),
            ("[.^&~]", &[".", "^", "&", "~"], &["x"]),
            ("\\*\\?", &["*?"], &["ab"]),
            ("a.b+(c){2}", &["a.b+(c){2}"], &["axb+(c){2}"]),
            ("x\\", &["x\\"], &["x"]),
        ];
        for (pattern, fitting, others) in cases {
            fitting.iter().for_each(|name| assert!(fits(pattern, name), "{pattern} {name:?}"));
            others.iter().for_each(|name| assert!(!fits(pattern, name), "{pattern} {name:?}"));
        }
        assert!(fits("?\u{e9}*", b"a\xc3\xa9\xff") && fits("??", b"\xff\xfe"));
        assert_eq!((expression("["), expression("[]"), expression("[a")), (None, None, None));
    }
}
