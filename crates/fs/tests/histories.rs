//! Members that were away, and members that went on alone (field-cases A2; two histories).

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use vlinder_base::sync::Arc;
use vlinder_check::Options as CheckOptions;
use vlinder_device::{Device, FileDevice};
use vlinder_format::DeviceId;
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, FsError, OpenOptions};
use vlinder_testkit::kernel::{LoopDevice, unmount};
use vlinder_testkit::walk::{self, Options};
use vlinder_testkit::{Scratch, require};

const DEVICE_BYTES: u64 = 256 << 20;

fn tool(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The kernel mounts what is left of a file system's devices, changes it, and gives its walk.
fn change(images: &[&Path], script: &str) -> String {
    let loops: Vec<LoopDevice> = images.iter().map(|image| LoopDevice::attach(image).unwrap()).collect();
    for device in &loops {
        tool(Command::new("btrfs").args(["device", "scan"]).arg(device.node()));
    }
    let directory = Scratch::new("histories-mount");
    let mount = ["-t", "btrfs", "-o", "degraded"];
    tool(Command::new("mount").args(mount).arg(loops[0].node()).arg(directory.path()));
    tool(Command::new("sh").args(["-ec", script]).current_dir(directory.path()));
    let walked = walk::walk(directory.path(), &Options::default()).unwrap();
    unmount(directory.path()).unwrap();
    for device in &loops {
        tool(Command::new("btrfs").args(["device", "scan", "--forget"]).arg(device.node()));
    }
    walk::render(&walked)
}

/// A mirrored file system, with a file whose bytes have no checksums.
fn mirrors(scratch: &Scratch) -> [PathBuf; 2] {
    let images = [scratch.join("first"), scratch.join("second")];
    for image in &images {
        std::fs::File::create(image).unwrap().set_len(DEVICE_BYTES).unwrap();
    }
    tool(Command::new("mkfs.btrfs").args(["-q", "-d", "raid1", "-m", "raid1"]).args(&images));
    let script =
        "touch plain; chattr +C plain; head -c 512K /dev/zero | tr '\\0' o > plain; echo common > file";
    change(&[&images[0], &images[1]], script);
    images
}

fn open(images: &[PathBuf; 2], order: [usize; 2], options: &str) -> Result<Filesystem, FsError> {
    let paths = order.map(|number| images[number].as_path());
    Filesystem::open(&paths, OpenOptions::parse(options).unwrap())
}

fn check(images: &[PathBuf; 2], history: Option<DeviceId>) -> Result<vlinder_check::Report, String> {
    let how = vlinder_device::OpenOptions { read_only: true, ..vlinder_device::OpenOptions::default() };
    let devices =
        images.each_ref().map(|image| Arc::new(FileDevice::open(image, &how).unwrap()) as Arc<dyn Device>);
    let options = CheckOptions { history, ..CheckOptions::default() };
    vlinder_check::check(devices.to_vec(), &options).map_err(|error| error.to_string())
}

/// Commits, each with something to write.
fn commits(count: u64, word: &str) -> String {
    let one = |number| format!("echo {word}-{number} > file; sync;");
    (1..count).map(one).collect()
}

#[test]
fn a_member_that_was_away_for_one_commit_or_ten_is_used_only_where_no_other_copy_is_good() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("chattr"));
    for (left, missed) in [(0, 1), (1, 1), (0, 2), (1, 10)] {
        let scratch = Scratch::new("histories");
        let images = mirrors(&scratch);
        let overwrite = "tr o n < plain > /dev/shm/new.$$; dd if=/dev/shm/new.$$ of=plain conv=notrunc bs=64k status=none; rm /dev/shm/new.$$";
        let script = format!("{}{overwrite}", commits(missed, "later"));
        let expected = change(&[&images[left]], &script);
        for order in [[0, 1], [1, 0]] {
            let filesystem = open(&images, order, "").unwrap();
            let members = filesystem.engine().volume().members();
            let stale: Vec<bool> = members.iter().map(|member| member.is_stale).collect();
            assert_eq!(stale, [left == 1, left == 0], "{missed} missed");
            if let Err(difference) = walk::compare(&expected, &support::walk(&filesystem)) {
                panic!("device {left} was left, {missed} missed, {order:?}: {difference}");
            }
        }
        let report = check(&images, None).unwrap();
        let is_told = report.findings.iter().any(|finding| finding.kind.id() == "superblock-stale");
        assert!(is_told, "{:?}", report.findings);
    }
}

#[test]
fn two_histories_are_named_and_never_joined_and_one_can_be_read() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("chattr"));
    for (first, second) in [(1, 1), (3, 3), (1, 3), (4, 2)] {
        let scratch = Scratch::new("histories");
        let images = mirrors(&scratch);
        let script = |count, word: &str| {
            format!(
                "{}dd if=/dev/zero bs=64k count=8 status=none | tr '\\0' {word} | dd of=plain conv=notrunc bs=64k status=none; echo {word} > {word}",
                commits(count, word)
            )
        };
        let walks = [change(&[&images[0]], &script(first, "a")), change(&[&images[1]], &script(second, "b"))];
        let what = format!("{first} and {second} commits");
        for order in [[0, 1], [1, 0]] {
            for options in ["", "ro", "ro,degraded", "rescue=all,ro"] {
                let error = open(&images, order, options).map(drop).expect_err(&what);
                let text = error.to_string();
                assert!(
                    text.contains("first") && text.contains("second") && text.contains("-o history=1"),
                    "{text}"
                );
            }
            for (number, expected) in [(1, &walks[0]), (2, &walks[1])] {
                let filesystem = open(&images, order, &format!("history={number}")).unwrap();
                if let Err(difference) = walk::compare(expected, &support::walk(&filesystem)) {
                    panic!("{what}, history {number}, {order:?}: {difference}");
                }
                let files = Files::new(filesystem, Caller::superuser());
                assert!(files.write("/new", b"x").is_err(), "nothing is written");
            }
            let error = open(&images, order, "history=3").map(drop).unwrap_err().to_string();
            assert!(error.contains("no device 3 was given"), "{error}");
        }
        let error = check(&images, None).map(drop).expect_err(&what);
        assert!(error.contains("two histories"), "{what}: {error}");
        for device in [DeviceId(1), DeviceId(2)] {
            check(&images, Some(device)).unwrap();
        }
    }
}
