//! What the command says around mounts, of other names for its verbs, and of what is missing in a command
//! line.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Ended, end, make_image, run, vlinder};
use vlinder_base::thread;
use vlinder_testkit::{Scratch, require};

/// An image and an empty directory to mount it on.
struct Place {
    image: PathBuf,
    point: PathBuf,
    scratch: Scratch,
}

impl Place {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let place = Self { image: scratch.join("disk.img"), point: scratch.join("mount"), scratch };
        make_image(&place.image);
        std::fs::create_dir(&place.point).unwrap();
        place
    }

    fn mount(&self, image: &Path, options: &str) -> Ended {
        // A fresh image's root directory is root's; others mount it as their own.
        let owners = if rustix::process::geteuid().is_root() { "owners=keep" } else { "owners=me" };
        let arguments = ["mount", "-o", owners, "-o", options].map(Path::new);
        run(arguments.into_iter().chain([image, &self.point]))
    }

    fn unmount(&self) -> Ended {
        run([Path::new("umount"), &self.point])
    }

    fn mounts(&self) -> usize {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.matches(&format!(" {} ", self.point.display())).count()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A test failed: no mount stays.
        for _ in 0..self.mounts() {
            let _ = Command::new("fusermount3").args(["-u", "-z"]).arg(&self.point).status();
        }
    }
}

fn called_btrfs(scratch: &Scratch, arguments: &[&str]) -> Ended {
    let link = scratch.join("btrfs");
    if !link.exists() {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_vlinder"), &link).unwrap();
    }
    // Where no other btrfs is, this one has to say what it lacks.
    end(Command::new(link).args(arguments).env("PATH", "/nowhere"))
}

#[test]
fn what_is_not_there_is_named_in_full() {
    let scratch = Scratch::new("mount-words");
    let cases: [(&[&str], &str, bool); 6] = [
        (&["filesystem", "show"], "filesystem show", false),
        (&["--json", "fi", "show"], "filesystem show", false),
        (&["rescue", "zero-log"], "rescue", false),
        (&["filesystem", "resize", "max"], "filesystem resize", true),
        (&["inspect-internal", "min-dev"], "inspect-internal min-dev-size", true),
        (&["scrub", "start"], "scrub", true),
    ];
    for (words, name, needs_a_mount) in cases {
        let words: Vec<&str> = words.iter().copied().chain(["/mnt"]).collect();
        for (program, ended) in [("vlinder", run(&words)), ("btrfs", called_btrfs(&scratch, &words))] {
            let code = if program == "btrfs" { 1 } else { 2 };
            let prefix = if program == "btrfs" { "ERROR" } else { "vlinder" };
            let first = format!("{prefix}: {name} is not there yet\n");
            let ended = ended.failed(code, &[&first, "use the btrfs of btrfs-progs"]);
            assert_eq!(ended.err.contains("kernel has mounted"), needs_a_mount, "{words:?}: {}", ended.err);
        }
    }
    // A name of one family is nothing in another.
    run(["show", "disk.img"]).failed(2, &["unrecognized subcommand 'show'"]);
}

#[test]
fn verbs_that_go_by_another_name_are_pointed_at() {
    let scratch = Scratch::new("mount-words");
    run(["fsck", "disk.img"]).failed(2, &["no verb fsck", "vlinder check"]);
    run(["version"]).failed(2, &["no verb version", "vlinder --version"]);
    let ended = called_btrfs(&scratch, &["fsck", "disk.img"]);
    let ended = ended.failed(1, &["btrfs check", "use the btrfs of btrfs-progs"]);
    assert!(!ended.err.contains("kernel"), "{}", ended.err);
}

#[test]
fn what_is_missing_is_named_as_the_usage_names_it() {
    let several = "<SOURCE>... <DESTINATION>";
    for verb in ["cp", "mv"] {
        run([verb]).failed(2, &[&format!("not provided:\n  {several}\n")]);
        run([verb, "a"]).failed(2, &[&format!("2 values required by '{several}'")]);
    }
    run(["mount"]).failed(2, &["not provided:\n  <IMAGE>... <MOUNTPOINT>\n"]);
    // Where one name stands for all, the dots stay behind it.
    run(["rm"]).failed(2, &["<TARGET>..."]);
}

#[test]
fn mkfs_asks_for_one_image_and_refuses_more() {
    let help = run(["mkfs", "--help"]).done().text();
    assert!(help.contains("Usage: vlinder mkfs [OPTIONS] [IMAGE]\n"), "{help}");
    run(["mkfs"]).failed(2, &["not provided:\n  <IMAGE>\n", "Usage: vlinder mkfs <IMAGE>\n"]);
    run(["mkfs", "a.img", "b.img"]).failed(1, &["several devices can't be made yet", "give one image"]);
}

