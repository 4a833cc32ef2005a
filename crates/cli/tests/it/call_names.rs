//! The names that the binary can be called by: each behaves as the program of that name.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ended, end, make_image, run, tool};
use vlinder_testkit::kernel::{KernelMount, btrfs_check};
use vlinder_testkit::{Scratch, require};

/// The binary under another name.
fn called(scratch: &Scratch, name: &str) -> PathBuf {
    let link = scratch.join(name);
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_vlinder"), &link).unwrap();
    }
    link
}

/// Calls it, as `btrfs` where no other program of its name is in PATH.
fn call<const N: usize>(scratch: &Scratch, name: &str, arguments: [&str; N]) -> Ended {
    let mut command = Command::new(called(scratch, name));
    command.args(arguments).env("TZ", "UTC");
    if name == "btrfs" {
        command.env("PATH", "/nowhere");
    }
    end(&mut command)
}

#[test]
fn btrfs_answers_on_images_and_mounts_as_btrfs_progs_does() {
    require!(KernelBtrfs, Fuse, Tool("btrfs"), Tool("mkfs.btrfs"));
    let scratch = Scratch::new("call-btrfs");
    let (image, point) = (scratch.join("disk.img"), scratch.join("mount"));
    // Made and filled by Linux, so that both sides look at what neither made for the other.
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    tool("mkfs.btrfs", ["-q", "-L", "a label", image.to_str().unwrap()]);
    let mount = KernelMount::new(&image, "").unwrap();
    let at = |path: &str| mount.path().join(path).to_str().unwrap().to_owned();
    tool("btrfs", ["subvolume", "create", &at("sub")]);
    std::fs::write(at("sub/file"), vec![5; 3_000_000]).unwrap();
    tool("btrfs", ["subvolume", "snapshot", "-r", &at("sub"), &at("shot")]);
    tool("btrfs", ["filesystem", "sync", &at("")]);
    let calls: [&[&str]; 12] = [
        &["filesystem", "df", ""],
        &["filesystem", "df", "-b", ""],
        &["fi", "us", "-b", ""],
        &["filesystem", "usage", "-T", "-m", ""],
        &["filesystem", "label", ""],
        &["subvolume", "list", ""],
        &["subvolume", "list", "-t", "-s", ""],
        &["subvolume", "show", "shot"],
        &["subvolume", "get-default", ""],
        &["property", "get", "shot"],
        &["inspect-internal", "rootid", "sub/file"],
        &["inspect-internal", "inode-resolve", "257", "sub"],
    ];
    let words = |call: &[&str], root: &str| -> Vec<String> {
        let (last, first) = call.split_last().unwrap();
        let last = [root, last].join("/");
        let last = last.trim_end_matches('/').to_owned();
        first.iter().map(|word| (*word).to_owned()).chain([last]).collect()
    };
    let (kernel, device) =
        (mount.path().to_str().unwrap().to_owned(), mount.device().to_str().unwrap().to_owned());
    let plain = |text: String, places: [&str; 2]| -> Vec<String> {
        let text = places.iter().fold(text, |text, place| text.replace(place, "X"));
        let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        // Rules are as wide as the device's name; btrfs-progs 6.2 shows the time of creation as that of
        // sending where the disk has none.
        lines.filter(|line| !line.starts_with("-- -") && !line.starts_with("Send time:")).collect()
    };
    let theirs: Vec<_> =
        calls.iter().map(|one| plain(tool("btrfs", words(one, &kernel)), [&kernel, &device])).collect();
    mount.unmount().unwrap();
    std::fs::create_dir(&point).unwrap();
    run([Path::new("mount"), Path::new("-o"), Path::new("ro"), &image, &point]).done();
    let (point, image) = (point.to_str().unwrap(), image.to_str().unwrap());
    let ours: Vec<_> = calls
        .iter()
        .map(|one| {
            let ended = end(Command::new(called(&scratch, "btrfs")).args(words(one, point)).env("TZ", "UTC"));
            plain(format!("{}{}", ended.text(), ended.err), [point, image])
        })
        .collect();
    run(["umount", point]).done();
    for ((call, ours), theirs) in calls.iter().zip(ours).zip(theirs) {
        assert_eq!(ours, theirs, "{call:?}");
    }
    // What btrfs-progs does not have is not there, and its exit codes are its own.
    call(&scratch, "btrfs", ["ls", image]).failed(1, &["unrecognized subcommand", "ls"]);
    call(&scratch, "btrfs", ["subvolume", "show", "/nowhere"]).failed(1, &["/nowhere"]);
}

