//! How long images are that [`mkfs`](vlinder_admin::mkfs) fills, and what Linux makes of the least ones.

use std::io::Write;
use std::path::{Path, PathBuf};

use vlinder_admin::mkfs::{
    FormatOptions, MkfsError, MkfsFeatures, MkfsOptions, RootDirectory, SubvolumeDirectory,
};
use vlinder_base::clock::Timestamp;
use vlinder_format::Uuid;
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_fs::{Filesystem, OpenOptions};
use vlinder_testkit::kernel::{KernelMount, LoopDevice, btrfs_check, btrfs_check_data};
use vlinder_testkit::{Scratch, require};
use vlinder_volume::Profile;

use crate::mkfs::{content, error_of, everything, filled, formatted, judged, make, same_walks};

const MEBIBYTE: u64 = 1 << 20;

fn source(scratch: &Scratch) -> PathBuf {
    let source = scratch.join("source");
    std::fs::create_dir(&source).unwrap();
    source
}

fn shrunk(source: &Path) -> RootDirectory {
    RootDirectory { shrink: true, ..RootDirectory::new(source) }
}

fn size_of(options: &MkfsOptions, target: &Path) -> u64 {
    let report = make(options, target).unwrap();
    let length = std::fs::metadata(target).unwrap().len();
    assert_eq!(length, report.size_bytes, "the file is as long as the file system");
    length
}

/// Everything that could differ is given.
fn reproducible(root: RootDirectory) -> MkfsOptions {
    MkfsOptions {
        uuid: Some(Uuid([9; 16])),
        time: Some(Timestamp::new(1_700_000_000, 0)),
        root_directory: Some(root),
        ..judged()
    }
}

#[test]
fn further_names_and_holes_take_no_room() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("sizes");
    let source = source(&scratch);
    std::fs::write(source.join("file"), content(10 << 20, 1)).unwrap();
    for number in 0..100 {
        std::fs::hard_link(source.join("file"), source.join(format!("link-{number}"))).unwrap();
    }
    for root in [RootDirectory::new(&source), shrunk(&source)] {
        let image = scratch.join("links");
        let size = size_of(&MkfsOptions { root_directory: Some(root), force: true, ..judged() }, &image);
        assert!(size <= 24 * MEBIBYTE, "{size}");
        let mount = KernelMount::new(&image, "ro").unwrap();
        same_walks(&source, mount.path(), true);
        mount.unmount().unwrap();
    }
    std::fs::remove_dir_all(&source).unwrap();
    std::fs::create_dir(&source).unwrap();
    std::fs::File::create(source.join("hole")).unwrap().set_len(5 << 30).unwrap();
    let size = size_of(&filled(&source), &scratch.join("hole"));
    assert!(size <= 8 * MEBIBYTE, "{size}");
    assert_eq!(make(&filled(&source), &scratch.join("second")).unwrap().copied.data_bytes, 0);
}

#[test]
fn shrunk_images_are_the_same_whatever_was_there() {
    let scratch = Scratch::new("sizes");
    let source = source(&scratch);
    std::fs::write(source.join("file"), content(10 << 20, 1)).unwrap();
    for number in 0..100 {
        std::fs::hard_link(source.join("file"), source.join(format!("link-{number}"))).unwrap();
    }
    let image = scratch.join("new");
    let least = size_of(&reproducible(shrunk(&source)), &image);
    let expected = std::fs::read(&image).unwrap();
    for length in [0, 1 << 20, 64 << 20, 200 << 20, 1 << 30, 100 << 30, 1 << 40] {
        for given in [false, true] {
            let image = scratch.join(format!("{length}-{given}"));
            let mut options = reproducible(shrunk(&source));
            if given {
                options.size_bytes = Some(length);
            } else {
                std::fs::File::create(&image).unwrap().set_len(length).unwrap();
            }
            assert_eq!(size_of(&options, &image), least, "{length}");
            assert!(std::fs::read(&image).unwrap() == expected, "{length}, given: {given}");
            std::fs::remove_file(&image).unwrap();
        }
    }
}

#[test]
fn a_given_size_is_kept_where_it_is_enough_and_else_grows() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("sizes");
    let source = source(&scratch);
    std::fs::write(source.join("file"), content(1 << 20, 1)).unwrap();
    // As Buildroot calls mkfs.btrfs.
    let buildroot = MkfsOptions { size_bytes: Some(100 * MEBIBYTE), force: true, ..filled(&source) };
    let image = scratch.join("image");
    assert_eq!(size_of(&buildroot, &image), 100 * MEBIBYTE);
    let mount = KernelMount::new(&image, "").unwrap();
    std::fs::write(mount.path().join("large"), content(40 << 20, 2)).unwrap();
    mount.unmount().unwrap();
    btrfs_check_data(&image).unwrap();

    std::fs::write(source.join("more"), content(150 << 20, 3)).unwrap();
    let size = size_of(&buildroot, &image);
    assert!((151 * MEBIBYTE..200 * MEBIBYTE).contains(&size), "{size}");
    let mount = KernelMount::new(&image, "ro").unwrap();
    same_walks(&source, mount.path(), true);
    mount.unmount().unwrap();
}

