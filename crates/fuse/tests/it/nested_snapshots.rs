//! `find`, `tar`, `du`, `rsync`, `git` and `sqlite3` over subvolumes and snapshots inside one another: what
//! they say on the mount is what they say on the kernel's mount of the same image.
//!
//! One thing differs, and is meant to: the mount has one `st_dev`, so what stays on one file system
//! (`find -xdev`, `du -x`, `tar --one-file-system`) goes into subvolumes there, and into none on the
//! kernel's.

use std::path::Path;

use crate::rig::{Mounted, Rig, shell};
use vlinder_control::Request;
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::require;

/// A tree with what the programs look at: hard links, holes, symbolic links, attributes, a repository, a
/// database.
const FILL: &str = r#"
mkdir -p docs/deep/er
for number in $(seq 200); do echo "text $number" > docs/$number; done
ln docs/1 docs/deep/second-name
ln -s ../2 docs/deep/link
ln -s nowhere docs/deep/dangling
head -c 300000 /dev/urandom > docs/deep/er/large
truncate -s 2000000 docs/sparse; echo tail >> docs/sparse
setfattr -n user.colour -v blue docs/3
setfacl -m u:1234:rw docs/4
chown 1000:1001 docs/5
mkdir repository; cd repository
git init -q . && git config user.email a@b && git config user.name n
for number in $(seq 50); do echo "line $number" > file-$number; done
git add -A && git commit -qm one
sed -i s/line/row/ file-[1-9] && git commit -qam two && echo untracked > new
cd ..
sqlite3 base.db 'pragma journal_mode=wal' 'create table t(k integer primary key, v text)' > /dev/null
for number in $(seq 20); do
    sqlite3 base.db "insert into t(v) select hex(randomblob(200)) from (values (1),(2),(3),(4),(5))"
done
"#;

/// Subvolumes in subvolumes, snapshots of them in one another; each of `shots/*` has placeholders where
/// subvolumes were.
fn build(rig: &Rig, mounted: &Mounted) {
    let mut client = mounted.client();
    let mut request = |request: Request| client.request(&request).unwrap();
    let create = |path: &str| Request::SubvolumeCreate { path: path.into(), umask: 0o022 };
    let snapshot = |source: &str, path: &str, read_only| Request::SubvolumeSnapshot {
        source: source.into(),
        path: path.into(),
        read_only,
    };
    request(create("home"));
    shell(&rig.join("home"), FILL);
    request(create("home/inner"));
    shell(&rig.join("home/inner"), "mkdir a; echo inner > a/file; ln a/file b");
    request(create("home/inner/innermost"));
    shell(&rig.join("home/inner/innermost"), "seq 1000 > numbers");
    std::fs::create_dir(rig.join("shots")).unwrap();
    request(snapshot("home", "shots/one", false));
    shell(
        &rig.join("home"),
        "rm docs/1*; echo changed > docs/20; mv docs/21 docs/moved; git -C repository gc -q",
    );
    request(snapshot("home", "shots/two", true));
    // A snapshot in a snapshot, and a snapshot of what holds it.
    request(snapshot("shots/one", "shots/one/again", false));
    shell(&rig.join("shots/one/again"), "echo again > docs/again; rm -r docs/deep");
    request(snapshot("shots/one", "shots/three", false));
    request(snapshot("home/inner", "shots/three/docs/inner", true));
}

/// Programs that only look. Placeholders are among what they see, but for their times, which the kernel makes
/// up.
const LOOKING: [(&str, &str); 7] = [
    (
        "find",
        "find . -type d -empty -printf '%P|%y|%#m|%n|%s|%b|%U|%G\\n' -o -printf '%P|%y|%#m|%n|%s|%b|%U|%G|%T@|%C@|%l\\n' \
         | LC_ALL=C sort",
    ),
    ("getfattr", "getfattr -h -R -d -m - . | LC_ALL=C sort"),
    ("getfacl", "getfacl -R . | LC_ALL=C sort"),
    (
        "tar",
        "find . -type d -empty -o -print0 | LC_ALL=C sort -z \
         | tar --null --no-recursion --xattrs --acls -cf - -T - | sha256sum",
    ),
    ("tar -S", "tar --sort=name --mtime=@0 --sparse -cf - . | sha256sum"),
    ("du", "du -a --block-size=1 . | LC_ALL=C sort -k2; du -s --apparent-size -b ."),
    ("du of links", "du -l -s --block-size=1 home shots/one shots/two shots/three"),
];

