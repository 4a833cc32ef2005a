//! Copies that share extents, and extents that are found to be the same: compared with what cp and duperemove
//! do on the kernel's mount of the same image.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::thread;

use crate::common::{end, make_image, run, target, tool};
use vlinder_testkit::kernel::{KernelMount, btrfs_check};
use vlinder_testkit::{Scratch, require};

/// What Linux logs when the first file of an image is to be compressed.
const FEATURE: &str = "BTRFS info (device DEVICE): setting incompat feature flag for COMPRESS_*";

/// Copies of one image that Linux filled.
struct Images {
    scratch: Scratch,
    first: PathBuf,
}

impl Images {
    fn new(name: &str, fill: &str) -> Self {
        let scratch = Scratch::new(name);
        let first = scratch.join("first.img");
        std::fs::File::create(&first).unwrap().set_len(512 << 20).unwrap();
        tool("mkfs.btrfs", ["-q", first.to_str().unwrap()]);
        let images = Self { scratch, first };
        images.on_kernel(&images.first, fill);
        images
    }

    fn copy(&self, name: &str) -> PathBuf {
        let copy = self.scratch.join(format!("{name}.img"));
        tool("cp", ["--sparse=always", self.first.to_str().unwrap(), copy.to_str().unwrap()]);
        copy
    }

    /// What a script says on the kernel's mount of an image.
    fn on_kernel(&self, image: &Path, script: &str) -> String {
        self.on_kernel_with("", image, script)
    }

    /// The same with mount options.
    fn on_kernel_with(&self, options: &str, image: &Path, script: &str) -> String {
        let kernel = KernelMount::of(&[image], options, &[FEATURE]).unwrap();
        let ended =
            Command::new("bash").args(["-euo", "pipefail", "-c", script]).current_dir(kernel.path()).output();
        kernel.unmount().unwrap();
        let ended = ended.unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8_lossy(&ended.stdout).into_owned()
    }

    /// Runs work on vlinder's mount of an image.
    fn on_mount<T>(&self, image: &Path, work: impl FnOnce(&Path) -> T) -> T {
        let point = self.scratch.join("mount");
        std::fs::create_dir_all(&point).unwrap();
        run([Path::new("mount"), image, &point]).done();
        let done = work(&point);
        run([Path::new("umount"), &point]).done();
        done
    }
}

fn extents(image: &Path, path: &str) -> Value {
    let map = run(["--json", "filemap", &target(image, path)]).done().json();
    map["files"][0]["extents"].clone()
}

/// Files stored in all ways, and directories for their copies.
const KINDS: &str = r#"
random() { head -c "$1" /dev/urandom; }
random 1000001 > plain; printf tiny > inline; seq 100000 > text; truncate -s 9M sparse; cat text >> sparse
fallocate -l 1M pre; random 300000 | dd of=pre conv=notrunc status=none; : > empty
mkdir zs; btrfs property set zs compression zstd; seq 300000 > zs/packed
mkdir ncd to; chattr +C ncd; random 300000 > ncd/nc; random 1048576 > cut; sync
random 4096 | dd of=cut bs=4k seek=10 conv=notrunc status=none; sync
"#;

const COPIES: [(&str, &str); 11] = [
    ("plain", "to/plain"),
    ("inline", "to/inline"),
    ("text", "to/text"),
    ("sparse", "to/sparse"),
    ("pre", "to/pre"),
    ("empty", "to/empty"),
    ("zs/packed", "to/packed"),
    ("cut", "to/cut"),
    ("ncd/nc", "ncd/copy"),
    // Without checksums and with: such share nothing.
    ("ncd/nc", "to/nc"),
    ("plain", "ncd/plain"),
];

