//! The systemd unit in `examples/`: its commands do what they say, and systemd accepts it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::{Place, wait_for};
use rustix::process::test_kill_process;
use vlinder_testkit::kernel::btrfs_check_data;
use vlinder_testkit::{Scratch, require};

const PROGRAM: &str = "/usr/bin/vlinder";

fn unit() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/systemd/vlinder@.service");
    std::fs::read_to_string(path).unwrap()
}

/// The command of a line of the unit, with what its environment file gives.
fn command(line: &str, place: &Place) -> Command {
    let unit = unit();
    let found = unit.lines().find_map(|found| found.strip_prefix(line)).unwrap();
    let owners = if rustix::process::geteuid().is_root() { "owners=keep" } else { "owners=me" };
    let words = found.split(' ').map(|word| match word {
        "${IMAGE}" => place.image.to_str().unwrap(),
        "${MOUNTPOINT}" => place.point.to_str().unwrap(),
        "${OPTIONS}" => owners,
        PROGRAM => env!("CARGO_BIN_EXE_vlinder"),
        word => word,
    });
    let words: Vec<String> = words.map(str::to_owned).collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

#[test]
fn the_unit_mounts_and_unmounts() {
    require!(Fuse, Tool("btrfs"), Tool("pgrep"));
    let place = Place::new("unit");
    assert!(command("ExecStart=", &place).status().unwrap().success());
    assert!(place.is_mounted());
    std::fs::write(place.at("kept"), b"content").unwrap();
    let server = place.server();
    assert!(command("ExecStop=", &place).status().unwrap().success());
    assert!(!place.is_mounted());
    wait_for("the end of the server", || test_kill_process(server).is_err());
    assert_eq!(place.cat("/kept"), b"content");
    btrfs_check_data(&place.image).unwrap();
}

fn verify(directory: &Path, unit: &str) -> (bool, String) {
    let file: PathBuf = directory.join("vlinder@.service");
    std::fs::write(&file, unit.replace(PROGRAM, env!("CARGO_BIN_EXE_vlinder"))).unwrap();
    let mut command = Command::new("systemd-analyze");
    let done =
        command.args(["verify", "--man=no"]).arg(directory.join("vlinder@data.service")).output().unwrap();
    (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
}

#[test]
fn systemd_accepts_the_unit() {
    require!(Tool("systemd-analyze"));
    let scratch = Scratch::new("unit_verify");
    let (accepted, said) = verify(scratch.path(), &unit());
    // It tells of lines that it ignores, and succeeds.
    assert!(accepted && !said.contains("vlinder@"), "{said}");
    let (_, said) = verify(scratch.path(), &unit().replace("Type=forking", "Type=forkink"));
    assert!(said.contains("vlinder@.service"), "a line that is wrong is told: {said}");
}
