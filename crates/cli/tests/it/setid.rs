//! Set-id bits and capabilities of files that change are what they are on Linux's own Btrfs, but for what
//! docs/known-limits.md lists.

use std::path::Path;
use std::process::Command;

use vlinder_testkit::require;

/// Every so manieth cell: a prime, so that the slice has each operation, user and mode.
const SHARE: &str = "61";

#[test]
fn set_id_bits_after_changes_are_those_of_linux() {
    require!(KernelBtrfs, Fuse, Root, Tool("mkfs.btrfs"), Tool("python3"));
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/setid/table.py");
    let judged = Command::new(table)
        .args(["--vlinder", env!("CARGO_BIN_EXE_vlinder"), "--share", SHARE])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&judged.stdout);
    assert!(judged.status.success(), "{said}{}", String::from_utf8_lossy(&judged.stderr));
}
