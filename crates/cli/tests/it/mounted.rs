//! Every verb that works on subvolumes and file systems, on paths of a mount.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::thread;

use crate::common::{self, Ended, make_image, run, target, tool};
use vlinder_testkit::kernel::{KernelMount, LoopDevice, btrfs_check_data};
use vlinder_testkit::{Scratch, require};

/// A fresh image on a mount, which ends with the test.
struct Mount {
    image: PathBuf,
    point: PathBuf,
    is_mounted: bool,
    _scratch: Scratch,
}

impl Mount {
    fn new(name: &str) -> Self {
        Self::sized(name, "128M")
    }

    fn sized(name: &str, size: &str) -> Self {
        let scratch = Scratch::new(name);
        let (image, point) = (scratch.join("disk.img"), scratch.join("mount"));
        run([Path::new("mkfs"), Path::new("-q"), Path::new("-b"), Path::new(size), &image]).done();
        std::fs::create_dir(&point).unwrap();
        let mut mount = Self { image, point, is_mounted: false, _scratch: scratch };
        mount.mount();
        mount
    }

    fn mount(&mut self) {
        // A fresh image's root directory is root's, as mkfs.btrfs makes it; others mount it as their own.
        let owners = if rustix::process::geteuid().is_root() { "owners=keep" } else { "owners=me" };
        run([Path::new("mount"), Path::new("-o"), Path::new(owners), &self.image, &self.point]).done();
        self.is_mounted = true;
    }

    fn unmount(&mut self) {
        run([Path::new("umount"), &self.point]).done();
        self.is_mounted = false;
    }

    fn at(&self, path: &str) -> String {
        self.point.join(path).to_str().unwrap().to_owned()
    }

    fn root(&self) -> &str {
        self.point.to_str().unwrap()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_mounted {
            run([Path::new("umount"), &self.point]);
        }
    }
}

#[test]
fn a_use_that_ends_at_once_does_not_keep_a_mount() {
    require!(Fuse);
    let mut mount = Mount::new("brief-use");
    std::fs::write(mount.at("file"), "x").unwrap();
    let held = std::fs::File::open(mount.at("file")).unwrap();
    let closer = thread::spawn("closer", move || {
        thread::sleep(std::time::Duration::from_millis(100));
        drop(held);
    });
    mount.unmount();
    closer.join().unwrap();
}

/// The text without what names the mount or the image.
fn plain(ended: &Ended, mount: &Mount) -> String {
    ended.text().replace(mount.root(), "X").replace(mount.image.to_str().unwrap(), "X")
}

