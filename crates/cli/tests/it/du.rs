//! `filesystem du` against btrfs-progs on the kernel's mount of the same image: on the image, and under the
//! name `btrfs` on a mount of vlinder's. What would be freed is compared with deletion in the crate that
//! tells it.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{end, make_image, run, target, tool, vlinder};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, require};

/// Files of every kind, in subvolumes in subvolumes and snapshots of them.
const FILL: &str = r#"
b() { btrfs -q subvolume "$@"; }
head -c 300000 /dev/urandom > noise
yes text | head -c 1000000 > text
echo small > inline
fallocate -l 1M preallocated
xfs_io -f -c "pwrite 0 4k" -c "pwrite 12k 4k" -c "falloc 64k 128k" -c "pwrite 100k 8k" sparse > /dev/null
cp --reflink=always noise clone
head -c 1048576 /dev/urandom > overwritten
sync
head -c 4096 /dev/urandom | dd of=overwritten bs=4k seek=75 conv=notrunc status=none
cp --reflink=always overwritten clone2
head -c 1048576 /dev/urandom > middle; sync
head -c 4096 /dev/urandom | dd of=middle bs=4k seek=75 conv=notrunc status=none; sync
head -c 100000 /dev/urandom > self; sync
xfs_io -c "reflink self 0 128k 64k" self > /dev/null
xfs_io -f -c "reflink noise 0 0 64k" -c "reflink noise 0 256k 64k" twice > /dev/null
head -c 200000 /dev/urandom > own
mkdir -p dir/deep/er; ln own dir/link; ln own dir/deep/er/again; head -c 5000 /dev/urandom > dir/deep/er/f
touch $'dir/new\nline' $'dir/raw\377\001' 'dir/sp ace' dir/empty; mkdir dir/nothing; ln -s ../noise dir/symbolic
mkfifo dir/fifo; truncate -s 10M hole; ln -s dir/deep link
b create sub; b create sub/nested; head -c 60000 /dev/urandom > sub/nested/n; cp --reflink=always noise sub/cloned
head -c 60000 /dev/urandom > sub/only; mkdir sub/d; for n in $(seq 1 300); do head -c 5000 /dev/urandom > sub/d/f$n; done
for o in $(seq 0 2 1200); do echo "pwrite -q $((o*4096)) 4k"; done | xfs_io -f sub/frag
sync
b snapshot -r sub sub-1
head -c 4096 /dev/urandom | dd of=sub/d/f7 bs=4k conv=notrunc status=none; rm sub/d/f9
for o in 4 300 1100; do xfs_io -c "pwrite -q $((o*4096)) 4k" sub/frag; done
sync; b snapshot sub sub-2; sync
head -c 9000 /dev/urandom > sub-2/new; rm sub-2/d/f1*
xfs_io -c "reflink sub/frag 16k 16k 64k" sub-2/frag >/dev/null
for o in 8 500; do xfs_io -c "pwrite -q $((o*4096)) 4k" sub/frag; done
cp -r --reflink=always sub/d dir/copied
b create sub-2/later; head -c 70000 /dev/urandom > sub-2/later/l
b snapshot sub-2 dir/of-2
sync
"#;

/// What is asked, from the root of the mount.
const CALLS: [&[&str]; 14] = [
    &["."],
    &["-s", "."],
    &["--raw", "."],
    &["-s", "--raw", "sub", "sub-1", "sub-2", "dir", "noise", "middle", "self", "own", "hole", "inline"],
    &["--summarize", "--si", "dir/of-2", "sub-2/later", "sub", "sub", "sub-1/nested", "link", "text"],
    &["--kbytes", "dir"],
    &["--mbytes", "dir/"],
    &["--gbytes", "--si", "sub/d"],
    &["--tbytes", "-s", "sub-2"],
    &["--iec", "sub-1"],
    &["--human-readable", "link"],
    &["own", "dir/link", "dir/deep"],
    &["dir/fifo", "dir/nothing", "preallocated"],
    &["--raw", "twice", "clone2", "sparse", "sub/frag", "sub-1/frag", "sub-2/frag"],
];

struct Made {
    image: PathBuf,
    scratch: Scratch,
}

fn make(name: &str, options: &str) -> Made {
    let scratch = Scratch::new(name);
    let image = scratch.join("disk.img");
    std::fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
    tool("mkfs.btrfs", ["-q", image.to_str().unwrap()]);
    let kernel = KernelMount::unchecked(&image, options).unwrap();
    let filled = Command::new("bash").args(["-euc", FILL]).current_dir(kernel.path()).output().unwrap();
    assert!(filled.status.success(), "{filled:?}");
    kernel.unmount().unwrap();
    Made { image, scratch }
}

fn of_progs(image: &Path) -> Vec<Vec<u8>> {
    let kernel = KernelMount::unchecked(image, "ro").unwrap();
    let answers = CALLS.iter().map(|words| {
        let mut command = Command::new("btrfs");
        command.args(["filesystem", "du"]).args(*words).env("LC_ALL", "C").current_dir(kernel.path());
        end(&mut command).done().out
    });
    let answers = answers.collect();
    kernel.unmount().unwrap();
    answers
}