#[test]
fn mkfs_btrfs_satisfies_btrfs_progs_and_takes_its_flags() {
    require!(Tool("btrfs"));
    let scratch = Scratch::new("call-mkfs");
    let image = scratch.join("disk.img");
    let path = image.to_str().unwrap();
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    call(
        &scratch,
        "mkfs.btrfs",
        ["-q", "-L", "name", "-n", "4096", "--csum", "xxhash", "-O", "^block-group-tree", path],
    )
    .done();
    btrfs_check(&image).unwrap();
    let shown = tool("btrfs", ["inspect-internal", "dump-super", path]);
    for word in ["label\t\t\tname", "nodesize\t\t4096", "xxhash64"] {
        assert!(shown.contains(word), "{word:?} is not in {shown}");
    }
    call(&scratch, "mkfs.btrfs", [path]).failed(1, &[path, "-f"]);
    call(&scratch, "mkfs.btrfs", ["--frob", path]).failed(1, &["--frob"]);
    assert!(call(&scratch, "mkfs.btrfs", ["-V"]).done().text().starts_with("mkfs.btrfs"));
}

#[test]
fn examples_and_messages_speak_of_the_name_that_was_called() {
    let scratch = Scratch::new("call-examples");
    let help = call(&scratch, "mkfs.btrfs", ["--help"]).done().text();
    assert!(help.contains("\n  mkfs.btrfs -b 1G disk.img") && !help.contains("\n  vlinder"), "{help}");
    let help = call(&scratch, "btrfs", ["subvolume", "create", "--help"]).done().text();
    assert!(help.contains("\n  btrfs subvolume create") && !help.contains("\n  vlinder"), "{help}");
    call(&scratch, "btrfs", ["fi", "show"])
        .failed(1, &["ERROR: filesystem show is not there yet", "btrfs --help"]);
}

#[test]
fn the_version_is_that_of_btrfs_progs_first() {
    let scratch = Scratch::new("call-version");
    // Incus reads `X vN`, timeshift and btrbk compare the number.
    let expected = format!("btrfs-progs v6.19\nvlinder {}\n", env!("CARGO_PKG_VERSION"));
    for word in ["version", "--version"] {
        assert_eq!(call(&scratch, "btrfs", [word]).done().text(), expected);
    }
    let told = call(&scratch, "btrfs", ["--json", "version"]).done().json();
    assert_eq!((&told["schema"], &told["progs"]), (&"vlinder.version/1".into(), &"6.19".into()));
}

#[test]
fn fsck_btrfs_does_nothing_as_the_original() {
    let scratch = Scratch::new("call-fsck");
    let image = scratch.join("disk.img");
    make_image(&image);
    let path = image.to_str().unwrap();
    let before = std::fs::read(&image).unwrap();
    for flag in ["-a", "-A", "-p", "-y"] {
        assert_eq!(call(&scratch, "fsck.btrfs", [flag, path]).done().text(), "");
    }
    assert!(call(&scratch, "fsck.btrfs", [path]).done().text().contains("vlinder check"));
    assert!(std::fs::read(&image).unwrap() == before);
    call(&scratch, "fsck.btrfs", ["-a", "/nowhere"]).failed(8, &["/nowhere does not exist"]);
    call(&scratch, "fsck.btrfs", []).failed(8, &["no device"]);
}

#[test]
fn mount_fuse_vlinder_is_called_as_mount_calls_it() {
    require!(Fuse, Tool("btrfs"));
    let scratch = Scratch::new("call-mount");
    let (image, point) = (scratch.join("disk.img"), scratch.join("mount"));
    make_image(&image);
    std::fs::create_dir(&point).unwrap();
    let (path, place) = (image.to_str().unwrap(), point.to_str().unwrap());
    let helper = "mount.fuse.vlinder";
    // -f only pretends.
    call(&scratch, helper, [path, place, "-f", "-o", "rw"]).done();
    assert!(!std::fs::read_to_string("/proc/self/mounts").unwrap().contains(place));
    // The image's root directory is root's, where others may not write.
    let owners = if rustix::process::geteuid().is_root() { "owners=keep" } else { "owners=me" };
    let options = format!("rw,nosuid,noatime,x-systemd.automount,{owners}");
    call(&scratch, helper, [path, place, "-n", "-o", &options, "-t", "fuse.vlinder"]).done();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(place)).unwrap();
    assert!(line.contains(" fuse.vlinder ") && line.contains("nosuid") && line.contains("noatime"), "{line}");
    std::fs::write(point.join("file"), b"content").unwrap();
    run(["umount", place]).done();
    assert_eq!(run(["cat", &format!("{path}:/file")]).done().text(), "content");
    btrfs_check(&image).unwrap();
    // mount(8): 32, the mount failed; an fstab line's mistake names the option.
    call(&scratch, helper, ["/nowhere/disk.img", place, "-o", "rw"]).failed(32, &["/nowhere/disk.img"]);
    call(&scratch, helper, [path, place, "-o", "frob"]).failed(32, &["frob"]);
}
