//! All that the library can do to a file system, which judges then look at.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use vlinder::{
    AttributeChanges, CheckOptions, Checksum, ErrorKind, FileType, Image, MkfsOptions, OpenOptions, Profile,
    Severity, Usage,
};
use vlinder_testkit::kernel::btrfs_check_data;
use vlinder_testkit::{Scratch, require};

use crate::{empty_image, open_image};

fn names(image: &Image, path: &str) -> Vec<OsString> {
    image.read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

/// Everything that makes or changes something.
fn fill(image: &Image) {
    image.create_dir_all("/a/b/c").unwrap();
    image.write("/a/file", vec![7; 300_000]).unwrap();
    assert_eq!(image.copy("/a/file", "/a/b/copy").unwrap(), 300_000);
    image.hard_link("/a/file", "/a/second").unwrap();
    image.symlink("/a/file", "/link").unwrap();
    image.rename("/a/b/copy", "/renamed").unwrap();
    image.create_node("/pipe", FileType::Fifo, 0o600, (0, 0)).unwrap();
    image.create_node("/null", FileType::CharacterDevice, 0o666, (1, 3)).unwrap();
    image.set_permissions("/renamed", 0o640).unwrap();
    let changes = AttributeChanges::new();
    image.set_attributes("/link", &changes.owner(5).of_symlink(true)).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    image.set_attributes("/renamed", &changes.owner(1000).group(1001).accessed(time).modified(time)).unwrap();
    let attributes = image.xattrs("/renamed").unwrap();
    attributes.set("user.note", "a note").unwrap();
    attributes.set("user.gone", "x").unwrap();
    attributes.remove("user.gone").unwrap();
    image.create_dir("/gone").unwrap();
    image.write("/gone/file", "x").unwrap();
    image.remove_file("/gone/file").unwrap();
    image.remove_dir("/gone").unwrap();
    image.create_dir_all("/gone/with/all").unwrap();
    image.remove_dir_all("/gone").unwrap();
    image.subvolumes().create("/subvolume").unwrap();
    image.write("/subvolume/file", "old").unwrap();
    image.subvolumes().read_only_snapshot("/subvolume", "/kept").unwrap();
    image.subvolumes().snapshot("/subvolume", "/changed").unwrap();
    image.write("/changed/file", "new").unwrap();
    image.subvolumes().create("/deleted").unwrap();
    image.subvolumes().delete("/deleted").unwrap();
    image.subvolumes().set_default("/subvolume").unwrap();
    image.subvolumes().set_read_only("/changed", true).unwrap();
    assert_eq!(image.write("/changed/file", "newer").unwrap_err().kind(), ErrorKind::ReadOnly);
    image.subvolumes().set_read_only("/changed", false).unwrap();
}

fn look_at_files(image: &Image) {
    assert_eq!(image.read("/link").unwrap(), vec![7; 300_000]);
    assert_eq!(image.read_link("/link").unwrap(), Path::new("/a/file"));
    assert!(image.symlink_metadata("/link").unwrap().is_symlink());
    assert_eq!(image.symlink_metadata("/link").unwrap().uid(), 5);
    let file = image.metadata("/a/second").unwrap();
    assert_eq!((file.link_count(), file.len(), file.is_file()), (2, 300_000, true));
    assert_eq!(file.inode(), image.metadata("/a/file").unwrap().inode());
    let renamed = image.metadata("/renamed").unwrap();
    assert_eq!((renamed.permissions(), renamed.uid(), renamed.gid()), (0o640, 1000, 1001));
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    assert_eq!((renamed.modified(), renamed.accessed()), (time, time));
    assert!(renamed.created() > time && renamed.changed() > time);
    let attributes = image.xattrs("/renamed").unwrap();
    assert_eq!(attributes.get("user.note").unwrap(), Some(b"a note".to_vec()));
    assert_eq!(attributes.get("user.gone").unwrap(), None);
    assert_eq!(attributes.list().unwrap(), ["user.note"]);
    assert_eq!(image.metadata("/pipe").unwrap().file_type(), FileType::Fifo);
    assert_eq!(image.metadata("/null").unwrap().device(), (1, 3));
    assert!(!image.exists("/gone").unwrap() && image.exists("/a/b/c").unwrap());
    let expected = ["a", "link", "renamed", "pipe", "null", "subvolume", "kept", "changed"];
    assert_eq!(names(image, "/"), expected);
}

fn look_at_subvolumes(image: &Image) {
    assert_eq!(image.read_to_string("/kept/file").unwrap(), "old");
    assert_eq!(image.read_to_string("/changed/file").unwrap(), "new");
    assert!(image.metadata("/kept").unwrap().is_subvolume() && image.subvolumes().of("/kept/file").is_ok());
    let all = image.subvolumes().list().unwrap();
    let paths: BTreeSet<_> = all.iter().filter(|one| !one.is_deleted()).map(|one| one.path()).collect();
    assert_eq!(paths, ["", "subvolume", "kept", "changed"].map(Into::into).into());
    let (source, kept) =
        (image.subvolumes().of("/subvolume").unwrap(), image.subvolumes().of("/kept").unwrap());
    assert_eq!((kept.snapshot_of(), kept.parent_id(), kept.received_from()), (source.uuid(), Some(5), None));
    assert!(kept.is_read_only() && !source.is_read_only());
    assert_eq!(image.subvolumes().default().unwrap(), source);
    let refused = image.write("/kept/file", "x").unwrap_err();
    assert_eq!((refused.kind(), refused.errno()), (ErrorKind::ReadOnly, 30));
}

#[test]
fn what_was_done_is_there_and_the_judges_agree() {
    require!(Tool("btrfs"));
    let (_scratch, path, image) = open_image("round-trip");
    fill(&image);
    look_at_files(&image);
    look_at_subvolumes(&image);
    image.close().unwrap();
    let report = CheckOptions::new().data(true).threads(2).run(&path).unwrap();
    assert!(report.is_clean() && report.data_bytes() >= 300_000 && report.blocks() > 0, "{report:?}");
    btrfs_check_data(&path).unwrap();

    let image = OpenOptions::new().read_only(true).subvolume_id(5).open(&path).unwrap();
    look_at_files(&image);
    look_at_subvolumes(&image);
    image.close().unwrap();
    let image = Image::open(&path).unwrap();
    assert_eq!(image.read_to_string("/file").unwrap(), "old", "the default subvolume is the root");
    image.close().unwrap();
    let image = OpenOptions::new().subvolume("kept").open(&path).unwrap();
    assert_eq!(names(&image, "/"), ["file"]);
    image.close().unwrap();
}

#[test]
fn a_file_is_read_and_written_as_any_other() {
    let (_scratch, path, image) = open_image("file");
    let mut file = image.options().read(true).write(true).create_new(true).open("/file").unwrap();
    file.write_all(b"hello world").unwrap();
    assert_eq!(file.seek(SeekFrom::Start(6)).unwrap(), 6);
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "world");
    assert_eq!(file.seek(SeekFrom::End(-5)).unwrap(), 6);
    file.write_all(b"there").unwrap();
    assert!(file.seek(SeekFrom::Current(-100)).is_err());
    file.write_at(b"!", 11).unwrap();
    file.set_len(1 << 20).unwrap();
    file.write_direct(&[(512 << 10, &[9; 4096]), (768 << 10, &[8; 4096])]).unwrap();
    file.sync_data().unwrap();
    assert_eq!(file.next_hole(0).unwrap(), Some(4096));
    assert_eq!(file.next_data(4096).unwrap(), Some(512 << 10));
    assert_eq!(file.next_data(900 << 10).unwrap(), None);
    let mut log = image.options().append(true).open("/file").unwrap();
    log.write_all(b"end").unwrap();
    assert_eq!(log.metadata().len(), (1 << 20) + 3);
    let mut found = [0; 4];
    assert_eq!(file.read_at(&mut found, 1 << 20).unwrap(), 3);
    drop((file, log));
    assert!(image.statistic("transaction.commits").is_some());
    assert_eq!(image.statistic("transaction.commit"), None);
    image.close().unwrap();
    assert!(vlinder::check(&path).unwrap().is_clean());
}

