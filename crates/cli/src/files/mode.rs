//! Modes, types and times as text.

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use vlinder_format::inode::{FileType, Timestamp};

use crate::place::Status;

/// `drwxr-xr-x`.
pub fn symbolic(file_type: FileType, permissions: u32) -> String {
    let mut text = String::with_capacity(10);
    text.push(match file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::SymbolicLink => 'l',
        FileType::CharacterDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
    });
    for (shift, special, low, high) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')] {
        let bits = permissions >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (permissions & special != 0, bits & 1 != 0) {
            (true, true) => low,
            (true, false) => high,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// The name of a type, in text and JSON.
pub const fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::SymbolicLink => "symlink",
        FileType::CharacterDevice => "character-device",
        FileType::BlockDevice => "block-device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

/// Local time with the offset, to the nanosecond.
pub fn full_time(time: Timestamp, zone: &TimeZone) -> String {
    match jiff::Timestamp::from_second(time.seconds) {
        Ok(seconds) => {
            let zoned = seconds.to_zoned(zone.clone());
            let (date, offset) = (zoned.strftime("%Y-%m-%d %H:%M:%S"), zoned.strftime("%z"));
            format!("{date}.{:09} {offset}", time.nanoseconds)
        }
        Err(_) => format!("{}.{:09} s", time.seconds, time.nanoseconds),
    }
}

/// Local time to the minute.
pub fn short_time(time: Timestamp, zone: &TimeZone) -> String {
    match jiff::Timestamp::from_second(time.seconds) {
        Ok(seconds) => seconds.to_zoned(zone.clone()).strftime("%Y-%m-%d %H:%M").to_string(),
        Err(_) => format!("{} s", time.seconds),
    }
}

fn time_object(time: Timestamp) -> Value {
    json!({ "seconds": time.seconds, "nanoseconds": time.nanoseconds })
}

/// What is known of a file, as JSON.
pub fn object(status: &Status) -> Value {
    let mut object = json!({
        "type": type_name(status.file_type),
        "mode": format!("{:04o}", status.permissions),
        "user_id": status.user,
        "group_id": status.group,
        "links": status.links,
        "size_bytes": status.size_bytes,
        "allocated_bytes": status.allocated_bytes,
        "volume": status.volume,
        "inode": status.inode,
        "access_time": time_object(status.access_time),
        "modification_time": time_object(status.modification_time),
        "change_time": time_object(status.change_time),
        "birth_time": status.birth_time.map(time_object),
    });
    if matches!(status.file_type, FileType::CharacterDevice | FileType::BlockDevice) {
        object["device"] = json!({ "major": status.device.0, "minor": status.device.1 });
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_as_ls_writes_them() {
        assert_eq!(symbolic(FileType::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(symbolic(FileType::Regular, 0o4644), "-rwSr--r--");
        assert_eq!(symbolic(FileType::SymbolicLink, 0o777), "lrwxrwxrwx");
        assert_eq!(symbolic(FileType::Regular, 0o6755), "-rwsr-sr-x");
    }
}
