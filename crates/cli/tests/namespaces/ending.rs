//! How a mount ends that is seen in several places, whose server can't be asked, or whose server is killed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::alone;
use crate::common::{self, run};
use crate::place::{Place, wait_for};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use vlinder_base::sync::Mutex;
use vlinder_base::thread;
use vlinder_testkit::kernel::btrfs_check_data;
use vlinder_testkit::require;

/// Held by tests that count places: a new mount namespace has those of all mounts that are there.
static PLACES: Mutex<()> = Mutex::new(());

fn bind(from: &Path, to: &Path) {
    let status = Command::new("mount").arg("--bind").arg(from).arg(to).status().unwrap();
    assert!(status.success(), "{} can't be bound to {}", from.display(), to.display());
}

/// Unmounts the first place while the mount is seen in a second one, and looks at what is promised then.
fn unmount_first_of_two(place: &Place, second: &str) {
    std::fs::write(place.at("written"), b"before").unwrap();
    let ended = place.unmount();
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(!place.is_mounted());
    for word in ["durable", second, "goes on"] {
        assert!(ended.err.contains(word), "{word:?} is not in {:?}", ended.err);
    }
    let copy = place.scratch.join("copy.img");
    std::fs::copy(&place.image, &copy).unwrap();
    assert_eq!(run(["cat", &common::target(&copy, "/written")]).done().out, b"before");
}

#[test]
fn the_mount_goes_on_where_its_root_is_bound_and_ends_there() {
    let _alone = alone();
    require!(Fuse, Root, Tool("btrfs"), Tool("pgrep"));
    let _alone = PLACES.lock();
    let place = Place::new("bound-root");
    place.mount("defaults").done();
    let (server, second) = (place.server(), place.scratch.join("second"));
    std::fs::create_dir(&second).unwrap();
    bind(&place.point, &second);
    unmount_first_of_two(&place, second.to_str().unwrap());
    assert!(test_kill_process(server).is_ok());
    std::fs::write(second.join("later"), b"after").unwrap();
    run([Path::new("umount"), &second]).done();
    wait_for("the end of the server", || test_kill_process(server).is_err());
    assert_eq!(place.cat("/later"), b"after");
    btrfs_check_data(&place.image).unwrap();
}

#[test]
fn a_bound_directory_or_file_is_unmounted_alone() {
    let _alone = alone();
    require!(Fuse, Root, Tool("btrfs"), Tool("pgrep"));
    let _alone = PLACES.lock();
    let place = Place::new("bound-directory");
    place.mount("defaults").done();
    let server = place.server();
    std::fs::create_dir(place.at("directory")).unwrap();
    std::fs::write(place.at("file"), b"content").unwrap();
    let (directory, file) = (place.scratch.join("second"), place.scratch.join("third"));
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(&file, b"").unwrap();
    bind(&place.at("directory"), &directory);
    bind(&place.at("file"), &file);
    for second in [&directory, &file] {
        let ended = run([Path::new("umount"), second]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(ended.err.contains(place.point.to_str().unwrap()), "{}", ended.err);
    }
    bind(&place.at("file"), &file);
    unmount_first_of_two(&place, file.to_str().unwrap());
    run([Path::new("umount"), &file]).done();
    wait_for("the end of the server", || test_kill_process(server).is_err());
    btrfs_check_data(&place.image).unwrap();
}

/// A process in a mount namespace of its own, which is ended with this.
struct Namespace(Child);

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Namespace {
    fn new() -> Self {
        let command = ["-m", "--propagation", "private", "sh", "-c", "echo ready; exec sleep 1000"];
        let mut child = Command::new("unshare").args(command).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = [0; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
        Self(child)
    }
}

#[test]
fn a_mount_alive_in_another_namespace_names_its_process() {
    let _alone = alone();
    require!(Fuse, Root, Tool("btrfs"), Tool("pgrep"), Tool("unshare"));
    let _alone = PLACES.lock();
    let place = Place::new("namespace");
    place.mount("defaults").done();
    let (server, namespace) = (place.server(), Namespace::new());
    unmount_first_of_two(&place, &format!("process {}", namespace.0.id()));
    drop(namespace);
    wait_for("the end of the server", || test_kill_process(server).is_err());
    btrfs_check_data(&place.image).unwrap();
}

/// In namespaces of its own the command sees neither the other place nor the kernel's list of connections.
#[test]
fn unmounting_ends_where_nothing_tells_whether_the_mount_has() {
    let _alone = alone();
    require!(Fuse, Root, Tool("btrfs"), Tool("pgrep"), Tool("unshare"));
    let _alone = PLACES.lock();
    let place = Place::new("untold");
    place.mount("defaults").done();
    std::fs::write(place.at("written"), b"before").unwrap();
    let server = place.server();
    let script = "umount /sys/fs/fuse/connections 2>/dev/null; exec \"$0\" umount \"$1\"";
    let mut unmounting = Command::new("unshare");
    unmounting.args(["-m", "--propagation", "private", "-p", "-f", "--mount-proc", "sh", "-c", script]);
    let ended = unmounting.arg(env!("CARGO_BIN_EXE_vlinder")).arg(&place.point).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("where you may not look"), "{said}");
    assert!(place.is_mounted() && test_kill_process(server).is_ok());
    place.unmount().done();
    assert_eq!(place.cat("/written"), b"before");
}

#[test]
fn a_mount_inside_of_the_mount_is_named() {
    let _alone = alone();
    require!(Fuse, Root);
    let place = Place::new("inner");
    place.mount("defaults").done();
    let inner = place.at("inner");
    std::fs::create_dir(&inner).unwrap();
    bind(place.scratch.path(), &inner);
    let ended = place.unmount();
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains(&format!("{} is mounted inside", inner.display())), "{}", ended.err);
    assert!(Command::new("umount").arg(&inner).status().unwrap().success());
    place.unmount().done();
}

