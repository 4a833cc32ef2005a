//! How streams are printed.

/// How a stream is printed.
#[derive(Clone, Copy)]
pub struct DumpOptions<'a> {
    /// Seconds that local time is ahead of UTC at a time (seconds since 1970).
    pub utc_offset: &'a dyn Fn(i64) -> i32,
    /// Escapes the values that btrfs-progs prints as they are, too: names and values of extended attributes,
    /// and the paths of clones. For a terminal, which obeys some bytes.
    pub escapes_all: bool,
}