#[test]
fn linux_makes_files_in_small_images_of_a_given_size() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("sizes");
    let source = source(&scratch);
    std::fs::write(source.join("file"), content(1 << 20, 1)).unwrap();
    for (metadata, mebibytes) in [(Profile::Single, 24), (Profile::Dup, 40)] {
        let format = FormatOptions { metadata_profile: Some(metadata), ..judged().format };
        let options = MkfsOptions {
            size_bytes: Some(mebibytes * MEBIBYTE),
            root_directory: Some(RootDirectory::new(&source)),
            ..formatted(format)
        };
        let image = scratch.join(metadata.name());
        assert_eq!(size_of(&options, &image), mebibytes * MEBIBYTE);
        let mount = KernelMount::new(&image, "").unwrap();
        std::fs::create_dir(mount.path().join("directory")).unwrap();
        for (name, length) in [("small", 4), ("large", 500_000), ("next", 70_000)] {
            let path = mount.path().join("directory").join(name);
            std::fs::write(&path, content(length, 5)).unwrap_or_else(|error| panic!("{name}: {error}"));
            std::fs::File::open(&path).unwrap().sync_all().unwrap();
        }
        mount.unmount().unwrap();
        btrfs_check_data(&image).unwrap();
        let mount = KernelMount::new(&image, "ro").unwrap();
        assert_eq!(std::fs::read(mount.path().join("directory/large")).unwrap(), content(500_000, 5));
        mount.unmount().unwrap();
    }
}

#[test]
fn a_device_that_is_too_small_is_refused_and_holds_nothing() {
    require!(LoopDevices);
    let scratch = Scratch::new("sizes");
    let source = source(&scratch);
    std::fs::write(source.join("file"), content(40 << 20, 1)).unwrap();
    let file = scratch.join("file");
    // Without room for the data, and without room for the metadata behind them.
    for length in [512 << 10, 20 * MEBIBYTE, 41 * MEBIBYTE + (512 << 10)] {
        std::fs::File::create(&file).unwrap().set_len(length).unwrap();
        let device = LoopDevice::attach(&file).unwrap();
        let error = error_of(&filled(&source), device.node());
        assert!(matches!(error, MkfsError::Full { .. } | MkfsError::Parameters(_)), "{length}: {error}");
        assert!(Filesystem::open(&[device.node()], OpenOptions::read_only()).is_err());
    }
    std::fs::File::create(&file).unwrap().set_len(48 * MEBIBYTE).unwrap();
    let device = LoopDevice::attach(&file).unwrap();
    assert_eq!(make(&filled(&source), device.node()).unwrap().size_bytes, 48 * MEBIBYTE);
    let shrunk = MkfsOptions { root_directory: Some(shrunk(&source)), force: true, ..judged() };
    assert!(make(&shrunk, device.node()).unwrap().size_bytes < 46 * MEBIBYTE);
    let filesystem = Filesystem::open(&[device.node()], OpenOptions::read_only()).unwrap();
    assert!(filesystem.engine().superblock().total_bytes < 46 * MEBIBYTE);
}

/// Profiles, node sizes and features whose least images differ.
fn variants() -> Vec<(&'static str, FormatOptions)> {
    let format = || judged().format;
    let features = |names: &str| {
        let mut features = format().features;
        features.apply(names).unwrap();
        FormatOptions { features, ..format() }
    };
    let mixed = MkfsFeatures { mixed_groups: true, ..format().features };
    vec![
        ("default", format()),
        ("single", FormatOptions { metadata_profile: Some(Profile::Single), ..format() }),
        ("small nodes", FormatOptions { node_size: Some(4096), ..format() }),
        ("large nodes", FormatOptions { node_size: Some(65536), ..format() }),
        ("dup data", FormatOptions { data_profile: Some(Profile::Dup), ..format() }),
        ("mixed", FormatOptions { features: mixed, ..format() }),
        (
            "mixed dup",
            FormatOptions {
                features: mixed,
                data_profile: Some(Profile::Dup),
                metadata_profile: Some(Profile::Dup),
                ..format()
            },
        ),
        ("no free-space tree", features("^free-space-tree")),
        ("old", features("^no-holes,^free-space-tree,^skinny-metadata,^extref")),
    ]
}

