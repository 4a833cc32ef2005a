//! What other users do: to the control socket of a mount that everybody may use, and with mounts of their own
//! (cases R4, R6).

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::alone;
use crate::common::{self, run, vlinder};
use crate::namespace;
use crate::place::{self, Place};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};
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
    let _alone = alone();
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

/// A mount of another user's that answers nothing, neither the kernel nor a client: a server that is stopped,
/// or hostile.
struct Silent {
    point: PathBuf,
    kernel: Option<OwnedFd>,
    directory: PathBuf,
    clients: Option<UnixListener>,
}

impl Silent {
    fn new(point: PathBuf, source: &Path) -> Self {
        std::fs::create_dir(&point).unwrap();
        let kernel = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let options = format!(
            "fd={},rootmode=40000,user_id={STRANGER},group_id={STRANGER},allow_other",
            kernel.as_raw_fd()
        );
        let options = CString::new(options).unwrap();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount(source, &point, "fuse.vlinder", flags, options.as_c_str()).unwrap();
        let (major, minor) =
            MountEntry::all().unwrap().into_iter().rfind(|entry| entry.mountpoint == point).unwrap().device;
        let directory = PathBuf::from(format!("/tmp/vlinder-{STRANGER}"));
        let inside = directory.clone();
        let listen = move || {
            let (user, group) = (Uid::from_raw(STRANGER), rustix::process::Gid::from_raw(STRANGER));
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            if !inside.exists() {
                std::fs::create_dir(&inside).unwrap();
                std::fs::set_permissions(&inside, PermissionsExt::from_mode(0o711)).unwrap();
            }
            UnixListener::bind(inside.join(format!("{major}:{minor}.sock"))).unwrap()
        };
        let clients = thread::spawn("stranger", listen).join().unwrap();
        Self { point, kernel: Some(kernel), directory, clients: Some(clients) }
    }

    fn socket(&self) -> PathBuf {
        self.clients.as_ref().unwrap().local_addr().unwrap().as_pathname().unwrap().to_owned()
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.socket());
        // Others of this user may have sockets there.
        let _ = std::fs::remove_dir(&self.directory);
        // What waits for an answer hears now that none comes.
        drop(self.kernel.take());
        let _ = rustix::mount::unmount(&self.point, UnmountFlags::DETACH);
    }
}

/// A verb that has ended within the time, which it could not if it waited for the silent server.
#[track_caller]
fn in_time(seconds: u32, arguments: &[&str]) -> common::Ended {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", &seconds.to_string()]).arg(vlinder().get_program()).args(arguments);
    common::end(&mut command)
}

/// Case R6: verbs look for the mount that holds an image which is in use; one of another user's is none of
/// its.
#[test]
fn a_strangers_silent_server_delays_no_verb_on_another_image() {
    let _alone = alone();
    require!(Fuse, Root, Tool("timeout"));
    let place = Place::new("silent-server");
    let theirs = place.scratch.join("theirs.img");
    std::fs::write(&theirs, b"").unwrap();
    let silent = Silent::new(place.scratch.join("silent"), &theirs);
    // It claims to hold root's image, too, which its user could not even write.
    let claimed = Silent::new(place.scratch.join("claimed"), &place.image.canonicalize().unwrap());
    place.mount("rw").done();
    let image = place.image.to_str().unwrap();
    // Both wait for ever if they ask; the time is for a machine that is busy.
    in_time(60, &["ls", &format!("{image}:/")]).done();
    in_time(60, &["check", image]).done();
    for silent in [&silent, &claimed] {
        let listener = silent.clients.as_ref().unwrap();
        listener.set_nonblocking(true).unwrap();
        let came = listener.accept().map(|_| ());
        assert_eq!(came.unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "it was asked");
    }
    drop((silent, claimed));
    place.unmount().done();
}

/// Case R6: where the stranger could hold the image the server is asked, but not for ever.
#[test]
fn the_image_owners_silent_server_is_waited_for_briefly() {
    let _alone = alone();
    require!(Fuse, Root, Tool("timeout"));
    let place = Place::new("silent-owner");
    std::os::unix::fs::chown(&place.image, Some(STRANGER), Some(STRANGER)).unwrap();
    let image = place.image.canonicalize().unwrap();
    let silent = Silent::new(place.scratch.join("silent"), &image);
    place.mount("rw").done();
    // The mount of root's is asked after it.
    in_time(60, &["ls", &format!("{}:/", image.display())]).done();
    let listener = silent.clients.as_ref().unwrap();
    listener.set_nonblocking(true).unwrap();
    listener.accept().expect("it was asked");
    drop(silent);
    place.unmount().done();
}

