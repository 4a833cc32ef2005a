//! Extended attributes that mean something on the source's file system alone, or to its machine: libattr's
//! table of what a copy leaves out, `/etc/xattr.conf`, whose rule cp(1) and others follow.
//!
//! A line of it has a pattern as fnmatch(3) knows them and an action: `skip` leaves the attribute out,
//! `permissions` says that it is kept with the permissions, which an image always has. `#` begins a comment.

use std::path::Path;

/// Where libattr looks.
const TABLE: &str = "/etc/xattr.conf";
/// What is left out where the machine has no table: what libattr 2.5's says.
const USUAL: [&[u8]; 9] = [
    b"trusted.SGI_ACL_DEFAULT",
    b"trusted.SGI_ACL_FILE",
    b"trusted.SGI_CAP_FILE",
    b"trusted.SGI_DMI_*",
    b"trusted.SGI_MAC_FILE",
    b"xfsroot.*",
    b"user.Beagle.*",
    b"security.evm",
    b"afs.*",
];

/// The patterns of what is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct PrivateAttributes {
    patterns: Vec<Vec<u8>>,
}

impl PrivateAttributes {
    /// Those of this machine.
    pub(in super::super) fn of_host() -> Self {
        match std::fs::read(Path::new(TABLE)) {
            Ok(table) => Self::parse(&table),
            Err(_) => Self { patterns: USUAL.map(<[u8]>::to_vec).to_vec() },
        }
    }

    fn parse(table: &[u8]) -> Self {
        let skipped = |line: &[u8]| {
            let line = line.split(|byte| *byte == b'#').next()?;
            let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            let pattern = words.next()?;
            (words.next()? == b"skip").then(|| pattern.to_vec())
        };
        Self { patterns: table.split(|byte| *byte == b'\n').filter_map(skipped).collect() }
    }

    /// Whether an attribute is left out.
    pub(in super::super) fn has(&self, name: &[u8]) -> bool {
        self.patterns.iter().any(|pattern| matches(pattern, name))
    }
}

/// Whether a name matches a pattern, as fnmatch(3) without flags says: `*`, `?`, `[…]`, and a backslash
/// before what means itself.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    // After the last star: the pattern behind it, and where its match in the name would begin next.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        let step = match (pattern.first(), name.first()) {
            (Some(b'*'), _) => {
                pattern = &pattern[1..];
                retry = Some((pattern, name));
                continue;
            }
            (None, None) => return true,
            (Some(_), Some(byte)) => one(pattern, *byte),
            _ => None,
        };
        match (step, retry) {
            (Some(rest), _) => (pattern, name) = (rest, &name[1..]),
            (None, Some((after, [_, rest @ ..]))) => {
                (pattern, name) = (after, rest);
                retry = Some((after, rest));
            }
            (None, _) => return false,
        }
    }
}

/// Matches one byte with the beginning of a pattern that is not empty: the rest of the pattern.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'\\', literal, rest @ ..] => (*literal == byte).then_some(rest),
        [b'[', rest @ ..] => {
            let is_negated = matches!(rest.first(), Some(b'!' | b'^'));
            let set = &rest[usize::from(is_negated)..];
            // A bracket that comes first stands for itself.
            let end = set.iter().skip(1).position(|byte| *byte == b']').map(|place| place + 1);
            let Some(end) = end else { return (byte == b'[').then_some(rest) };
            (in_set(&set[..end], byte) != is_negated).then(|| &set[end + 1..])
        }
        [literal, rest @ ..] => (*literal == byte).then_some(rest),
        [] => None,
    }
}

fn in_set(set: &[u8], byte: u8) -> bool {
    let mut rest = set;
    loop {
        match rest {
            [first, b'-', last, after @ ..] => {
                if (*first..=*last).contains(&byte) {
                    return true;
                }
                rest = after;
            }
            [first, after @ ..] => {
                if *first == byte {
                    return true;
                }
                rest = after;
            }
            [] => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_fnmatch_says() {
        for (pattern, name, expected) in [
            ("trusted.SGI_DMI_*", "trusted.SGI_DMI_X", true),
            ("trusted.SGI_DMI_*", "trusted.SGI_DMI", false),
            ("*.b*d", "a.bd.bcd", true),
            ("*.b*d", "a.bd.bc", false),
            ("user.?", "user.x", true),
            ("user.?", "user.", false),
            ("user.[a-c]x", "user.bx", true),
            ("user.[!a-c]x", "user.bx", false),
            ("user.[]]", "user.]", true),
            ("user.[x", "user.[x", true),
            (r"user.\*", "user.*", true),
            (r"user.\*", "user.a", false),
            ("", "", true),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn only_lines_that_skip_leave_something_out() {
        let table = b"# comment\n\nsystem.posix_acl_access permissions\nuser.Beagle.*\tskip\t# index\nafs.* skip\nodd\n";
        let rules = PrivateAttributes::parse(table);
        assert!(rules.has(b"user.Beagle.x") && rules.has(b"afs.acl"));
        assert!(!rules.has(b"system.posix_acl_access") && !rules.has(b"user.x") && !rules.has(b"odd"));
    }
}
