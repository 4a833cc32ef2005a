//! File systems made by [`mkfs`] before the judges: what is refused, what comes back, and that it is the same
//! each time.

use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use vlinder_admin::mkfs::{
    FormatOptions, MkfsError, MkfsFeatures, MkfsOptions, Progress, Report, RootDirectory, SubvolumeDirectory,
    mkfs, read_source,
};
use vlinder_base::clock::Timestamp;
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::AtomicBool;
use vlinder_codec::checksum::ChecksumKind;
use vlinder_format::Uuid;
use vlinder_fs::{CompressOption, Filesystem, OpenOptions};
use vlinder_testkit::kernel::{KernelMount, btrfs_check, btrfs_check_data};
use vlinder_testkit::walk::{self, Entry, InodeIdentity, compare, render, walk};
use vlinder_testkit::{Scratch, require};
use vlinder_volume::Profile;

const KIBIBYTE: usize = 1 << 10;
const MEBIBYTE: u64 = 1 << 20;

/// Without block-group-tree, which btrfs-progs 6.2 can't check.
pub(crate) fn judged() -> MkfsOptions {
    let features = MkfsFeatures { block_group_tree: false, ..MkfsFeatures::default() };
    formatted(FormatOptions { features, ..FormatOptions::default() })
}

pub(crate) fn formatted(format: FormatOptions) -> MkfsOptions {
    MkfsOptions { format, ..MkfsOptions::default() }
}

pub(crate) fn filled(source: &Path) -> MkfsOptions {
    MkfsOptions { root_directory: Some(RootDirectory::new(source)), ..judged() }
}

pub(crate) fn make(options: &MkfsOptions, target: &Path) -> Result<Report, MkfsError> {
    mkfs(options, target, &mut |_| {})
}

/// The names of a file's extended attributes.
pub(crate) fn attributes(files: &vlinder_fs::path::Files, path: &str) -> Vec<Vec<u8>> {
    let inode = files.resolve(Path::new(path)).unwrap();
    files.filesystem().attributes().extended_attributes(&inode).unwrap()
}

/// Bytes that look like data and can be compressed by about half.
pub(crate) fn content(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes()[..4]);
        bytes.extend_from_slice(b"text");
    }
    bytes.truncate(length);
    bytes
}

pub(crate) fn set_time(path: &Path, seconds: i64, nanoseconds: i64) {
    let time = |seconds| rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
    let times = rustix::fs::Timestamps { last_access: time(seconds - 5), last_modification: time(seconds) };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
}

pub(crate) fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
}

/// A POSIX ACL as Linux stores it: version 2, then tag, permissions, id of each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// user::rwx, user:1234:r-x, group::r--, mask::r-x, other::---
fn some_acl() -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    acl(&[(1, 7, NOBODY), (2, 5, 1234), (4, 4, NOBODY), (16, 5, NOBODY), (32, 0, NOBODY)])
}

fn make_node(path: &Path, kind: rustix::fs::FileType, device: (u32, u32)) {
    let number = rustix::fs::makedev(device.0, device.1);
    let mode = rustix::fs::Mode::from_raw_mode(0o640);
    rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, number).unwrap();
}

