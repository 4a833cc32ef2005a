//! The long run of `full.rs`: writers of every kind fill an image of 1 GiB, with the kernel's usual limits
//! and with such that its cache could take everything. It changes `vm.dirty_bytes` of the whole machine
//! meanwhile, so it runs only when asked for:
//! `cargo test --release -p vlinder-fuse --test it -- --ignored --nocapture full_matrix::`.

use std::path::Path;
use std::time::Duration;

use crate::rig::writers::{available, fill_together, is_there_or_told};
use crate::rig::{Mounted, Rig};
use rustix::io::Errno;
use vlinder_control::{MountEntry, Request};
use vlinder_testkit::kernel::btrfs_check_data;
use vlinder_testkit::require;

const IMAGE_MEGABYTES: u64 = 1024;
const ENDLESS: u64 = 64 << 30;
/// What all writers together may be told too late, beside one write each.
const SLACK_BYTES: u64 = 256 << 20;
const LONGEST: Duration = Duration::from_secs(30);

/// The machine's limits of dirty pages, put back when it is dropped.
struct DirtyLimits {
    bytes: String,
    ratio: String,
}

const DIRTY_BYTES: &str = "/proc/sys/vm/dirty_bytes";
const DIRTY_RATIO: &str = "/proc/sys/vm/dirty_ratio";

impl DirtyLimits {
    fn raise_to(bytes: u64) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap();
        let before = Self { bytes: read(DIRTY_BYTES), ratio: read(DIRTY_RATIO) };
        std::fs::write(DIRTY_BYTES, bytes.to_string()).unwrap();
        before
    }
}

impl Drop for DirtyLimits {
    fn drop(&mut self) {
        // One of the two is 0, and setting that would be refused or set the other to 0.
        let (path, value) = match self.bytes.trim() {
            "0" => (DIRTY_RATIO, &self.ratio),
            _ => (DIRTY_BYTES, &self.bytes),
        };
        if let Err(error) = std::fs::write(path, value) {
            eprintln!("{path} stays changed: {error}");
        }
    }
}

fn turn_strict_limit_off(mountpoint: &Path) {
    let mountpoint = mountpoint.canonicalize().unwrap();
    let all = MountEntry::all().unwrap();
    let entry = all.iter().rev().find(|entry| entry.mountpoint == mountpoint).unwrap();
    let (major, minor) = entry.device;
    std::fs::write(format!("/sys/class/bdi/{major}:{minor}/strict_limit"), "0").unwrap();
}

fn sync_and_unmount(mounted: Mounted) {
    if let Err(error) = mounted.client().request(&Request::FilesystemSync) {
        assert!(error.to_string().contains("No space"), "{error}");
    }
    mounted.unmount();
}

fn fill_an_image(options: &str, writers: u8, block: usize, is_strict: bool) {
    let rig = Rig::new(IMAGE_MEGABYTES);
    let mounted = rig.mount(options);
    if !is_strict {
        turn_strict_limit_off(&rig.mountpoint);
    }
    let free = available(&rig.mountpoint);
    let written = fill_together(&rig.mountpoint, writers, block, ENDLESS);
    let accepted: u64 = written.iter().map(|writer| writer.accepted_bytes).sum();
    let longest = written.iter().map(|writer| writer.took).max().unwrap_or_default();
    let told = written.iter().filter(|writer| writer.sync_error.is_some()).count();
    eprintln!(
        "{options:12} strict {is_strict:5} writers {writers} block {block:8}: {:6.2} s, accepted {accepted}, free {free}, \
         over by {}, told at fsync {told}",
        longest.as_secs_f64(),
        accepted.saturating_sub(free),
    );
    let what = format!("{options}, strict {is_strict}: {written:?}");
    let no_space = Some(Errno::NOSPC.raw_os_error());
    assert!(written.iter().all(|writer| writer.write_error == no_space), "{what}");
    assert!(longest < LONGEST, "{what}");
    assert!(accepted <= free + SLACK_BYTES + u64::from(writers) * block as u64, "{what}");
    sync_and_unmount(mounted);
    btrfs_check_data(&rig.image).unwrap();
    let mounted = rig.mount("ro");
    written.iter().for_each(is_there_or_told);
    mounted.unmount();
}

#[test]
#[ignore = "it takes minutes, and changes the machine's limits of dirty pages"]
fn every_kind_of_writer_is_told_in_time() {
    require!(Root, Fuse, Tool("mkfs.btrfs"), Tool("btrfs"));
    for is_strict in [true, false] {
        let _limits = (!is_strict).then(|| DirtyLimits::raise_to(8 << 30));
        for writers in [1, 8] {
            for block in [4 << 10, 1 << 20, 64 << 20] {
                fill_an_image("", writers, block, is_strict);
            }
        }
    }
    for options in ["threads=1", "threads=2", "writeback=off"] {
        fill_an_image(options, 8, 1 << 20, true);
    }
}