#[test]
fn copies_share_the_extents_that_cp_shares_on_linux() {
    require!(Root, KernelBtrfs, Fuse, Tool("btrfs"), Tool("mkfs.btrfs"));
    let images = Images::new("sharing-cp", KINDS);
    let (kernels, offline, mounted) = (images.copy("kernel"), images.copy("offline"), images.copy("mounted"));
    let script: String = COPIES
        .iter()
        .map(|(from, to)| format!("cp --reflink=always {from} {to} 2>/dev/null && echo 0 || echo 1\n"))
        .collect();
    let theirs = images.on_kernel(&kernels, &script);
    let theirs: Vec<i32> = theirs.lines().map(|line| line.parse().unwrap()).collect();
    let reflink = |from: String, to: String| run(["cp", "--reflink", &from, &to]).code;
    let ours: Vec<i32> = COPIES
        .iter()
        .map(|(from, to)| reflink(target(&offline, &format!("/{from}")), target(&offline, &format!("/{to}"))))
        .collect();
    let on_mount = images.on_mount(&mounted, |point| {
        // What the kernel has not handed over yet is shared all the same.
        std::fs::write(point.join("dirty"), vec![5; 300_000]).unwrap();
        let at = |path: &str| point.join(path).to_str().unwrap().to_owned();
        assert_eq!(reflink(at("dirty"), at("to/dirty")), 0);
        COPIES.iter().map(|(from, to)| reflink(at(from), at(to))).collect::<Vec<i32>>()
    });
    assert_eq!(theirs, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
    assert_eq!((&ours, &on_mount), (&theirs, &theirs));
    for (_, path) in COPIES.iter().zip(&theirs).filter(|(_, code)| **code == 0).map(|(copy, _)| copy) {
        let path = format!("/{path}");
        let expected = extents(&kernels, &path);
        assert_eq!(extents(&offline, &path), expected, "{path}");
        assert_eq!(extents(&mounted, &path), expected, "{path} on a mount");
        let is_shared = |run: &Value| run["shared"] == true || run["inline"] == true;
        assert!(expected.as_array().unwrap().iter().all(is_shared), "{path}: {expected}");
    }
    let dirty = extents(&mounted, "/to/dirty");
    assert_eq!((&dirty, &dirty[0]["shared"]), (&extents(&mounted, "/dirty"), &Value::Bool(true)));
    for image in [&offline, &mounted] {
        btrfs_check(image).unwrap();
        images.on_kernel(image, "for f in plain inline text sparse pre empty cut; do cmp $f to/$f; done; cmp zs/packed to/packed; cmp ncd/nc ncd/copy");
    }
}

/// Files whose bytes lie in items, compressed and not.
const IN_ITEMS: &str = r#"
mkdir zs to ncd; btrfs property set zs compression zstd; printf tiny > tiny
printf 'packed text %.0s' {1..290} > zs/packed; head -c 4096 /dev/zero > zs/full; seq 700 > zs/seq
printf small > to/small; truncate -s 50 to/hole; truncate -s 9000 to/long; head -c 4096 /dev/zero > to/sector
: > to/reserved; fallocate -n -l 8192 to/reserved; head -c 100000 /dev/urandom > to/extents; cp zs/full to/other
printf larger%.0s {1..300} > to/larger; sync
"#;

/// Clones of them to new files, to files that have something, and to an offset.
const CLONES: &str = r#"
import os
def clone(source, target, at=0):
    source, target = os.open(source, os.O_RDONLY), os.open(target, os.O_RDWR | os.O_CREAT, 0o644)
    left = os.fstat(source).st_size
    assert os.copy_file_range(source, target, left, 0, at) == left
    os.close(source); os.close(target)
for name in ['tiny', 'zs/packed', 'zs/full', 'zs/seq']: clone(name, 'to/' + name.replace('/', '-'))
for name in ['small', 'hole', 'reserved']: clone('zs/packed', 'to/' + name)
clone('zs/full', 'to/long'); clone('zs/full', 'to/extents'); clone('zs/full', 'to/other')
clone('zs/full', 'to/sector'); clone('zs/packed', 'to/behind', 4096); clone('tiny', 'to/larger'); clone('zs/packed', 'zs/beside')
"#;

/// The generation of an image's last commit.
fn generation(image: &Path) -> u64 {
    let text = tool("btrfs", ["inspect-internal", "dump-super", image.to_str().unwrap()]);
    let line = text.lines().find(|line| line.starts_with("generation")).unwrap();
    line.rsplit(|letter: char| !letter.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// The items of all files' data, as btrfs-progs shows them, without addresses. The generation is that of
/// bytes in the item alone; after `newest` it is not told which.
fn data_items(image: &Path, newest: u64) -> Vec<String> {
    let text = tool("btrfs", ["inspect-internal", "dump-tree", "-t", "5", image.to_str().unwrap()]);
    let (mut items, mut is_data) = (Vec::<String>::new(), false);
    for line in text.lines().map(str::trim) {
        if let Some((_, key)) = line.split_once(" key ") {
            is_data = key.contains(" EXTENT_DATA ");
            if is_data {
                let (key, place) = key.split_once(" itemoff ").unwrap();
                items.push(format!("{key} {}", place.split_once(' ').unwrap().1));
            }
        } else if is_data {
            let words: Vec<&str> = line.split(' ').collect();
            let line = match words[..] {
                ["generation", _, "type", kind, ref name @ ..] if kind != "0" => {
                    format!("type {kind} {}", name.join(" "))
                }
                ["generation", number, ref rest @ ..] => {
                    let is_old = number.parse::<u64>().unwrap() <= newest;
                    format!("generation {} {}", if is_old { number } else { "new" }, rest.join(" "))
                }
                ["extent", "data", "disk", "byte", address, ref rest @ ..] => {
                    format!("{} {}", if address == "0" { "hole" } else { "extent" }, rest.join(" "))
                }
                ["extent" | "inline", ..] => line.to_owned(),
                _ => continue,
            };
            let item = items.last_mut().unwrap();
            item.push_str("; ");
            item.push_str(&line);
        }
    }
    items
}

#[test]
fn bytes_in_items_are_cloned_as_on_linux() {
    require!(Root, KernelBtrfs, Fuse, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("python3"));
    let images = Images::new("sharing-items", IN_ITEMS);
    let newest = generation(&images.first);
    let (kernels, mounted) = (images.copy("kernel"), images.copy("mounted"));
    let theirs = images.on_kernel(&kernels, &format!("python3 -c \"{CLONES}\"; {SUMS}"));
    images.on_mount(&mounted, |point| {
        let ended = Command::new("python3").args(["-c", CLONES]).current_dir(point).output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    });
    let (expected, found) = (data_items(&kernels, newest), data_items(&mounted, newest));
    let packed = |item: &&String| item.contains("compression 3 (zstd)") && !item.contains("generation new");
    assert!(expected.iter().filter(packed).count() >= 9, "{expected:#?}");
    assert_eq!(found, expected);
    assert_eq!(images.on_kernel(&mounted, SUMS), theirs);
    btrfs_check(&mounted).unwrap();
    run(["check", "--check-data-csum", mounted.to_str().unwrap()]).done();
    // By cp, in an image and on a mount.
    let (kernels, offline) = (images.copy("kernel-cp"), images.copy("offline-cp"));
    let mounted = images.copy("mounted-cp");
    let copies = ["tiny", "zs/packed", "zs/full", "zs/seq"].map(|from| (from, from.replace('/', "-")));
    let script: String =
        copies.iter().map(|(from, to)| format!("cp --reflink=always {from} to/{to}\n")).collect();
    images.on_kernel(&kernels, &script);
    for (from, to) in &copies {
        run([
            "cp",
            "--reflink",
            &target(&offline, &format!("/{from}")),
            &target(&offline, &format!("/to/{to}")),
        ])
        .done();
    }
    images.on_mount(&mounted, |point| {
        for (from, to) in &copies {
            let at = |path: &str| point.join(path).to_str().unwrap().to_owned();
            run(["cp", "--reflink", &at(from), &at(&format!("to/{to}"))]).done();
        }
    });
    let expected = data_items(&kernels, newest);
    assert_eq!(data_items(&offline, newest), expected);
    assert_eq!(data_items(&mounted, newest), expected);
    btrfs_check(&offline).unwrap();
}

/// Copies between files with checksums, without them by the mount option, and without them by chattr +C.
const CHECKSUMS: [(&str, &str); 7] = [
    ("bare", "to/bare"),
    ("bare", "ncd/bare"),
    ("ncd/nc", "to/nc"),
    ("summed", "to/summed"),
    ("summed", "ncd/summed"),
    ("packed", "to/packed"),
    ("tiny", "to/tiny"),
];

#[test]
fn a_mount_without_checksums_shares_as_linux_does() {
    require!(Root, KernelBtrfs, Fuse, Tool("btrfs"), Tool("mkfs.btrfs"));
    let fill =
        "mkdir to ncd; chattr +C ncd; head -c 300001 /dev/urandom | tee summed > ncd/nc; seq 300 > tiny
        : > packed; btrfs property set packed compression zstd; seq 100000 > packed";
    let images = Images::new("sharing-nodatasum", fill);
    images.on_kernel_with("nodatasum", &images.first, "head -c 300001 /dev/urandom > bare");
    for options in ["nodatasum", "datasum", "nodatacow"] {
        let (kernels, offline, mounted) = (
            images.copy(&format!("{options}-kernel")),
            images.copy(&format!("{options}-offline")),
            images.copy(&format!("{options}-mounted")),
        );
        let script: String = CHECKSUMS
            .iter()
            .map(|(from, to)| format!("cp --reflink=always {from} {to} 2>/dev/null && echo 0 || echo 1\n"))
            .collect();
        let theirs = images.on_kernel_with(options, &kernels, &script);
        let theirs: Vec<i32> = theirs.lines().map(|line| line.parse().unwrap()).collect();
        let reflink = |from: String, to: String, option: &[&str]| {
            run([&["cp"], option, &["--reflink=always", &from, &to]].concat()).code
        };
        let inside = |path: &str| target(&offline, &format!("/{path}"));
        let ours: Vec<i32> =
            CHECKSUMS.iter().map(|(from, to)| reflink(inside(from), inside(to), &["-o", options])).collect();
        let point = images.scratch.join("mount");
        std::fs::create_dir_all(&point).unwrap();
        run([Path::new("mount"), Path::new("-o"), Path::new(options), &mounted, &point]).done();
        let at = |path: &str| point.join(path).to_str().unwrap().to_owned();
        let on_mount: Vec<i32> = CHECKSUMS.iter().map(|(from, to)| reflink(at(from), at(to), &[])).collect();
        run([Path::new("umount"), &point]).done();
        assert_eq!((&ours, &on_mount), (&theirs, &theirs), "{options}");
        assert!(theirs.contains(&0) && theirs.contains(&1), "{options} {theirs:?}");
        for ((_, path), _) in CHECKSUMS.iter().zip(&theirs).filter(|(_, code)| **code == 0) {
            let path = format!("/{path}");
            let expected = extents(&kernels, &path);
            assert_eq!(extents(&offline, &path), expected, "{options} {path}");
            assert_eq!(extents(&mounted, &path), expected, "{options} {path} on a mount");
        }
        for image in [&offline, &mounted] {
            btrfs_check(image).unwrap();
            run(["check", "--check-data-csum", image.to_str().unwrap()]).done();
        }
    }
}

#[test]
fn what_is_not_to_be_shared_is_copied() {
    let scratch = Scratch::new("sharing-never");
    let (image, other, source) =
        (scratch.join("disk.img"), scratch.join("other.img"), scratch.join("source"));
    make_image(&image);
    make_image(&other);
    std::fs::write(&source, vec![7; 300_000]).unwrap();
    let path = source.to_str().unwrap();
    run(["cp", path, &target(&image, "/a")]).done();
    let bytes = |words: &[&str], from: &str, to: &str| {
        let words = [&["--json", "cp", "-f"], words, &[from, to]].concat();
        let told = run(words).done().json();
        (told["copied_bytes"].as_u64().unwrap(), told["shared_bytes"].as_u64().unwrap())
    };
    let a = target(&image, "/a");
    assert_eq!(bytes(&[], &a, &target(&image, "/b")), (0, 300_000));
    assert_eq!(bytes(&["--reflink=never"], &a, &target(&image, "/c")), (300_000, 0));
    assert_eq!(bytes(&["--reflink=auto"], &a, &target(&other, "/a")), (300_000, 0));
    // A file that stays the file that it is shares its new content, too.
    assert_eq!(bytes(&["--reflink"], &a, &target(&image, "/c")), (0, 300_000));
    assert_eq!(extents(&image, "/c"), extents(&image, "/a"));
    let refused = run(["cp", "--reflink=always", &a, &target(&other, "/b")]);
    refused.failed(1, &["different file systems", "--reflink=auto"]);
    run(["ls", &target(&other, "/b")]).failed(1, &["/b"]);
    run(["cp", "--reflink=sometimes", &a, &a]).failed(2, &["sometimes"]);
}

/// Independent copies, a near one and a shifted one, and a read-only snapshot with one more.
const DOUBLES: &str = r#"
random() { head -c "$1" /dev/urandom; }
copy() { dd if="$1" of="$2" bs=64k status=none; }
mkdir -p exact/1 exact/2 near; btrfs -q subvolume create exact/sub
random 3000001 > exact/a; seq 500000 600000 > exact/text; random 20000 > exact/small; printf tiny > exact/tiny
mkdir exact/zs; btrfs property set exact/zs compression zstd; seq 300000 > exact/zs/packed
mkdir exact/zs2; btrfs property set exact/zs2 compression zstd; sync
for d in 1 2 sub; do for f in a text small tiny; do copy exact/$f exact/$d/$f; done; done
copy exact/zs/packed exact/zs2/packed; sync
btrfs -q subvolume snapshot -r exact/sub exact/frozen; btrfs -q subvolume delete exact/sub
copy exact/a near/changed; printf x | dd of=near/changed bs=1 seek=1500000 conv=notrunc status=none
(random 1048576; cat exact/a) > near/shifted; sync; btrfs -q subvolume sync . || true
"#;

const SUMS: &str = "find . -type f -exec sha256sum {} + | sort -k2";
const USAGE: &str = "sync; for d in exact .; do compsize -b $d | awk '/^TOTAL/ { print $3 }'; done";

#[test]
fn doubles_are_shared_as_by_cp_and_duperemove() {
    require!(
        Root,
        KernelBtrfs,
        Fuse,
        Tool("btrfs"),
        Tool("mkfs.btrfs"),
        Tool("compsize"),
        Tool("duperemove")
    );
    let images = Images::new("sharing-dedupe", DOUBLES);
    let (cp, duperemove) = (images.copy("cp"), images.copy("duperemove"));
    let (offline, mounted) = (images.copy("offline"), images.copy("mounted"));
    let sums = images.on_kernel(&images.first, SUMS);
    let usage = |script: &str, image: &Path| -> Vec<u64> {
        let text = images.on_kernel(image, &format!("{script}\n{USAGE}"));
        text.lines().map(|line| line.parse().unwrap()).collect()
    };
    let before = usage("", &images.first);
    // Into the snapshot cp can't copy: a copy takes its place for the comparison.
    let by_cp = usage(
        "btrfs -q subvolume delete -c exact/frozen; mkdir exact/frozen
         for d in 1 2 frozen; do for f in a text small tiny; do cp --reflink=always exact/$f exact/$d/; done; done
         cp --reflink=always exact/zs/packed exact/zs2/; btrfs -q subvolume sync .",
        &cp,
    );
    let by_duperemove = usage("duperemove -dr -q . >/dev/null", &duperemove);
    let told = run(["--json", "dedupe", "--dry-run", &target(&offline, "/")]).done().json();
    assert_eq!(usage("", &offline), before, "--dry-run shares nothing");
    let done = run(["--json", "dedupe", &target(&offline, "/")]).done().json();
    assert_eq!((&done["shared_bytes"], &done["differing_bytes"]), (&told["shared_bytes"], &Value::from(0)));
    let told =
        images.on_mount(&mounted, |point| run([Path::new("dedupe"), Path::new("-v"), point]).done().text());
    assert!(told.contains("exact/frozen/a: 2.86MiB"), "{told}");
    println!("before {before:?}, cp {by_cp:?}, duperemove {by_duperemove:?}, {done}");
    for image in [&offline, &mounted] {
        btrfs_check(image).unwrap();
        assert_eq!(images.on_kernel(image, SUMS), sums);
        let ours = usage("", image);
        println!("ours {ours:?}");
        assert_eq!(ours[0], by_cp[0], "whole files as by cp --reflink");
        assert!(ours[1] <= by_duperemove[1] && ours[1] < before[1], "{ours:?}, {by_duperemove:?}");
    }
    let again = run(["--json", "dedupe", &target(&offline, "/")]).done().json();
    assert_eq!(again["shared_bytes"], 0, "{again}");
}

#[test]
fn what_cannot_be_deduped_is_told() {
    let scratch = Scratch::new("sharing-told");
    let (image, other) = (scratch.join("disk.img"), scratch.join("other.img"));
    make_image(&image);
    make_image(&other);
    let (here, there) = (target(&image, "/"), target(&other, "/"));
    run(["dedupe", &here, &there])
        .failed(1, &["another file system than the first target", "a call for each"]);
    run(["dedupe", &target(&image, "/nothing")]).failed(1, &["nothing"]);
    run(["dedupe", scratch.path().to_str().unwrap()]).failed(1, &["not a btrfs filesystem"]);
    for size in ["1000", "2K", "96K", "32M", "x"] {
        run(["dedupe", "-b", size, &here]).failed(2, &[size]);
    }
    let told = run(["--json", "dedupe", "-b", "4K", &here]).done().json();
    assert_eq!((&told["files"], &told["dry_run"]), (&Value::from(0), &Value::Bool(false)));
}

/// Linux shares whole sectors alone.
#[test]
fn blocks_are_not_smaller_than_sectors() {
    let scratch = Scratch::new("sharing-sectors");
    let (image, source) = (scratch.join("disk.img"), scratch.join("source"));
    std::fs::File::create(&image).unwrap().set_len(300 << 20).unwrap();
    // It may warn that this machine's Linux can't mount that.
    assert_eq!(run(["mkfs", "-s", "64k", "-n", "64k", image.to_str().unwrap()]).code, 0);
    let sectors = |numbers: &[u64]| -> Vec<u8> {
        let sector = |number: &u64| {
            let random = SeededRandom::new(*number);
            (0..8192).flat_map(move |_| random.next_u64().to_le_bytes())
        };
        numbers.iter().flat_map(sector).collect()
    };
    let first = sectors(&[1, 2, 3]);
    // Half a sector on, nothing of the second one can be shared.
    let second = [&first[32_768..], &sectors(&[4])].concat();
    let third = sectors(&[5, 1, 2]);
    for (name, bytes) in [("a", &first), ("b", &second), ("c", &third)] {
        std::fs::write(&source, bytes).unwrap();
        run(["cp", source.to_str().unwrap(), &target(&image, &format!("/{name}"))]).done();
    }
    let told = run(["--json", "dedupe", "-b", "4K", &target(&image, "/")]).done().json();
    assert_eq!((&told["shared_bytes"], &told["differing_bytes"]), (&Value::from(131_072), &Value::from(0)));
    run([Path::new("check"), &image]).done();
}

/// One system call copies 2 GiB: a file as long as can be would take four milliards of them.
#[test]
fn a_copy_on_a_mount_steps_over_long_holes() {
    require!(Fuse);
    let scratch = Scratch::new("sharing-holes");
    let (image, point) = (scratch.join("disk.img"), scratch.join("mount"));
    make_image(&image);
    std::fs::create_dir(&point).unwrap();
    let owners = if rustix::process::geteuid().is_root() { "owners=keep" } else { "owners=me" };
    run(["mount".as_ref(), "-o".as_ref(), owners.as_ref(), image.as_path(), &point]).done();
    let places = [0_u64, 5 << 40, (1 << 62) + 4096];
    let sizes = [(1 << 62) + 20_000, i64::MAX as u64];
    let outcomes = sizes.map(|size| {
        let (from, to) = (point.join(format!("{size}")), point.join(format!("to-{size}")));
        let file = std::fs::File::create(&from).unwrap();
        places.iter().for_each(|place| file.write_all_at(&[7; 8192], *place).unwrap());
        file.set_len(size).unwrap();
        let told = run(["--json".as_ref(), "cp".as_ref(), "--reflink".as_ref(), from.as_path(), &to]);
        let copy = std::fs::File::open(&to).unwrap();
        let seen = places.map(|place| {
            let mut bytes = [0; 12_288];
            let count = copy.read_at(&mut bytes, place).unwrap();
            (count, bytes[..8192] == [7; 8192] && bytes[8192..] == [0; 4096])
        });
        (told.code, copy.metadata().unwrap().len() == size, seen)
    });
    run([Path::new("umount"), &point]).done();
    assert_eq!(outcomes, [(0, true, [(12_288, true); 3]); 2]);
    for size in sizes {
        let [one, other] = [format!("/{size}"), format!("/to-{size}")].map(|path| extents(&image, &path));
        assert!(one == other && one.as_array().unwrap().len() == places.len(), "{one} and {other}");
    }
    run([Path::new("check"), &image]).done();
}

#[test]
fn no_write_is_lost_while_a_file_is_deduped() {
    require!(Fuse);
    const LENGTH: usize = 2 << 20;
    let scratch = Scratch::new("sharing-writer");
    let (image, point) = (scratch.join("disk.img"), scratch.join("mount"));
    make_image(&image);
    std::fs::create_dir(&point).unwrap();
    // The image's root directory is root's, where others may not write.
    let owners = if rustix::process::geteuid().is_root() { "owners=keep" } else { "owners=me" };
    run(["mount".as_ref(), "-o".as_ref(), owners.as_ref(), image.as_path(), &point]).done();
    let random = SeededRandom::new(7);
    let mut content = vec![0; LENGTH];
    content.chunks_mut(8).for_each(|word| word.copy_from_slice(&random.next_u64().to_le_bytes()));
    for name in ["kept", "written"] {
        std::fs::write(point.join(name), &content).unwrap();
    }
    let kept = content.clone();
    let ended = AtomicBool::new(false);
    let shared: u64 = thread::scope(|scope| {
        let deduping = thread::try_spawn_scoped(scope, || {
            let mut shared = 0;
            while !ended.load(Ordering::Relaxed) {
                let told = end(crate::common::vlinder().args(["--json", "dedupe"]).arg(&point)).done().json();
                shared += told["shared_bytes"].as_u64().unwrap();
            }
            shared
        });
        let file = std::fs::File::options().write(true).open(point.join("written")).unwrap();
        let written = (0..400_u32).try_for_each(|round| {
            let at = usize::try_from(random.next_u64() % (LENGTH as u64 - 20_000)).unwrap();
            let length = 1 + usize::try_from(random.next_u64() % 19_999).unwrap();
            // Every other write makes both files the same there again.
            let bytes =
                if round % 2 == 0 { kept[at..at + length].to_vec() } else { vec![round as u8; length] };
            file.write_all_at(&bytes, at as u64)?;
            content[at..at + length].copy_from_slice(&bytes);
            thread::sleep(Duration::from_millis(3));
            if round % 40 == 0 { file.sync_all() } else { Ok(()) }
        });
        ended.store(true, Ordering::Relaxed);
        written.unwrap();
        deduping.unwrap().join().unwrap()
    });
    let read = |name: &str| std::fs::read(point.join(name)).unwrap();
    let seen = (read("kept"), read("written"));
    run([Path::new("umount"), &point]).done();
    assert!(seen == (kept.clone(), content.clone()));
    assert!(run(["cat", &target(&image, "/written")]).done().out == content);
    assert!(run(["cat", &target(&image, "/kept")]).done().out == kept);
    run(["check", "--check-data-csum", image.to_str().unwrap()]).done();
    assert!(shared > 0);
}
