//! `fsck.btrfs`: does nothing, as the original, because Btrfs needs no check at boot. It exists for fsck(8),
//! whose flags it takes.

use std::ffi::OsString;
use std::path::Path;

use vlinder_partitions::ImageName;

/// fsck(8): operational error.
const OPERATIONAL_ERROR: u8 = 8;

/// Looks whether the device exists, and says who checks in its place.
pub fn main(arguments: &[OsString]) -> u8 {
    let is_automatic = |argument: &&OsString| {
        let bytes = argument.as_encoded_bytes();
        bytes.first() == Some(&b'-') && bytes.iter().any(|byte| matches!(byte, b'a' | b'A' | b'p' | b'y'))
    };
    let is_flag = |argument: &&OsString| argument.as_encoded_bytes().first() == Some(&b'-');
    let flags = arguments.iter().skip(1);
    let Some(device) = flags.clone().rfind(|argument| !is_flag(argument)) else {
        eprintln!("fsck.btrfs: no device was given; usage: fsck.btrfs [-aApy] DEVICE");
        return OPERATIONAL_ERROR;
    };
    if !ImageName::of(Path::new(device)).file().exists() {
        eprintln!("fsck.btrfs: {} does not exist", device.display());
        return OPERATIONAL_ERROR;
    }
    if !flags.clone().any(|argument| is_automatic(&argument)) {
        println!(
            "Btrfs needs no check at boot, and fsck.btrfs makes none. To check a file system: vlinder check DEVICE"
        );
    }
    0
}
