//! Free space of an image given back to the host.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::thread;
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::{Scratch, require};

use crate::common::{end, make_image, run, target, tool, vlinder};
use crate::place::Place;

/// Bytes of the host that a file takes.
fn taken(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

fn noise(seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..4 << 20).map(|_| next()).collect()
}

/// An image with ten files of 4 MiB, of which eight are gone again.
fn used_image(scratch: &Scratch) -> std::path::PathBuf {
    let image = scratch.join("disk.img");
    make_image(&image);
    let source = scratch.join("source");
    run(["subvolume", "create", &target(&image, "/volume")]).done();
    for number in 0..10 {
        std::fs::write(&source, noise(number)).unwrap();
        let path = if number == 0 { "/volume/0".to_owned() } else { format!("/{number}") };
        run(["cp", source.to_str().unwrap(), &target(&image, &path)]).done();
    }
    run(["subvolume", "delete", &target(&image, "/volume")]).done();
    for number in 1..8 {
        run(["rm", &target(&image, &format!("/{number}"))]).done();
    }
    image
}

/// Asserts that a copy which leaves zeros out is the same, and no smaller: but for the zeros in tree blocks
/// that are not full, which are theirs.
fn is_sparse(scratch: &Scratch, image: &Path) {
    let copy = scratch.join("copy");
    tool("cp", ["--sparse=always", image.to_str().unwrap(), copy.to_str().unwrap()]);
    assert!(taken(&copy) + (2 << 20) >= taken(image), "{} {}", taken(image), taken(&copy));
    assert!(std::fs::read(&copy).unwrap() == std::fs::read(image).unwrap());
    std::fs::remove_file(copy).unwrap();
}

#[test]
fn a_built_image_has_nothing_to_give_back() {
    require!(Tool("cp"));
    let scratch = Scratch::new("fstrim-built");
    let (tree, image) = (scratch.join("tree"), scratch.join("built.img"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), noise(1)).unwrap();
    run(["mkfs", "-q", "--rootdir", tree.to_str().unwrap(), image.to_str().unwrap()]).done();
    let before = taken(&image);
    is_sparse(&scratch, &image);
    run(["fstrim", image.to_str().unwrap()]).done();
    assert!(taken(&image) <= before && before < taken(&image) + (1 << 20), "{before} {}", taken(&image));
    is_sparse(&scratch, &image);
}

#[test]
fn the_image_takes_less_and_holds_the_same() {
    require!(Tool("cp"));
    let scratch = Scratch::new("fstrim");
    let image = used_image(&scratch);
    let (before, length) = (taken(&image), image.metadata().unwrap().len());
    let listed = run(["tree", &target(&image, "/")]).done().text();
    let told = run(["fstrim", image.to_str().unwrap()]).done().text();
    let bytes: u64 = told.rsplit_once('(').unwrap().1.split(' ').next().unwrap().parse().unwrap();
    assert!(told.contains("disk.img: ") && told.ends_with(" bytes) trimmed\n"), "{told}");
    assert!(bytes > 100 << 20 && bytes < length, "{told}");
    let after = taken(&image);
    assert!(after + (30 << 20) < before && after < 12 << 20, "{before} {after}");
    assert_eq!(image.metadata().unwrap().len(), length);
    assert_eq!(run(["tree", &target(&image, "/")]).done().text(), listed);
    for number in 8..10 {
        assert!(run(["cat", &target(&image, &format!("/{number}"))]).done().out == noise(number));
    }
    run(["check", "--check-data-csum", image.to_str().unwrap()]).done();
    is_sparse(&scratch, &image);
    let json = run(["--json", "fstrim", &target(&image, "/")]).done().json();
    let (groups, rest) = (&json["in_block_groups_bytes"], &json["unallocated_bytes"]);
    assert_eq!(json["trimmed_bytes"].as_u64(), Some(groups.as_u64().unwrap() + rest.as_u64().unwrap()));
    assert!(taken(&image) <= after);
}