#[test]
fn a_mount_that_fails_has_the_json_form_of_failures() {
    let scratch = Scratch::new("mount-words");
    let (point, missing) = (scratch.path().to_str().unwrap(), scratch.join("missing.img"));
    let missing = missing.to_str().unwrap();
    for flags in [&["--json", "mount"][..], &["mount", "--json"], &["mount", "--json", "-f"]] {
        let ended =
            run(flags.iter().copied().chain([missing, point])).failed(1, &[missing, "check the path"]);
        let json = ended.json();
        assert_eq!(
            (&json["schema"], &json["error"]["kind"]),
            (&"vlinder.mount/1".into(), &"not-found".into())
        );
        assert_eq!(json["error"]["place"], missing);
        assert!(json["error"]["message"].is_string() && json["error"]["hint"].is_string(), "{json}");
    }
    assert_eq!(run(["mount", missing, point]).text(), "");
    let json = run(["--json", "mount", missing, missing]).failed(1, &["no mount point"]).json();
    assert_eq!(json["error"]["place"], missing);
    let json = run(["--json", "mount", "-o", "frob", missing, point]).failed(2, &["frob"]).json();
    assert_eq!(json["error"]["kind"], "usage");
}

/// Mounts with this `fusermount3`, or none, and without the right to mount by the system call.
fn mount_by_helper(place: &Place, script: Option<&str>, flags: &[&str]) -> Ended {
    let directory = place.scratch.join("programs");
    std::fs::create_dir_all(&directory).unwrap();
    let helper = directory.join("fusermount3");
    if let Some(script) = script {
        std::fs::write(&helper, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).unwrap();
    } else {
        let _ = std::fs::remove_file(&helper);
    }
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "env"]);
        command
    } else {
        Command::new("env")
    };
    command.arg(format!("PATH={}", directory.display())).arg(env!("CARGO_BIN_EXE_vlinder"));
    end(command.args(flags).arg("mount").arg(&place.image).arg(&place.point))
}

#[test]
fn what_fusermount3_says_has_the_advice_that_helps() {
    require!(Fuse, Tool("setpriv"), Tool("fusermount3"));
    let place = Place::new("mount-words");
    // What it says, what stands of that in the program itself, and what helps.
    let cases = [
        (
            "option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf",
            "only allowed if 'user_allow_other' is set in",
            "put the line user_allow_other into /etc/fuse.conf",
        ),
        (
            "user has no write access to mountpoint /mnt",
            "user has no write access to mountpoint",
            "a directory that is yours",
        ),
        ("mountpoint /mnt not owned by user", "not owned by user", "a directory that is yours"),
        (
            "failed to access mountpoint /mnt: Permission denied",
            "failed to access mountpoint",
            "unmount what is there",
        ),
        ("failed to open /dev/fuse: Permission denied", "/dev/fuse", "chmod 666 /dev/fuse"),
        ("failed to open /dev/fuse: No such file or directory", "/dev/fuse", "modprobe fuse"),
        ("fuse device not found, try 'modprobe fuse' first", "fuse device not found", "modprobe fuse"),
        ("mount failed: Operation not permitted", "mount failed: ", "chmod u+s"),
        (
            "too many FUSE filesystems mounted; mount_max=N can be set in /etc/fuse.conf",
            "too many FUSE filesystems",
            "raise mount_max",
        ),
        ("the moon is full", "", "package fuse3"),
    ];
    let program = ["/usr/bin", "/bin", "/usr/sbin", "/sbin", "/usr/local/bin"];
    let program = program.iter().map(|place| Path::new(place).join("fusermount3")).find(|path| path.exists());
    let program = std::fs::read(program.expect("fusermount3 is where programs are")).unwrap();
    let program = String::from_utf8_lossy(&program);
    for (said, known, advice) in cases {
        assert!(program.contains(known), "fusermount3 says {known:?} no more");
        let script = format!("echo \"fusermount3: {said}\" >&2; exit 1");
        let what = format!("fusermount3 did not mount at {}: {said}\n", place.point.display());
        let ended = mount_by_helper(&place, Some(&script), &[]).failed(1, &[&what, advice]);
        // One hint, not all of them.
        for (_, _, other) in cases.iter().filter(|(_, _, other)| *other != advice) {
            assert!(said.contains(other) || !ended.err.contains(other), "{other:?} is in {:?}", ended.err);
        }
        let json = mount_by_helper(&place, Some(&script), &["--json"]).json();
        assert!(json["error"]["hint"].as_str().unwrap().contains(advice), "{json}");
        assert_eq!(json["error"]["kind"], "permission");
    }
    mount_by_helper(&place, None, &[]).failed(1, &["there is no such program", "install fusermount3"]);
    assert_eq!(place.mounts(), 0);
}

