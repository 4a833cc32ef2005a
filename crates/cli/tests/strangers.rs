//! What other users do to the control socket of a mount that everybody may use (case R4).

mod common;
#[allow(dead_code, reason = "it is shared with tests that wait for servers")]
#[path = "common/place.rs"]
mod place;

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{run, vlinder};
use place::Place;
use rustix::process::Uid;
use vlinder_base::thread;
use vlinder_control::MountEntry;
use vlinder_testkit::require;

const STRANGER: u32 = 54_321;

fn socket_of(point: &Path) -> PathBuf {
    let (major, minor) = MountEntry::at(point).unwrap().unwrap().device;
    PathBuf::from(format!("/run/vlinder/{major}:{minor}.sock"))
}

/// Connections of a user's, who says nothing on them.
fn idle(socket: PathBuf, user: u32, count: usize) -> Vec<UnixStream> {
    let connect = move || {
        let user = Uid::from_raw(user);
        // Of this thread alone.
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        (0..count).map(|_| UnixStream::connect(&socket).unwrap()).collect()
    };
    thread::spawn("stranger", connect).join().unwrap()
}

/// The command as another user calls it, from a place where that user can run it.
fn as_stranger(place: &Place, arguments: &[&str]) -> common::Ended {
    let program = place.scratch.join("vlinder");
    if !program.exists() {
        std::fs::copy(vlinder().get_program(), &program).unwrap();
        std::fs::set_permissions(place.scratch.path(), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={STRANGER}"), "--clear-groups", "--"]).arg(program).args(arguments);
    common::end(&mut command)
}

#[test]
fn idle_connections_of_a_stranger_keep_no_verb_of_roots_waiting() {
    require!(Fuse, Root, Tool("setpriv"));
    let place = Place::new("idle-connections");
    place.mount("allow_other").done();
    let point = place.point.to_str().unwrap();
    as_stranger(&place, &["filesystem", "df", point]).done();
    let idle = idle(socket_of(&place.point), STRANGER, 100);
    run(["filesystem", "sync", point]).done();
    run([Path::new("subvolume"), Path::new("create"), &place.at("sub")]).done();
    run([Path::new("subvolume"), Path::new("snapshot"), &place.at("sub"), &place.at("shot")]).done();
    let words = ["too many connections of user 54321", "try again"];
    as_stranger(&place, &["filesystem", "df", point]).failed(1, &words);
    place.unmount().done();
    drop(idle);
}
