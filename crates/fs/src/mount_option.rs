//! Mount options as data: what they are called, what they take, what they do, and what the help says of them.
//! The file system has a table of its own ([`OPEN_OPTIONS`](crate::OPEN_OPTIONS)), a mount has another.

use vlinder_codec::compress::CodecError;

/// A mount option that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such option.
    #[error("unknown option {name:?}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// A value that the option does not take, or none where it needs one.
    #[error("option {name}: {value:?} is no {expected}")]
    Value {
        /// The name.
        name: String,
        /// What was given.
        value: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// Compression that this program was built without.
    #[error("option {option}: {source}")]
    NoCodec {
        /// The option.
        option: &'static str,
        /// Which feature is missing.
        source: CodecError,
    },
    /// Two options that do not go together.
    #[error("{option} and {other} do not go together; leave one of them out")]
    Excludes {
        /// One of them.
        option: &'static str,
        /// The other.
        other: &'static str,
    },
    /// An option that is for reading alone.
    #[error("option {option} is for reading alone; give ro with it")]
    NeedsReadOnly {
        /// The option.
        option: &'static str,
    },
}

/// Whose option it is, which is where the help lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// As Linux's btrfs has it.
    Linux,
    /// Of vlinder alone.
    Vlinder,
    /// Of mount(8), of fstab(5), or of FUSE.
    Mount,
}

/// Options that belong together: one thing, and how to set it.
#[derive(Debug)]
pub struct MountOption<T: 'static> {
    /// Whose they are.
    pub origin: Origin,
    /// The names with their values, as the help shows them.
    pub shown: &'static str,
    /// What they are about, in one sentence without a capital and a full stop.
    pub help: &'static str,
    /// Each name, and what it does.
    pub names: &'static [(&'static str, Apply<T>)],
}

/// What a name does to the options `T`.
#[derive(Debug)]
pub enum Apply<T: 'static> {
    /// It stands alone.
    Flag(fn(&mut T)),
    /// It needs a value, of this kind; the function refuses what is none.
    Value(&'static str, fn(&mut T, &str) -> Option<()>),
    /// It may have a value, of this kind.
    MayHaveValue(&'static str, fn(&mut T, Option<&str>) -> Option<()>),
    /// It is taken, with and without a value and behind `no`, and changes nothing.
    WithoutEffect,
    /// All names that begin so are taken, with and without a value, and change nothing.
    AnyThatBeginsSo,
}

/// Applies one option of a list, `name` or `name=value`; false if the table has no such name.
///
/// # Errors
/// [`OptionError::Value`].
pub fn apply<T>(table: &[MountOption<T>], target: &mut T, option: &str) -> Result<bool, OptionError> {
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    let names = || table.iter().flat_map(|option| option.names.iter());
    for (known, what) in names().filter(|(known, what)| what.is_named(known, name)) {
        let bad = |expected: &'static str| OptionError::Value {
            name: name.to_owned(),
            value: value.unwrap_or_default().to_owned(),
            expected,
        };
        match (what, value) {
            (Apply::Flag(set), None) => set(target),
            // Another of this name may take a value.
            (Apply::Flag(_), Some(_)) => continue,
            (Apply::Value(expected, set), value) => {
                let value = value.filter(|value| !value.is_empty()).ok_or_else(|| bad(expected))?;
                set(target, value).ok_or_else(|| bad(expected))?;
            }
            (Apply::MayHaveValue(expected, set), value) => {
                set(target, value).ok_or_else(|| bad(expected))?;
            }
            (Apply::WithoutEffect, _) => tracing::debug!(known, "a mount option without effect here"),
            (Apply::AnyThatBeginsSo, _) => {}
        }
        return Ok(true);
    }
    Ok(false)
}

impl<T> Apply<T> {
    /// Whether a name that was given is the table's.
    fn is_named(&self, known: &str, given: &str) -> bool {
        match self {
            Self::WithoutEffect => given == known || given.strip_prefix("no") == Some(known),
            Self::AnyThatBeginsSo => given.starts_with(known),
            _ => given == known,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Seen = Vec<String>;

    const TABLE: &[MountOption<Seen>] = &[MountOption {
        origin: Origin::Linux,
        shown: "",
        help: "",
        names: &[
            ("flag", Apply::Flag(|seen| seen.push("flag".into()))),
            (
                "value",
                Apply::Value("number", |seen, value| {
                    value.parse::<u8>().ok()?;
                    seen.push(value.into());
                    Some(())
                }),
            ),
            (
                "either",
                Apply::MayHaveValue("word", |seen, value| {
                    seen.push(format!("{value:?}"));
                    Some(())
                }),
            ),
            ("ignored", Apply::WithoutEffect),
            ("x-", Apply::AnyThatBeginsSo),
        ],
    }];

    fn applied(option: &str) -> Result<(bool, Seen), OptionError> {
        let mut seen = Seen::new();
        apply(TABLE, &mut seen, option).map(|known| (known, seen))
    }

    #[test]
    fn a_name_takes_what_its_row_says() {
        let seen = |word: &str| Ok((true, vec![word.to_owned()]));
        assert_eq!(applied("flag"), seen("flag"));
        assert_eq!(applied("value=7"), seen("7"));
        assert_eq!((applied("either"), applied("either=a=b")), (seen("None"), seen("Some(\"a=b\")")));
        for taken in ["ignored", "noignored", "ignored=3", "x-y", "x-y=z"] {
            assert_eq!(applied(taken), Ok((true, vec![])), "{taken}");
        }
        for unknown in ["flag=1", "noflag", "xy", ""] {
            assert_eq!(applied(unknown), Ok((false, vec![])), "{unknown}");
        }
        for bad in ["value", "value=", "value=x"] {
            assert!(matches!(applied(bad), Err(OptionError::Value { expected: "number", .. })), "{bad}");
        }
    }
}
