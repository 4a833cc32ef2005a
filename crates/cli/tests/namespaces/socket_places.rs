//! A mount finds a place for its control socket though some can't be used, and verbs find it there (case R7).

use crate::alone;
use crate::common::Ended;
use crate::namespace::run_in_namespace;
use vlinder_testkit::require;

/// What a user does with a mount.
const USE: &str = r#"
set -e
./vlinder mount -o owners=me disk.img point
./vlinder subvolume create point/made
./vlinder filesystem sync point
./vlinder subvolume delete point/made >/dev/null
ls -d /tmp/vlinder-* | sed 's/-[0-9a-f]\{16\}$/-RANDOM/'
ls /tmp/vlinder-*/ | grep -c 'sock$'
./vlinder umount point
"#;

fn run_as_root(script: &str) -> Ended {
    run_in_namespace(script, &[("USE", USE)])
}

const SAID: &str = "Create subvolume 'point/made'\n";

#[test]
fn a_directory_that_another_user_planted_stops_no_mount() {
    let _alone = alone();
    require!(Fuse, Root, Tool("setpriv"), Tool("unshare"), Tool("fusermount3"));
    let planted = "mkdir -m 777 vlinder-65534\nchown 1 vlinder-65534\n";
    let places = "/tmp/vlinder-65534\n/tmp/vlinder-65534-RANDOM\n1\n";
    // The second mount uses the first one's directory.
    for times in [1, 2] {
        let said = run_as_root(&format!("{planted}{}", r#"as_user sh -c "$USE"; "#.repeat(times)));
        assert_eq!(said.done().text(), format!("{SAID}{places}").repeat(times));
    }
}

#[test]
fn an_unusable_or_long_runtime_directory_stops_no_mount() {
    let _alone = alone();
    require!(Fuse, Root, Tool("setpriv"), Tool("unshare"), Tool("fusermount3"));
    for runtime in ["/root/none", "/dev/null", "relative", &format!("/tmp/{}", "long/".repeat(40))] {
        let export =
            format!("mkdir -p -m 777 {runtime} 2>/dev/null || true\nexport XDG_RUNTIME_DIR={runtime}\n");
        let said = run_as_root(&format!("{export}as_user sh -c \"$USE\""));
        assert_eq!(said.text(), format!("{SAID}/tmp/vlinder-65534\n1\n"), "{runtime}: {}", said.err);
        assert_eq!(said.code, 0, "{runtime}");
    }
}

#[test]
fn a_mount_in_a_user_namespace_has_a_socket() {
    let _alone = alone();
    require!(Fuse, Root, Tool("setpriv"), Tool("unshare"));
    // /run/vlinder of the real root is there and stays its own.
    let said = run_as_root("mkdir -p -m 711 /run/vlinder\nas_user unshare -Urm sh -c \"$USE\"");
    assert_eq!(said.done().text(), format!("{SAID}/tmp/vlinder-0\n1\n"));
}

/// No directory at all: each that is there is read-only, or not there.
const NO_DIRECTORY: &str = r#"
mkdir none
mount --bind /tmp /mnt
cd /mnt
chmod 1777 .
for directory in /run /tmp; do
    mount --bind none $directory
    mount -o remount,bind,ro $directory
done
"#;

#[test]
fn where_no_directory_can_be_used_the_mount_tells_its_socket() {
    let _alone = alone();
    require!(Fuse, Root, Tool("setpriv"), Tool("unshare"), Tool("fusermount3"));
    let use_it = r#"
set -e
./vlinder mount -o owners=me disk.img point 2>said
grep -q the.mount.itself.tells.its.name said || { cat said >&2; exit 1; }
./vlinder subvolume create point/made
./vlinder ls disk.img:/
./vlinder filesystem sync point
"#;
    let said = run_as_root(&format!(
        "{NO_DIRECTORY}as_user sh -c '{use_it}'
./vlinder subvolume list point || true
as_user ./vlinder umount point
as_user ./vlinder ls disk.img:/"
    ));
    assert_eq!(said.text(), format!("{SAID}made\nmade\n"), "{}", said.err);
    assert_eq!(said.code, 0);
}