#[test]
fn a_file_that_is_open_keeps_the_image() {
    let (_scratch, path, image) = open_image("kept");
    let file = image.create_file("/file").unwrap();
    file.write_at(b"before", 0).unwrap();
    image.close().unwrap();
    assert_eq!(Image::open(&path).unwrap_err().kind(), ErrorKind::Busy);
    file.write_at(b"after!", 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let image = Image::open(&path).unwrap();
    assert_eq!(image.read_to_string("/file").unwrap(), "after!");
    image.close().unwrap();
}

#[test]
fn an_image_is_made_with_all_choices() {
    let scratch = Scratch::new("choices");
    let (tree, path) = (scratch.join("tree"), scratch.join("image"));
    std::fs::create_dir_all(tree.join("home/old")).unwrap();
    std::fs::write(tree.join("home/file"), vec![b'x'; 100_000]).unwrap();
    let uuid = "01234567-89ab-cdef-0123-456789abcdef".parse().unwrap();
    let report = MkfsOptions::new()
        .label("all")
        .uuid(uuid)
        .node_bytes(32768)
        .sector_bytes(4096)
        .checksum(Checksum::Xxhash)
        .data_profile(Profile::Single)
        .metadata_profile(Profile::Single)
        .source_directory(&tree)
        .default_subvolume("home")
        .read_only_subvolume("home/old")
        .threads(1)
        .shrink(true)
        .make(&path)
        .unwrap();
    assert_eq!((report.files(), report.data_bytes(), report.uuid()), (3, 100_000, uuid));
    assert_eq!(report.size_bytes(), std::fs::metadata(&path).unwrap().len());
    assert_eq!(report.notes(), [""; 0]);
    let again = MkfsOptions::new().make(&path).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{again}");
    let image = Image::open(&path).unwrap();
    assert_eq!(image.uuid(), uuid);
    assert_eq!(image.metadata("/file").unwrap().len(), 100_000);
    assert!(image.subvolumes().of("/old").unwrap().is_read_only());
    image.close().unwrap();
    let without_source = MkfsOptions::new().subvolume("x").force(true).make(&path).unwrap_err();
    assert_eq!(without_source.kind(), ErrorKind::InvalidInput);
}

#[test]
fn usage_shrinks_as_files_are_written_and_grows_as_they_go() {
    let (_scratch, _path, image) = open_image("usage");
    let empty = image.usage().unwrap();
    assert_eq!((empty.total_bytes(), empty.sector_bytes()), (256 << 20, 4096));
    image.subvolumes().create("/subvolume").unwrap();
    image.write("/subvolume/file", vec![1; 4 << 20]).unwrap();
    image.sync().unwrap();
    let full = image.usage().unwrap();
    let used = |usage: Usage| usage.total_bytes() - usage.free_bytes();
    assert!(used(full) >= used(empty) + (4 << 20), "{empty:?} {full:?}");
    assert!(full.available_bytes() < empty.available_bytes());
    image.subvolumes().delete("/subvolume").unwrap();
    image.finish_deletions().unwrap();
    assert!(used(image.usage().unwrap()) < used(full));
    image.close().unwrap();
}

#[test]
fn damage_is_found_and_named() {
    let (_scratch, path) = empty_image("damage");
    // The second copy of the superblock.
    let image = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&image, &[0; 4096], 64 << 20).unwrap();
    let report = vlinder::check(&path).unwrap();
    let [finding] = report.findings() else { panic!("{report:?}") };
    assert_eq!((finding.id(), finding.severity()), ("superblock-copy", Severity::Warning));
    assert!(finding.to_string().starts_with("warning [superblock-copy]: "), "{finding}");
    assert!(finding.message().contains("superblock copy") && report.is_clean() && report.not_listed() == 0);
}

#[test]
fn images_files_and_errors_go_from_thread_to_thread() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<Image>();
    shared::<vlinder::File>();
    shared::<vlinder::ReadDir>();
    shared::<vlinder::Error>();
    shared::<OpenOptions>();
    shared::<MkfsOptions>();
}