#[test]
fn linux_deletes_in_the_least_image_and_unmounts_clean() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("sizes");
    let source = source(&scratch);
    everything(&source);
    for number in 0..800 {
        std::fs::write(source.join(format!("small-{number}")), content(4 * number, number as u64)).unwrap();
    }
    for (name, format) in variants() {
        let image = scratch.join("image");
        let no_holes = format.features.no_holes;
        let options = MkfsOptions { root_directory: Some(shrunk(&source)), force: true, ..formatted(format) };
        size_of(&options, &image);
        btrfs_check_data(&image).unwrap();
        let mount = KernelMount::new(&image, "ro").unwrap();
        same_walks(&source, mount.path(), no_holes);
        mount.unmount().unwrap();
        let mount = KernelMount::new(&image, "").unwrap();
        std::fs::remove_file(mount.path().join("large")).unwrap_or_else(|error| panic!("{name}: {error}"));
        // Linux commits for each of these, since it has so little room.
        for number in 0..8 {
            std::fs::remove_file(mount.path().join(format!("small-{}", 90 * number))).unwrap();
        }
        mount.scrub().unwrap();
        mount.unmount().unwrap_or_else(|error| panic!("{name}: {error}"));
        btrfs_check(&image).unwrap();
    }
}

/// Linux makes no chunk that takes what `df` offered: neither the first writer nor a large file needs one.
#[test]
fn linux_writes_all_the_room_that_an_image_has() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("sizes");
    let source = source(&scratch);
    for number in 0..40 {
        let bytes = content(3_000_000 + number, number as u64);
        std::fs::write(source.join(format!("{number}")), bytes).unwrap();
    }
    let image = scratch.join("image");
    let formatted = formatted(judged().format);
    // A size that follows from the content, and given ones.
    for (mebibytes, least_room) in [(None, 6), (Some(200), 40), (Some(400), 230), (Some(1000), 820)] {
        let root_directory = Some(RootDirectory::new(&source));
        let size_bytes = mebibytes.map(|size| size * MEBIBYTE);
        let options = MkfsOptions { root_directory, size_bytes, force: true, ..formatted.clone() };
        drop(std::fs::remove_file(&image));
        size_of(&options, &image);
        let mount = KernelMount::new(&image, "").unwrap();
        std::fs::write(mount.path().join("new"), "new").unwrap();
        std::fs::File::open(mount.path()).unwrap().sync_all().unwrap();
        let status = rustix::fs::statvfs(mount.path()).unwrap();
        let offered = status.f_bavail * status.f_bsize;
        assert!(offered >= least_room * MEBIBYTE, "{mebibytes:?}: {offered}");
        let mut file = std::fs::File::create(mount.path().join("large")).unwrap();
        let piece = vec![b'x'; 1 << 20];
        while file.write_all(&piece).is_ok() {}
        drop(file.sync_all());
        let written = file.metadata().unwrap().len();
        assert!(written + 4 * MEBIBYTE >= offered, "{mebibytes:?}: {written} of {offered}");
        drop(file);
        std::fs::remove_file(mount.path().join("large")).unwrap();
        std::fs::remove_file(mount.path().join("new")).unwrap();
        mount.unmount().unwrap();
        btrfs_check(&image).unwrap();
    }
}

#[test]
fn a_tree_of_a_mebibyte_takes_eight_at_most() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("sizes");
    let source = source(&scratch);
    for number in 0..16 {
        std::fs::write(source.join(format!("{number}")), content(60_000 + number, number as u64)).unwrap();
    }
    std::fs::write(source.join("rest"), content(60_000, 99)).unwrap();
    for (format, most) in [
        (judged().format, 8),
        (FormatOptions { metadata_profile: Some(Profile::Single), ..judged().format }, 4),
    ] {
        let image = scratch.join("image");
        let options =
            MkfsOptions { root_directory: Some(shrunk(&source)), force: true, ..formatted(format.clone()) };
        let size = size_of(&options, &image);
        assert!(size <= most * MEBIBYTE, "{size}");
        let mount = KernelMount::new(&image, "noatime").unwrap();
        same_walks(&source, mount.path(), true);
        std::fs::remove_file(mount.path().join("7")).unwrap();
        mount.unmount().unwrap();
        btrfs_check_data(&image).unwrap();
        let unshrunk = MkfsOptions { root_directory: Some(RootDirectory::new(&source)), ..options };
        assert!(size_of(&unshrunk, &image) <= 8 * MEBIBYTE);
    }
}