#[test]
fn linux_reads_what_is_left() {
    require!(KernelBtrfs, Root, Tool("btrfs"));
    let scratch = Scratch::new("fstrim-linux");
    let image = used_image(&scratch);
    run(["fstrim", image.to_str().unwrap()]).done();
    btrfs_check_data(&image).unwrap();
    let kernel = KernelMount::new(&image, "").unwrap();
    for number in 8..10_u32 {
        assert!(std::fs::read(kernel.path().join(number.to_string())).unwrap() == noise(number));
    }
    assert_eq!(kernel.path().read_dir().unwrap().count(), 2);
    // What Linux finds to give back in it has no blocks any more.
    std::fs::write(kernel.path().join("linux"), noise(77)).unwrap();
    std::fs::remove_file(kernel.path().join("linux")).unwrap();
    tool("sync", ["-f", kernel.path().to_str().unwrap()]);
    let ours = taken(&image);
    let _ = Command::new("fstrim").arg(kernel.path()).status();
    kernel.scrub().unwrap();
    kernel.unmount().unwrap();
    run(["fstrim", image.to_str().unwrap()]).done();
    assert!(taken(&image) <= ours + (1 << 20), "{ours} {}", taken(&image));
    btrfs_check_data(&image).unwrap();
}

#[test]
fn of_a_partition_only_its_own_bytes_are_given_back() {
    require!(Tool("sfdisk"), Tool("sh"));
    let scratch = Scratch::new("fstrim-part");
    let disk = scratch.join("disk.raw");
    let shown = disk.display();
    let script = format!(
        "dd if=/dev/urandom of={shown} bs=1M count=160 status=none && printf 'label: gpt\\nsize=32M\\nsize=100M\\n' | \
         sfdisk -q --wipe never {shown} && cp {shown} {shown}.before"
    );
    tool("sh", ["-c", &script]);
    let part = format!("{shown}@2");
    run(["mkfs", "-q", "-f", "-K", "-M", &part]).done();
    let before = taken(&disk);
    let told = run(["--json", "fstrim", &part]).done().json();
    let bytes = told["trimmed_bytes"].as_u64().unwrap();
    assert!(bytes > 90 << 20 && taken(&disk) + (90 << 20) < before, "{told}");
    let (now, then) =
        (std::fs::read(&disk).unwrap(), std::fs::read(scratch.join("disk.raw.before")).unwrap());
    assert!(now[..33 << 20] == then[..33 << 20] && now[133 << 20..] == then[133 << 20..]);
    run(["check", &part]).done();
}

/// The bytes that the verb tells of a mount.
fn trim_mount(point: &Path) -> u64 {
    let ended = end(vlinder().args(["--json", "fstrim"]).arg(point));
    ended.done().json()["trimmed_bytes"].as_u64().unwrap()
}

#[test]
fn a_held_image_is_told_its_mount() {
    require!(Fuse);
    let place = Place::new("fstrim-mounted");
    place.mount("rw").done();
    let (image, point) = (place.image.to_str().unwrap(), place.point.to_str().unwrap());
    for held in [image, &target(&place.image, "/")] {
        run(["fstrim", held]).failed(1, &[&format!("it is mounted on {point}: work there")]);
    }
    let told = run(["fstrim", point]).done().text();
    assert!(told.starts_with(&format!("{point}: ")) && told.ends_with(" bytes) trimmed\n"), "{told}");
    std::fs::create_dir(place.at("directory")).unwrap();
    run(["fstrim", place.at("directory").to_str().unwrap()]).done();
    place.unmount().done();
    place.mount("ro").done();
    run(["fstrim", point]).failed(1, &["the mount is read-only", "mount it for writing"]);
    place.unmount().done();
    let refused = end(vlinder().args(["fstrim", "-o", "ro"]).arg(&place.image));
    refused.failed(1, &["leave -o ro out"]);
}