#[test]
fn subvolumes_are_made_shown_snapshotted_and_deleted_on_a_mount() {
    require!(Fuse, Tool("btrfs"));
    let mut mount = Mount::new("mounted-subvolumes");
    let (home, monday) = (mount.at("home"), mount.at("monday"));
    let created = run(["subvolume", "create", &home, &mount.at("other")]).done();
    assert_eq!(plain(&created, &mount), "Create subvolume 'X/home'\nCreate subvolume 'X/other'\n");
    run(["subvolume", "create", &home]).failed(1, &[&home, "exists"]);
    std::fs::write(mount.at("home/file"), vec![5; 300_000]).unwrap();
    let snapshotted = run(["subvolume", "snapshot", "-r", &home, &monday]).done();
    assert_eq!(plain(&snapshotted, &mount), "Create a readonly snapshot of 'X/home' in 'X/monday'\n");
    run(["subvolume", "snapshot", &home, &mount.at("other")]).done();
    std::fs::remove_file(mount.at("home/file")).unwrap();
    assert_eq!(std::fs::read(mount.at("monday/file")).unwrap(), vec![5; 300_000]);
    assert_eq!(std::fs::read(mount.at("other/home/file")).unwrap(), vec![5; 300_000]);
    assert!(std::fs::create_dir(mount.at("monday/new")).is_err());
    run(["mkdir", &mount.at("monday/new")]).failed(1, &["Read-only"]);
    run(["subvolume", "snapshot", &mount.at("other/home/file"), &mount.at("x")])
        .failed(1, &["not a subvolume"]);
    run(["subvolume", "delete", &mount.at("monday/file")]).failed(1, &["not the root of a subvolume"]);
    run(["subvolume", "delete", &mount.at("missing")]).failed(1, &["missing"]);
    let deleted = run(["subvolume", "delete", "-c", &home]).done();
    assert_eq!(plain(&deleted, &mount), "Delete subvolume 256 (commit): 'X/home'\n");
    assert!(!Path::new(&home).exists());
    let synced = run(["subvolume", "sync", mount.root(), "256"]).done();
    assert_eq!(synced.text(), "Subvolume id 256 is gone\n");
    let listed = run(["--json", "subvolume", "list", mount.root()]).done().json();
    let paths = listed["subvolumes"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap());
    assert_eq!(paths.collect::<Vec<_>>(), ["other", "monday", "other/home"]);
    let list = ["subvolume", "list", "-pcguqR"];
    let mounted = run(list.iter().copied().chain([mount.root()])).done();
    let show = run(["subvolume", "show", &monday]).done();
    let default = run(["subvolume", "get-default", mount.root()]).done();
    assert_eq!(default.text(), "ID 5 (FS_TREE)\n");
    mount.unmount();
    let offline = run(list.iter().copied().chain([mount.image.to_str().unwrap()])).done();
    assert_eq!(mounted.text(), offline.text());
    assert_eq!(show.text(), run(["subvolume", "show", &target(&mount.image, "/monday")]).done().text());
    btrfs_check_data(&mount.image).unwrap();
}

#[test]
fn the_default_subvolume_of_a_mount_is_set_and_not_deleted() {
    require!(Fuse, Tool("btrfs"));
    let mut mount = Mount::new("mounted-default");
    let sub = mount.at("sub");
    run(["subvolume", "create", &sub]).done();
    run(["subvolume", "set-default", &sub]).done();
    let default = run(["subvolume", "get-default", mount.root()]).done();
    assert!(default.text().starts_with("ID 256 gen "), "{}", default.text());
    run(["subvolume", "delete", &sub]).failed(1, &["it is the default subvolume"]);
    run(["subvolume", "set-default", &mount.at("missing")]).failed(1, &["missing"]);
    run(["subvolume", "set-default", "5", mount.root()]).done();
    run(["subvolume", "delete", "-i", "256", mount.root()]).done();
    assert!(!Path::new(&sub).exists());
    mount.unmount();
    btrfs_check_data(&mount.image).unwrap();
}

#[test]
fn deleted_subvolumes_of_a_mount_are_listed_and_waited_for() {
    require!(Fuse, Tool("btrfs"));
    let mut mount = Mount::new("mounted-deleted");
    let (old, kept) = (mount.at("old"), mount.at("kept"));
    run(["subvolume", "create", &old, &kept]).done();
    std::fs::write(mount.at("old/file"), b"text").unwrap();
    let held = std::fs::File::open(mount.at("old/file")).unwrap();
    assert_eq!(run(["subvolume", "sync", mount.root()]).done().text(), "");
    run(["subvolume", "sync", mount.root(), "256"]).failed(1, &["256", "was not deleted"]);
    run(["subvolume", "delete", &old]).done();
    let listed = run(["subvolume", "list", "-d", mount.root()]).done().text();
    assert!(listed.starts_with("ID 256 gen ") && listed.ends_with(" top level 0 path DELETED\n"), "{listed}");
    let listed = run(["subvolume", "list", mount.root()]).done().text();
    assert!(listed.starts_with("ID 257 gen ") && listed.ends_with(" top level 5 path kept\n"), "{listed}");
    drop(held);
    assert_eq!(run(["subvolume", "sync", mount.root()]).done().text(), "Subvolume id 256 is gone\n");
    assert_eq!(run(["subvolume", "list", "-d", mount.root()]).done().text(), "");
    let top = run(["subvolume", "show", mount.root()]).done().text();
    mount.unmount();
    // Only the time and generation of its last change go on.
    let facts = |text: &str| {
        text.lines().filter(|line| !line.contains("Generation:")).map(str::to_owned).collect::<Vec<_>>()
    };
    let offline = run(["subvolume", "show", mount.image.to_str().unwrap()]).done().text();
    assert_eq!(facts(&top), facts(&offline));
    btrfs_check_data(&mount.image).unwrap();
}

