//! File systems that btrfs-convert made of ext4 (field-cases A3).

mod support;

use std::process::Command;

use vlinder_base::sync::Arc;
use vlinder_check::{Options, check};
use vlinder_device::{Device, FileDevice};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions};
use vlinder_testkit::kernel::{KernelMount, btrfs_check};
use vlinder_testkit::{Scratch, require};

/// btrfs-convert 6.2 stores targets with a NUL behind them, which is no part of the link's size.
#[test]
fn links_of_a_converted_file_system_end_where_their_size_says() {
    require!(KernelBtrfs, Tool("mkfs.ext4"), Tool("btrfs-convert"), Tool("btrfs"));
    let scratch = Scratch::new("converted");
    let (image, tree) = (scratch.join("image"), scratch.join("tree"));
    std::fs::create_dir(&tree).unwrap();
    // ext4 stores the first in the inode, the second in a block.
    let targets = [("short", "f".to_owned()), ("long", "d/".repeat(100))];
    for (name, target) in &targets {
        std::os::unix::fs::symlink(target, tree.join(name)).unwrap();
    }
    std::fs::File::create(&image).unwrap().set_len(300 << 20).unwrap();
    for command in [
        Command::new("mkfs.ext4").args(["-q", "-b", "4096", "-d"]).arg(&tree).arg(&image),
        Command::new("btrfs-convert").arg(&image),
    ] {
        let done = command.output().unwrap();
        assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let mounted = KernelMount::new(&image, "ro").unwrap();
    for (name, target) in &targets {
        assert_eq!(std::fs::read_link(mounted.path().join(name)).unwrap().to_str(), Some(&**target));
    }
    mounted.unmount().unwrap();
    btrfs_check(&image).unwrap();
    let filesystem = Filesystem::open(&[&image], OpenOptions::parse("ro").unwrap()).unwrap();
    let files = Files::new(filesystem, Caller::superuser());
    for (name, target) in &targets {
        assert_eq!(files.read_link(format!("/{name}")).unwrap().to_str(), Some(&**target));
    }
    drop(files);
    let how = vlinder_device::OpenOptions { read_only: true, ..vlinder_device::OpenOptions::default() };
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(&image, &how).unwrap());
    let report = check(vec![device], &Options::default()).unwrap();
    let of_links = report.findings.iter().filter(|finding| finding.kind.id() == "link-size");
    assert_eq!(of_links.count(), 0, "{:?}", report.findings);
    assert!(report.is_clean(), "{:?}", report.findings);
}