pub(crate) fn chown(path: &Path, user: u32, group: u32) {
    std::os::unix::fs::lchown(path, Some(user), Some(group)).unwrap();
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A tree with one of everything that `--rootdir` has to keep.
pub(crate) fn everything(root: &Path) {
    let at = |name: &str| root.join(name);
    for (number, size) in
        [0, 1, 2048, 4095, 4096, 4097, 100 * KIBIBYTE, 300 * KIBIBYTE].into_iter().enumerate()
    {
        std::fs::write(at(&format!("file-{size}")), content(size, number as u64)).unwrap();
    }
    std::fs::write(at("large"), content(5 * 1024 * KIBIBYTE + 77, 99)).unwrap();
    let sparse = std::fs::File::create(at("sparse")).unwrap();
    for offset in [3 * MEBIBYTE, 7 * MEBIBYTE + 4096] {
        sparse.write_all_at(&content(10_000, offset), offset).unwrap();
    }
    sparse.set_len(20 * MEBIBYTE + 1).unwrap();
    std::fs::File::create(at("hole")).unwrap().set_len(1 << 30).unwrap();
    let name = std::ffi::OsString::from(String::from_utf8(vec![b'n'; 255]).unwrap());
    std::fs::write(root.join(name), "longest name").unwrap();
    use std::os::unix::ffi::OsStrExt;
    std::fs::write(root.join(std::ffi::OsStr::from_bytes(b"no\xff utf-8\n|")), "x").unwrap();

    // A directory that passes group and ACL on: what it had from its copy must not be changed by that.
    std::fs::create_dir(at("passes-on")).unwrap();
    std::fs::write(at("passes-on/plain"), "plain").unwrap();
    std::fs::create_dir(at("passes-on/below")).unwrap();
    chown(&at("passes-on"), 0, 4321);
    chmod(&at("passes-on"), 0o2775);
    set_attribute(&at("passes-on"), "system.posix_acl_default", &some_acl());
    set_attribute(&at("file-4097"), "system.posix_acl_access", &some_acl());

    for (name, mode) in [("set-user", 0o4755), ("set-group", 0o2711), ("sticky", 0o1644), ("nothing", 0)] {
        std::fs::write(at(name), name).unwrap();
        chown(&at(name), 12, 34);
        chmod(&at(name), mode);
    }
    set_attribute(&at("set-user"), "user.comment", b"a\0b");
    set_attribute(&at("set-user"), "user.empty", b"");
    set_attribute(&at("file-0"), "trusted.large", &content(3000, 3));
    // cap_net_raw+ep
    let capability = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    set_attribute(&at("sticky"), "security.capability", &capability);

    symlink("file-1", at("link")).unwrap();
    symlink("x".repeat(3900), at("long-link")).unwrap();
    set_attribute(&at("link"), "trusted.on-a-link", b"1");
    chown(&at("link"), 5, 6);
    std::fs::create_dir_all(at("deep/er/and/deeper")).unwrap();
    for number in 0..100 {
        std::fs::write(at(&format!("deep/er/{number:03}")), content(number * 97, number as u64)).unwrap();
    }
    for name in ["deep/hard-1", "deep/er/and/hard-2", "zz-hard-3"] {
        std::fs::hard_link(at("large"), at(name)).unwrap();
        std::fs::hard_link(at("link"), at(&format!("{name}-symbolic"))).unwrap();
    }
    use rustix::fs::FileType;
    make_node(&at("fifo"), FileType::Fifo, (0, 0));
    make_node(&at("socket"), FileType::Socket, (0, 0));
    make_node(&at("character"), FileType::CharacterDevice, (1, 3));
    make_node(&at("block"), FileType::BlockDevice, (259, 1_000_000));
    std::fs::hard_link(at("fifo"), at("deep/fifo")).unwrap();
    std::fs::create_dir(at("empty")).unwrap();
    chmod(&at("empty"), 0o1777);

    set_time(&at("file-1"), -86_400 * 365, 123_456_789);
    set_time(&at("link"), 1 << 33, 1);
    set_time(&at("deep/er"), 1_234_567_890, 999_999_999);
    set_time(&at("passes-on"), 77, 0);
    chown(root, 1, 2);
    chmod(root, 0o2750);
    set_attribute(root, "user.root", b"root");
    set_time(root, 1_000_000_000, 5);
}

/// The walk of a tree; sizes of directories are each file system's own.
fn walked(root: &Path, options: &walk::Options) -> Vec<Entry> {
    let mut entries = walk(root, options).unwrap();
    let directory = |entry: &&mut Entry| entry.first_path.is_none();
    entries.iter_mut().filter(directory).for_each(|entry| entry.size = 0);
    entries
}

pub(crate) fn same_walks(source: &Path, copy: &Path, data_ranges: bool) {
    let top = |path: &Path| {
        let status = std::fs::metadata(path).unwrap();
        let times = (status.mtime(), status.mtime_nsec(), status.atime(), status.atime_nsec());
        (status.mode(), status.uid(), status.gid(), times)
    };
    // The walk itself renews the access time of its root.
    let (expected_top, found_top) = (top(source), top(copy));
    let options =
        walk::Options { identity: InodeIdentity::DeviceAndNumber, data_ranges, ..Default::default() };
    let (expected, found) = (walked(source, &options), walked(copy, &options));
    compare(&render(&expected), &render(&found)).unwrap();
    let times = (expected_top.3.0, expected_top.3.1);
    assert_eq!((found_top.0, found_top.1, found_top.2), (expected_top.0, expected_top.1, expected_top.2));
    assert_eq!((found_top.3.0, found_top.3.1), times, "the root directory");
}

fn access_time(path: &Path) -> (i64, i64) {
    let status = std::fs::symlink_metadata(path).unwrap();
    (status.atime(), status.atime_nsec())
}

#[test]
fn a_directory_comes_back_with_every_node_size_and_profile() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("rootdir");
    let source = scratch.join("source");
    std::fs::create_dir(&source).unwrap();
    everything(&source);
    let traces = || ["", "file-1", "deep/er"].map(|name| access_time(&source.join(name)));
    let format = || judged().format;
    let variants = [
        format(),
        FormatOptions { node_size: Some(4096), metadata_profile: Some(Profile::Single), ..format() },
        FormatOptions { node_size: Some(65536), checksum_kind: ChecksumKind::Blake2b, ..format() },
        FormatOptions {
            checksum_kind: ChecksumKind::Xxhash64,
            data_profile: Some(Profile::Dup),
            features: {
                let mut features = format().features;
                features.apply("^no-holes,^free-space-tree,^skinny-metadata,^extref").unwrap();
                features
            },
            ..format()
        },
        FormatOptions {
            checksum_kind: ChecksumKind::Sha256,
            features: MkfsFeatures { mixed_groups: true, ..format().features },
            ..format()
        },
    ];
    for (number, format) in variants.into_iter().enumerate() {
        let image = scratch.join(format!("image-{number}"));
        let options = MkfsOptions { root_directory: Some(RootDirectory::new(&source)), ..formatted(format) };
        // A symbolic link can't be read without a trace: the host may move its access time at every look, so
        // it is left out here.
        let before = traces();
        let report = make(&options, &image).unwrap();
        assert_eq!(traces(), before, "reading the source leaves no trace in it");
        assert_eq!(report.copied.skipped_attributes, 0);
        assert_eq!(report.copied.hard_links, 7);
        btrfs_check_data(&image).unwrap();
        let mount = KernelMount::new(&image, "ro").unwrap();
        same_walks(&source, mount.path(), options.format.features.no_holes);
        for (name, time) in [("file-1", before[1]), ("deep/er", before[2])] {
            assert_eq!(access_time(&mount.path().join(name)), time, "{name}");
        }
        mount.unmount().unwrap();
    }
}

