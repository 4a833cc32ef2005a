//! Attacks of other users on root, a few of each case, chosen anew by each seed: tools/strangers/run.py
//! (cases R1 to R8).

use crate::alone;
use std::path::Path;
use std::process::Command;

use vlinder_testkit::require;

/// `VLINDER_STRANGERS_SEED` chooses others.
const SEED: &str = "1";

#[test]
fn no_attack_of_the_slice_breaks_a_rule() {
    let _alone = alone();
    require!(Fuse, Root, Tool("python3"), Tool("fusermount3"), Tool("setpriv"), Tool("unshare"));
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/strangers/run.py");
    let seed = std::env::var("VLINDER_STRANGERS_SEED").unwrap_or_else(|_| SEED.to_owned());
    let judged = Command::new(program)
        .args(["--vlinder", env!("CARGO_BIN_EXE_vlinder"), "--few", "1", "--seed", &seed])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&judged.stdout);
    assert!(judged.status.success(), "{said}{}", String::from_utf8_lossy(&judged.stderr));
}
