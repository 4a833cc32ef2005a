//! What the tests of the judge share: images that the kernel filled, and what is found in them.

pub mod expected;
pub mod items;

use std::path::{Path, PathBuf};
use std::process::Command;

use vlinder_base::sync::Arc;
use vlinder_check::{Finding, FindingKind, Options, Report, check};
use vlinder_device::{Device, MemoryDevice};
use vlinder_format::{Key, Place, RootId};
use vlinder_testkit::Scratch;
use vlinder_testkit::kernel::{KernelMount, btrfs_check};
use vlinder_testkit::mutator::{Found, Mutator};

/// An image that mkfs.btrfs made with these arguments and the kernel filled with this script, in memory.
pub fn image(arguments: &[&str], fill: &str) -> MemoryDevice {
    let (_scratch, path) = filled(arguments, fill, &[]);
    btrfs_check(&path).unwrap();
    load(&path)
}

/// The same of what btrfs-progs 6.2 can't judge: the kernel, which made it, is the judge. These lines of its
/// log are no matter.
pub fn image_of_kernel(arguments: &[&str], fill: &str, allowed: &[&str]) -> MemoryDevice {
    let (_scratch, path) = filled(arguments, fill, allowed);
    load(&path)
}

/// The same as it is on disk before it is unmounted: what was synced since the last commit is in the log.
pub fn image_with_log(arguments: &[&str], fill: &str) -> MemoryDevice {
    let scratch = Scratch::new("check");
    let path = scratch.join("image");
    let mount = mkfs(&path, arguments, &[]);
    run(&mount, fill);
    let cut = load(&path);
    mount.unmount().unwrap();
    btrfs_check(&path).unwrap();
    cut
}

fn filled(arguments: &[&str], fill: &str, allowed: &[&str]) -> (Scratch, PathBuf) {
    let scratch = Scratch::new("check");
    let path = scratch.join("image");
    let mount = mkfs(&path, arguments, allowed);
    run(&mount, fill);
    mount.unmount().unwrap();
    (scratch, path)
}

/// Makes a file system, and mounts it.
fn mkfs(path: &Path, arguments: &[&str], allowed: &[&str]) -> KernelMount {
    std::fs::File::create(path).unwrap().set_len(256 << 20).unwrap();
    let made = Command::new("mkfs.btrfs").arg("-q").args(arguments).arg(path).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    KernelMount::of(&[path], "", allowed).unwrap()
}

/// Runs a script in a mount.
fn run(mount: &KernelMount, script: &str) {
    let ran = Command::new("sh").args(["-ec", script]).current_dir(mount.path()).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
}

/// An image, in memory.
fn load(path: &Path) -> MemoryDevice {
    MemoryDevice::from_bytes(&std::fs::read(path).unwrap())
}

/// What is found, but for what mkfs.btrfs 6.2 leaves behind. The same must be found with next to nothing of
/// the lists in memory.
pub fn report_of(device: Arc<dyn Device>, options: &Options<'_>) -> Report {
    let mut report = check(vec![Arc::clone(&device)], options).unwrap();
    for lists_bytes in [0, 15 * 7 * 16] {
        let temporary: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
        let on_disk = Options { temporary: Some(&temporary), lists_bytes: Some(lists_bytes), ..*options };
        assert_eq!(
            check(vec![Arc::clone(&device)], &on_disk).unwrap(),
            report,
            "{lists_bytes} bytes in memory"
        );
    }
    report.findings.retain(|finding| finding.kind.id() != "free-space-leftover");
    report
}

/// What is found in an image.
pub fn report(mutator: &Mutator) -> Report {
    report_of(mutator.device(), &Options::default())
}

/// The same, without what was counted on the way.
pub fn findings(mutator: &Mutator) -> Vec<Finding> {
    report(mutator).findings
}

/// Just this must be among what is found.
#[track_caller]
pub fn assert_found(mutator: &Mutator, kind: FindingKind, place: Place) {
    let (found, expected) = (findings(mutator), Finding { kind, place });
    assert!(found.contains(&expected), "{expected:?}\nis not among {found:#?}");
}

/// The place of an item.
pub fn place(tree: RootId, found: Found) -> Place {
    Place {
        tree: Some(tree),
        block: Some(found.leaf),
        slot: u32::try_from(found.slot).ok(),
        key: Some(found.key),
    }
}

/// The place of an item that was put in.
pub fn place_of(mutator: &Mutator, tree: RootId, key: Key) -> Place {
    place(tree, mutator.find(tree, |other, _| other == key))
}
