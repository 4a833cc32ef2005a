//! An image made by mkfs.btrfs, mounted by this crate in this process, and judged by Linux afterwards.

pub mod writers;

use std::path::{Path, PathBuf};
use std::process::Command;

use vlinder_control::unmount::HeldMount;
use vlinder_control::{Client, ClientError, MountEntry};
use vlinder_fuse::{MountError, MountOptions, Session};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, walk};

pub struct Rig {
    pub image: PathBuf,
    pub mountpoint: PathBuf,
    scratch: Scratch,
}

impl Rig {
    /// An image of this size in MiB.
    pub fn new(megabytes: u64) -> Self {
        let scratch = Scratch::new("fuse");
        Self::made(scratch.join("image"), scratch, megabytes)
    }

    /// As [`new`](Self::new), with the image at a place of its own.
    pub fn at(image: PathBuf, megabytes: u64) -> Self {
        Self::made(image, Scratch::new("fuse"), megabytes)
    }

    fn made(image: PathBuf, scratch: Scratch, megabytes: u64) -> Self {
        let rig = Rig { image, mountpoint: scratch.join("mnt"), scratch };
        std::fs::create_dir(&rig.mountpoint).unwrap();
        std::fs::File::create(&rig.image).unwrap().set_len(megabytes << 20).unwrap();
        run(Command::new("mkfs.btrfs").arg("-q").arg(&rig.image));
        rig
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.mountpoint.join(name)
    }

    pub fn outside(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    pub fn mount(&self, options: &str) -> Mounted {
        // mkfs made the root directory root's.
        let owners = if rustix::process::geteuid().is_root() { "owners=keep" } else { "owners=me" };
        let options = MountOptions::parse(&format!("{owners},{options}")).unwrap();
        let session =
            vlinder_fuse::mount(options, std::slice::from_ref(&self.image), &self.mountpoint).unwrap();
        let waiting = vlinder_base::thread::spawn("waits", {
            let (sender, receiver) = vlinder_base::channel::bounded::<Session>(1);
            sender.send(session).unwrap_or_else(|_| panic!("the channel is open"));
            move || receiver.recv().unwrap().wait()
        });
        Mounted { mountpoint: self.mountpoint.clone(), waiting: Some(waiting) }
    }

    /// The judges: `btrfs check` with data, and the kernel's walk, which must equal `expected`.
    pub fn judge(&self, expected: &str) {
        vlinder_testkit::kernel::btrfs_check_data(&self.image).unwrap();
        let kernel = KernelMount::new(&self.image, "").unwrap();
        let actual = walk_of(kernel.path());
        if let Err(difference) = walk::compare(expected, &actual) {
            panic!("the kernel sees something else: {difference:?}");
        }
        kernel.unmount().unwrap();
    }
}

pub struct Mounted {
    mountpoint: PathBuf,
    waiting: Option<vlinder_base::thread::JoinHandle<Result<(), MountError>>>,
}

impl Mounted {
    pub fn client(&self) -> Client {
        Client::connect(&self.mountpoint).unwrap()
    }

    pub fn unmount(self) {
        self.end().unwrap();
    }

    /// Takes the mount out of the tree without asking the server, as umount(2) does; how the server's life
    /// ended.
    pub fn detach(mut self) -> Result<(), MountError> {
        let entry = MountEntry::at(&self.mountpoint).unwrap().unwrap();
        while let Err(refused) = HeldMount::of(&entry).and_then(|held| held.unmount(false)) {
            assert!(refused.is_busy, "{}", refused.message);
            vlinder_base::thread::yield_now();
        }
        self.waiting.take().unwrap().join().unwrap()
    }

    /// As [`unmount`](Self::unmount), and how that ended: the client is told the same as the server says.
    pub fn end(mut self) -> Result<(), MountError> {
        // A process that another test is about to start holds, until it is, what is open here: the mount's
        // root for one, while the server has the kernel write back.
        let mut result = self.client().unmount();
        for _ in 0..50 {
            if !matches!(result, Err(ClientError::Unmount { is_busy: true, .. })) {
                break;
            }
            vlinder_base::thread::sleep(std::time::Duration::from_millis(20));
            result = self.client().unmount();
        }
        assert!(!matches!(result, Err(ClientError::Unmount { .. })), "it is still mounted: {result:?}");
        let ended = self.waiting.take().unwrap().join().unwrap();
        assert_eq!(
            result.is_ok(),
            ended.is_ok(),
            "the client was told {result:?}, the server says {ended:?}"
        );
        ended
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            // A test failed; leave no mount behind.
            let _ = Command::new("umount").arg("-l").arg(&self.mountpoint).status();
            let _ = waiting.join();
        }
    }
}

pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

pub fn shell(directory: &Path, script: &str) -> String {
    run(Command::new("bash").args(["-euo", "pipefail", "-c", script]).current_dir(directory))
}

pub fn walk_of(root: &Path) -> String {
    let options = walk::Options {
        identity: walk::InodeIdentity::ObjectIdOfMount,
        data_ranges: false,
        ignored_xattrs: Vec::new(),
    };
    walk::render(&walk::walk(root, &options).unwrap())
}