#[test]
fn usage_is_told_as_by_btrfs_progs() {
    require!(KernelBtrfs, Fuse, Root, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("xfs_io"));
    let made = make("du-like-progs", "");
    let theirs = of_progs(&made.image);
    let (own, point) = (made.scratch.join("btrfs"), made.scratch.join("mount"));
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_vlinder"), &own).unwrap();
    std::fs::create_dir(&point).unwrap();
    run([Path::new("mount"), &made.image, &point]).done();
    for (words, theirs) in CALLS.iter().zip(&theirs) {
        let mut command = Command::new(&own);
        command.args(["filesystem", "du"]).args(*words).current_dir(&point);
        let ours = end(&mut command).done().out;
        assert_eq!(ours.escape_ascii().to_string(), theirs.escape_ascii().to_string(), "{words:?}");
    }
    run([Path::new("umount"), &point]).done();
    for (words, theirs) in CALLS.iter().zip(&theirs) {
        // The same places in the image, and the same lines but for what the image is called.
        let place = |word: &&str| match word.strip_prefix("-") {
            Some(_) => (*word).to_owned(),
            None => format!("disk.img:/{}", word.trim_start_matches('.')),
        };
        let words: Vec<String> = words.iter().map(place).collect();
        let mut command = vlinder();
        command.args(["filesystem", "du"]).args(&words).current_dir(made.scratch.path());
        let ours = end(&mut command).done().out;
        let ours = String::from_utf8_lossy(&ours).replace("disk.img:/", "");
        let theirs = String::from_utf8_lossy(theirs).replace("  ./", "  ").replace("  .\n", "  \n");
        assert_eq!(ours, theirs, "{words:?}");
    }
}

#[test]
fn of_compressed_files_set_shared_alone_differs_from_progs() {
    require!(KernelBtrfs, Root, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("xfs_io"));
    let made = make("du-compressed", "compress-force=zstd");
    let theirs = of_progs(&made.image);
    let columns = |bytes: &[u8]| -> Vec<(String, String)> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let columns = text.lines().skip(1).map(|line| {
            let mut words = line.split_whitespace();
            (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned())
        });
        columns.collect()
    };
    for place in [3, 13] {
        let words = CALLS[place].iter().map(|word| match word.strip_prefix("-") {
            Some(_) => (*word).to_owned(),
            None => target(&made.image, &format!("/{word}")),
        });
        let words: Vec<String> = words.collect();
        let ours = end(vlinder().args(["filesystem", "du"]).args(&words)).done().out;
        assert_eq!(columns(&ours), columns(&theirs[place]), "{words:?}");
    }
    // Two files that show one compressed extent of 128 KiB after the other: each byte counts once.
    let json = run(["--json", "filesystem", "du", "-s", &target(&made.image, "/sub")]).done().json();
    let of = |name: &str| json["targets"][0][name].as_u64().unwrap();
    assert!(of("set_shared_bytes") > 0);
    assert!(of("set_shared_bytes") <= of("total_bytes") - of("exclusive_bytes"), "{json}");
}

#[test]
fn what_several_free_together_is_told_in_a_last_line() {
    let scratch = Scratch::new("du-freed");
    let (image, source) = (scratch.join("disk.img"), scratch.join("source"));
    make_image(&image);
    std::fs::write(&source, vec![7; 100_000]).unwrap();
    let at = |path: &str| target(&image, path);
    run(["subvolume", "create", &at("/one")]).done();
    run(["cp", source.to_str().unwrap(), &at("/one/file")]).done();
    run(["subvolume", "snapshot", &at("/one"), &at("/two")]).done();
    let freed = |words: &[&str]| -> Vec<u64> {
        let mut all = vec!["filesystem", "du", "--raw", "--only-freed"];
        all.extend(words);
        let text = run(all).done().text();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("     Freed  Filename"));
        lines.map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect()
    };
    let (one, two, file, same) = (at("/one"), at("/two"), at("/one/file"), at("/two/file"));
    // A snapshot has its root block alone; the file's 25 sectors go with the last of all names.
    let node = 16384;
    assert_eq!(freed(&[&one]), [node]);
    assert_eq!(freed(&[&one, &two]), [node, node, 2 * node + 102_400]);
    assert_eq!(freed(&[&file, &same]), [0, 0, 102_400]);
    assert_eq!(freed(&[&one, &same]), [node, 0, node + 102_400]);
    assert_eq!(freed(&[&file, &file]), [0, 0, 0]);
    let json = run(["--json", "filesystem", "du", &one, &two]).done().json();
    assert_eq!(json["together"]["data_bytes"], 102_400);
    assert_eq!(json["targets"][0]["freed"]["metadata_bytes"], node);
    assert_eq!(json["lines"].as_array().unwrap().len(), 2);
    let missing = at("/missing");
    let ended = run(["filesystem", "du", "--only-freed", &one, &two, &missing]).failed(3, &[&missing]);
    assert!(!ended.text().contains("together"), "a sum without one of its parts");
}

#[test]
fn a_mount_is_measured_as_it_was_committed() {
    require!(Fuse, Root);
    let scratch = Scratch::new("du-mount");
    let (image, point) = (scratch.join("disk.img"), scratch.join("mount"));
    make_image(&image);
    std::fs::create_dir(&point).unwrap();
    run([Path::new("mount"), &image, &point]).done();
    let mut file = std::fs::File::create(point.join("file")).unwrap();
    file.write_all(&[7; 100_000]).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let words = ["filesystem", "du", "--raw", "--freed", "-s", point.to_str().unwrap()];
    let text = run(words).done().text();
    let numbers: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().take(4).collect();
    assert_eq!(numbers, ["102400", "102400", "0", "102400"]);
    run([Path::new("umount"), &point]).done();
}