/// What the verbs say that are run in a namespace, each on standard error.
fn said_in_namespace(script: &str) -> Vec<String> {
    let script = format!("set +e; say() {{ \"$@\" 2>&1 >/dev/null | tr '\\n' ' '; echo; }}\n{script}");
    namespace::run_in_namespace(&script, &[]).text().lines().map(str::to_owned).collect()
}

#[test]
fn a_mount_of_another_user_says_whose_it_is() {
    let _alone = alone();
    require!(Fuse, Root, Tool("setpriv"), Tool("unshare"), Tool("fusermount3"));
    let said = said_in_namespace(
        "as_user ./vlinder mount -o owners=me disk.img point
        say ./vlinder ls point; say as_stranger ./vlinder subvolume list point; say as_stranger ./vlinder umount point
        say as_stranger ./vlinder mount -o remount,ro disk.img point; say as_stranger ./vlinder check disk.img
        say ./vlinder umount point",
    );
    let private =
        "/tmp/point is a mount of user 65534 without allow_other, which nobody else may use, not even root";
    for (number, words) in [
        (0, &[private, "ask that user"][..]),
        (1, &[private]),
        (2, &["it is a mount of user 65534: ask that user, or have it mounted with allow_other"]),
        (3, &["it is a mount of user 65534"]),
        (4, &["disk.img: in use", "mounted on /tmp/point by user 65534"]),
    ] {
        for word in words {
            assert!(said[number].contains(word), "{word:?} is not in {:?}", said[number]);
        }
    }
    assert_eq!((said.len(), said[5].as_str()), (6, ""), "root takes it away: {said:?}");
}

#[test]
fn an_unseen_socket_is_told_from_an_unsafe_one() {
    let _alone = alone();
    require!(Fuse, Root, Tool("unshare"));
    let said = said_in_namespace(
        "mkdir -p /run/vlinder; mount -t tmpfs -o mode=711 tmpfs /run/vlinder; ./vlinder mount disk.img point
        mount -t tmpfs -o mode=711 tmpfs /run/vlinder; say ./vlinder filesystem df point
        chmod 777 /run/vlinder; say ./vlinder filesystem df point
        umount /run/vlinder; say ./vlinder umount point",
    );
    let elsewhere = "has its socket in a /run or /tmp that this process does not see";
    assert!(said[0].contains(elsewhere) && said[0].contains("of user 0"), "{said:?}");
    assert!(
        said[1].contains("/run/vlinder is not safe for a control socket: others may write to it"),
        "{said:?}"
    );
    assert!(said[1].contains("only what belongs to user 0") && !said[1].contains(elsewhere), "{said:?}");
    assert_eq!((said.len(), said[2].as_str()), (3, ""), "{said:?}");
}

#[test]
fn a_mount_is_said_to_be_dead_only_where_its_server_has_ended() {
    let _alone = alone();
    require!(Fuse, Root, Tool("setpriv"), Tool("pgrep"));
    let place = Place::new("dead-or-denied");
    place.mount("rw").done();
    let point = place.point.to_str().unwrap();
    let denied = as_stranger(&place, &["umount", point]).failed(1, &["Permission denied", "allow_other"]);
    assert!(!denied.err.contains("has ended"), "{}", denied.err);
    rustix::process::kill_process(place.server(), rustix::process::Signal::KILL).unwrap();
    place::wait_for("the end of the connection", || {
        rustix::fs::statfs(&place.point).is_err_and(|errno| errno == rustix::io::Errno::NOTCONN)
    });
    let is_told = || {
        run(["filesystem", "df", point])
            .failed(1, &["its server has ended: vlinder umount takes the mount away"]);
    };
    is_told();
    // The kernel may have answered from what it remembered of the root.
    place::wait_for("the end of the kernel's attributes of the root", || place.point.metadata().is_err());
    is_told();
    place.unmount();
    assert!(!place.is_mounted());
}
