//! How a part of a file or block device is named.
//!
//! | name | stands for |
//! |---|---|
//! | `disk.raw` | the whole; where that has no Btrfs and one partition has, that partition |
//! | `disk.raw@2` | partition 2 |
//! | `disk.raw@1048576+` | all from byte 1,048,576 on |
//! | `disk.raw@1048576+4194304` | 4 MiB of that |
//! | `disk.raw\@2` | the file `disk.raw@2` |
//!
//! A file of the literal name wins, so that no name that worked before means something else. So does a name
//! whose file (`disk.raw`) is not there: it is the name of a file to be made, or of none.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::error::{PartitionError, PartitionErrorKind};

/// Which part of a file or block device a name means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NamedPart {
    /// The name says nothing of a part: the whole is meant, or the only partition with a Btrfs.
    Unsaid,
    /// The partition with this number.
    Partition(u32),
    /// A range of bytes.
    Bytes {
        /// The first byte.
        start: u64,
        /// How many; all that follow, where it is not said.
        length_bytes: Option<u64>,
    },
}

/// A file or block device, and a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageName {
    file: PathBuf,
    part: NamedPart,
}

impl ImageName {
    /// What a path means, as a look at the files says.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let whole = || Self { file: path.to_owned(), part: NamedPart::Unsaid };
        if path.symlink_metadata().is_ok() {
            return whole();
        }
        match split(path) {
            Some(Split { file, part: Some(part) }) if is_disk(&file) => Self { file, part },
            Some(Split { file, part: None }) => Self { file, part: NamedPart::Unsaid },
            _ => whole(),
        }
    }

    /// The file or block device.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Which part of it.
    #[must_use]
    pub fn part(&self) -> NamedPart {
        self.part
    }

    /// Another part of the same file.
    pub(crate) fn with_part(&self, part: NamedPart) -> Self {
        Self { file: self.file.clone(), part }
    }

    /// The name as a path, which means the same as long as no file has it.
    #[must_use]
    pub fn to_path(&self) -> PathBuf {
        let suffix = match self.part {
            NamedPart::Unsaid => return self.file.clone(),
            NamedPart::Partition(number) => format!("@{number}"),
            NamedPart::Bytes { start, length_bytes: None } => format!("@{start}+"),
            NamedPart::Bytes { start, length_bytes: Some(length) } => format!("@{start}+{length}"),
        };
        let mut name = self.file.clone().into_os_string().into_vec();
        let slashes = name.iter().rev().take_while(|byte| **byte == b'\\').count();
        name.extend(std::iter::repeat_n(b'\\', slashes));
        name.extend_from_slice(suffix.as_bytes());
        PathBuf::from(OsString::from_vec(name))
    }

    /// The same name with the links on the way to the file resolved, where it is there.
    #[must_use]
    pub fn canonical(&self) -> Self {
        let file = self.file.canonicalize().unwrap_or_else(|_| self.file.clone());
        Self { file, part: self.part }
    }

    /// The name of a range of the file at `path`.
    ///
    /// # Errors
    /// Where `path` names a part already, or nothing that has parts; where a file has the name.
    pub fn range(path: &Path, start: u64, length_bytes: Option<u64>) -> Result<PathBuf, PartitionError> {
        let fail = |kind: PartitionErrorKind| kind.at(&path.to_string_lossy());
        let named = Self::of(path);
        if named.part != NamedPart::Unsaid {
            return Err(fail(PartitionErrorKind::NamedTwice));
        }
        if !is_disk(&named.file) {
            return Err(fail(PartitionErrorKind::NotThere));
        }
        let ranged = Self { part: NamedPart::Bytes { start, length_bytes }, ..named };
        let path = ranged.to_path();
        if path.symlink_metadata().is_ok() {
            let name = path.to_string_lossy().into_owned();
            return Err(fail(PartitionErrorKind::NameIsTaken { name }));
        }
        Ok(path)
    }
}

/// A name that ends as one of a part does.
struct Split {
    file: PathBuf,
    /// None where the `@` is escaped.
    part: Option<NamedPart>,
}

fn split(path: &Path) -> Option<Split> {
    let bytes = path.as_os_str().as_bytes();
    let at = bytes.iter().rposition(|byte| *byte == b'@')?;
    let (before, after) = bytes.split_at_checked(at)?;
    let part = part_of(after.strip_prefix(b"@")?)?;
    let slashes = before.iter().rev().take_while(|byte| **byte == b'\\').count();
    let kept = before.len().checked_sub(slashes.div_ceil(2))?;
    let mut file = before.get(..kept)?.to_vec();
    let is_escaped = !slashes.is_multiple_of(2);
    if is_escaped {
        file.extend_from_slice(after);
    }
    let file = PathBuf::from(OsStr::from_bytes(&file));
    Some(Split { file, part: (!is_escaped).then_some(part) })
}

/// `2`, `1048576+` or `1048576+4194304`.
fn part_of(text: &[u8]) -> Option<NamedPart> {
    // Signs are parsed too, which names have none of.
    let number = |digits: &str| {
        let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if is_plain { digits.parse::<u64>().ok() } else { None }
    };
    let text = std::str::from_utf8(text).ok()?;
    match text.split_once('+') {
        None => {
            let number = u32::try_from(number(text)?).ok().filter(|number| *number > 0)?;
            Some(NamedPart::Partition(number))
        }
        Some((start, "")) => Some(NamedPart::Bytes { start: number(start)?, length_bytes: None }),
        Some((start, length)) => {
            Some(NamedPart::Bytes { start: number(start)?, length_bytes: Some(number(length)?) })
        }
    }
}

fn is_disk(path: &Path) -> bool {
    path.metadata().is_ok_and(|status| status.is_file() || status.file_type().is_block_device())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split_of(text: &str) -> Option<(String, Option<NamedPart>)> {
        let split = split(Path::new(text))?;
        Some((split.file.to_string_lossy().into_owned(), split.part))
    }

    #[test]
    fn the_end_of_a_name_says_which_part() {
        let bytes = |start, length_bytes| Some(NamedPart::Bytes { start, length_bytes });
        for (text, file, part) in [
            ("/a/disk.raw@2", "/a/disk.raw", Some(NamedPart::Partition(2))),
            ("a@b@12", "a@b", Some(NamedPart::Partition(12))),
            ("disk@1048576+", "disk", bytes(1_048_576, None)),
            ("disk@0+512", "disk", bytes(0, Some(512))),
            (r"disk\@2", "disk@2", None),
            (r"disk\\@2", r"disk\", Some(NamedPart::Partition(2))),
            (r"disk\\\@2", r"disk\@2", None),
        ] {
            assert_eq!(split_of(text), Some((file.to_owned(), part)), "{text}");
        }
        for text in ["disk", "disk@", "disk@x", "disk@0", "disk@-1", "disk@+1", "disk@1+x", "disk@2/etc"] {
            assert_eq!(split_of(text), None, "{text}");
        }
        assert_eq!(split_of("disk@99999999999999999999"), None);
    }

    proptest! {
        #[test]
        fn a_name_that_is_built_is_read_as_it_was(
            file in r"[a@\\/0-9.+]{1,8}",
            start in any::<u64>(),
            length in proptest::option::of(any::<u64>()),
            number in 1..u32::MAX,
        ) {
            for part in [NamedPart::Partition(number), NamedPart::Bytes { start, length_bytes: length }] {
                let name = ImageName { file: PathBuf::from(&file), part };
                let split = split(&name.to_path()).unwrap();
                prop_assert_eq!((split.file, split.part), (PathBuf::from(&file), Some(part)));
            }
        }
    }
}