#[test]
fn a_server_that_cannot_be_asked_is_waited_for() {
    let _alone = alone();
    require!(Fuse, Root, Tool("btrfs"), Tool("pgrep"));
    let place = Place::new("unheard");
    place.mount("defaults").done();
    std::fs::write(place.at("written"), b"content").unwrap();
    let (server, device) = (place.server(), place.point.metadata().unwrap().dev());
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    std::fs::remove_file(format!("/run/vlinder/{major}:{minor}.sock")).unwrap();
    place.unmount().done();
    assert_eq!(place.cat("/written"), b"content");
    wait_for("the end of the server", || test_kill_process(server).is_err());
    btrfs_check_data(&place.image).unwrap();
}

#[test]
fn a_server_keeps_nothing_that_its_caller_had_open() {
    let _alone = alone();
    require!(Fuse, Tool("flock"), Tool("timeout"));
    let place = Place::new("inherited");
    let lock = place.scratch.join("lock");
    // The descriptor is the lock: a server that keeps it keeps the lock.
    let script = r#"exec 9>"$0"; flock 9; "$@""#;
    let command = place.command(&[], "defaults");
    let status = Command::new("sh")
        .args(["-c", script])
        .arg(&lock)
        .arg(command.get_program())
        .args(command.get_args())
        .status()
        .unwrap();
    assert!(status.success());
    let taken = Command::new("flock").args(["--nonblock"]).arg(&lock).arg("true").status().unwrap();
    place.unmount().done();
    assert!(taken.success(), "somebody holds the lock");
}

#[test]
fn a_mount_that_cannot_be_served_is_not_reported() {
    let _alone = alone();
    require!(Fuse, Tool("prlimit"));
    let place = Place::new("limits");
    for limit in 3..80 {
        let command = place.command(&[], "defaults");
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--nofile={limit}")).arg(command.get_program()).args(command.get_args());
        let output = limited.output().unwrap();
        if output.status.success() {
            assert!(place.is_mounted(), "with {limit} descriptors nothing is mounted");
            // What such a mount can do is another matter.
            return;
        }
        assert!(!place.is_mounted(), "with {limit} descriptors a mount stays behind");
        assert!(!output.stderr.is_empty());
    }
    panic!("80 descriptors are not enough");
}

#[test]
fn a_signal_as_soon_as_the_mount_is_there_unmounts_it() {
    let _alone = alone();
    require!(Fuse);
    let place = Place::new("early-signal");
    for round in 0..30 {
        let mut server = place.command(&["-f"], "defaults").stderr(Stdio::null()).spawn().unwrap();
        wait_for("the mount", || place.is_mounted());
        kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
        let status = server.wait().unwrap();
        assert!(status.success() && !place.is_mounted(), "round {round}: {status}");
    }
}

#[test]
fn a_dead_mount_is_named_as_what_it_is() {
    let _alone = alone();
    require!(Fuse, Tool("pgrep"));
    let place = Place::new("dead");
    place.mount("defaults").done();
    kill_process(place.server(), Signal::KILL).unwrap();
    wait_for("the end of the connection", || {
        rustix::fs::statfs(&place.point).is_err_and(|errno| errno == rustix::io::Errno::NOTCONN)
    });
    let ended = place.mount("defaults");
    assert!(ended.code != 0 && ended.err.contains("whose server has ended"), "{}", ended.err);
    assert!(ended.err.contains("vlinder umount"), "{}", ended.err);
    place.unmount();
    assert!(!place.is_mounted());
    place.mount("defaults").done();
    place.unmount().done();
}

#[test]
fn what_was_written_and_left_alone_survives_a_killed_server() {
    let _alone = alone();
    require!(Fuse, Tool("btrfs"), Tool("pgrep"));
    let place = Place::new("idle");
    place.mount("defaults").done();
    std::fs::write(place.at("removed"), b"content").unwrap();
    std::fs::write(place.at("written"), b"content").unwrap();
    std::fs::remove_file(place.at("removed")).unwrap();
    thread::sleep(Duration::from_secs(3));
    kill_process(place.server(), Signal::KILL).unwrap();
    place.unmount();
    assert_eq!(place.cat("/written"), b"content");
    assert_eq!(run(["ls", &common::target(&place.image, "/")]).done().out, b"written\n");
    btrfs_check_data(&place.image).unwrap();
}