#[test]
fn the_defaults_with_block_group_tree_are_mounted_by_the_kernel() {
    require!(KernelBtrfs);
    let scratch = Scratch::new("rootdir");
    let source = scratch.join("source");
    std::fs::create_dir(&source).unwrap();
    everything(&source);
    let image = scratch.join("image");
    let options = MkfsOptions {
        label: b"default".to_vec(),
        root_directory: Some(RootDirectory::new(&source)),
        ..MkfsOptions::default()
    };
    make(&options, &image).unwrap();
    let mount = KernelMount::unchecked(&image, "").unwrap();
    same_walks(&source, mount.path(), true);
    mount.scrub().unwrap();
    mount.unmount().unwrap();
}

#[test]
fn the_same_uuid_source_and_time_give_the_same_bytes() {
    let scratch = Scratch::new("rootdir");
    let source = scratch.join("source");
    std::fs::create_dir_all(source.join("a/b")).unwrap();
    for number in 0..700 {
        let directory = if number % 3 == 0 { "a/b" } else { "a" };
        let path = source.join(directory).join(format!("{:03}", number * 11 % 700));
        std::fs::write(path, content(number * 61, number as u64)).unwrap();
    }
    std::fs::write(source.join("large"), content(40 << 20, 1)).unwrap();
    symlink("large", source.join("link")).unwrap();
    std::fs::hard_link(source.join("link"), source.join("a/b/link")).unwrap();
    std::fs::hard_link(source.join("a/001"), source.join("a/b/hard")).unwrap();
    let image = |name: &str, threads| {
        let mut root = RootDirectory::new(&source);
        root.subvolumes.push(SubvolumeDirectory::parse("ro:a/b".as_ref()));
        root.compress = Some(CompressOption {
            algorithm: vlinder_codec::compress::Compression::Zstd,
            level: 3,
            force: false,
        });
        let options = MkfsOptions {
            uuid: Some(Uuid([7; 16])),
            time: Some(Timestamp::new(1_700_000_000, 0)),
            root_directory: Some(root),
            threads: Some(threads),
            ..judged()
        };
        make(&options, &scratch.join(name)).unwrap();
        scratch.join(name)
    };
    let first = image("first", 1);
    for (name, threads) in [("second", 4), ("third", 4), ("fourth", 2)] {
        // Someone reads the source meanwhile.
        std::fs::read_link(source.join("link")).unwrap();
        std::fs::read(source.join(format!("a/{threads:03}"))).unwrap();
        let other = image(name, threads);
        assert!(std::fs::read(&first).unwrap() == std::fs::read(&other).unwrap(), "{name} differs");
        std::fs::remove_file(other).unwrap();
    }
}

