//! How full a file system is, compared with what Linux's statfs(2) says of the same image.

use vlinder_fs::{Filesystem, OpenOptions};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, golden, require};

#[test]
fn statfs_says_what_linux_says_of_the_golden_images() {
    require!(KernelBtrfs);
    let scratch = Scratch::new("statistics");
    for name in ["empty", "default", "sha256-dup", "blake2-mixed", "nodes-4k-holes"] {
        let image = scratch.join(name);
        golden::unpack(name, &image).unwrap();
        let filesystem = Filesystem::open(std::slice::from_ref(&image), OpenOptions::default()).unwrap();
        let ours = filesystem.statistics().unwrap();
        filesystem.close().unwrap();
        let mount = KernelMount::new(&image, "").unwrap();
        let theirs = rustix::fs::statvfs(mount.path()).unwrap();
        mount.unmount().unwrap();
        assert_eq!(
            (ours.blocks, ours.free_blocks, ours.available_blocks),
            (theirs.f_blocks, theirs.f_bfree, theirs.f_bavail),
            "{name}: all, free, available"
        );
    }
}
