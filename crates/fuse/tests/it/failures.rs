//! What a mount says, and does, when the image or what carries it fails.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::rig::{Rig, run, shell};
use vlinder_control::{Answer, Request};
use vlinder_fuse::{MountError, MountOptions};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, eventually, require};

/// Where all copies of the first leaf of the top level's tree lie in the image.
fn first_leaf(image: &Path) -> Vec<u64> {
    let tree = run(Command::new("btrfs").args(["inspect-internal", "dump-tree", "-t", "5"]).arg(image));
    let leaf = tree.lines().find_map(|line| line.strip_prefix("leaf ")).unwrap();
    let logical = leaf.split(' ').next().unwrap();
    let places = run(Command::new("btrfs-map-logical").args(["-l", logical]).arg(image));
    let physical = |line: &str| line.split("physical ").nth(1)?.split(' ').next()?.parse().ok();
    places.lines().filter_map(physical).collect()
}

fn is_mounted(place: &Path) -> bool {
    let place = place.to_str().unwrap();
    std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().any(|line| line.contains(place))
}

#[test]
fn an_unreadable_root_directory_is_told_and_not_mounted() {
    require!(Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("btrfs-map-logical"));
    let rig = Rig::new(256);
    let kernel = KernelMount::new(&rig.image, "").unwrap();
    // Enough names for several leaves: only the one of the root directory's own inode is damaged.
    shell(kernel.path(), "touch $(seq 2000); btrfs subvolume create sound; echo here > sound/file");
    kernel.unmount().unwrap();
    let places = first_leaf(&rig.image);
    assert!(!places.is_empty());
    let image = std::fs::File::options().write(true).open(&rig.image).unwrap();
    for place in &places {
        image.write_all_at(&[0xa5; 512], place + 8192).unwrap();
    }
    for options in ["ro,owners=keep", "owners=keep"] {
        let options = MountOptions::parse(options).unwrap();
        let said =
            match vlinder_fuse::mount(options, std::slice::from_ref(&rig.image), &rig.mountpoint).map(drop) {
                Err(error @ (MountError::Root { .. } | MountError::Filesystem(_))) => error.to_string(),
                other => panic!("{other:?}"),
            };
        for words in ["root directory", "inode 256 of subvolume 5", "checksum", "vlinder check", "subvol="] {
            assert!(said.contains(words), "{words:?} is not in {said:?}");
        }
        assert!(!is_mounted(&rig.mountpoint));
    }
    // What is sound can still be reached.
    let mounted = rig.mount("ro,subvolid=256");
    assert_eq!(std::fs::read(rig.join("file")).unwrap(), b"here\n");
    mounted.unmount();
}

/// A file system of the host in memory, of a bounded size.
struct SmallHost {
    path: PathBuf,
    _scratch: Scratch,
}

impl SmallHost {
    fn new(megabytes: u64) -> Self {
        let scratch = Scratch::new("fuse-host");
        let path = scratch.join("host");
        std::fs::create_dir(&path).unwrap();
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(&path));
        Self { path, _scratch: scratch }
    }
}

impl Drop for SmallHost {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

#[test]
fn a_full_host_stops_changes_and_nothing_else() {
    require!(Root, Fuse, Tool("mkfs.btrfs"), Tool("btrfs"));
    let host = SmallHost::new(40);
    let rig = Rig::at(host.path.join("image"), 512);
    let mounted = rig.mount("commit=3600,notreelog");

    let kept = vec![7; 4 << 20];
    let file = std::fs::File::create(rig.join("kept")).unwrap();
    file.write_all_at(&kept, 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let early = std::fs::File::create(rig.join("early")).unwrap();
    // The image is sparse and says that there is room; its host has none.
    let file = std::fs::File::create(rig.join("large")).unwrap();
    let mut written = 0;
    let mut failed = false;
    while written < 96 << 20 && !failed {
        failed = file.write_all_at(&vec![written as u8 | 1; 1 << 20], written).is_err();
        written += 1 << 20;
    }
    assert!(file.sync_all().is_err(), "{written} bytes do not fit, and fsync says that they are durable");
    assert!(file.sync_all().is_err(), "nor later");
    let top = std::fs::File::open(&rig.mountpoint).unwrap();
    assert!(top.sync_all().is_err(), "the directory's fsync commits");
    let mut offset = 0;
    let mut refused = None;
    eventually("write(2) says so through a file that was opened before", || {
        refused = early.write_all_at(&vec![1; 1 << 20], offset).err();
        offset += 1 << 20;
        refused.is_some()
    });
    assert_eq!(refused.unwrap().kind(), std::io::ErrorKind::StorageFull);

    // All that was durable is there, and new readers get it.
    assert_eq!(std::fs::read(rig.join("kept")).unwrap(), kept);
    shell(&rig.mountpoint, "ls -l; stat kept; cmp kept <(head -c 4194304 /dev/zero | tr '\\0' '\\7')");
    let Answer::Space(told) = mounted.client().request(&Request::FilesystemUsage).unwrap() else { panic!() };
    assert!(told.condition.is_host_full && told.condition.held_bytes > 0, "{:?}", told.condition);
    assert_eq!(told.condition.read_only, None, "it goes on when the host has space");
    drop((file, top, early));
    let enlarged = Command::new("mount").args(["-o", "remount,size=1g"]).arg(&host.path).status().unwrap();
    assert!(enlarged.success());
    mounted.client().request(&Request::FilesystemSync).unwrap();
    mounted.unmount();

    vlinder_testkit::kernel::btrfs_check_data(&rig.image).unwrap();
    let again = rig.mount("ro");
    assert_eq!(std::fs::read(rig.join("kept")).unwrap(), kept);
    again.unmount();
}