#[test]
fn subvolumes_keep_their_flags_and_links_across_them_are_copies() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("rootdir");
    let source = scratch.join("source");
    std::fs::create_dir_all(source.join("home/user/nested")).unwrap();
    std::fs::create_dir_all(source.join("system/etc")).unwrap();
    std::fs::write(source.join("shared"), content(50_000, 1)).unwrap();
    for name in ["home/one", "home/two", "system/three", "also"] {
        std::fs::hard_link(source.join("shared"), source.join(name)).unwrap();
    }
    std::fs::write(source.join("home/user/nested/file"), "nested").unwrap();
    std::fs::write(source.join("system/etc/fstab"), "# none").unwrap();
    chmod(&source.join("home"), 0o711);
    set_time(&source.join("home"), 1_111_111_111, 1);
    let mut root = RootDirectory::new(&source);
    for subvolume in ["home", "ro:home/user/nested", "default-ro:system"] {
        root.subvolumes.push(SubvolumeDirectory::parse(subvolume.as_ref()));
    }
    let image = scratch.join("image");
    // With room for what is written below.
    let options = MkfsOptions { root_directory: Some(root), size_bytes: Some(200 * MEBIBYTE), ..judged() };
    let report = make(&options, &image).unwrap();
    assert_eq!((report.copied.subvolumes, report.copied.hard_links), (3, 2));
    btrfs_check_data(&image).unwrap();

    let default = KernelMount::new(&image, "ro").unwrap();
    assert_eq!(std::fs::read_to_string(default.path().join("etc/fstab")).unwrap(), "# none");
    default.unmount().unwrap();
    let mount = KernelMount::new(&image, "subvolid=5").unwrap();
    let at = |name: &str| mount.path().join(name);
    let links = |name: &str| std::fs::metadata(at(name)).unwrap().nlink();
    assert_eq!([links("shared"), links("home/one"), links("system/three")], [2, 2, 1]);
    for name in ["shared", "also", "home/one", "home/two", "system/three"] {
        assert_eq!(std::fs::read(at(name)).unwrap(), content(50_000, 1), "{name}");
    }
    let status = std::fs::metadata(at("home")).unwrap();
    assert_eq!((status.ino(), status.mode() & 0o7777), (256, 0o711));
    assert_eq!((status.mtime(), status.mtime_nsec()), (1_111_111_111, 1));
    std::fs::write(at("home/user/new"), "writable").unwrap();
    for name in ["system/new", "home/user/nested/new"] {
        let error = std::fs::write(at(name), "").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{name}");
    }
    mount.unmount().unwrap();
    btrfs_check(&image).unwrap();
}

#[test]
fn compressed_and_shrunk_images_are_accepted_and_hold_the_same() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("rootdir");
    let source = scratch.join("source");
    std::fs::create_dir(&source).unwrap();
    everything(&source);
    let mut sizes = Vec::new();
    for compress in ["no", "zlib:9", "lzo", "zstd:3"] {
        let mut wanted = OpenOptions::default();
        wanted.apply(&format!("compress={compress}")).unwrap();
        let mut root = RootDirectory::new(&source);
        root.compress = wanted.compress;
        root.shrink = true;
        let image = scratch.join(compress.replace(':', "-"));
        let report = make(&MkfsOptions { root_directory: Some(root), ..judged() }, &image).unwrap();
        let length = std::fs::metadata(&image).unwrap().len();
        assert_eq!(length, report.size_bytes);
        btrfs_check_data(&image).unwrap();
        let mount = KernelMount::new(&image, "ro").unwrap();
        same_walks(&source, mount.path(), true);
        mount.unmount().unwrap();
        // The least image can still be written to, by the kernel and by us.
        let mount = KernelMount::new(&image, "").unwrap();
        std::fs::remove_file(mount.path().join("large")).unwrap();
        mount.scrub().unwrap();
        mount.unmount().unwrap();
        Filesystem::open(&[&image], OpenOptions::default()).unwrap().close().unwrap();
        btrfs_check(&image).unwrap();
        let filesystem = Filesystem::open(&[&image], OpenOptions::read_only()).unwrap();
        sizes.push(filesystem.engine().superblock().bytes_used);
    }
    assert!(sizes[1..].iter().all(|size| size * 10 < sizes[0] * 9), "{sizes:?}");
}

