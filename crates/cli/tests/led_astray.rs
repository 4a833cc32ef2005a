//! A mount's server may be anybody's: what it does while a verb talks to it leads the verb to no other mount (cases R1, R2).

mod common;
#[allow(dead_code, reason = "it is shared with tests that wait for servers")]
#[path = "common/place.rs"]
mod place;

use std::path::{Path, PathBuf};

use common::{run, tool, vlinder};
use place::Place;
use vlinder_base::sync::Arc;
use vlinder_control::protocol::MountInformation;
use vlinder_control::{
    Answer, Conversation, ErrorBody, Executor, MountEntry, Peer, Request, Server, SocketLocation,
};
use vlinder_testkit::require;

/// Answers as a mount's server would, but first puts a link to another directory in the place of the one that the mount lies in.
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
        let _ = std::fs::rename(&self.hidden_socket, &self.real_socket);
        for mountpoint in [self.other.join("m"), self.moved.join("m"), self.mountpoint()] {
            let _ = std::process::Command::new("umount").args(["-l"]).arg(mountpoint).output();
        }
    }
}

#[test]
fn a_directory_that_is_swapped_while_its_server_answers_leads_to_no_other_mount() {
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
    place.unmount().done();
}
