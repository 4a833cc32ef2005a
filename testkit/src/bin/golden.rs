//! Makes the golden images in `tests/golden` anew, with the kernel's btrfs:
//! `cargo run -p vlinder-testkit --bin golden`. Needs root, loop devices, btrfs-progs, xfs_io, setfattr and
//! setfacl.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::require::Requirement;
use vlinder_testkit::{Scratch, golden, walk};

/// What the recipes call.
const TOOLS: &[&str] = &["btrfs", "mkfs.btrfs", "mount", "xfs_io", "setfattr", "setfacl", "chattr"];

/// How an image is made.
struct Recipe {
    name: &'static str,
    mkfs: &'static str,
    mount: &'static str,
    /// What is done in the mounted root, after [`FILL`] where that is asked for.
    script: &'static str,
    is_filled: bool,
}

/// Files of every type, names, attributes, times, holes, preallocated and shared extents, subvolumes.
const FILL: &str = r#"
mkdir -p dir/deep/er many links; seq 1 60 > small; seq 1 40000 > text
ln small dir/hard; ln -s ../small dir/link; ln -s "$(printf 'x%.0s' $(seq 900))" dir/long-link
mknod null c 1 3; mknod disk b 8 300; mkfifo pipe; chmod 4755 small; chown 1000:1001 dir/deep
xfs_io -f -c 'pwrite -S 7 0 200k' -c 'pwrite -S 8 1m 100k' -c 'fpunch 64k 32k' holes
xfs_io -f -c 'falloc 0 1m' -c 'pwrite -S 9 128k 64k' prealloc
cp text cloned; sync; xfs_io -c 'reflink text 0 0 131072' cloned; xfs_io -c 'pwrite -S 5 20k 9k' text
setfattr -n user.name -v value small; setfattr -n user.large -v "$(printf 'v%.0s' $(seq 1500))" dir
setfacl -m u:1234:rwx,g:77:r dir/deep; setfacl -d -m u:1234:rx dir/deep; touch dir/deep/inherits
touch -d '1960-01-01 00:00:00.123456789' before; touch -d '2500-06-07 08:09:10.987654321' after
for i in $(seq 200); do ln small "links/$(printf 'n%.0s' $(seq 200))$i"; done
for i in $(seq 800); do echo $i > many/$i; done; for i in $(seq 1 3 800); do rm many/$i; done
: > "$(printf 'odd \t\\ n\303\244me \377')"
btrfs -q subvolume create sub; seq 1 3000 > sub/file; mkdir sub/d; echo in > sub/d/inline
btrfs -q subvolume snapshot -r sub shot; btrfs -q subvolume snapshot sub copy
echo more >> copy/file; rm sub/d/inline; xfs_io -c 'pwrite -S 6 4k 4k' sub/file
btrfs -q subvolume create other; btrfs -q subvolume create other/nested; echo deep > other/nested/file
mv other/nested/file other/nested/renamed
"#;

const RECIPES: &[Recipe] = &[
    Recipe { name: "empty", mkfs: "", mount: "", script: "", is_filled: false },
    Recipe { name: "default", mkfs: "-L golden", mount: "", script: "", is_filled: true },
    Recipe {
        name: "compressed",
        mkfs: "",
        mount: "compress-force=zstd",
        script: "seq 1 30000 > zstd; sync; mount -o remount,compress-force=lzo .; seq 1 30000 > lzo; seq 1 300 > inline-lzo; \
                 sync; mount -o remount,compress-force=zlib .; seq 1 30000 > zlib; seq 1 300 > inline-zlib; \
                 mkdir property; btrfs property set property compression zstd; seq 1 500 > property/file",
        is_filled: true,
    },
    Recipe { name: "nodes-4k-holes", mkfs: "-n 4096 -O ^no-holes", mount: "", script: "", is_filled: true },
    Recipe {
        name: "nodes-64k-xxhash",
        mkfs: "-n 65536 --csum xxhash -m single",
        mount: "",
        script: "",
        is_filled: true,
    },
    Recipe {
        name: "old-features",
        mkfs: "-n 4096 -m single -O ^skinny-metadata,^no-holes -R ^free-space-tree",
        mount: "space_cache=v1",
        script: "",
        is_filled: true,
    },
    Recipe { name: "sha256-dup", mkfs: "--csum sha256 -d dup", mount: "", script: "", is_filled: true },
    Recipe { name: "blake2-mixed", mkfs: "--csum blake2 -M", mount: "", script: "", is_filled: true },
    Recipe {
        name: "no-cow",
        mkfs: "",
        mount: "nodatacow,max_inline=0",
        script: "touch flagged; chattr +A flagged; xfs_io -c 'pwrite -S 3 8k 4k' holes",
        is_filled: true,
    },
    Recipe {
        name: "default-subvolume",
        mkfs: "",
        mount: "",
        script: "btrfs subvolume set-default sub",
        is_filled: true,
    },
];