pub(crate) fn error_of(options: &MkfsOptions, target: &Path) -> MkfsError {
    make(options, target).expect_err("it should have been refused")
}

#[test]
fn what_holds_something_is_overwritten_only_by_force() {
    let scratch = Scratch::new("mkfs");
    let image = scratch.join("image");
    assert!(matches!(error_of(&judged(), &image), MkfsError::NoTarget { .. }));
    let sized = MkfsOptions { size_bytes: Some(200 * MEBIBYTE), ..judged() };
    make(&sized, &image).unwrap();
    let error = error_of(&judged(), &image);
    assert!(matches!(error, MkfsError::InUse { name: "btrfs", offset: 65600, .. }), "{error}");
    let before = Filesystem::open(&[&image], OpenOptions::read_only()).unwrap().engine().superblock().fsid;
    let report = make(&MkfsOptions { force: true, ..judged() }, &image).unwrap();
    assert_eq!(report.size_bytes, 200 * MEBIBYTE, "a file keeps its length");
    assert_ne!(report.parameters.uuids.fsid, before);

    // A file in use is refused, force or not.
    let held = Filesystem::open(&[&image], OpenOptions::default()).unwrap();
    let error = error_of(&MkfsOptions { force: true, ..judged() }, &image);
    assert!(matches!(&error, MkfsError::Device(device) if device.to_string().contains("in use")), "{error}");
    held.close().unwrap();
    assert!(matches!(error_of(&judged(), scratch.path()), MkfsError::Device(_)), "a directory");
}

#[test]
fn what_the_kernel_has_mounted_is_refused() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("mkfs");
    let image = scratch.join("image");
    make(&MkfsOptions { size_bytes: Some(200 * MEBIBYTE), ..judged() }, &image).unwrap();
    let mount = KernelMount::new(&image, "").unwrap();
    for target in [image.as_path(), mount.device()] {
        let error = error_of(&MkfsOptions { force: true, ..judged() }, target);
        assert!(error.to_string().contains("mounted"), "{error}");
    }
    mount.unmount().unwrap();
    btrfs_check(&image).unwrap();
}

#[test]
fn nothing_is_found_before_all_is_there() {
    let scratch = Scratch::new("mkfs");
    let (source, image) = (scratch.join("source"), scratch.join("image"));
    std::fs::create_dir(&source).unwrap();
    for number in 0..20 {
        std::fs::write(source.join(format!("file{number}")), content(100_000, number)).unwrap();
    }
    // The second takes the place of the first, whose superblocks must be gone as well.
    for shrink in [false, true] {
        let mut options = MkfsOptions { force: true, size_bytes: Some(200 * MEBIBYTE), ..filled(&source) };
        options.root_directory.as_mut().unwrap().shrink = shrink;
        let mut has_looked = false;
        let mut look = |progress| {
            if progress == Progress::Committing {
                let file = std::fs::File::open(&image).unwrap();
                for place in [64 << 10, 64 << 20] {
                    let mut bytes = [1; 4096];
                    file.read_exact_at(&mut bytes, place).unwrap();
                    assert!(bytes.iter().all(|byte| *byte == 0), "a superblock at {place}");
                }
                has_looked = true;
            }
        };
        mkfs(&options, &image, &mut look).unwrap();
        assert!(has_looked);
        Filesystem::open(&[&image], OpenOptions::read_only()).unwrap();
    }
}

