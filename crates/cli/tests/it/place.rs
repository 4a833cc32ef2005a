//! An image and a place to mount it at.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Pid;
use vlinder_base::thread;
use vlinder_testkit::Scratch;

use crate::common::{self, Ended, make_image, run, target, tool, vlinder};

const PATIENCE: u32 = 500;

/// Both lie in a directory of their own.
pub struct Place {
    pub image: PathBuf,
    pub point: PathBuf,
    pub scratch: Scratch,
}

impl Place {
    pub fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let place = Self { image: scratch.join("disk.img"), point: scratch.join("mount"), scratch };
        make_image(&place.image);
        std::fs::create_dir(&place.point).unwrap();
        place
    }

    pub fn command(&self, flags: &[&str], options: &str) -> Command {
        // A fresh image's root directory is root's, as mkfs.btrfs makes it; others mount it as their own.
        let owners = if rustix::process::geteuid().is_root() { "owners=keep" } else { "owners=me" };
        let mut command = vlinder();
        command
            .arg("mount")
            .args(flags)
            .args(["-o", owners, "-o", options])
            .arg(&self.image)
            .arg(&self.point);
        command
    }

    pub fn mount(&self, options: &str) -> Ended {
        common::end(&mut self.command(&[], options))
    }

    pub fn unmount(&self) -> Ended {
        run([Path::new("umount"), &self.point])
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.point.join(name)
    }

    pub fn is_mounted(&self) -> bool {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.contains(&format!(" {} ", self.point.display()))
    }

    /// The process that serves the mount.
    pub fn server(&self) -> Pid {
        let found = tool("pgrep", ["-f", &format!("mount --serve.* {} ", self.image.display())]);
        Pid::from_raw(found.trim().parse().unwrap()).unwrap()
    }

    pub fn cat(&self, path: &str) -> Vec<u8> {
        run(["cat", &target(&self.image, path)]).done().out
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_mounted() {
            // A test failed: neither mount nor server stays.
            let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(&self.point).status();
        }
        let _ = self.scratch.path();
    }
}

#[track_caller]
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..PATIENCE {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("in vain: {what}");
}
