//! The command lines by which builders of images call mkfs.btrfs, and systemd-repart itself.

use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, require};

use crate::common::{Ended, end, run, target, tool, vlinder};

/// A directory with mkfs.btrfs in it, for PATH.
fn program(scratch: &Scratch) -> std::path::PathBuf {
    let directory = scratch.join("bin");
    std::fs::create_dir(&directory).unwrap();
    symlink(vlinder().get_program(), directory.join("mkfs.btrfs")).unwrap();
    directory
}

fn source(scratch: &Scratch) -> std::path::PathBuf {
    let source = scratch.join("root");
    std::fs::create_dir_all(source.join("var/log")).unwrap();
    std::fs::create_dir_all(source.join("usr/bin")).unwrap();
    std::fs::write(source.join("usr/bin/tool"), vec![b'x'; 300_000]).unwrap();
    std::fs::write(source.join("var/log/journal"), vec![b'y'; 100_000]).unwrap();
    source
}

/// Runs a line of sh with mkfs.btrfs in PATH, where `root` is a source and `image` is there, sparse.
fn line(scratch: &Scratch, words: &str) -> Ended {
    let image = std::fs::File::create(scratch.join("image")).unwrap();
    image.set_len(256 << 20).unwrap();
    let path = format!("{}:{}", scratch.join("bin").display(), std::env::var("PATH").unwrap());
    end(Command::new("sh").args(["-c", words]).current_dir(scratch.path()).env("PATH", path))
}

const UUID: &str = "11111111-2222-3333-4444-555555555555";

#[test]
fn command_lines_of_builders_make_what_they_ask_for() {
    let scratch = Scratch::new("builders");
    program(&scratch);
    source(&scratch);
    let cat = |path: &str| run(["cat", &target(&scratch.join("image"), path)]).done().out;
    for words in [
        // systemd-repart up to 257, and from 258.
        &format!("mkfs.btrfs -q -L root -U {UUID} --nodiscard -r root image"),
        &format!(
            "mkfs.btrfs -q -L root -U {UUID} --nodiscard -r root --sectorsize 4096 --compress zstd:3 image"
        ),
        &format!(
            "mkfs.btrfs -L root -U {UUID} -q -r root --subvol rw:var --subvol ro:usr --subvol default:var/log \
             --inode-flags nodatacow:/var/log image"
        ),
        // Yocto's image types, and wic.
        "mkfs.btrfs -n 4096 --shrink -r root image",
        "mkfs.btrfs -b 209715200 -r root -L platform image",
        "mkfs.btrfs -b 209715200 -r root -L platform -U random image",
        // Buildroot.
        "mkfs.btrfs -f -r root -L '' --byte-count '128m' --nodesize '16k' --sectorsize '4k' image",
        "mkfs.btrfs -f -r root -L 'x' --byte-count '128m' --nodesize '16k' --sectorsize '4k' --features '^no-holes' image",
    ] {
        let ended = line(&scratch, words);
        assert_eq!(ended.code, 0, "{words}: {}", ended.err);
        let default_is_log = words.contains("default:");
        let tool = if default_is_log { "/journal" } else { "/usr/bin/tool" };
        assert!(cat(tool).len() >= 100_000, "{words}");
    }
    for words in [
        // osbuild, virt-make-fs and guestfish; systemd-repart without files.
        &format!("mkfs.btrfs -U {UUID} -L data image"),
        &format!("mkfs.btrfs -U {UUID} -L data -m dup image"),
        "mkfs.btrfs --force --data single --metadata single --label data --nodesize 16384 --sectorsize 4096 image",
        "mkfs.btrfs -f --byte-count 209715200 image",
    ] {
        let ended = line(&scratch, words);
        assert_eq!(ended.code, 0, "{words}: {}", ended.err);
    }
    let ended = line(&scratch, "mkfs.btrfs -q -L x --compress zstd:3 image");
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.contains("nothing is copied"), "{}", ended.err);
    run(["ls", &target(&scratch.join("image"), "/")]).done();
}