#[test]
fn an_error_leaves_no_image_and_names_its_place() {
    let scratch = Scratch::new("mkfs");
    let source = scratch.join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), content(60 << 20, 0)).unwrap();
    let image = scratch.join("image");
    let stopped = || MkfsOptions { interrupted: Arc::new(AtomicBool::new(true)), ..filled(&source) };
    assert!(matches!(error_of(&stopped(), &image), MkfsError::Interrupted));
    assert!(!image.exists());

    // An existing file stays, but nothing in it is taken for a file system.
    std::fs::File::create(&image).unwrap().set_len(110 * MEBIBYTE).unwrap();
    assert!(matches!(error_of(&stopped(), &image), MkfsError::Interrupted));
    assert!(Filesystem::open(&[&image], OpenOptions::read_only()).is_err());
    assert_eq!(std::fs::metadata(&image).unwrap().len(), 110 * MEBIBYTE);

    let inside = source.join("image");
    assert!(matches!(error_of(&filled(&source), &inside), MkfsError::TargetInSource { .. }));
    assert!(!inside.exists());
    assert!(matches!(
        error_of(&MkfsOptions { size_bytes: Some(10 * MEBIBYTE), ..judged() }, &inside),
        MkfsError::Parameters(_)
    ));
    assert!(!inside.exists());
    let absent = filled(&scratch.join("absent"));
    assert!(matches!(error_of(&absent, &inside), MkfsError::SourceDirectory { .. }));
    let subvolume = |paths: &[&str]| {
        let mut root = RootDirectory::new(&source);
        root.subvolumes = paths.iter().map(|path| SubvolumeDirectory::parse(path.as_ref())).collect();
        error_of(&MkfsOptions { root_directory: Some(root), ..judged() }, &inside).to_string()
    };
    std::fs::create_dir_all(source.join("x/y")).unwrap();
    assert!(subvolume(&["file"]).contains("not a directory"));
    assert!(subvolume(&["absent"]).contains("no such directory"));
    assert!(subvolume(&[".."]).contains("out of the source"));
    assert!(subvolume(&["."]).contains("itself"));
    assert!(subvolume(&["x", "ro:x/y/.."]).contains("twice"));
    assert!(subvolume(&["default:x", "default:x/y"]).contains("only one"));
}

#[test]
fn block_group_tree_is_left_out_where_what_it_needs_is_off() {
    let scratch = Scratch::new("mkfs");
    let mut features = MkfsFeatures::default();
    features.apply("^no-holes").unwrap();
    let format = FormatOptions { features, ..FormatOptions::default() };
    let options = MkfsOptions { size_bytes: Some(200 * MEBIBYTE), ..formatted(format) };
    let report = make(&options, &scratch.join("image")).unwrap();
    assert!(!report.parameters.features.block_group_tree);
    assert_eq!(report.notes.len(), 1);
}

#[test]
fn a_longer_file_keeps_its_length_and_a_shorter_one_grows() {
    require!(Tool("btrfs"));
    let scratch = Scratch::new("mkfs");
    let source = scratch.join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), content(30 << 20, 0)).unwrap();
    let judged = |before: u64, grows: bool| {
        let image: PathBuf = scratch.join(format!("{before}"));
        std::fs::File::create(&image).unwrap().set_len(before).unwrap();
        let size = make(&filled(&source), &image).unwrap().size_bytes;
        assert!(if grows { size > before } else { size == before }, "{before}: {size}");
        assert_eq!(std::fs::metadata(&image).unwrap().len(), size);
        btrfs_check_data(&image).unwrap();
    };
    // Too short for any file system.
    judged(1 << 20, true);
    judged(3 << 30, false);
    // Long enough for a file system, and too short for this one: that shows on the way.
    std::fs::write(source.join("more"), content(150 << 20, 1)).unwrap();
    judged(120 << 20, true);
}

#[test]
fn a_source_read_for_nothing_is_the_one_that_is_copied() {
    require!(Root);
    let scratch = Scratch::new("mkfs-read");
    let root = scratch.join("source");
    std::fs::create_dir(&root).unwrap();
    everything(&root);
    let report = mkfs(&filled(&root), &scratch.join("image"), &mut |_| {}).unwrap();
    for threads in [1, 3] {
        let read = read_source(&root, Some(threads)).unwrap();
        assert_eq!(read.entries, report.copied.inodes + report.copied.hard_links);
        assert!(read.data_bytes >= report.copied.data_bytes && report.copied.data_bytes > 0);
    }
    let missing = read_source(&root.join("missing"), None);
    assert!(matches!(missing, Err(MkfsError::SourceDirectory { .. })));
}
