//! The interface shaped like `std::fs`, used as one uses that.

use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};

use crate::support::image;
use vlinder_fs::Refusal;
use vlinder_fs::path::Files;
use vlinder_testkit::kernel::btrfs_check;
use vlinder_testkit::{Scratch, golden, require};

#[test]
fn files_and_directories_by_path() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("paths");
    let image = image(&scratch, 256, &[]);
    let files = Files::open(&image).unwrap();
    files.create_dir_all("/home/me/deep/er").unwrap();
    files.create_dir_all("home/me").unwrap();
    files.write("/home/me/greeting", "hello").unwrap();
    files.symlink("/home/me", "/me").unwrap();
    files.symlink("greeting", "/home/me/link").unwrap();
    assert_eq!(files.read_to_string("/me/link").unwrap(), "hello");
    assert_eq!(files.read_to_string("/me/../../home/./me/deep/../greeting").unwrap(), "hello");
    assert!(files.symlink_metadata("/me").unwrap().is_symlink() && files.metadata("/me").unwrap().is_dir());
    files.symlink("/loop", "/loop").unwrap();
    assert_eq!(files.metadata("/loop").unwrap_err().refusal(), Some(Refusal::SymbolicLinkLoop));
    let missing = files.read("/home/nobody").unwrap_err();
    assert_eq!(missing.to_string(), "/home/nobody: no such file or directory");
    assert_eq!(std::io::Error::from(missing).kind(), ErrorKind::NotFound);
    assert_eq!(
        files.create_dir_all("/home/me/greeting/x").unwrap_err().refusal(),
        Some(Refusal::NotADirectory)
    );

    let mut file = files.options().read(true).write(true).create_new(true).open("/me/file").unwrap();
    file.write_all(&[7; 10_000]).unwrap();
    file.seek(SeekFrom::Start(5_000)).unwrap();
    file.write_all(b"middle").unwrap();
    file.seek(SeekFrom::Current(-6)).unwrap();
    let mut text = [0; 6];
    file.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"middle");
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 10_000);
    file.set_len(9_000).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let mut appended = files.options().append(true).open("/me/file").unwrap();
    appended.write_all(b"end").unwrap();
    assert_eq!(appended.metadata().len(), 9_003);
    assert!(appended.read(&mut text).is_err());
    drop(appended);
    assert_eq!(files.copy("/me/file", "/copy").unwrap(), 9_003);
    assert_eq!(files.read("/copy").unwrap(), files.read("/me/file").unwrap());
    files.hard_link("/copy", "/home/copy").unwrap();
    files.rename("/home/me/deep", "/deeper").unwrap();
    files.set_permissions("/copy", 0o600).unwrap();
    assert_eq!(files.metadata("/home/copy").unwrap().mode.permissions(), 0o600);
    files.create_subvolume("/subvolume").unwrap();
    files.write("/subvolume/file", [1; 70_000]).unwrap();
    files.snapshot("/subvolume", "/snapshot", true).unwrap();
    files.write("/subvolume/file", "changed").unwrap();
    assert_eq!(files.read("/snapshot/file").unwrap(), [1; 70_000]);
    let mut names: Vec<_> = files.read_dir("/").unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["copy", "deeper", "home", "loop", "me", "snapshot", "subvolume"]);
    files.remove_dir_all("/home").unwrap();
    files.delete_subvolume("/snapshot").unwrap();
    assert!(!files.exists("/home").unwrap() && files.exists("/copy").unwrap());
    files.close().unwrap();
    btrfs_check(&image).unwrap();

    let again = Files::open(&image).unwrap();
    assert_eq!(again.read_to_string("/subvolume/file").unwrap(), "changed");
    assert_eq!(again.metadata("/copy").unwrap().link_count, 1);
}

#[test]
fn closing_tells_that_an_error_may_have_lost_something() {
    let scratch = Scratch::new("paths-closing");
    let image = scratch.join("image");
    golden::unpack("empty", &image).unwrap();
    let files = Files::open(&image).unwrap();
    files.write("/file", vec![1; 1 << 20]).unwrap();
    // Another program cuts the image.
    std::fs::OpenOptions::new().write(true).open(&image).unwrap().set_len(1 << 20).unwrap();
    files.filesystem().sync().unwrap_err();
    assert!(files.filesystem().is_read_only());
    files.close().unwrap_err();
}
