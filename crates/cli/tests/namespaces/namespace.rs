//! Mounts of an ordinary user's, in a mount namespace of their own.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use vlinder_testkit::Scratch;

use crate::common::{Ended, end, vlinder};

/// Root's part: a `/tmp`, a `/dev/fuse` and a `/etc/fuse.conf` of the test's own, seen by no other process,
/// with an image and a mount point that are the user's. `as_user` runs words as a user whom every system
/// knows by name, `as_stranger` as another.
const PREPARE: &str = r#"
set -e
mount --make-rprivate /
mknod -m 666 "$1/fuse" c 10 229
mount --bind "$1/fuse" /dev/fuse
echo user_allow_other > "$1/fuse.conf"
[ ! -e /etc/fuse.conf ] || mount --bind "$1/fuse.conf" /etc/fuse.conf
mount --bind "$1/tmp" /tmp
cd /tmp
./vlinder mkfs -q -b 128M disk.img
mkdir point
chown 65534:65534 disk.img point
unset XDG_RUNTIME_DIR
as_user() { setpriv --reuid 65534 --regid 65534 --clear-groups -- "$@"; }
as_stranger() { setpriv --reuid 54321 --regid 54321 --clear-groups -- "$@"; }
"#;

/// Runs a script of sh, for which `./vlinder`, `disk.img` and `point` are there.
pub fn run_in_namespace(script: &str, environment: &[(&str, &str)]) -> Ended {
    let scratch = Scratch::new("namespace");
    let directory = scratch.join("tmp");
    std::fs::create_dir(&directory).unwrap();
    for (path, mode) in [(scratch.path(), 0o755), (&directory, 0o1777)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    std::fs::copy(vlinder().get_program(), directory.join("vlinder")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["-m", "--", "sh", "-c", &format!("{PREPARE}{script}"), "sh"]).arg(scratch.path());
    end(command.envs(environment.iter().copied()))
}