/// Programs that leave files of their own, and so go first on one mount and last on the other.
const WORKING: [(&str, &str); 2] = [
    (
        "git",
        "git config --global --add safe.directory '*'; for one in home shots/one shots/two shots/three shots/one/again; do \
         git --no-optional-locks -C $one/repository status --porcelain; git -C $one/repository fsck --strict 2>/dev/null; \
         git -C $one/repository log --format=%H%s; done",
    ),
    (
        "sqlite3",
        "for one in home shots/one shots/three shots/one/again; do \
         sqlite3 $one/base.db 'pragma integrity_check' 'select count(*), sum(length(v)), max(v) from t'; done",
    ),
];

fn answers(programs: &[(&'static str, &str)], root: &Path, home: &Path) -> Vec<(&'static str, String)> {
    let environment = format!("export HOME={}", home.display());
    programs.iter().map(|(name, script)| (*name, shell(root, &format!("{environment}; {script}")))).collect()
}

/// Panics where a program said something else on the kernel's mount, or nothing.
fn compare(ours: &[(&str, String)], theirs: &[(&str, String)]) {
    for ((name, ours), (_, theirs)) in ours.iter().zip(theirs) {
        let differing = ours.lines().zip(theirs.lines()).find(|(left, right)| left != right);
        let lengths = (ours.len(), theirs.len());
        assert!(ours == theirs, "{name}: ours and the kernel's: {differing:?}, {lengths:?} bytes");
        assert!(!ours.trim().is_empty(), "{name}");
    }
}

fn count(root: &Path, command: &str) -> u64 {
    shell(root, &format!("{command} | wc -l")).trim().parse().unwrap()
}

#[test]
fn programs_across_nested_snapshots_say_what_linux_has_them_say() {
    require!(
        Fuse,
        KernelBtrfs,
        Tool("mkfs.btrfs"),
        Tool("btrfs"),
        Tool("git"),
        Tool("sqlite3"),
        Tool("rsync"),
        Tool("setfacl"),
        Tool("setfattr")
    );
    let rig = Rig::new(512);
    let mounted = rig.mount("noatime");
    build(&rig, &mounted);
    mounted.unmount();
    // Of a mount that has nothing in memory: blocks that files will take are known.
    let mounted = rig.mount("noatime");
    let home = rig.outside("");
    let worked = answers(&WORKING, &rig.mountpoint, &home);
    let looked = answers(&LOOKING, &rig.mountpoint, &home);
    let copy = rig.outside("copy");
    shell(&rig.mountpoint, &format!("rsync -aHAX --numeric-ids ./ {}/", copy.display()));
    // One device, and inode numbers that tell all files apart: only hard links share one.
    assert_eq!(shell(&rig.mountpoint, "find . -printf '%D\\n' | sort -u | wc -l").trim(), "1");
    let files = count(&rig.mountpoint, "find .");
    let further_links = "find . -type f -links +1 -printf '%i\\n' | sort | uniq -c | awk '{n += $1 - 1} END {for (; n > 0; n--) print n}'";
    let links = count(&rig.mountpoint, further_links);
    assert_eq!(links, 4);
    assert_eq!(count(&rig.mountpoint, "find . -printf '%i\\n' | sort -u"), files - links);
    // So programs that stay on one file system see all of it.
    for (whole, one) in [
        ("find .", "find . -xdev"),
        ("du -a .", "du -ax ."),
        ("tar -cf - . | tar -t", "tar --one-file-system -cf - . | tar -t"),
    ] {
        assert_eq!(count(&rig.mountpoint, whole), count(&rig.mountpoint, one), "{one}");
    }
    mounted.unmount();
    btrfs_check_data(&rig.image).unwrap();
    let kernel = KernelMount::new(&rig.image, "noatime").unwrap();
    compare(&looked, &answers(&LOOKING, kernel.path(), &home));
    let script = format!("rsync -aHAXnic --omit-dir-times --numeric-ids --delete ./ {}/", copy.display());
    assert_eq!(shell(kernel.path(), &script), "");
    let same_links = |root: &Path| shell(root, "find . -type f -links +1 -printf '%n %P\\n' | LC_ALL=C sort");
    assert_eq!(same_links(&copy), same_links(kernel.path()));
    assert!(count(kernel.path(), "find . -xdev") < count(kernel.path(), "find ."));
    compare(&worked, &answers(&WORKING, kernel.path(), &home));
    kernel.unmount().unwrap();
}

/// Snapshots with names of subvolumes that are not in them: writable, read-only, and of another owner.
const ABSENT: &str = "
btrfs -q subvolume create a
for name in in two three four five; do btrfs -q subvolume create a/$name; touch a/$name/content; done
echo f > a/f; mkdir a/full a/empty; touch a/full/x
btrfs -q subvolume snapshot a s; btrfs -q subvolume snapshot -r a r; btrfs -q subvolume snapshot a o
chown 1234:1234 o; mkdir outside
for name in s r o; do btrfs -q subvolume create mine_$name; touch mine_$name/here; done
";

/// What answers otherwise on a mount: the call, Linux's answer, the mount's. The kernel gives each of them
/// before it asks the server (docs/known-limits.md).
const KERNEL_ANSWERS_FIRST: [(&str, &str, &str); 22] = [
    ("user s/in setxattr acl", "ENOTSUP", "EPERM"),
    ("user s/in setxattr default acl", "ENOTSUP", "EPERM"),
    ("user s/in removexattr acl", "ENOTSUP", "EPERM"),
    ("user s/in SETFLAGS", "ENOTTY", "EPERM"),
    ("user s/in FSSETXATTR", "ENOTTY", "EPERM"),
    ("root r/in link of it", "EROFS", "EPERM"),
    ("root r/in unlink", "EROFS", "EISDIR"),
    ("root r/in rename file onto", "EROFS", "EISDIR"),
    ("user r/in setxattr acl", "ENOTSUP", "EPERM"),
    ("user r/in setxattr default acl", "ENOTSUP", "EPERM"),
    ("user r/in removexattr acl", "ENOTSUP", "EPERM"),
    ("user r/in SETFLAGS", "ENOTTY", "EPERM"),
    ("user r/in FSSETXATTR", "ENOTTY", "EPERM"),
    ("user r/in rename into", "EROFS", "EACCES"),
    ("user r/in rename directory into", "EROFS", "EACCES"),
    ("user r/in rename", "EROFS", "EACCES"),
    ("user r/in rename to a directory", "EROFS", "EACCES"),
    ("user r/in rename to another", "EROFS", "EACCES"),
    ("user r/in rename noreplace", "EROFS", "EACCES"),
    ("user r/in rename outside", "EROFS", "EACCES"),
    ("user r/in unlink", "EROFS", "EACCES"),
    ("user r/in rename file onto", "EROFS", "EACCES"),
];

#[test]
fn names_of_absent_subvolumes_answer_as_on_linux() {
    require!(Fuse, KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("python3"), Tool("rsync"));
    let rig = Rig::new(300);
    let kernel = KernelMount::new(&rig.image, "").unwrap();
    shell(kernel.path(), ABSENT);
    kernel.unmount().unwrap();
    let copy = rig.outside("copy");
    std::fs::copy(&rig.image, &copy).unwrap();
    let script = format!("python3 {}/tests/it/absent_subvolumes.py .", env!("CARGO_MANIFEST_DIR"));
    let onto = "mkdir -p src/in; echo text > src/file; chmod 700 src/in; rsync -a src/ s/; find s -type d -printf '%P %m\\n' | sort";
    let alike = |root: &Path| (shell(root, &script), shell(root, onto));

    let kernel = KernelMount::new(&copy, "").unwrap();
    let theirs = alike(kernel.path());
    kernel.unmount().unwrap();
    let mounted = rig.mount("allow_other");
    let ours = alike(&rig.mountpoint);
    mounted.unmount();
    btrfs_check_data(&rig.image).unwrap();

    let line = |call: &str, answer: &str| format!("{call}: {answer}");
    let expected = KERNEL_ANSWERS_FIRST.map(|(call, linux, mount)| (line(call, linux), line(call, mount)));
    let differing: Vec<(String, String)> = theirs
        .0
        .lines()
        .zip(ours.0.lines())
        .filter(|(linux, mount)| linux != mount)
        .map(|(linux, mount)| (linux.to_owned(), mount.to_owned()))
        .collect();
    assert_eq!(differing, expected);
    assert_eq!(theirs.0.lines().count(), ours.0.lines().count());
    assert!(ours.0.lines().count() > 400, "{}", ours.0);
    assert_eq!(theirs.1, ours.1);
}
