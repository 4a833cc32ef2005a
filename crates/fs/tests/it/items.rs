//! Item by item: what the same operations leave in the tree when the kernel does them and when we do.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::support::{image, open, root_user};
use vlinder_fs::{AttributeMode, FileType, RenameMode, RootId};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::{Scratch, require};

/// The items of the top-level subvolume, each with its description, less what differs by nature: times,
/// transactions, sequence counters (the kernel's begin anywhere), block addresses.
fn items(image: &Path, tree: &str) -> BTreeMap<String, Vec<String>> {
    let output = Command::new("btrfs")
        .args(["inspect-internal", "dump-tree", "-t", tree])
        .arg(image)
        .output()
        .unwrap();
    let mut items: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut key = None;
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("item ") {
            let (_, rest) = rest.split_once("key ").unwrap();
            let (name, rest) = rest.split_once(") ").unwrap();
            let size = rest.split_once("itemsize ").unwrap().1;
            items.insert(format!("{name})"), vec![format!("size {size}")]);
            key = Some(format!("{name})"));
        } else if let Some(key) = &key {
            let skipped = [
                "atime",
                "ctime",
                "mtime",
                "otime",
                "sequence",
                "total bytes",
                "bytes used",
                "uuid",
                "leaf",
                "fs uuid",
            ];
            if skipped.iter().any(|start| line.starts_with(start)) {
                let flags = line.split_once("flags ").map(|(_, flags)| format!("flags {flags}"));
                items.get_mut(key).unwrap().extend(flags);
                continue;
            }
            let words: Vec<&str> = line.split(' ').collect();
            let mut kept = Vec::new();
            let mut words = words.into_iter();
            while let Some(word) = words.next() {
                if matches!(word, "transid" | "generation") {
                    words.next();
                } else {
                    kept.push(word);
                }
            }
            items.get_mut(key).unwrap().push(kept.join(" "));
        }
    }
    items
}

/// The same steps as shell commands.
const STEPS: &str = r#"
set -e
umask 022
mkdir d
printf content > d/f
ln -s target d/s
ln d/f g
mknod n c 1 3
mkfifo p
setfattr -n user.x -v y d/f
setfattr -n user.longer -v value d/f
btrfs property set d compression zlib
mkdir d/sub
printf x > d/sub/h
chmod 2755 d/sub
mv g d/sub/g
mv d/s s
printf gone > gone
rm gone
mkdir e
rmdir e
printf last > last
mv -n last d/last
btrfs subvolume create sv
mv sv d/sv
"#;

#[test]
fn the_same_operations_leave_the_same_items() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("setfattr"));
    let (theirs, ours) = (Scratch::new("items-kernel"), Scratch::new("items"));
    let (their_image, our_image) = (image(&theirs, 256, &[]), image(&ours, 256, &[]));
    let mount = KernelMount::new(&their_image, "").unwrap();
    let status = Command::new("sh").arg("-c").arg(STEPS).current_dir(mount.path()).status().unwrap();
    assert!(status.success());
    mount.unmount().unwrap();

    let filesystem = open(&our_image);
    let (root, caller) = (filesystem.root().unwrap(), root_user());
    let put = |directory: &_, name: &[u8], content: &'static [u8]| {
        let file = filesystem.names().create_file(&caller, directory, name, 0o644).unwrap();
        filesystem.files().write_at(&caller, &file, 0, Cow::Borrowed(content)).unwrap();
        file
    };
    let d = filesystem.names().create_directory(&caller, &root, b"d", 0o755).unwrap();
    let f = put(&d, b"f", b"content");
    filesystem.names().create_symbolic_link(&caller, &d, b"s", b"target").unwrap();
    filesystem.names().link(&caller, &f, &root, b"g").unwrap();
    let null = vlinder_fs::DeviceNumber::new(1, 3);
    filesystem.names().create_node(&caller, &root, b"n", FileType::CharacterDevice, 0o644, null).unwrap();
    filesystem.names().create_node(&caller, &root, b"p", FileType::Fifo, 0o644, Default::default()).unwrap();
    let either = AttributeMode::Either;
    filesystem.attributes().set_extended_attribute(&caller, &f, b"user.x", b"y", either).unwrap();
    filesystem.attributes().set_extended_attribute(&caller, &f, b"user.longer", b"value", either).unwrap();
    filesystem
        .attributes()
        .set_extended_attribute(&caller, &d, b"btrfs.compression", b"zlib", either)
        .unwrap();
    let sub = filesystem.names().create_directory(&caller, &d, b"sub", 0o755).unwrap();
    put(&sub, b"h", b"x");
    let chmod = vlinder_fs::SetAttributes { permissions: Some(0o2755), ..Default::default() };
    filesystem.attributes().set(&caller, &sub, &chmod).unwrap();
    filesystem.names().rename(&caller, &root, b"g", &sub, b"g", RenameMode::Replace).unwrap();
    filesystem.names().rename(&caller, &d, b"s", &root, b"s", RenameMode::Replace).unwrap();
    put(&root, b"gone", b"gone");
    filesystem.names().unlink(&caller, &root, b"gone").unwrap();
    filesystem.names().create_directory(&caller, &root, b"e", 0o755).unwrap();
    filesystem.names().remove_directory(&caller, &root, b"e").unwrap();
    put(&root, b"last", b"last");
    filesystem.names().rename(&caller, &root, b"last", &d, b"last", RenameMode::NoReplace).unwrap();
    let caller = vlinder_fs::Caller { umask: 0o022, ..caller.clone() };
    let made = filesystem.subvolumes().create(&caller, &root, b"sv").unwrap();
    filesystem.names().rename(&caller, &root, b"sv", &d, b"sv", RenameMode::Replace).unwrap();
    assert_eq!(made.root, RootId(256));
    drop((root, d, f, sub));
    filesystem.close().unwrap();

    assert!(items(&our_image, "5").len() > 40);
    for tree in ["5", "256"] {
        let (theirs, ours) = (items(&their_image, tree), items(&our_image, tree));
        for (key, expected) in &theirs {
            assert_eq!(Some(expected), ours.get(key), "tree {tree}, {key}");
        }
        assert_eq!(
            theirs.len(),
            ours.len(),
            "{:?}",
            ours.keys().filter(|key| !theirs.contains_key(*key)).collect::<Vec<_>>()
        );
    }
    let references = |image: &Path| {
        let mut items = items(image, "1");
        items.retain(|key, _| {
            key.contains("ROOT_REF") || key.contains("ROOT_BACKREF") || key.contains("DIR_ITEM")
        });
        items
    };
    assert_eq!(references(&their_image), references(&our_image));
}