fn shell(directory: &Path, script: &str) -> Result<(), Box<dyn Error>> {
    let script = format!("set -e\n{script}");
    let status =
        Command::new("sh").args(["-c", &script]).current_dir(directory).env("LC_ALL", "C").status()?;
    if status.success() { Ok(()) } else { Err(format!("the script failed: {status}").into()) }
}

/// Makes an image; gives its row of the manifest.
fn make(recipe: &Recipe) -> Result<String, Box<dyn Error>> {
    let scratch = Scratch::new("golden");
    let image = scratch.join("image");
    std::fs::File::create(&image)?.set_len(256 << 20)?;
    let mkfs = ["mkfs.btrfs -q", recipe.mkfs, "image"].join(" ").replace("  ", " ");
    shell(scratch.path(), &mkfs)?;
    let mount = KernelMount::new(&image, recipe.mount)?;
    if recipe.is_filled {
        shell(mount.path(), FILL)?;
    }
    shell(mount.path(), recipe.script)?;
    // Not judged by its log: Linux tells there what the script asked it for.
    drop(mount);
    // Cold, and as the default subvolume shows it.
    let mount = KernelMount::new(&image, "ro")?;
    let options = walk::Options { identity: walk::InodeIdentity::NumberAlone, ..Default::default() };
    let walked = walk::render(&walk::walk(mount.path(), &options)?);
    mount.unmount()?;
    std::fs::write(golden::directory().join(format!("{}.walk", recipe.name)), walked)?;
    let hash = golden::pack(&image, recipe.name)?;
    let mount = if recipe.mount.is_empty() { "defaults" } else { recipe.mount };
    Ok(format!("{}\t{hash}\t{mkfs}\tmount -o {mount}", recipe.name))
}

fn main() -> ExitCode {
    // It writes over what it made before, so that it does nothing that was meant otherwise.
    if std::env::args_os().len() > 1 {
        eprintln!("usage: golden   (as root; makes all images of tests/golden anew)");
        return ExitCode::from(2);
    }
    match make_all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("golden: {error}");
            ExitCode::FAILURE
        }
    }
}

fn make_all() -> Result<(), Box<dyn Error>> {
    let needed = TOOLS.iter().map(|name| Requirement::Tool(name)).chain([Requirement::KernelBtrfs]);
    if let Some(missing) = needed.into_iter().find(|one| !one.is_met()) {
        return Err(format!("{missing}; nothing was made").into());
    }
    std::fs::create_dir_all(golden::directory())?;
    let output = |program: &str, argument: &str| -> Result<String, Box<dyn Error>> {
        Ok(String::from_utf8(Command::new(program).arg(argument).output()?.stdout)?.trim().to_owned())
    };
    let mut manifest = format!(
        "# Made by `cargo run -p vlinder-testkit --bin golden` with Linux {} and {}.\n\
         # What is done in the mounted root stands in testkit/src/bin/golden.rs.\n\
         # name\tSHA-256 of the image\thow it was made\thow it was mounted\n",
        output("uname", "-r")?.split('-').next().unwrap_or_default(),
        output("btrfs", "--version")?.lines().next().unwrap_or_default(),
    );
    for recipe in RECIPES {
        let row = make(recipe).map_err(|error| format!("{}: {error}", recipe.name))?;
        println!("{row}");
        writeln!(manifest, "{row}")?;
    }
    std::fs::write(golden::directory().join("manifest.txt"), manifest)?;
    Ok(())
}