#[test]
fn a_mount_that_became_read_only_is_not_trimmed() {
    require!(Root, Fuse);
    let place = Place::new("fstrim-remounted");
    place.mount("rw").done();
    let (image, point) = (place.image.to_str().unwrap(), place.point.to_str().unwrap());
    run(["mount", "-o", "remount,ro", image, point]).done();
    run(["fstrim", point]).failed(1, &["the mount is read-only", "remount,rw"]);
    place.unmount().done();
}

#[test]
fn a_mount_takes_less_after_it() {
    require!(Fuse);
    let place = Place::new("fstrim-mount");
    place.mount("rw").done();
    for number in 0..10 {
        std::fs::write(place.at(&number.to_string()), noise(number)).unwrap();
    }
    run([Path::new("filesystem"), Path::new("sync"), &place.point]).done();
    for number in 0..8 {
        std::fs::remove_file(place.at(&number.to_string())).unwrap();
    }
    let before = taken(&place.image);
    let told = trim_mount(&place.point);
    let after = taken(&place.image);
    assert!(told > 100 << 20, "{told}");
    assert!(after + (30 << 20) < before && after < 14 << 20, "{before} {after}");
    for number in 8..10 {
        assert!(std::fs::read(place.at(&number.to_string())).unwrap() == noise(number));
    }
    place.unmount().done();
    run(["check", "--check-data-csum", place.image.to_str().unwrap()]).done();
}

/// Writes, overwrites, moves and removes files of its own, and syncs some, until it is told to end; gives
/// what is there then.
fn work(directory: &Path, seed: u32, is_over: &AtomicBool) -> BTreeMap<String, Vec<u8>> {
    std::fs::create_dir(directory).unwrap();
    let (mut held, mut round) = (BTreeMap::new(), 0_u32);
    while !is_over.load(Ordering::SeqCst) || round < 40 {
        let (name, older) = (format!("{}", round % 6), format!("{}", (round + 3) % 6));
        let mut bytes = noise(seed + round);
        bytes.truncate(1 + (round as usize * 77_777) % (2 << 20));
        std::fs::write(directory.join(&name), &bytes).unwrap();
        held.insert(name.clone(), bytes);
        if round % 4 == 0 {
            std::fs::File::open(directory.join(&name)).unwrap().sync_all().unwrap();
        }
        if round % 5 == 0 && held.remove(&older).is_some() {
            std::fs::remove_file(directory.join(&older)).unwrap();
        }
        if round % 7 == 0 {
            std::fs::rename(directory.join(&name), directory.join(&older)).unwrap();
            let moved = held.remove(&name).unwrap();
            held.insert(older, moved);
        }
        round += 1;
    }
    held
}

#[test]
fn writers_beside_a_trim_of_their_mount_lose_nothing() {
    require!(Fuse, Tool("btrfs"));
    for options in ["commit=1", "commit=1,threads=8"] {
        write_beside_trims(options);
    }
}

fn write_beside_trims(options: &str) {
    let place = Place::new("fstrim-writers");
    place.mount(options).done();
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3)
        .map(|number: u32| {
            let (directory, is_over) = (place.at(&format!("writer-{number}")), Arc::clone(&is_over));
            let worker = directory.clone();
            (directory, thread::spawn("writer", move || work(&worker, number * 10_000, &is_over)))
        })
        .collect();
    for _ in 0..25 {
        trim_mount(&place.point);
    }
    is_over.store(true, Ordering::SeqCst);
    let held: Vec<_> = writers.into_iter().map(|(place, writer)| (place, writer.join().unwrap())).collect();
    trim_mount(&place.point);
    let compare = || {
        for (directory, files) in &held {
            assert_eq!(std::fs::read_dir(directory).unwrap().count(), files.len());
            for (name, bytes) in files {
                assert!(std::fs::read(directory.join(name)).unwrap() == *bytes, "{directory:?} {name}");
            }
        }
    };
    compare();
    place.unmount().done();
    run(["check", "--check-data-csum", place.image.to_str().unwrap()]).done();
    btrfs_check_data(&place.image).unwrap();
    // Not what the server had in memory.
    place.mount("ro").done();
    compare();
    place.unmount().done();
}
