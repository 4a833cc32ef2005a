//! The images that are changed: small ones that the kernel filled, each made by other options of mkfs.btrfs.

use std::path::Path;
use std::process::Command;

use vlinder_device::MemoryDevice;
use vlinder_format::Logical;

use crate::kernel::{KernelMount, btrfs_check};
use crate::mutator::Mutator;
use crate::scratch::Scratch;

/// How an image is made.
#[derive(Clone, Copy, Debug)]
pub struct BenchRecipe {
    /// What it is called.
    pub name: &'static str,
    mkfs: &'static [&'static str],
    mount: &'static str,
    /// What is done at last.
    last: Last,
}

/// What is done with an image at last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// It is unmounted.
    Unmounted,
    /// Quotas are turned on and counted before.
    Counted,
    /// Files are synchronized, and the image is as a cut of power leaves it.
    Logged,
}

/// All of them.
pub const RECIPES: &[BenchRecipe] = &[
    BenchRecipe {
        name: "low nodes, quotas",
        mkfs: &["-n", "4096", "-m", "single", "-d", "single"],
        mount: "",
        last: Last::Counted,
    },
    BenchRecipe { name: "as mkfs makes it", mkfs: &[], mount: "", last: Last::Unmounted },
    BenchRecipe {
        name: "as 2012 made it",
        mkfs: &[
            "-n",
            "4096",
            "-m",
            "dup",
            "-O",
            "^no-holes,^skinny-metadata,^extref",
            "-R",
            "^free-space-tree",
        ],
        mount: "space_cache=v1",
        last: Last::Unmounted,
    },
    BenchRecipe {
        name: "with a log",
        mkfs: &["-n", "4096", "-m", "single", "-d", "single"],
        mount: "",
        last: Last::Logged,
    },
    BenchRecipe {
        name: "mixed groups, xxhash",
        mkfs: &["-n", "4096", "--mixed", "--csum", "xxhash"],
        mount: "",
        last: Last::Unmounted,
    },
];

/// What the kernel tells of the mounts that fill the images.
const KERNEL_LINES: &[&str] = &[
    "BTRFS info (device *): setting incompat feature flag for *",
    "BTRFS info (device *): qgroup scan completed*",
];

impl BenchRecipe {
    /// Makes the image; `btrfs check` has nothing to say of it.
    ///
    /// # Errors
    /// What a program said that failed.
    pub fn make(&self) -> Result<MemoryDevice, String> {
        let scratch = Scratch::in_memory("judges");
        let (path, cut) = (scratch.join("image"), scratch.join("cut"));
        let mount = self.fill(&path)?;
        let made = if self.last == Last::Logged {
            std::fs::copy(&path, &cut).map_err(|error| error.to_string())?;
            cut
        } else {
            path
        };
        mount.unmount().map_err(|error| error.to_string())?;
        btrfs_check(&made).map_err(|error| error.to_string())?;
        let bytes = std::fs::read(&made).map_err(|error| error.to_string())?;
        let image = MemoryDevice::from_bytes(&bytes);
        let has_log = Mutator::new(&image).superblock.log_root != Logical(0);
        if has_log != (self.last == Last::Logged) {
            return Err(format!("{}: there is a log: {has_log}", self.name));
        }
        Ok(image)
    }

    fn fill(&self, path: &Path) -> Result<KernelMount, String> {
        let file = std::fs::File::create(path).map_err(|error| error.to_string())?;
        file.set_len(256 << 20).map_err(|error| error.to_string())?;
        run(Command::new("mkfs.btrfs").arg("-q").args(self.mkfs).arg(path))?;
        let mount = KernelMount::of(&[path], self.mount, KERNEL_LINES).map_err(|error| error.to_string())?;
        let script = match self.last {
            Last::Unmounted => "",
            Last::Counted => COUNT,
            Last::Logged => LOG,
        };
        for script in [include_str!("fill.sh"), script] {
            run(Command::new("sh").args(["-ec", script]).current_dir(mount.path()))?;
        }
        Ok(mount)
    }
}

const COUNT: &str = "btrfs quota enable .; btrfs quota rescan -w . > /dev/null; btrfs qgroup create 1/0 .
    btrfs qgroup assign --no-rescan 0/256 1/0 . 2> /dev/null || true; btrfs qgroup limit 1G 1/0 .
    btrfs quota rescan -w . > /dev/null; sync -f .";

/// A chunk that is made meanwhile would make fsync commit, and the kernel makes one for the first extent of
/// each class of sizes.
const LOG: &str = "for size in 64K 1M 9M; do dd if=/dev/urandom of=.filler bs=$size count=1 status=none; sync -f .; done
    dd if=/dev/urandom of=d/file bs=4096 count=5 seek=7 conv=notrunc,fsync status=none
    echo new > d/new; ln d/new d/again; setfattr -n user.log -v logged d/new; sync d/new; dd if=/dev/urandom of=d/more bs=4096 count=3 conv=fsync status=none";

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
}
