//! The names that files and attributes can have.

/// The longest name of a file or attribute, in bytes (`BTRFS_NAME_LEN`, `XATTR_NAME_MAX`).
pub const LONGEST_NAME: usize = 255;

/// Whether a file can have this name in a directory: 1 to 255 bytes, no `/`, no zero byte, not `.` or `..`.
///
/// The rules for items do not ask this, as Linux does not. So a name that was read from disk may break it,
/// and a program that hands names to a host's file system must ask: `.` and `..` lead round or out, `/` and a
/// zero byte end a name.
#[must_use]
pub fn is_file_name(name: &[u8]) -> bool {
    let is_length = (1..=LONGEST_NAME).contains(&name.len());
    is_length && !matches!(name, b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}
