//! A mount's server may be anybody's: what it does while a verb talks to it leads the verb to no other mount
//! (cases R1, R2).

use std::path::{Path, PathBuf};

use crate::common::{self, run, tool, vlinder};
use crate::place::{self, Place};
use rustix::mount::MountFlags;
use vlinder_base::sync::Arc;
use vlinder_control::protocol::MountInformation;
use vlinder_control::{
    Answer, Conversation, ErrorBody, Executor, MountEntry, Peer, Request, Server, SocketLocation,
};
use vlinder_testkit::require;

/// Answers as a mount's server would, but first puts a link to another directory in the place of the one that
/// the mount lies in.
struct Hostile {
    directory: PathBuf,
    moved: PathBuf,
    other: PathBuf,
}

impl Executor for Hostile {
    fn execute(&self, _: &Peer, request: Request, _: &mut Conversation) -> Result<Answer, ErrorBody> {
        if std::fs::rename(&self.directory, &self.moved).is_ok() {
            std::os::unix::fs::symlink(&self.other, &self.directory).unwrap();
        }
        Ok(match request {
            Request::ByCall { .. } => Answer::Expected,
            Request::CallOutcome => Answer::NotCalled,
            Request::Unmount => Answer::Prepared { process: 1, is_durable: true },
            Request::Mount => Answer::Mount(MountInformation {
                process: 1,
                version: String::new(),
                devices: Vec::new(),
                mountpoint: "".into(),
                root: 5,
                read_only: None,
                uuid: String::new(),
                options: Vec::new(),
            }),
            _ => Answer::Synced { generation: 1 },
        })
    }
}

fn entry(mountpoint: &Path) -> Option<MountEntry> {
    MountEntry::all().unwrap().into_iter().rfind(|entry| entry.mountpoint == mountpoint)
}

/// A mount in a directory whose owner serves it, and another mount that he means root to change.
struct Trap {
    place: Place,
    other: PathBuf,
    moved: PathBuf,
    real_socket: PathBuf,
    hidden_socket: PathBuf,
    _server: Server,
}

impl Trap {
    fn new(name: &str) -> Self {
        let place = Place::new(name);
        let theirs = place.scratch.join("theirs");
        let (other, moved) = (place.scratch.join("other"), place.scratch.join("moved"));
        for directory in [&theirs, &other, &theirs.join("m"), &other.join("m")] {
            std::fs::create_dir(directory).unwrap();
        }
        tool("mount", ["-t", "tmpfs", "-o", "nosuid,nodev", "tmpfs", other.join("m").to_str().unwrap()]);
        let mut command = vlinder();
        command.arg("mount").args(["-o", "nosuid,nodev"]).arg(&place.image).arg(theirs.join("m"));
        common::end(&mut command).done();
        let device = entry(&theirs.join("m")).unwrap().device;
        let location = SocketLocation::for_server(device, 0, false).remove(0);
        let (real_socket, hidden_socket) = (location.path(), location.path().with_extension("hidden"));
        std::fs::rename(&real_socket, &hidden_socket).unwrap();
        let hostile = Hostile { directory: theirs, moved: moved.clone(), other: other.clone() };
        let server = Server::start(std::slice::from_ref(&location), Arc::new(hostile)).unwrap();
        Self { place, other, moved, real_socket, hidden_socket, _server: server }
    }

    fn mountpoint(&self) -> PathBuf {
        self.place.scratch.join("theirs/m")
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        // A mount that has ended has given its number back, and with it the socket's name: it may be
        // another's by now.
        if entry(&self.moved.join("m")).is_some() {
            let _ = std::fs::rename(&self.hidden_socket, &self.real_socket);
        } else {
            let _ = std::fs::remove_file(&self.hidden_socket);
        }
        for mountpoint in [self.other.join("m"), self.moved.join("m"), self.mountpoint()] {
            let _ = std::process::Command::new("umount").args(["-l"]).arg(mountpoint).output();
        }
    }
}

#[test]
fn a_swapped_directory_leads_to_no_other_mount() {
    require!(Fuse, Root);
    for verb in [&["umount"][..], &["mount", "-o", "remount,ro"]] {
        let trap = Trap::new("led-astray");
        let mut command = vlinder();
        command.args(verb);
        if verb[0] == "mount" {
            command.arg(&trap.place.image);
        }
        let ended = common::end(command.arg(trap.mountpoint()));
        let other = entry(&trap.other.join("m")).expect("the other mount is there");
        assert!(!other.read_only, "{verb:?}");
        let meant = entry(&trap.moved.join("m"));
        match verb[0] {
            "umount" => assert_eq!(meant, None, "{ended:?}"),
            _ => assert!(meant.is_some_and(|meant| meant.read_only), "{ended:?}"),
        }
    }
}

