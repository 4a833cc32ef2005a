//! Files and directories that get flags of Btrfs from the start (`--inode-flags`): a program that changes a
//! file in place wants no copy-on-write, and that flag can be set only while the file is empty.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use vlinder_fs::InodeFlags;

use super::error::MkfsError;
use super::source::Source;

/// The flags that directories hand down to what is made in them.
pub(super) const HANDED_DOWN: InodeFlags = InodeFlags(InodeFlags::NODATACOW.0 | InodeFlags::NODATASUM.0);

/// Flags of a file or directory of the source, and of all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathFlags {
    /// Path below the source directory.
    pub path: PathBuf,
    /// Data are overwritten in place, and have no checksums.
    pub no_data_cow: bool,
    /// Data have no checksums.
    pub no_data_sum: bool,
}

impl PathFlags {
    /// Flags as `mkfs.btrfs --inode-flags` takes them: `FLAG[,FLAG]:PATH`, of `nodatacow` and `nodatasum`.
    ///
    /// # Errors
    /// What is wrong.
    pub fn parse(text: &OsStr) -> Result<Self, String> {
        let bytes = text.as_bytes();
        let shown = || String::from_utf8_lossy(bytes);
        let Some(colon) = bytes.iter().position(|byte| *byte == b':') else {
            return Err(format!("{:?} has no path: give FLAG[,FLAG]:PATH", shown()));
        };
        let path = OsStr::from_bytes(&bytes[colon + 1..]).into();
        let mut flags = Self { path, no_data_cow: false, no_data_sum: false };
        for flag in bytes[..colon].split(|byte| *byte == b',') {
            match flag {
                b"nodatacow" => flags.no_data_cow = true,
                b"nodatasum" => flags.no_data_sum = true,
                _ => return Err(format!("{:?}: the flags are nodatacow and nodatasum", shown())),
            }
        }
        Ok(flags)
    }

    fn flags(&self) -> InodeFlags {
        let given = |is_set, flag| if is_set { flag } else { InodeFlags::NONE };
        given(self.no_data_cow, InodeFlags::NODATACOW).with(given(self.no_data_sum, InodeFlags::NODATASUM))
    }
}

/// Flags by path below the source directory.
pub(super) type FlagsByPath = HashMap<Vec<u8>, InodeFlags>;

/// Looks the files up in the source.
pub(super) fn resolve(source: &Source, flags: &[PathFlags]) -> Result<FlagsByPath, MkfsError> {
    let mut found = FlagsByPath::new();
    for one in flags {
        let path = source
            .file_or_directory(&one.path)
            .map_err(|what| MkfsError::InodeFlags { path: one.path.display().to_string(), what })?;
        let known = found.entry(path).or_insert(InodeFlags::NONE);
        *known = known.with(one.flags());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_as_mkfs_btrfs_reads_them() {
        let parse = |text: &str| PathFlags::parse(text.as_ref());
        let flags =
            |path: &str, no_data_cow, no_data_sum| PathFlags { path: path.into(), no_data_cow, no_data_sum };
        assert_eq!(parse("nodatacow:var/log"), Ok(flags("var/log", true, false)));
        assert_eq!(parse("nodatasum,nodatacow:a:b"), Ok(flags("a:b", true, true)));
        for bad in ["nodatacow", "compress:a", ":a", "nodatacow,:a"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
