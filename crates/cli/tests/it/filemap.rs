//! `filemap` against `filefrag -v` (e2fsprogs), and `inspect-internal logical-resolve` against btrfs-progs,
//! on images that the kernel made: plain, sparse, inline, compressed, preallocated, cloned and snapshotted
//! files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::common::{make_image, run, target, tool};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, require};

const SCRIPT: &str = r#"
set -e
cd "$1"
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
sync
xfs_io -f -c "reflink noise 0 0 64k" -c "reflink noise 0 256k 64k" twice > /dev/null
head -c 200000 /dev/urandom > own
sync
mkdir dir
ln own dir/link
btrfs subvolume snapshot . snap > /dev/null
head -c 4096 /dev/urandom | dd of=sparse bs=4k conv=notrunc status=none
head -c 50000 /dev/urandom > later
mkdir snap/deep
head -c 70000 /dev/urandom > snap/deep/only
for n in $(seq 1 2000); do echo > snap/deep/many$n; done
touch empty
truncate -s 1M hole
sync
"#;

const FILES: [&str; 20] = [
    "noise",
    "text",
    "inline",
    "preallocated",
    "sparse",
    "clone",
    "overwritten",
    "clone2",
    "twice",
    "own",
    "later",
    "empty",
    "hole",
    "snap/noise",
    "snap/text",
    "snap/sparse",
    "snap/overwritten",
    "snap/own",
    "snap/twice",
    "snap/deep/only",
];

fn made_by_the_kernel(scratch: &Scratch, options: &str) -> PathBuf {
    let image = scratch.join("image");
    std::fs::File::create(&image).unwrap().set_len(1 << 30).unwrap();
    tool("mkfs.btrfs", ["-q".as_ref(), image.as_os_str()]);
    let mount = KernelMount::unchecked(&image, options).unwrap();
    tool("bash", ["-c", SCRIPT, "bash", mount.path().to_str().unwrap()]);
    mount.unmount().unwrap();
    image
}

fn compare(options: &str) {
    let scratch = Scratch::new("filemap");
    let image = made_by_the_kernel(&scratch, options);
    let mount = KernelMount::unchecked(&image, "ro").unwrap();
    let point = mount.path().to_str().unwrap().to_owned();
    let maps: Vec<String> = FILES
        .iter()
        .map(|name| tool("filefrag", ["-v", &format!("{point}/{name}")]).replace(&format!("{point}/"), "X"))
        .collect();
    // The first address of each run of each file, and one inside; progs print what they find in no order.
    let addresses: BTreeSet<u64> = maps.iter().flat_map(|map| first_addresses(map)).collect();
    let mut resolved = Vec::new();
    for address in &addresses {
        for flags in ["-P", "-Po"] {
            let words = ["inspect-internal", "logical-resolve", flags, &address.to_string(), &point];
            let mut lines: Vec<String> = tool("btrfs", words).lines().map(str::to_owned).collect();
            lines.sort();
            resolved.push((*address, flags, lines));
        }
    }
    mount.unmount().unwrap();
    for (name, map) in FILES.iter().zip(&maps) {
        let path = target(&image, &format!("/{name}"));
        let ours = run(["filemap", &path]).done().text();
        let ours = ours.replace(&format!("{}:/", image.display()), "X");
        assert_eq!(&ours, map, "{options:?}: {name}");
    }
    assert!(addresses.len() > 10, "{addresses:?}");
    for (address, flags, theirs) in &resolved {
        let words =
            ["inspect-internal", "logical-resolve", flags, &address.to_string(), &target(&image, "/")];
        let mut ours: Vec<String> = run(words).done().text().lines().map(str::to_owned).collect();
        ours.sort();
        assert_eq!(&ours, theirs, "{options:?}: {address} {flags}");
    }
}

/// The first address of each run that is not inline and, of longer ones, one 8 KiB behind, in bytes.
fn first_addresses(map: &str) -> Vec<u64> {
    let lines = map.lines().filter(|line| line.contains("..") && !line.contains("inline"));
    let number =
        |text: Option<&str>| text.unwrap().split("..").next().unwrap().trim().parse::<u64>().unwrap();
    let runs = lines.map(|line| {
        let mut fields = line.split(':').skip(2);
        (number(fields.next()), number(fields.next()))
    });
    let addresses = runs.flat_map(|(start, length)| [Some(start), (length > 2).then_some(start + 2)]);
    addresses.flatten().map(|block| block * 4096).collect()
}

