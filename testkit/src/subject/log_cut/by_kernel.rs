//! The kernel replays a log, too, and must come to the same.

use std::path::Path;

use vlinder_base::sync::Mutex;
use vlinder_device::MemoryDevice;

use crate::Scratch;
use crate::kernel::{KernelMount, btrfs_check_data};
use crate::subject::judge::own_check_all;
use crate::subject::memory_image::write_image;
use crate::walk::{self, walk};

/// What the kernel says then; the superblock that names a log is of the commit, so a compression may be new
/// to it.
const REPLAYS: &[&str] = &[
    "BTRFS info (device DEVICE): start tree-log replay",
    "BTRFS info (device DEVICE): setting incompat feature flag for COMPRESS_*",
];

/// Shows the kernel a cut image and what our replay made of it, both only where both checks are content.
///
/// # Errors
/// A difference, or a complaint.
pub fn judge_by_kernel(scratch: &Scratch, cut: &MemoryDevice, replayed: &MemoryDevice) -> Result<(), String> {
    // All images of a workload have one UUID, and the kernel mounts only one of a UUID at a time.
    static KERNEL: Mutex<()> = Mutex::new(());
    let _kernel = KERNEL.lock();
    let (theirs, ours) = (scratch.join("theirs"), scratch.join("ours"));
    write_image(cut, &theirs);
    write_image(replayed, &ours);
    for (what, image) in [("with the log", &theirs), ("after our replay", &ours)] {
        both(image).map_err(|error| format!("{what}: {error}"))?;
    }
    let by_kernel = walk_of(&theirs, REPLAYS).map_err(|error| format!("the kernel's replay: {error}"))?;
    both(&theirs).map_err(|error| format!("after the kernel's replay: {error}"))?;
    let by_us = walk_of(&ours, &[]).map_err(|error| format!("the kernel after our replay: {error}"))?;
    walk::compare(&by_kernel, &by_us)
        .map_err(|error| format!("the kernel's replay (expected) and ours differ: {error}"))
}

fn both(image: &Path) -> Result<(), String> {
    own_check_all(&[image])?;
    btrfs_check_data(image).map_err(|error| error.to_string())
}

fn walk_of(image: &Path, allowed: &[&str]) -> Result<String, String> {
    let mount = KernelMount::of(&[image], "subvolid=5", allowed).map_err(|error| error.to_string())?;
    let entries = walk(mount.path(), &walk::Options::default()).map_err(|error| error.to_string())?;
    let entries = crate::subject::without_placeholder_times(mount.path(), entries);
    mount.unmount().map_err(|error| error.to_string())?;
    Ok(walk::render(&entries))
}
