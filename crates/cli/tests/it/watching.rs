//! A process that watches a directory (inotify) hears of subvolumes that verbs make and delete there, as on
//! Linux (case P6).

use std::path::Path;
use std::process::Command;

use crate::common;
use crate::place::Place;
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::require;

/// Runs each further argument as a command in the mount, and tells what is heard meanwhile of its root.
const SCRIPT: &str = r"
import ctypes, os, select, struct, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x40, 0x80, 0x100, 0x200
queue = libc.inotify_init1(os.O_NONBLOCK)
assert libc.inotify_add_watch(queue, b'.', IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE) >= 0
for command in sys.argv[2:]:
    done = subprocess.run([sys.argv[1], 'subvolume', *command.split()], capture_output=True)
    print(command, done.returncode == 0)
    while select.select([queue], [], [], 0.2)[0]:
        events, at = os.read(queue, 65536), 0
        while at < len(events):
            _, mask, _, length = struct.unpack_from('iIII', events, at)
            print(hex(mask), events[at + 16:at + 16 + length].rstrip(b'\0'))
            at += 16 + length
";

const COMMANDS: [&str; 8] = [
    "create one",
    "create one/inner",
    "snapshot one two",
    "snapshot -r one three",
    "create two",
    "delete one/inner",
    "delete one three",
    "delete gone",
];

fn heard(point: &Path, tool: &str) -> String {
    let mut command = Command::new("python3");
    let done = command.args(["-c", SCRIPT, tool]).args(COMMANDS).current_dir(point).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

#[test]
fn subvolumes_that_come_and_go_are_heard_of_as_on_linux() {
    require!(KernelBtrfs, Fuse, Root, Tool("btrfs"), Tool("python3"));
    let on_linux = {
        let place = Place::new("watched-linux");
        let kernel = KernelMount::new(&place.image, "").unwrap();
        let heard = heard(kernel.path(), "btrfs");
        kernel.unmount().unwrap();
        heard
    };
    assert_eq!(on_linux.matches("0x400").count(), 5, "{on_linux}");
    for options in ["compress=no", "threads=1", "writeback=off"] {
        let place = Place::new("watched");
        place.mount(options).done();
        let tool = common::vlinder().get_program().to_str().unwrap().to_owned();
        assert_eq!(heard(&place.point, &tool), on_linux, "{options}");
        place.unmount().done();
        btrfs_check_data(&place.image).unwrap();
    }
}