#[test]
fn a_subvolume_is_made_and_deleted_where_named_or_nowhere() {
    require!(Fuse, Root);
    for verb in ["create", "delete"] {
        let trap = Trap::new("led-astray-call");
        for point in [trap.mountpoint(), trap.other.join("m")] {
            std::fs::create_dir(point.join("there")).unwrap();
        }
        let name = if verb == "create" { "made" } else { "there" };
        // The server says nothing of what became of it, so that the verb fails.
        let ended = common::end(vlinder().args(["subvolume", verb]).arg(trap.mountpoint().join(name)));
        assert_ne!(ended.code, 0, "{ended:?}");
        let others: Vec<_> = std::fs::read_dir(trap.other.join("m"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(others, ["there"], "{verb}: {ended:?}");
        assert!(!trap.moved.join("m/made").exists(), "{ended:?}");
    }
}

#[test]
fn a_server_unmounts_its_own_mount_wherever_that_went() {
    require!(Fuse, Root);
    let place = Place::new("swapped-end");
    let [ours, other, moved] = ["ours", "other", "moved"].map(|name| place.scratch.join(name));
    for directory in [&ours, &other, &ours.join("m"), &other.join("m")] {
        std::fs::create_dir(directory).unwrap();
    }
    tool("mount", ["-t", "tmpfs", "tmpfs", other.join("m").to_str().unwrap()]);
    common::end(vlinder().arg("mount").arg(&place.image).arg(ours.join("m"))).done();
    let server = place.server();
    for (from, to) in [(&ours, &moved), (&other, &ours), (&moved, &other)] {
        std::fs::rename(from, to).unwrap();
    }
    rustix::process::kill_process(server, rustix::process::Signal::TERM).unwrap();
    place::wait_for("the mount's end", || entry(&other.join("m")).is_none());
    let left = entry(&ours.join("m"));
    tool("umount", [ours.join("m").to_str().unwrap()]);
    assert_eq!(left.unwrap().filesystem_type, "tmpfs");
}

#[test]
fn a_remount_takes_off_no_flag_that_nobody_named() {
    require!(Fuse, Root);
    let place = Place::new("remount-flags");
    let flags = |point: &Path| {
        let shown = tool("findmnt", ["-n", "-o", "VFS-OPTIONS", point.to_str().unwrap()]);
        shown.trim().split(',').map(str::to_owned).collect::<Vec<String>>()
    };
    place.mount("nosuid,nodev").done();
    for (options, expected) in [
        ("remount,ro", &["ro", "nosuid", "nodev", "relatime"][..]),
        ("remount", &["ro", "nosuid", "nodev", "relatime"]),
        ("remount,rw,noexec", &["rw", "nosuid", "nodev", "noexec", "relatime"]),
        ("remount,suid", &["rw", "nodev", "noexec", "relatime"]),
    ] {
        run(["mount", "-o", options, place.image.to_str().unwrap(), place.point.to_str().unwrap()]).done();
        assert_eq!(flags(&place.point), expected, "{options}");
    }
    // mount(8) of older systems does not know it.
    let flags_now = MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::from_bits_retain(256);
    rustix::mount::mount_remount(&place.point, flags_now, "").unwrap();
    run(["mount", "-o", "remount,ro", place.image.to_str().unwrap(), place.point.to_str().unwrap()]).done();
    assert!(flags(&place.point).contains(&"nosymfollow".to_owned()), "{:?}", flags(&place.point));
    place.unmount().done();
}

/// Runs a program for which openat2(2) fails with an errno: as on Linux before 5.6 (ENOSYS), and in a sandbox
/// that was made before the call was (EPERM).
const WITHOUT_OPENAT2: &str = r#"
import ctypes, os, struct, sys
LOAD, JUMP_IF_EQUAL, RETURN, ALLOW, ERRNO, OPENAT2 = 0x20, 0x15, 6, 0x7fff0000, 0x50000, 437
code = [(LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, OPENAT2), (RETURN, 0, 0, ERRNO | int(sys.argv[1])), (RETURN, 0, 0, ALLOW)]
filters = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *one) for one in code))
program = struct.pack("HxxxxxxP", len(code), ctypes.addressof(filters))
libc = ctypes.CDLL(None, use_errno=True)
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2
if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.prctl(SECCOMP, FILTER, program, 0, 0):
    sys.exit(os.strerror(ctypes.get_errno()))
if libc.syscall(OPENAT2, -100, b"/", None, 0) != -1 or ctypes.get_errno() != int(sys.argv[1]):
    sys.exit("openat2 is there")
os.execvp(sys.argv[2], sys.argv[2:])
"#;

#[test]
fn verbs_on_a_mount_do_without_openat2() {
    require!(Fuse, Root, Tool("python3"));
    for errno in ["38", "1"] {
        let place = Place::new("no-openat2");
        let image = place.image.to_str().unwrap();
        let without = |arguments: &[&str]| {
            let mut command = std::process::Command::new("python3");
            command.args(["-c", WITHOUT_OPENAT2, errno]).arg(vlinder().get_program()).args(arguments);
            common::end(&mut command)
        };
        let point = place.point.to_str().unwrap();
        without(&["mount", image, point]).done();
        std::fs::create_dir_all(place.at("directory")).unwrap();
        std::fs::write(place.at("directory/file"), vec![7; 100_000]).unwrap();
        let _ = std::os::unix::fs::symlink("/directory/../directory", place.at("link"));
        run(["filesystem", "sync", point]).done();
        // In the image, which the mount holds: the path is followed from the mount's root.
        for path in ["directory/file", "link/file", "link/../link/file"] {
            let words = ["filemap", &format!("{image}:/{path}")];
            let told = without(&words).done().text();
            assert_eq!(told, run(words).done().text(), "{errno}");
            assert!(told.contains("1 extent found"), "{told}");
        }
        let listed = ["ls", &format!("{image}:/link/")];
        assert_eq!(without(&listed).done().text(), "file\n");
        let missing = [
            without(&["filemap", &format!("{image}:/link/none")]),
            run(["filemap", &format!("{image}:/link/none")]),
        ];
        assert_eq!((missing[0].code, &missing[0].err), (missing[1].code, &missing[1].err));
        let ended = without(&["umount", point]);
        // A namespace that somebody made meanwhile has the mount, too, which is told.
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(!place.is_mounted());
    }
}