#[test]
fn groups_of_metadata_are_nine_tenths_full() {
    let scratch = Scratch::new("sizes");
    let source = source(&scratch);
    for directory in 0..30_u64 {
        let path = source.join(format!("{directory}"));
        std::fs::create_dir(&path).unwrap();
        for number in 0..400_u64 {
            std::fs::write(path.join(format!("{number}")), content(2000, directory * 400 + number)).unwrap();
        }
    }
    let image = scratch.join("image");
    // What is not shrunk is to be written to by Linux, which needs 640 free nodes.
    for (root, for_writers) in [(shrunk(&source), 0), (RootDirectory::new(&source), 10 * MEBIBYTE)] {
        size_of(&MkfsOptions { root_directory: Some(root), force: true, ..judged() }, &image);
        let filesystem = Filesystem::open(&[&image], OpenOptions::read_only()).unwrap();
        let space = filesystem.engine().space().unwrap();
        let metadata = space.kinds.iter().filter(|kind| kind.flags.has(BlockGroupFlags::METADATA));
        let (used, total) =
            metadata.fold((0, 0), |(used, total), kind| (used + kind.used_bytes, total + kind.total_bytes));
        assert!(used > 24 << 20, "{used}");
        assert!(used * 10 >= (total - for_writers) * 9, "{used} of {total}");
    }
}

#[test]
fn nothing_lies_under_a_superblock_copy() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("sizes");
    let source = source(&scratch);
    // Data end before the copy at 64 MiB, so that it lies in each chunk behind them in turn.
    for (kibibytes, variant) in
        [(62 << 10, "default"), (62 << 10, "mixed"), (40 << 10, "dup data"), (63 << 10, "small nodes")]
    {
        let _ = std::fs::remove_file(source.join("file"));
        std::fs::write(source.join("file"), content(kibibytes << 10, 7)).unwrap();
        for number in 0..400 {
            std::fs::write(source.join(format!("{number}")), content(3000, number)).unwrap();
        }
        let format = variants().into_iter().find(|(name, _)| *name == variant).unwrap().1;
        let image = scratch.join("image");
        let root = RootDirectory { shrink: true, ..RootDirectory::new(&source) };
        let size =
            size_of(&MkfsOptions { root_directory: Some(root), force: true, ..formatted(format) }, &image);
        assert!(size > 64 * MEBIBYTE, "{variant}: {size}");
        btrfs_check_data(&image).unwrap();
        let mount = KernelMount::new(&image, "ro").unwrap();
        same_walks(&source, mount.path(), true);
        mount.unmount().unwrap();
        let mount = KernelMount::new(&image, "noatime").unwrap();
        mount.scrub().unwrap();
        std::fs::remove_file(mount.path().join("3")).unwrap();
        mount.unmount().unwrap();
        btrfs_check_data(&image).unwrap();
    }
}

#[test]
fn a_tree_made_in_another_order_gives_the_same_bytes() {
    let scratch = Scratch::new("sizes");
    let made = |name: &str, order: &mut dyn Iterator<Item = u64>| {
        let source = scratch.join(name);
        std::fs::create_dir_all(source.join("below")).unwrap();
        for number in order {
            let path = source.join(if number % 5 == 0 { "below" } else { "." }).join(format!("{number}"));
            // Every third file is equal to others.
            let seed = if number % 3 == 0 { number % 2 } else { number };
            let length = if number % 3 == 0 { 30_000 } else { 20_000 + number * 50 };
            std::fs::write(&path, content(usize::try_from(length).unwrap(), seed)).unwrap();
            crate::mkfs::chmod(&path, 0o644);
            crate::mkfs::set_time(&path, 1_600_000_000, 1);
        }
        for directory in [source.join("below"), source.clone()] {
            crate::mkfs::chmod(&directory, 0o755);
            crate::mkfs::set_time(&directory, 1_600_000_000, 1);
        }
        source
    };
    let (first, second) = (made("first", &mut (0..300)), made("second", &mut (0..300).rev()));
    for (dedupe, shrink) in [(false, true), (true, true), (true, false)] {
        let image = |source: &Path, threads| {
            let mut root = RootDirectory { shrink, dedupe, ..RootDirectory::new(source) };
            root.subvolumes.push(SubvolumeDirectory::parse("below".as_ref()));
            let image = scratch.join("image");
            let options = MkfsOptions { threads: Some(threads), force: true, ..reproducible(root) };
            make(&options, &image).unwrap();
            std::fs::read(&image).unwrap()
        };
        let expected = image(&first, 1);
        for threads in [1, 3, 8] {
            assert!(image(&second, threads) == expected, "{threads} threads, dedupe: {dedupe}");
        }
    }
}
