//! Which directories of the source become subvolumes (`--subvol`).

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::error::MkfsError;
use super::source::Source;

/// Whether a subvolume takes changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubvolumeAccess {
    /// It does.
    #[default]
    ReadWrite,
    /// It does not.
    ReadOnly,
}

/// A directory of the source that becomes a subvolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubvolumeDirectory {
    /// Path below the source directory.
    pub path: PathBuf,
    /// Whether it takes changes.
    pub access: SubvolumeAccess,
    /// Whether it is what a mount shows.
    pub is_default: bool,
}

impl SubvolumeDirectory {
    /// A subvolume as `mkfs.btrfs --subvol` takes it: `[rw:|ro:|default:|default-ro:]PATH`. A path that
    /// itself begins with such a word needs `rw:` before it.
    pub fn parse(text: &std::ffi::OsStr) -> Self {
        let bytes = text.as_bytes();
        let forms: [(&[u8], SubvolumeAccess, bool); 4] = [
            (b"rw:", SubvolumeAccess::ReadWrite, false),
            (b"ro:", SubvolumeAccess::ReadOnly, false),
            (b"default:", SubvolumeAccess::ReadWrite, true),
            (b"default-ro:", SubvolumeAccess::ReadOnly, true),
        ];
        for (prefix, access, is_default) in forms {
            if let Some(path) = bytes.strip_prefix(prefix) {
                return Self { path: std::ffi::OsStr::from_bytes(path).into(), access, is_default };
            }
        }
        Self { path: text.into(), access: SubvolumeAccess::ReadWrite, is_default: false }
    }
}

/// Subvolumes by path below the source directory, without links or dots in it.
pub(super) type ByPath = HashMap<Vec<u8>, SubvolumeDirectory>;

/// Looks the directories up below the source directory.
pub(super) fn resolve(
    source: &Source,
    root: &Path,
    subvolumes: &[SubvolumeDirectory],
) -> Result<ByPath, MkfsError> {
    let is_archive = source.archive_has_directory(b"").is_some();
    let target = |path: &Path, source| MkfsError::Target { target: path.display().to_string(), source };
    let base =
        if is_archive { PathBuf::new() } else { root.canonicalize().map_err(|error| target(root, error))? };
    let mut found = ByPath::new();
    for subvolume in subvolumes {
        let refuse = |what| MkfsError::Subvolume { path: subvolume.path.display().to_string(), what };
        // An absolute path counts from the source directory, too.
        let below = subvolume.path.strip_prefix("/").unwrap_or(&subvolume.path);
        let path = if is_archive {
            let names: PathBuf = below.components().collect();
            if source.archive_has_directory(names.as_os_str().as_bytes()) != Some(true) {
                return Err(refuse("no such directory in the archive; name one that it has"));
            }
            names
        } else {
            let path = base
                .join(below)
                .canonicalize()
                .map_err(|_| refuse("no such directory in the source; make it there, or name another"))?;
            if !path.is_dir() {
                return Err(refuse("not a directory; name one, nothing else becomes a subvolume"));
            }
            path
        };
        let below = path.strip_prefix(&base).map_err(|_| refuse("leads out of the source directory"))?;
        if below.as_os_str().is_empty() {
            return Err(refuse("is the source directory itself, which becomes the top-level subvolume"));
        }
        if subvolume.is_default && found.values().any(|other| other.is_default) {
            return Err(MkfsError::SecondDefault);
        }
        if found.insert(below.as_os_str().as_bytes().to_vec(), subvolume.clone()).is_some() {
            return Err(refuse("given twice"));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subvolumes_are_read_as_mkfs_btrfs_reads_them() {
        let parse = |text: &str| {
            let SubvolumeDirectory { path, access, is_default } = SubvolumeDirectory::parse(text.as_ref());
            (path.to_str().unwrap().to_owned(), access == SubvolumeAccess::ReadOnly, is_default)
        };
        assert_eq!(parse("home"), ("home".into(), false, false));
        assert_eq!(parse("rw:ro:x"), ("ro:x".into(), false, false));
        assert_eq!(parse("ro:usr/share"), ("usr/share".into(), true, false));
        assert_eq!(parse("default:root"), ("root".into(), false, true));
        assert_eq!(parse("default-ro:root"), ("root".into(), true, true));
        assert_eq!(parse("other:x"), ("other:x".into(), false, false));
    }
}
