//! Images that no file system would make, under every verb that walks: owners that are no ids, names that are no names,
//! subvolumes in a circle. Each verb ends, leaves out what is odd, tells it, and does the rest.

mod common;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use common::{run, target};
use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_device::{Device, MemoryDevice};
use vlinder_format::inode::{GroupId, InodeItem, UserId};
use vlinder_format::{ItemType, ObjectId, RootId};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions, SetAttributes};
use vlinder_testkit::Scratch;
use vlinder_testkit::mutator::Mutator;
use vlinder_testkit::subject::Recipe;

const FS: RootId = RootId::FS_TREE;

/// An image in memory, filled through the library.
fn image(fill: impl FnOnce(&Files)) -> MemoryDevice {
    let recipe = Recipe { node_size: 4096, device_bytes: 128 << 20, ..Recipe::default() };
    let device = Arc::new(recipe.in_memory());
    let devices = vec![Arc::clone(&device) as Arc<dyn Device>];
    let filesystem = Filesystem::open_devices(devices, OpenOptions::default()).unwrap();
    let files = Files::new(filesystem, Caller::superuser());
    fill(&files);
    files.close().unwrap();
    device.snapshot()
}

fn write_image(device: &MemoryDevice, path: &Path) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::create(path).unwrap();
    file.set_len(device.length()).unwrap();
    for (start, bytes) in device.written_chunks() {
        let length = (device.length() - start.0).min(bytes.len() as u64) as usize;
        file.write_all_at(&bytes[..length], start.0).unwrap();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The inode of a name in the top-level subvolume.
fn inode(mutator: &Mutator, name: &str) -> ObjectId {
    let is_entry = |key: vlinder_format::Key, data: &[u8]| {
        key.item_type == ItemType::DIR_INDEX && &data[30..] == name.as_bytes()
    };
    let found = mutator.find(FS, is_entry);
    let block = mutator.block(found.leaf);
    ObjectId(u64::from_le_bytes(block.data(found.slot)[..8].try_into().unwrap()))
}

#[test]
fn an_owner_that_is_no_id_leaves_no_set_id_bits() {
    let ids = [(u32::MAX, 0), (0, u32::MAX), (u32::MAX, u32::MAX)];
    let sound = image(|files| {
        for number in 0..ids.len() {
            let path = format!("/program-{number}");
            files.write(&path, b"#!/bin/sh\n").unwrap();
            files.set_permissions(&path, 0o6755).unwrap();
        }
        files.create_dir("/directory").unwrap();
        files.set_permissions("/directory", 0o2755).unwrap();
        files.write("/plain", b"plain").unwrap();
    });
    let mutator = Mutator::new(&sound);
    let names = ["program-0", "program-1", "program-2", "directory"];
    for (name, (user, group)) in names.into_iter().zip(ids.into_iter().chain([(0, u32::MAX)])) {
        let item = mutator.find_of(inode(&mutator, name), ItemType::INODE_ITEM);
        mutator.change_item(item, |data| {
            let mut item = InodeItem::decode(data).unwrap();
            (item.user, item.group) = (UserId(user), GroupId(group));
            data.copy_from_slice(&item.encode());
        });
    }
    let scratch = Scratch::new("odd-owner");
    let (path, copied, restored) = (scratch.join("image"), scratch.join("copied"), scratch.join("restored"));
    write_image(&mutator.device(), &path);
    for directory in [&copied, &restored] {
        std::fs::create_dir(directory).unwrap();
    }
    run(["cp", "-a", &target(&path, "/"), text(&copied)]).done();
    let ended = run(["--quiet", "restore", "-m", text(&path), text(&restored)]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let own = scratch.join("image").metadata().unwrap().uid();
    for directory in [&copied, &restored] {
        for name in names {
            let status = directory.join(name).metadata().unwrap();
            let shown = (status.permissions().mode() & 0o7777, status.uid());
            assert_eq!(shown, (0o755, own), "{}", directory.join(name).display());
        }
        assert_eq!(std::fs::read(directory.join("plain")).unwrap(), b"plain");
    }

    // Between images too: the copy belongs to the user who copies.
    let other = scratch.join("other");
    common::make_image(&other);
    run(["cp", "-a", &target(&path, "/program-2"), &target(&other, "/")]).done();
    let files = Files::open(&other).unwrap();
    let inode = files.open_file("/program-2").unwrap();
    let shown = files.filesystem().attributes(inode.inode());
    assert_eq!((shown.mode.permissions(), shown.user, shown.group), (0o755, UserId(own), GroupId(own)));
}

#[test]
fn no_file_is_given_an_owner_that_is_no_id() {
    image(|files| {
        files.write("/file", b"").unwrap();
        let none = SetAttributes::default();
        for changes in [
            SetAttributes { user: Some(UserId(u32::MAX)), ..none },
            SetAttributes { group: Some(GroupId(u32::MAX)), ..none },
        ] {
            let error = files.set_attributes("/file", &changes).unwrap_err();
            assert_eq!(error.errno(), Errno::INVAL, "{error}");
        }
        let largest = SetAttributes { user: Some(UserId(u32::MAX - 1)), ..none };
        files.set_attributes("/file", &largest).unwrap();
    });
}
