//! The limits of names.

use crate::support::{image, open, root_user};
use vlinder_fs::Refusal;
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, require};

#[test]
fn a_file_has_at_most_65535_names() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("most-links");
    let image = image(&scratch, 512, &[]);
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let caller = root_user();
    let file = filesystem.names().create_file(&caller, &root, b"0", 0o644).unwrap();
    for number in 1..65535 {
        filesystem.names().link(&caller, &file, &root, number.to_string().as_bytes()).unwrap();
    }
    let refused = filesystem.names().link(&caller, &file, &root, b"one too many").unwrap_err();
    assert_eq!(refused.refusal(), Some(Refusal::TooManyLinks));
    assert_eq!(filesystem.attributes().of(&file).link_count, 65535);
    filesystem.names().unlink(&caller, &root, b"40000").unwrap();
    filesystem.names().link(&caller, &file, &root, b"the last").unwrap();
    drop((root, file));
    filesystem.close().unwrap();
    // `btrfs check` compares every pair of an inode's names, which takes minutes here; the kernel reads them
    // at once, and the form of many references is judged by `btrfs check` in the operations' tests.
    let mount = KernelMount::unchecked(&image, "ro").unwrap();
    let metadata = std::fs::metadata(mount.path().join("the last")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::nlink(&metadata), 65535);
    assert_eq!(std::fs::read_dir(mount.path()).unwrap().count(), 65535);
    mount.unmount().unwrap();
}
