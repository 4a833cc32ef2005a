//! The kernel mounts an image that a server of vlinder has open: it looks at no lock. Whichever of the two
//! publishes second must not replace what the first one published.

use std::fs::File;
use std::io::Write;

use crate::common;
use crate::place::{Place, wait_for};
use rustix::process::test_kill_process;
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::require;

#[test]
fn what_the_kernel_publishes_in_an_image_that_is_served_stays() {
    require!(KernelBtrfs, Fuse, Root, Tool("btrfs"), Tool("pgrep"));
    for options in ["writeback=on", "writeback=off"] {
        let place = Place::new("second-writer");
        place.mount(options).done();
        let kernel = KernelMount::unchecked(&place.image, "").unwrap();
        std::fs::write(kernel.path().join("of the kernel"), b"kept").unwrap();
        common::tool("sync", ["-f", kernel.path().to_str().unwrap()]);
        let server = place.server();

        // A log is published by fsync, a commit by `filesystem sync`.
        let mut file = File::create(place.at("ours")).unwrap();
        file.write_all(b"refused").unwrap();
        assert!(file.sync_all().is_err(), "{options}");
        drop(file);
        let said = common::run(["filesystem", "sync", place.point.to_str().unwrap()]);
        assert_ne!(said.code, 0, "{options}");
        assert!(said.err.contains("another program wrote to this file system"), "{}", said.err);
        assert!(File::create(place.at("more")).is_err(), "{options}: it is read-only");
        assert_eq!(std::fs::read(place.at("ours")).unwrap(), b"refused", "what is in memory can be copied");
        let ended = place.unmount();
        assert_ne!(ended.code, 0, "{options}: what was written is not durable");
        assert!(ended.err.contains("another program wrote to this file system"), "{}", ended.err);
        wait_for("the end of the server", || test_kill_process(server).is_err());

        std::fs::write(kernel.path().join("later"), b"kept too").unwrap();
        kernel.unmount().unwrap();
        btrfs_check_data(&place.image).unwrap();
        assert_eq!(place.cat("/of the kernel"), b"kept");
        assert_eq!(place.cat("/later"), b"kept too");
    }
}

#[test]
fn a_kernel_that_only_reads_disturbs_nothing() {
    require!(KernelBtrfs, Fuse, Root, Tool("btrfs"), Tool("pgrep"));
    let place = Place::new("second-reader");
    place.mount("defaults").done();
    let kernel = KernelMount::unchecked(&place.image, "ro").unwrap();
    for name in ["first", "second"] {
        let mut file = File::create(place.at(name)).unwrap();
        file.write_all(name.as_bytes()).unwrap();
        file.sync_all().unwrap();
        common::run(["filesystem", "sync", place.point.to_str().unwrap()]).done();
    }
    kernel.unmount().unwrap();
    place.unmount().done();
    btrfs_check_data(&place.image).unwrap();
    assert_eq!(place.cat("/second"), b"second");
}
