//! Equal files stored once ([`RootDirectory::dedupe`]).

use std::os::unix::fs::FileExt;
use std::path::Path;

use vlinder_admin::mkfs::{Copied, MkfsOptions, RootDirectory, SubvolumeDirectory};
use vlinder_codec::compress::Compression;
use vlinder_fs::CompressOption;
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::{Scratch, require};

use crate::mkfs::{content, everything, judged, make, same_walks};

const ZSTD: CompressOption = CompressOption { algorithm: Compression::Zstd, level: 3, force: false };

fn deduped(source: &Path, compress: Option<CompressOption>, image: &Path) -> (Copied, u64) {
    let root = RootDirectory { dedupe: true, shrink: true, compress, ..RootDirectory::new(source) };
    let report = make(&MkfsOptions { root_directory: Some(root), force: true, ..judged() }, image).unwrap();
    (report.copied, report.size_bytes)
}

#[test]
fn equal_files_are_stored_once_and_stay_apart() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("dedupe");
    let source = scratch.join("source");
    std::fs::create_dir_all(source.join("below")).unwrap();
    // Large ones, which are read piecewise, and small ones, which come with their bytes.
    for length in [5 << 20, 1 << 20, 100_000, 4096, 4097] {
        let bytes = content(length, length as u64);
        for name in ["a", "b", "below/c"] {
            std::fs::write(source.join(format!("{name}-{length}")), &bytes).unwrap();
        }
        // One byte differs, the first or the last.
        for (name, place) in [("first", 0), ("last", length - 1)] {
            let mut other = bytes.clone();
            other[place] ^= 1;
            std::fs::write(source.join(format!("{name}-{length}")), &other).unwrap();
        }
    }
    for compress in [None, Some(ZSTD)] {
        let image = scratch.join("image");
        let (copied, size) = deduped(&source, compress, &image);
        let once = (5 << 20) + (1 << 20) + 100_000 + 4096 + 4097;
        assert_eq!((copied.shared_bytes, copied.data_bytes), (2 * once, 5 * once));
        assert!(size < 3 * once + (8 << 20), "{size}");
        btrfs_check_data(&image).unwrap();
        let mount = KernelMount::new(&image, "noatime").unwrap();
        same_walks(&source, mount.path(), true);
        std::fs::remove_file(mount.path().join("a-5242880")).unwrap();
        assert_eq!(std::fs::read(mount.path().join("below/c-5242880")).unwrap(), content(5 << 20, 5 << 20));
        mount.unmount().unwrap();
        btrfs_check_data(&image).unwrap();
    }
}

#[test]
fn holes_tell_files_apart_and_are_shared_with_them() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("dedupe");
    let source = scratch.join("source");
    std::fs::create_dir(&source).unwrap();
    let sparse = |name: &str, places: &[u64], size: u64| {
        let file = std::fs::File::create(source.join(name)).unwrap();
        for place in places {
            file.write_all_at(&content(50_000, *place), *place).unwrap();
        }
        file.set_len(size).unwrap();
    };
    // Behind the data of the first is a hole, and of the second zeros.
    sparse("a", &[1 << 20, 8 << 20], 20 << 20);
    sparse("b", &[1 << 20, 8 << 20], 20 << 20);
    sparse("shorter", &[1 << 20, 8 << 20], 19 << 20);
    sparse("moved", &[1 << 20, 9 << 20], 20 << 20);
    sparse("empty", &[], 20 << 20);
    sparse("empty too", &[], 20 << 20);
    let image = scratch.join("image");
    let (copied, _) = deduped(&source, None, &image);
    assert!((100_000..120_000).contains(&copied.shared_bytes), "{copied:?}");
    btrfs_check_data(&image).unwrap();
    let mount = KernelMount::new(&image, "ro").unwrap();
    same_walks(&source, mount.path(), true);
    mount.unmount().unwrap();
}

#[test]
fn subvolumes_share_and_everything_else_stays_as_it_is() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("dedupe");
    let source = scratch.join("source");
    std::fs::create_dir(&source).unwrap();
    everything(&source);
    std::fs::create_dir(source.join("sub")).unwrap();
    std::fs::write(source.join("sub/large"), std::fs::read(source.join("large")).unwrap()).unwrap();
    let image = scratch.join("image");
    let mut root = RootDirectory { dedupe: true, compress: Some(ZSTD), ..RootDirectory::new(&source) };
    root.subvolumes.push(SubvolumeDirectory::parse("sub".as_ref()));
    let report = make(&MkfsOptions { root_directory: Some(root), ..judged() }, &image).unwrap();
    assert!(report.copied.shared_bytes >= 5 << 20, "{:?}", report.copied);
    btrfs_check_data(&image).unwrap();
    let mount = KernelMount::new(&image, "ro").unwrap();
    assert_eq!(
        std::fs::read(mount.path().join("sub/large")).unwrap(),
        std::fs::read(source.join("large")).unwrap()
    );
    std::fs::remove_dir_all(source.join("sub")).unwrap();
    mount.unmount().unwrap();
}
