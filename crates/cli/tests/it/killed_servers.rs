//! What becomes of a mount whose server is killed.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::end;
use crate::place::Place;
use vlinder_base::clock::{Clock as _, SystemClock};
use vlinder_testkit::require;

/// Changes mapped pages all over a file that does not fit, and has them written.
const MAPPED_WRITER: &str = "\
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 60 << 20)
pages = mmap.mmap(file, 60 << 20)
while True:
    for at in range(0, 60 << 20, 4096):
        pages[at:at + 4] = os.urandom(4)
    try:
        os.fsync(file)
    except OSError:
        pass
";

struct Writers(Vec<Child>);

impl Drop for Writers {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|writer| writer.kill().unwrap());
        for writer in &mut self.0 {
            writer.wait().unwrap();
        }
    }
}

/// Near the end of the room the server has the kernel push pages out. Killed meanwhile, it leaves a call of
/// its own in the kernel that waits for its own answer: nothing on the mount would ever end.
#[test]
fn a_mount_of_a_server_that_was_killed_is_taken_away() {
    require!(Root, Fuse, Tool("python3"));
    for _ in 0..2 {
        let place = Place::new("killed-server");
        place.mount("rw").done();
        let writer = |name: &str| {
            let mut command = Command::new("python3");
            command.args(["-c", MAPPED_WRITER]).arg(place.at(name)).stderr(Stdio::null());
            command.spawn().unwrap()
        };
        let writers = Writers(vec![writer("one"), writer("two")]);
        vlinder_base::thread::sleep(Duration::from_millis(1500));
        rustix::process::kill_process(place.server(), rustix::process::Signal::KILL).unwrap();
        vlinder_base::thread::sleep(Duration::from_millis(500));
        let clock = SystemClock::new();
        let mut umount = Command::new("timeout");
        umount.args(["60", env!("CARGO_BIN_EXE_vlinder"), "umount"]).arg(&place.point);
        let ended = end(&mut umount);
        assert!(clock.monotonic() < Duration::from_secs(20), "{:?}", clock.monotonic());
        ended.failed(1, &["the server had ended before it could commit"]);
        assert!(!place.is_mounted());
        drop(writers);
    }
}
