//! Logs made by the kernel: two scripts run in a mount of the kernel's with a commit between them, and the
//! image is copied under the mount, as a power cut would leave it.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::image;
use vlinder_base::clock::{Clock, SystemClock};
use vlinder_format::inode::Timestamp;
use vlinder_testkit::Scratch;
use vlinder_testkit::kernel::{LoopDevice, unmount};

/// Functions of the scripts.
const PRELUDE: &str = r#"
set -e
fsync() { for file; do xfs_io -c fsync "$file" > /dev/null; done; }
fdatasync() { for file; do xfs_io -c fdatasync "$file" > /dev/null; done; }
# write FILE OFFSET LENGTH [BYTE]
write() { xfs_io -f -c "pwrite -S ${4:-0xaa} $2 $3" "$1" > /dev/null; }
# io FILE COMMAND...
io() { local file=$1; shift; local all=(); for one; do all+=(-c "$one"); done; xfs_io -f "${all[@]}" "$file" > /dev/null; }
exchange() { perl -e 'exit(syscall(316, -100, $ARGV[0], -100, $ARGV[1], 2) != 0)' "$1" "$2"; }
"#;

/// Runs a script in a directory; it must end well.
pub fn run(directory: &Path, script: &str) {
    let output = Command::new("bash")
        .arg("-c")
        .arg(format!("{PRELUDE}\n{script}"))
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Copies an image, sparse.
pub fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("--sparse=always").arg(from).arg(to).output().unwrap();
    assert!(copied.status.success(), "{copied:?}");
}

/// Whether the primary superblock names a log.
pub fn has_log(image: &Path) -> bool {
    let mut field = [0; 8];
    let file = std::fs::File::open(image).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut field, 65_536 + 96).unwrap();
    field != [0; 8]
}

/// A mount for making a log; nobody is asked to check the image meanwhile.
struct Maker {
    _device: LoopDevice,
    directory: Scratch,
}

impl Maker {
    fn new(image: &Path, options: &str) -> Self {
        let device = LoopDevice::attach(image).unwrap();
        let directory = Scratch::new("log-maker");
        let options = format!("commit=600{}{options}", if options.is_empty() { "" } else { "," });
        let mut command = Command::new("mount");
        command.args(["-t", "btrfs", "-o", &options]).arg(device.node()).arg(directory.path());
        assert!(command.status().unwrap().success());
        Maker { _device: device, directory }
    }
}

impl Drop for Maker {
    fn drop(&mut self) {
        if let Err(error) = unmount(self.directory.path()) {
            eprintln!("{} stays mounted: {error}", self.directory.path().display());
        }
    }
}

/// The image as a cut after the second script leaves it, and a moment after everything in it.
pub fn make_log(
    scratch: &Scratch,
    mkfs: &[&str],
    mount: &str,
    before: &str,
    after: &str,
) -> (PathBuf, Timestamp) {
    let made = image(scratch, 256, mkfs);
    let maker = Maker::new(&made, mount);
    // A chunk that is made meanwhile would make fsync commit, and the kernel makes one for the first extent
    // of each class of sizes (up to 128 KiB, up to 8 MiB, above).
    run(maker.directory.path(), "for size in 64k 1m 9m; do write .filler$size 0 $size; sync -f .; done");
    run(maker.directory.path(), before);
    run(maker.directory.path(), "sync -f .");
    run(maker.directory.path(), after);
    let cut = scratch.join("cut");
    copy(&made, &cut);
    drop(maker);
    std::fs::remove_file(&made).unwrap();
    let now = SystemClock::new().now();
    (cut, Timestamp { seconds: now.seconds, nanoseconds: now.nanoseconds })
}
