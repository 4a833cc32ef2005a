//! Under fakeroot and pseudo, which tell programs of owners and devices that an ordinary user could not make:
//! vlinder sees what they show, and what it makes of it is theirs to note.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use vlinder_testkit::kernel::{KernelMount, btrfs_check};
use vlinder_testkit::{Scratch, require};

use crate::common::{Ended, end, tool, vlinder};

/// A source, made by the fake root.
const SOURCE: &str = "
set -e
mkdir -p source/below
echo a > source/a; chown 12:34 source/a; chmod 4755 source/a
mknod source/null c 1 3; chmod 600 source/null
mknod source/below/disk b 8 1; chown 0:6 source/below/disk
ln -s a source/link; chown -h 5:6 source/link
mkfifo source/pipe
chown 1:2 source; chmod 2750 source
setfattr -n trusted.note -v x source/a
";

/// What Linux shows of it.
const SHOWN: &str = "\
. 2750 1 2 directory 0:0
./a 4755 12 34 regular file 0:0
./below 755 0 0 directory 0:0
./below/disk 644 0 6 block special file 8:1
./link 777 5 6 symbolic link 0:0
./null 600 0 0 character special file 1:3
./pipe 644 0 0 fifo 0:0
";

const SHOW: &str = "find . | LC_ALL=C sort | xargs stat -c '%n %a %u %g %F %t:%T'";

/// A directory of an ordinary user's, with the program in it.
fn place_of_user() -> Scratch {
    let scratch = Scratch::new("fake-root");
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::copy(vlinder().get_program(), scratch.join("vlinder")).unwrap();
    scratch
}

/// Runs a script of sh as a fake root, who is an ordinary user.
fn run_as_fake_root(scratch: &Scratch, faker: &[&str], script: &str) -> Ended {
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "env",
        "-u",
        "SOURCE_DATE_EPOCH",
    ]);
    command.arg(format!("HOME={}", scratch.path().display()));
    command.arg("PSEUDO_PREFIX=/usr");
    command.arg(format!("PSEUDO_LOCALSTATEDIR={}", scratch.join("state").display()));
    command.args(faker).args(["sh", "-c", &format!("umask 022\n{script}")]);
    end(command.current_dir(scratch.path()))
}

/// What the kernel shows of an image.
fn shown_by_kernel(image: &Path) -> String {
    btrfs_check(image).unwrap();
    let mount = KernelMount::new(image, "ro").unwrap();
    let shown = tool("sh", ["-c", &format!("cd '{}' && {SHOW}", mount.path().display())]);
    let note =
        tool("getfattr", ["--only-values", "-n", "trusted.note", mount.path().join("a").to_str().unwrap()]);
    assert_eq!(note, "x");
    mount.unmount().unwrap();
    shown
}

#[test]
fn fakeroot_shows_mkfs_its_owners_and_devices() {
    require!(
        KernelBtrfs,
        Tool("fakeroot"),
        Tool("setpriv"),
        Tool("setfattr"),
        Tool("getfattr"),
        Tool("btrfs")
    );
    let scratch = place_of_user();
    let make = "./vlinder mkfs --quiet -O ^block-group-tree -b 128M --rootdir source image";
    run_as_fake_root(&scratch, &["fakeroot"], &format!("{SOURCE}{make}")).done();
    assert_eq!(shown_by_kernel(&scratch.join("image")), SHOWN);
}

#[test]
fn pseudo_shows_mkfs_its_owners_and_devices() {
    require!(KernelBtrfs, Tool("pseudo"), Tool("setpriv"), Tool("setfattr"), Tool("getfattr"), Tool("btrfs"));
    let scratch = place_of_user();
    let make = "./vlinder mkfs --quiet -O ^block-group-tree -b 128M --rootdir source image";
    let made = run_as_fake_root(&scratch, &["pseudo"], &format!("{SOURCE}{make}"));
    // Its server outlives the command.
    run_as_fake_root(&scratch, &[], "pseudo -S").done();
    // It says this of each look at an open file without its path, whichever program looks.
    let said: Vec<&str> =
        made.err.lines().filter(|line| !line.starts_with("couldn't allocate absolute path for ")).collect();
    assert_eq!((made.code, said.len()), (0, 0), "{}{}", made.text(), made.err);
    assert_eq!(shown_by_kernel(&scratch.join("image")), SHOWN);
}

#[test]
fn fakeroot_shows_cp_its_owners_and_devices() {
    require!(
        KernelBtrfs,
        Tool("fakeroot"),
        Tool("setpriv"),
        Tool("setfattr"),
        Tool("getfattr"),
        Tool("btrfs")
    );
    let scratch = place_of_user();
    let copy = "
./vlinder mkfs --quiet -O ^block-group-tree -b 128M image
./vlinder cp -a source image:/tree
";
    run_as_fake_root(&scratch, &["fakeroot"], &format!("{SOURCE}{copy}")).done();
    btrfs_check(&scratch.join("image")).unwrap();
    let mount = KernelMount::new(&scratch.join("image"), "ro").unwrap();
    let shown = tool("sh", ["-c", &format!("cd '{}' && {SHOW}", mount.path().join("tree").display())]);
    mount.unmount().unwrap();
    assert_eq!(shown, SHOWN);
}
