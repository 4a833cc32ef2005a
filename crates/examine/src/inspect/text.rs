//! Text of tree blocks: the words of `btrfs inspect-internal dump-tree` (btrfs-progs 6.2), line for line.

use jiff::tz::TimeZone;
use vlinder_format::Uuid;
use vlinder_places::times::local_time;
use vlinder_volume::Geometry;

/// Appends a line.
macro_rules! line {
    ($text:expr, $($arguments:tt)*) => {{
        use std::io::Write as _;
        // Writing to a vector can't fail.
        let _ = writeln!($text, $($arguments)*);
    }};
}
/// Appends text without ending the line.
macro_rules! put {
    ($text:expr, $($arguments:tt)*) => {{
        use std::io::Write as _;
        // Writing to a vector can't fail.
        let _ = write!($text, $($arguments)*);
    }};
}
pub(super) use {line, put};

/// What the user wants to see.
#[derive(Clone, Copy, Debug, Default)]
pub struct Style {
    /// Names and values are not shown.
    pub hide_names: bool,
    /// Checksums of blocks are shown.
    pub header_checksums: bool,
    /// Checksums of data are shown.
    pub item_checksums: bool,
}

/// What items are printed by.
pub struct Context {
    /// Sizes and checksum kind.
    pub geometry: Geometry,
    /// Whether the file system has simple quotas.
    pub has_simple_quotas: bool,
    /// What the user wants to see.
    pub style: Style,
    /// Where the user lives.
    pub zone: TimeZone,
}

/// A timestamp of an item; the seconds are shown without their sign, as btrfs-progs does.
pub fn timestamp(text: &mut Vec<u8>, name: &str, time: vlinder_format::inode::Timestamp, zone: &TimeZone) {
    let seconds = time.seconds.cast_unsigned();
    line!(text, "\t\t{name} {seconds}.{} ({})", time.nanoseconds, local_time(time.seconds, zone));
}

/// A UUID line.
pub fn uuid(text: &mut Vec<u8>, name: &str, uuid: Uuid) {
    line!(text, "\t\t{name} {uuid}");
}

/// Flags as `A|B|UNKNOWN: 0x…`; nothing for no flag.
pub fn flags(bits: u64, names: &[(u64, &str)]) -> String {
    let known = names.iter().fold(0, |known, (bit, _)| known | bit);
    let mut parts: Vec<String> =
        names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| (*name).to_owned()).collect();
    if bits & !known != 0 {
        parts.push(format!("UNKNOWN: 0x{:x}", bits & !known));
    }
    parts.join("|")
}