#[test]
fn a_flock_of_others_is_no_use_of_the_image() {
    require!(Tool("flock"));
    let scratch = Scratch::new("builders-flock");
    program(&scratch);
    let ended = line(&scratch, "exec 9<>image; flock -x 9; mkfs.btrfs -q image");
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    let image = std::fs::File::open(scratch.join("image")).unwrap();
    rustix::fs::flock(image.as_fd(), rustix::fs::FlockOperation::LockExclusive).unwrap();
    run(["mkdir", &target(&scratch.join("image"), "/a")]).done();
}

/// Attaches a loop device, which goes with the value.
struct Loop(String);

impl Loop {
    fn over(image: &Path) -> Self {
        Self(tool("losetup", ["-f", "--show", image.to_str().unwrap()]).trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn a_block_device_that_udev_is_kept_from_is_filled() {
    require!(LoopDevices, Tool("flock"), Tool("losetup"));
    let scratch = Scratch::new("builders-loop");
    program(&scratch);
    source(&scratch);
    std::fs::File::create(scratch.join("disk")).unwrap().set_len(256 << 20).unwrap();
    let device = Loop::over(&scratch.join("disk"));
    // As systemd-repart holds it.
    let words = format!("exec 9<>{0}; flock -x 9; mkfs.btrfs -q -r root {0}", device.0);
    let ended = line(&scratch, &words);
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
    assert_eq!(run(["cat", &target(Path::new(&device.0), "/var/log/journal")]).done().out.len(), 100_000);
    // A writer by another name of the same bytes is met all the same.
    let lock = vlinder_device::FileDevice::open(Path::new(&device.0), &vlinder_device::OpenOptions::writer());
    let lock = lock.unwrap();
    for name in [Path::new(&device.0), &scratch.join("disk")] {
        run(["mkdir", &target(name, "/new")]).failed(1, &["in use"]);
        run(["ls", &target(name, "/")]).failed(1, &["in use by process"]);
    }
    drop(lock);
    run(["ls", &target(&scratch.join("disk"), "/")]).done();
}

#[test]
fn systemd_repart_fills_its_partitions_by_our_mkfs() {
    require!(KernelBtrfs, Tool("systemd-repart"), Tool("sfdisk"));
    let scratch = Scratch::new("builders-repart");
    let bin = program(&scratch);
    let source = source(&scratch);
    let definitions = scratch.join("definitions");
    std::fs::create_dir(&definitions).unwrap();
    let definition = format!(
        "[Partition]\nType=root\nFormat=btrfs\nSizeMinBytes=256M\nSizeMaxBytes=256M\nCopyFiles={}:/\n",
        source.display()
    );
    std::fs::write(definitions.join("10-root.conf"), definition).unwrap();
    let disk = scratch.join("disk.raw");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut repart = Command::new("systemd-repart");
    repart.env("PATH", path).args(["--empty=create", "--size=300M", "--dry-run=no", "--no-pager"]);
    repart.arg(format!("--definitions={}", definitions.display())).arg(&disk);
    let ended = end(&mut repart);
    assert_eq!(ended.code, 0, "{}{}", ended.text(), ended.err);
    // The table of partitions tells where it lies.
    let table: serde_json::Value =
        serde_json::from_str(&tool("sfdisk", ["--json", disk.to_str().unwrap()])).unwrap();
    let partition = &table["partitiontable"]["partitions"][0];
    let (start, size) = (partition["start"].as_u64().unwrap(), partition["size"].as_u64().unwrap());
    let part = scratch.join("part");
    let (from, to) = (format!("if={}", disk.display()), format!("of={}", part.display()));
    tool("dd", [&from, &to, "bs=512", &format!("skip={start}"), &format!("count={size}"), "status=none"]);
    let mount = KernelMount::new(&part, "ro").unwrap();
    assert_eq!(std::fs::read(mount.path().join("var/log/journal")).unwrap(), vec![b'y'; 100_000]);
    mount.unmount().unwrap();
}