#[test]
fn labels_properties_and_roots_are_those_of_the_mount() {
    require!(Fuse, Tool("btrfs"));
    let mut mount = Mount::new("mounted-properties");
    let (sub, file) = (mount.at("sub"), mount.at("sub/file"));
    run(["filesystem", "label", mount.root(), "a label"]).done();
    assert_eq!(run(["filesystem", "label", mount.root()]).done().text(), "a label\n");
    run(["filesystem", "label", mount.root(), &"x".repeat(256)]).failed(1, &[mount.root(), "at most 255"]);
    assert_eq!(run(["property", "get", mount.root(), "label"]).done().text(), "label=a label\n");
    run(["subvolume", "create", &sub]).done();
    std::fs::write(&file, b"text").unwrap();
    run(["property", "set", &file, "compression", "zstd"]).done();
    assert_eq!(run(["property", "get", &file]).done().text(), "compression=zstd\n");
    run(["property", "set", &file, "compression", ""]).done();
    assert_eq!(run(["property", "get", &file]).done().text(), "");
    run(["property", "set", &sub, "compression", "lzo"]).done();
    run(["property", "set", &sub, "ro", "perhaps"]).failed(2, &["true or false"]);
    run(["property", "set", &sub, "ro", "true"]).done();
    assert!(std::fs::write(mount.at("sub/new"), b"").is_err());
    assert_eq!(run(["property", "get", &sub]).done().text(), "ro=true\ncompression=lzo\n");
    let listed = run(["property", "list", &sub]).done().text();
    assert_eq!(
        listed.lines().map(|line| line.split(' ').next().unwrap()).collect::<Vec<_>>(),
        ["ro", "compression"]
    );
    run(["property", "get", &file, "ro"]).failed(1, &["can't have the property ro"]);
    assert_eq!(run(["inspect-internal", "rootid", &file]).done().text(), "256\n");
    assert_eq!(run(["inspect-internal", "rootid", mount.root()]).done().text(), "5\n");
    std::fs::create_dir_all(mount.at("sub-2/deep")).unwrap();
    let inode = std::fs::metadata(mount.at("sub-2")).unwrap().ino();
    std::fs::write(mount.at("sub-2/deep/one"), b"").unwrap();
    std::fs::hard_link(mount.at("sub-2/deep/one"), mount.at("two")).unwrap();
    let resolve =
        |inode: u64, path: &str| run(["inspect-internal", "inode-resolve", &inode.to_string(), path]);
    let inode_of_one = std::fs::metadata(mount.at("two")).unwrap().ino();
    let both = format!("{0}/two\n{0}/sub-2/deep/one\n", mount.root());
    assert_eq!(resolve(inode_of_one, mount.root()).done().text(), both);
    assert_eq!(resolve(inode, mount.root()).done().text(), format!("{}/sub-2\n", mount.root()));
    assert_eq!(resolve(257, &sub).done().text(), format!("{sub}/file\n"));
    resolve(9999, &sub).failed(1, &[&sub, "no such inode"]);
    mount.unmount();
    let offline = resolve(inode_of_one, &target(&mount.image, "/")).done().text();
    assert_eq!(offline, both.replace(&format!("{}/", mount.root()), &target(&mount.image, "/")));
    let get = ["property", "get", &target(&mount.image, "/sub")].map(str::to_owned);
    assert_eq!(run(get).done().text(), "ro=true\ncompression=lzo\n");
    btrfs_check_data(&mount.image).unwrap();
}

