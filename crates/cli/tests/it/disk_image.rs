//! The script in `examples/disk` that makes a disk which boots: by an ordinary user, from an archive.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{end, run, tool};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, require};

const UUID: &str = "0f5ce0a8-9e9b-4a52-8c07-1d0e6fd4a3c1";

/// An archive of a tree with what the script looks for: a kernel, an initial ramdisk, owners.
fn tree(scratch: &Scratch) -> PathBuf {
    let root = scratch.join("tree");
    for directory in ["boot", "etc", "home/user", "var/log", "usr/bin"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    std::fs::write(root.join("boot/vmlinuz-6.1.0-1-amd64"), [7; 9000]).unwrap();
    std::fs::write(root.join("boot/initrd.img-6.1.0-1-amd64"), [8; 90_000]).unwrap();
    std::fs::write(root.join("usr/bin/program"), vec![9; 3 << 20]).unwrap();
    let archive = scratch.join("tree.tar");
    let owners = ["--owner=1234", "--group=5678", "--sort=name", "--mtime=@1700000000"];
    let mut arguments: Vec<&str> = owners.to_vec();
    arguments.extend(["-C", root.to_str().unwrap(), "-cf", archive.to_str().unwrap(), "."]);
    tool("tar", arguments);
    archive
}

fn make(disk: &Path, tree: &Path, loader: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/disk/bootable.sh");
    let mut command = Command::new(script);
    command.args([disk, tree]).env("VLINDER", env!("CARGO_BIN_EXE_vlinder")).env("LOADER", loader);
    command.env("UUID", UUID).env("SIZE", "600M");
    end(&mut command).done();
}

/// The first byte of the partition with Btrfs, and how many it has, as sfdisk tells.
fn root_partition(table: &str) -> (u64, u64) {
    let line = table.lines().find(|line| line.contains(&UUID.to_uppercase())).unwrap();
    let sectors = |name: &str| -> u64 {
        let (_, rest) = line.split_once(name).unwrap();
        rest.split(',').next().unwrap().trim().parse().unwrap()
    };
    (sectors("start=") * 512, sectors("size=") * 512)
}

#[test]
fn a_disk_that_boots_is_made_without_privileges() {
    require!(Tool("sfdisk"), Tool("mformat"), Tool("tar"));
    let scratch = Scratch::new("disk-image");
    let (tree, loader) = (tree(&scratch), scratch.join("loader.efi"));
    std::fs::write(&loader, [5; 70_000]).unwrap();
    let disk = scratch.join("disk.raw");
    make(&disk, &tree, &loader);
    let disk_text = disk.to_str().unwrap();
    let listed = run(["ls", "-l", &format!("{disk_text}:/usr/bin")]).done().text();
    assert!(listed.contains("1234") && listed.contains("5678"), "{listed}");
    run(["check", &format!("{disk_text}@2")]).done();
    let table = tool("sfdisk", ["--dump", disk_text]);
    assert!(table.contains("C12A7328-F81F-11D2-BA4B-00A0C93EC93B"), "{table}");
    let entry = tool("mtype", ["-i", &format!("{disk_text}@@1M"), "::/loader/entries/system.conf"]);
    assert!(entry.contains(&format!("root=UUID={UUID}")), "{entry}");
    require!(KernelBtrfs, Tool("btrfs"));
    let (start, length) = root_partition(&table);
    let mount = KernelMount::of_part(&disk, start, length, "").unwrap();
    mount.scrub().unwrap();
    let subvolumes = tool("btrfs", ["subvolume", "list", mount.path().to_str().unwrap()]);
    assert!(subvolumes.contains("path home") && subvolumes.contains("path var"), "{subvolumes}");
    let fstab = std::fs::read_to_string(mount.path().join("etc/fstab")).unwrap();
    assert!(fstab.contains(UUID), "{fstab}");
    assert_eq!(std::fs::read(mount.path().join("usr/bin/program")).unwrap(), vec![9; 3 << 20]);
}