#[test]
fn what_a_mount_hides_is_said_in_one_line() {
    require!(Fuse);
    let place = Place::new("mount-words");
    let other = place.scratch.join("other.img");
    make_image(&other);
    let point = place.point.display().to_string();
    place.mount(&place.image, "rw").done();
    std::fs::write(place.point.join("hidden"), b"").unwrap();
    let over = place.mount(&other, "rw");
    if rustix::process::geteuid().is_root() {
        let words = format!("vlinder: warning: {point} is a mount point already (fuse.vlinder)");
        assert!(over.code == 0 && over.err.starts_with(&words), "{}", over.err);
        assert_eq!(over.err.lines().count(), 1, "{}", over.err);
        assert_eq!((place.mounts(), place.point.join("hidden").exists()), (2, false));
        place.unmount().done();
    } else {
        // fusermount3 may not look at what another user has mounted, and it is root.
        let over = over.failed(1, &["failed to access mountpoint", "unmount what is there"]);
        assert!(!over.err.contains("warning"), "{}", over.err);
    }
    place.unmount().done();

    let file = place.point.join("file");
    std::fs::write(&file, b"below").unwrap();
    let over = place.mount(&place.image, "rw");
    let words = format!("vlinder: warning: {point} is not empty");
    assert!(over.code == 0 && over.err.starts_with(&words), "{}", over.err);
    assert_eq!(over.err.lines().count(), 1, "{}", over.err);
    assert!(!file.exists());
    place.unmount().done();
    assert_eq!(std::fs::read(&file).unwrap(), b"below");
    // What does not come about hides nothing.
    let failed = place.mount(&place.scratch.join("missing.img"), "rw").failed(1, &["No such file"]);
    assert!(!failed.err.contains("not empty"), "{}", failed.err);
}

#[test]
fn a_foreground_mount_says_what_is_mounted_and_how_it_ends() {
    require!(Fuse);
    let place = Place::new("mount-words");
    let (image, point) = (place.image.display(), place.point.display());
    let line = |what: &str| {
        format!("vlinder: {image} is mounted on {point}{what}; Ctrl-C or vlinder umount {point} ends it\n")
    };
    let cases = [
        (&["mount", "-f", "-o", "rw"][..], line("")),
        (&["mount", "-f", "-o", "ro"], line(", for reading only")),
        (&["--quiet", "mount", "-f"], String::new()),
        (&["--json", "mount", "-f"], String::new()),
    ];
    for (words, expected) in cases {
        let mut command = vlinder();
        command.args(words).arg(&place.image).arg(&place.point);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        for _ in 0..500 {
            if place.mounts() == 1 {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        place.unmount().done();
        let ended: Ended = child.wait_with_output().unwrap().into();
        assert_eq!((ended.code, ended.text(), ended.err), (0, String::new(), expected), "{words:?}");
    }
}

#[test]
fn a_remount_tells_only_of_options_that_the_mount_does_not_have() {
    require!(Fuse, Root);
    let place = Place::new("mount-words");
    place.mount(&place.image, "compress=zstd,max_inline=1024").done();
    place.mount(&place.image, "remount,ro,compress=zstd,max_inline=1024").done();
    let ended = place.mount(&place.image, "remount,rw,compress=lzo,max_inline=1024");
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.contains("without effect: compress=lzo\n"), "{}", ended.err);
    place.unmount().done();
}

/// The kernel tells of the last close of a file after close(2) has returned.
#[test]
fn what_a_writer_was_refused_keeps_no_mount() {
    require!(Fuse);
    for _ in 0..4 {
        let place = Place::new("mount-refused-bytes");
        place.mount(&place.image, "rw").done();
        // More than the image has room for: close(2) tells that.
        let mut writer = std::process::Command::new("dd");
        let of = format!("of={}", place.point.join("file").display());
        let writer = writer.args(["if=/dev/zero", "bs=80M", "count=1", &of]).output().unwrap();
        let told = String::from_utf8_lossy(&writer.stderr);
        assert!(!writer.status.success() && told.contains("No space left"), "{told}");
        place.unmount().done();
    }
}