#[test]
fn space_and_statistics_are_told_of_a_mount_as_of_an_image() {
    require!(Fuse, Tool("btrfs"));
    let mut mount = Mount::new("mounted-space");
    std::fs::write(mount.at("file"), vec![5; 5_000_000]).unwrap();
    run(["filesystem", "sync", mount.root()]).done();
    let verbs = [["df", "-b"], ["usage", "-b"]];
    let facts = |ended: &Ended, mount: &Mount| {
        let text = plain(ended, mount);
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mounted =
        verbs.map(|[verb, raw]| facts(&run(["filesystem", verb, raw, mount.root()]).done(), &mount));
    let stats = run(["stats", mount.root()]).done().text();
    assert!(stats.contains("transaction.") || stats.contains("commit"), "{stats}");
    assert!(run(["stats", "--openmetrics", mount.root()]).done().text().ends_with("# EOF\n"));
    let metrics = run(["--json", "stats", mount.root()]).done().json();
    assert!(metrics["metrics"].as_object().unwrap().len() > 5, "{metrics}");
    mount.unmount();
    let image = mount.image.to_str().unwrap();
    let offline = verbs.map(|[verb, raw]| facts(&run(["filesystem", verb, raw, image]).done(), &mount));
    assert_eq!(mounted, offline);
    btrfs_check_data(&mount.image).unwrap();
    if vlinder_testkit::require::Requirement::KernelBtrfs.is_met() {
        // Mounted writable: what Linux offers to statfs(2) counts too.
        let kernel = KernelMount::new(&mount.image, "").unwrap();
        let (device, path) = (kernel.device().to_str().unwrap(), kernel.path().to_str().unwrap());
        let theirs = verbs.map(|[verb, raw]| {
            let text = tool("btrfs", ["filesystem", verb, raw, path]).replace(device, "X");
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        });
        kernel.unmount().unwrap();
        assert_eq!(mounted, theirs);
    }
}

#[test]
fn readers_go_through_the_mount_and_writers_are_refused() {
    require!(Fuse, Tool("btrfs"), Tool("pgrep"));
    let mut mount = Mount::new("mounted-held");
    let image = mount.image.to_str().unwrap().to_owned();
    let at = |path: &str| format!("{image}:{path}");
    run(["subvolume", "create", &mount.at("sub")]).done();
    std::fs::write(mount.at("sub/file"), b"not committed yet").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", mount.at("outside")).unwrap();
    std::os::unix::fs::symlink("/sub/file", mount.at("inside")).unwrap();
    assert_eq!(run(["cat", &at("/sub/file")]).done().text(), "not committed yet");
    assert_eq!(run(["cat", &at("/inside")]).done().text(), "not committed yet");
    run(["cat", &at("/outside")]).failed(1, &["No such file"]);
    assert_eq!(run(["inspect-internal", "rootid", &at("/sub/file")]).done().text(), "256\n");
    assert!(run(["subvolume", "list", &image]).done().text().ends_with(" path sub\n"));
    assert!(run(["filesystem", "usage", &image]).done().text().contains(&image));
    let server = tool("pgrep", ["-f", &format!("mount --serve.* {image} ")]);
    run(["mkdir", &at("/new")]).failed(1, &[&image, "in use", server.trim(), "vlinder"]);
    run(["subvolume", "create", &at("/new")]).failed(1, &[&image, "in use", server.trim(), "vlinder"]);
    run(["mkfs", "-f", &image]).failed(1, &[&image, "in use", "it is mounted on ", mount.root()]);
    run(["check", mount.root()]).failed(1, &[&format!("{image} is mounted there: name that")]);
    assert!(run(["fi", "df", mount.root()]).done().text().starts_with("Data"));
    mount.unmount();
    run(["mkdir", &at("/new")]).done();
    btrfs_check_data(&mount.image).unwrap();
}

/// Changes files on a mount until it is told to stop; gives how many changes it made.
fn write_load(point: PathBuf, stop: Arc<AtomicBool>) -> thread::JoinHandle<u64> {
    thread::spawn("write-load", move || {
        let mut changes = 0;
        while !stop.load(Ordering::Relaxed) {
            let directory = point.join(format!("d{}", changes % 7));
            let file = directory.join(format!("f{}", changes % 501));
            match changes % 4 {
                0 => drop(std::fs::create_dir(&directory)),
                1 => drop(std::fs::remove_file(&file)),
                _ => drop(std::fs::write(&file, vec![changes as u8; 1 + changes as usize * 7919 % 30_000])),
            }
            changes += 1;
        }
        changes
    })
}

#[test]
fn a_live_mount_is_checked_and_dumped_while_it_is_written() {
    require!(Fuse, Tool("btrfs"));
    // However slow the machine, the load needs no space that a lease holds.
    let mut mount = Mount::sized("mounted-check", "4G");
    let image = mount.image.to_str().unwrap().to_owned();
    for number in 0..2000 {
        std::fs::write(mount.at(&format!("file-{number}")), vec![number as u8; 3000]).unwrap();
    }
    let stop = Arc::new(AtomicBool::new(false));
    let load = write_load(mount.point.clone(), Arc::clone(&stop));
    let generation = || {
        let super_text = run(["inspect-internal", "dump-super", &image]).done().text();
        let line = super_text.lines().find(|line| line.starts_with("generation")).unwrap().to_owned();
        line.split_whitespace().last().unwrap().parse::<u64>().unwrap()
    };
    let before = generation();
    for round in 0..6 {
        let checked = run(["--json", "check", "--check-data-csum", &image]).done().json();
        assert_eq!(checked["findings"], serde_json::json!([]), "round {round}");
        assert!(checked["blocks"].as_u64().unwrap() > 30, "{checked}");
        let dump = run(["inspect-internal", "dump-tree", &image]).done().text();
        assert!(dump.contains("name: file-1999"), "what was written before is in the state");
        run(["inspect-internal", "tree-stats", "-t", "fs", &image]).done();
        run(["filesystem", "sync", mount.root()]).done();
    }
    stop.store(true, Ordering::Relaxed);
    let changes = load.join().unwrap();
    assert!(changes > 500, "{changes} changes");
    // Each check and each dump committed what had changed before it.
    assert!(generation() >= before + 12, "{before}, {}", generation());
    let metrics = run(["--json", "stats", mount.root()]).done().json();
    assert_eq!(metrics["metrics"]["commit.leases"]["value"], 0, "{}", metrics["metrics"]["commit.leases"]);
    assert_eq!(metrics["metrics"]["commit.lease_held_bytes"]["value"], 0);
    assert_eq!(metrics["metrics"]["commit.leases_revoked"]["value"], 0);
    mount.unmount();
    btrfs_check_data(&mount.image).unwrap();
}

#[test]
fn what_a_mount_does_not_show_is_read_as_last_committed() {
    require!(Fuse, Tool("btrfs"));
    let mut mount = Mount::new("mounted-hidden");
    let image = mount.image.to_str().unwrap().to_owned();
    run(["subvolume", "create", &mount.at("sub")]).done();
    std::fs::write(mount.at("sub/file"), b"shown").unwrap();
    std::fs::write(mount.at("top"), b"not shown").unwrap();
    mount.unmount();
    let owners = if rustix::process::geteuid().is_root() { "keep" } else { "me" };
    let options = format!("subvol=sub,owners={owners}");
    run([Path::new("mount"), Path::new("-o"), Path::new(&options), &mount.image, &mount.point]).done();
    mount.is_mounted = true;
    std::fs::write(mount.at("file"), b"changed").unwrap();
    run(["filesystem", "sync", mount.root()]).done();
    let at = |path: &str| target(&mount.image, path);
    assert_eq!(run(["ls", &at("/")]).done().text(), "sub\ntop\n");
    assert_eq!(run(["cat", &at("/top"), &at("/sub/file")]).done().text(), "not shownchanged");
    assert_eq!(run(["cat", "-o", "subvol=sub", &at("/file")]).done().text(), "changed");
    assert_eq!(run(["cat", "-o", "subvolid=256", &at("/file")]).done().text(), "changed");
    assert!(run(["subvolume", "list", &image]).done().text().ends_with(" path sub\n"));
    let copy = mount._scratch.join("copy");
    run([std::ffi::OsStr::new("cp"), "-r".as_ref(), at("/").as_ref(), copy.as_os_str()]).done();
    assert_eq!(std::fs::read(copy.join("sub/file")).unwrap(), b"changed");
    run(["mkdir", &at("/new")]).failed(1, &[&image, "in use"]);
    mount.unmount();
    btrfs_check_data(&mount.image).unwrap();
}

#[test]
fn a_reader_whose_mount_ends_says_so_instead_of_what_it_read() {
    require!(Fuse);
    let mut mount = Mount::new("mounted-ends");
    for number in 0..3000 {
        std::fs::write(mount.at(&format!("a-long-name-of-a-file-{number}")), b"").unwrap();
    }
    let mut dump = common::vlinder();
    dump.args(["inspect-internal", "dump-tree"]).arg(&mount.image);
    let dump = dump.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Its output is more than a pipe holds, so it stands still until somebody reads.
    wait_for_lease(&mount);
    mount.unmount();
    let ended: Ended = dump.wait_with_output().unwrap().into();
    assert!(ended.text().len() > 1 << 17);
    ended.failed(1, &[mount.image.to_str().unwrap(), "the mount ended", "try again"]);
}

fn wait_for_lease(mount: &Mount) {
    for _ in 0..200 {
        let metrics = run(["--json", "stats", mount.root()]).done().json();
        if metrics["metrics"]["commit.leases"]["value"] == 1 {
            return;
        }
        thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("nothing was leased");
}

#[test]
fn a_reader_gives_way_to_a_writer_who_needs_the_space() {
    require!(Fuse, Tool("btrfs"));
    let mut mount = Mount::new("mounted-revoked");
    for number in 0..3000 {
        std::fs::write(mount.at(&format!("a-long-name-of-a-file-{number}")), b"").unwrap();
    }
    let filler = mount.at("filler");
    let fill = |path: &str| {
        let mut file = std::fs::File::create(path).unwrap();
        let mut written = 0;
        while std::io::Write::write_all(&mut file, &[5; 1 << 16]).and_then(|()| file.sync_data()).is_ok() {
            written += 1;
        }
        written
    };
    let first = fill(&filler);
    run(["filesystem", "sync", mount.root()]).done();
    let mut dump = common::vlinder();
    dump.args(["inspect-internal", "dump-tree"]).arg(&mount.image);
    let dump = dump.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_lease(&mount);
    std::fs::remove_file(&filler).unwrap();
    run(["filesystem", "sync", mount.root()]).done();
    let second = fill(&filler);
    assert!(second + 16 >= first, "{second} of {first}");
    let ended: Ended = dump.wait_with_output().unwrap().into();
    ended.failed(1, &[mount.image.to_str().unwrap(), "given up", "free some space"]);
    mount.unmount();
    btrfs_check_data(&mount.image).unwrap();
}

#[test]
fn a_block_device_is_used_by_one_at_a_time_and_read_by_more() {
    require!(Fuse, Root, KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("mounted-device");
    let (image, point) = (scratch.join("disk.img"), scratch.join("mount"));
    make_image(&image);
    std::fs::create_dir(&point).unwrap();
    let device = LoopDevice::attach(&image).unwrap();
    let node = device.node().to_str().unwrap();
    run([Path::new("mount"), device.node(), &point]).done();
    std::fs::write(point.join("file"), b"text").unwrap();
    run(["mkdir", &format!("{node}:/new")]).failed(1, &[node, "in use"]);
    // Its lock is the device's, which the file below does not have.
    run(["mkdir", &target(&image, "/new")]).failed(1, &["disk.img", node, point.to_str().unwrap()]);
    assert_eq!(run(["cat", &format!("{node}:/file")]).done().text(), "text");
    assert_eq!(run(["--json", "check", node]).done().json()["findings"], serde_json::json!([]));
    let kernel =
        std::process::Command::new("mount").args(["-t", "btrfs", node]).arg("/mnt").output().unwrap();
    assert!(!kernel.status.success(), "the kernel must not have it too");
    run([Path::new("umount"), &point]).done();
    // The other way round: the file is held, and the device over it asked for.
    run([Path::new("mount"), &image, &point]).done();
    run(["mkdir", &format!("{node}:/new")]).failed(1, &[node, "in use", "vlinder"]);
    run(["ls", &format!("{node}:/")]).failed(1, &[node, "in use", "vlinder"]);
    run([Path::new("umount"), &point]).done();
    run(["mkdir", &format!("{node}:/new")]).done();
    assert_eq!(run(["ls", &format!("{node}:/")]).done().text(), "file\nnew\n");
    drop(device);
    btrfs_check_data(&image).unwrap();
}

/// Runs a command with a terminal for its output and errors, of a kind that can show progress.
fn on_terminal(command: &str) -> std::process::Child {
    let mut script = std::process::Command::new("script");
    script.args(["-qec", command, "/dev/null"]).env("TERM", "xterm");
    script.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap()
}

/// Reads until this text has come, or everything has; gives what was read.
fn read_until(output: &mut impl std::io::Read, text: &str) -> String {
    let mut read = Vec::new();
    let mut some = [0; 256];
    while !String::from_utf8_lossy(&read).contains(text) {
        match output.read(&mut some).unwrap() {
            0 => break,
            length => read.extend(&some[..length]),
        }
    }
    String::from_utf8_lossy(&read).into_owned()
}

#[test]
fn what_takes_longer_than_a_second_shows_on_a_terminal() {
    require!(Fuse, Tool("script"));
    let mut mount = Mount::new("mounted-progress");
    run(["subvolume", "create", &mount.at("old")]).done();
    std::fs::write(mount.at("old/file"), b"text").unwrap();
    let held = std::fs::File::open(mount.at("old/file")).unwrap();
    run(["subvolume", "delete", &mount.at("old")]).done();
    let command = format!("'{}' subvolume sync '{}'", env!("CARGO_BIN_EXE_vlinder"), mount.root());
    let quiet = on_terminal(&format!("{command} --quiet"));
    let mut elsewhere = common::vlinder();
    elsewhere.args(["subvolume", "sync", mount.root()]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let elsewhere = elsewhere.spawn().unwrap();
    // If nothing is shown, the end comes nevertheless.
    let (release, released) = vlinder_base::channel::bounded::<()>(1);
    let holder = thread::spawn("holder", move || {
        let _ = released.recv_timeout(std::time::Duration::from_secs(60));
        drop(held);
    });
    let mut shown = on_terminal(&command);
    let first = read_until(shown.stdout.as_mut().unwrap(), "freeing");
    // What was started before it has waited for as long, and a second more.
    thread::sleep(std::time::Duration::from_secs(1));
    drop(release);
    holder.join().unwrap();
    let text = |child: std::process::Child| {
        let ended: Ended = child.wait_with_output().unwrap().into();
        assert_eq!((ended.code, ended.err.as_str()), (0, ""));
        ended.text()
    };
    let shown = first + &text(shown);
    assert!(shown.contains("freeing") && shown.contains("is gone"), "{shown:?}");
    assert!(!text(quiet).contains("freeing"));
    assert_eq!(text(elsewhere), "Subvolume id 256 is gone\n");
    mount.unmount();
}