#[test]
fn maps_and_resolved_addresses_are_those_of_the_kernel() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("filefrag"), Tool("xfs_io"));
    compare("");
}

#[test]
fn maps_of_compressed_files_are_those_of_the_kernel() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("filefrag"), Tool("xfs_io"));
    compare("compress=zstd");
}

#[test]
fn paths_are_shown_below_the_target() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("filefrag"), Tool("xfs_io"));
    let scratch = Scratch::new("logical-resolve");
    let image = made_by_the_kernel(&scratch, "");
    let map = run(["filemap", &target(&image, "/own")]).done().text();
    let address = first_addresses(&map)[0].to_string();
    let resolve = |path: &str| {
        let words = ["inspect-internal", "logical-resolve", &address, &target(&image, path)];
        let text = run(words).done().text().replace(&image.display().to_string(), "");
        text.lines().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let all = [":/own", ":/dir/link", ":/snap/own", ":/snap/dir/link"].map(str::to_owned);
    assert_eq!(resolve("/"), BTreeSet::from(all));
    let below = resolve("/snap/");
    assert!(below.contains(":/snap/own") && below.contains(":/snap/dir/link"), "{below:?}");
    assert!(below.iter().any(|line| line.contains("could not be accessed: not mounted")), "{below:?}");
    run(["inspect-internal", "logical-resolve", "4096", &target(&image, "/")]).failed(1, &["no file data"]);
}

/// On the mount, by way of the image that it holds, and of the image afterwards.
#[test]
fn the_map_of_a_file_on_a_mount_shows_what_is_unwritten() {
    require!(Fuse);
    let scratch = Scratch::new("filemap-mounted");
    let (image, point) = (scratch.join("disk.img"), scratch.join("mount"));
    make_image(&image);
    std::fs::create_dir(&point).unwrap();
    let owners = if rustix::process::geteuid().is_root() { "owners=keep" } else { "owners=me" };
    run([Path::new("mount"), Path::new("-o"), Path::new(owners), &image, &point]).done();
    let (file, other) = (point.join("file"), point.join("other"));
    std::fs::write(&file, vec![1; 100_000]).unwrap();
    run(["filesystem", "sync", point.to_str().unwrap()]).done();
    std::fs::write(&other, vec![2; 300_000]).unwrap();
    let map = |target: &str| run(["filemap", target]).done().text().replace(target, "X");
    let unwritten = map(other.to_str().unwrap());
    let written = map(file.to_str().unwrap());
    assert!(unwritten.contains("last,unknown_loc,delalloc,eof"), "{unwritten}");
    assert!(written.contains("1 extent found") && written.contains("last,eof"), "{written}");
    assert_eq!(map(&target(&image, "/file")), written);
    // More runs than are told at a time.
    let many = std::fs::File::create(point.join("many")).unwrap();
    for number in 0..1_300_u64 {
        std::os::unix::fs::FileExt::write_all_at(&many, &[3; 4096], number * 8192).unwrap();
    }
    many.sync_all().unwrap();
    drop(many);
    let holes = map(point.join("many").to_str().unwrap());
    assert_eq!(holes.lines().filter(|line| line.contains("..")).count(), 1_300, "{holes}");
    run(["filemap", point.to_str().unwrap()]).failed(1, &["directory"]);
    let address = first_addresses(&written)[0].to_string();
    let resolve = |target: &str| {
        let words = ["inspect-internal", "logical-resolve", &address, target];
        run(words).done().text().replace(target.trim_end_matches('/'), "X")
    };
    assert_eq!(resolve(point.to_str().unwrap()), "X/file\n");
    assert_eq!(resolve(&target(&image, "/")), "X/file\n");
    run([Path::new("umount"), &point]).done();
    assert_eq!(map(&target(&image, "/file")), written);
    assert_eq!(map(&target(&image, "/many")), holes);
}
