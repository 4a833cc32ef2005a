//! The attributes that a mount tells are those of Linux's own Btrfs, but for what docs/known-limits.md lists.

use std::path::Path;
use std::process::Command;

use vlinder_testkit::require;

#[test]
fn attributes_after_fifty_operations_are_those_of_linux() {
    require!(KernelBtrfs, Fuse, Root, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("python3"));
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/attributes/table.py");
    let judged = Command::new(table).args(["--tool", env!("CARGO_BIN_EXE_vlinder")]).output().unwrap();
    let said = String::from_utf8_lossy(&judged.stdout);
    assert!(judged.status.success(), "{said}{}", String::from_utf8_lossy(&judged.stderr));
    assert!(said.contains(" 0 others"), "{said}");
}
