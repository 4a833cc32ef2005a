//! Modes, types and attributes of files as text and JSON.

use serde_json::{Value, json};
use vlinder_format::inode::{FileType, Timestamp};
use vlinder_places::place::FileStatus;

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

/// A time, as JSON.
pub fn time_object(time: Timestamp) -> Value {
    json!({ "seconds": time.seconds, "nanoseconds": time.nanoseconds })
}

/// What is known of a file, as JSON.
pub fn object(status: &FileStatus) -> Value {
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
        "access_time": time_object(status.times.access),
        "modification_time": time_object(status.times.modification),
        "change_time": time_object(status.times.change),
        "birth_time": status.times.birth.map(time_object),
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
