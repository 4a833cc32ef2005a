//! Images that no file system would make, under every verb that walks: owners that are no ids, names that are
//! no names, subvolumes in a circle. Each verb ends, leaves out what is odd, tells it, and does the rest.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use crate::common::{self, run, target};
use crate::odd::{below, bounded, entry, image, inode, rename, text};
use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_device::{Device, MemoryDevice};
use vlinder_format::directory::{DirectoryEntry, DirectoryEntryType, DirectoryIndex};
use vlinder_format::inode::{GroupId, InodeItem, UserId};
use vlinder_format::root_ref::RootReference;
use vlinder_format::{Generation, ItemType, Key, ObjectId, RootId, directory};
use vlinder_fs::path::Files;
use vlinder_fs::{AttributeMode, Caller, Filesystem, OpenOptions, SetAttributes};
use vlinder_testkit::Scratch;
use vlinder_testkit::mutator::Mutator;
use vlinder_testkit::require;
use vlinder_testkit::subject::write_image;

#[test]
fn a_name_that_no_file_can_have_is_left_out_alone() {
    for (odd, is_directory) in
        [(&b".."[..], true), (b".", true), (b".", false), (b"/", true), (b"\0", false), (b"a/b", true)]
    {
        let plain = "abcdef".get(..odd.len()).unwrap();
        let sound = image(|files| {
            files.create_dir_all("/top/sub").unwrap();
            files.write("/top/before", b"before").unwrap();
            let path = format!("/top/{plain}");
            if is_directory {
                files.create_dir(&path).unwrap()
            } else {
                files.write(&path, b"odd").unwrap()
            }
            files.write("/top/sub/inner", b"inner").unwrap();
            files.write("/top/behind", b"behind").unwrap();
        });
        let mutator = Mutator::new(&sound);
        rename(&mutator, plain, odd);
        let scratch = Scratch::new("odd-name");
        let path = scratch.join("image");
        write_image(&mutator.device(), &path);
        let case = odd.escape_ascii().to_string();
        let top = target(&path, "/top");
        let expected: BTreeSet<String> =
            ["before", "behind", "sub", "sub/inner"].into_iter().map(str::to_owned).collect();
        for flag in ["-r", "-a"] {
            let copy = scratch.join(format!("copy{flag}"));
            bounded(&["cp", flag, &top, text(&copy)]).failed(3, &["is no name of a file; it is left out"]);
            assert_eq!(below(&copy), expected, "{case}");
        }
        let out = scratch.join("out");
        std::fs::create_dir(&out).unwrap();
        bounded(&["--quiet", "restore", text(&path), text(&out)]).failed(3, &["is no name of a file"]);
        assert_eq!(below(&out.join("top")), expected, "{case}");
        for words in [&["ls"][..], &["ls", "-l"], &["tree"]] {
            let ended = bounded(&[words, &[&*top]].concat()).failed(3, &["is no name of a file"]);
            for name in ["before", "behind", "sub"] {
                assert!(ended.text().contains(name), "{case}: {}", ended.text());
            }
        }
        let checked = bounded(&["check", text(&path)]);
        assert_eq!(checked.code, 0, "{case}: {}{}", checked.text(), checked.err);
        assert!(checked.text().contains("name-unusable"), "{case}: {}", checked.text());
        bounded(&["rm", "-r", &top]).failed(3, &["is no name of a file", "/top: it stays"]);
        let left = bounded(&["ls", &top]).failed(3, &["is no name of a file"]);
        assert_eq!(left.text(), "", "{case}: all else is removed");
    }
}

#[test]
fn a_mount_shows_all_names_but_the_odd_one() {
    require!(Fuse);
    for odd in [&b"."[..], b"..", b"a/b", b"\0"] {
        let plain = "abcdef".get(..odd.len()).unwrap();
        let sound = image(|files| {
            for name in ["before", plain, "behind"] {
                files.write(format!("/{name}"), name).unwrap();
            }
        });
        let mutator = Mutator::new(&sound);
        rename(&mutator, plain, odd);
        let scratch = Scratch::new("odd-mount");
        let (path, point) = (scratch.join("image"), scratch.join("point"));
        write_image(&mutator.device(), &path);
        std::fs::create_dir(&point).unwrap();
        run(["mount", text(&path), text(&point)]).done();
        let names = std::fs::read_dir(&point).map(|entries| {
            entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<BTreeSet<_>, _>>()
        });
        run(["umount", text(&point)]).done();
        let expected = ["before", "behind"].map(std::ffi::OsString::from);
        assert_eq!(names.unwrap().unwrap(), expected.into(), "{}", odd.escape_ascii());
    }
}

#[test]
fn a_listing_gives_no_directory_at_a_second_place() {
    require!(Fuse);
    let sound = image(|files| {
        files.create_dir_all("/first").unwrap();
        files.write("/first/file", b"file").unwrap();
    });
    let mutator = Mutator::new(&sound);
    let (number, index) = (inode(&mutator, "first"), DirectoryIndex(900));
    let entry = DirectoryEntry {
        location: InodeItem::key(number),
        transaction: Generation(7),
        entry_type: DirectoryEntryType::DIRECTORY,
        name: b"second",
        data: &[],
    };
    let root = ObjectId::FIRST_FREE;
    mutator.insert(RootId::FS_TREE, directory::index_key(root, index), &entry.encode());
    mutator.insert(RootId::FS_TREE, directory::item_key(root, b"second"), &entry.encode());
    let scratch = Scratch::new("second-place");
    let (path, point) = (scratch.join("image"), scratch.join("point"));
    write_image(&mutator.device(), &path);
    std::fs::create_dir(&point).unwrap();
    run(["mount", text(&path), text(&point)]).done();
    // The kernel asks for the attributes of what it lists first, and keeps them.
    let names = std::fs::read_dir(&point).unwrap().filter(Result::is_ok).count();
    let (first, second) = (point.join("first/file").metadata(), point.join("second").metadata());
    run(["umount", text(&point)]).done();
    assert_eq!(names, 2);
    assert_eq!(first.unwrap().len(), 4);
    assert_eq!(second.unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
}

/// Adds a name for a subvolume to the root directory of a subvolume, with these of its references.
fn name_subvolume(mutator: &Mutator, (parent, child): (RootId, RootId), name: &[u8], references: [bool; 2]) {
    let (directory, index) = (ObjectId::FIRST_FREE, DirectoryIndex(900));
    let entry = DirectoryEntry {
        location: Key::new(child.object_id(), ItemType::ROOT_ITEM, u64::MAX),
        transaction: Generation(7),
        entry_type: DirectoryEntryType::DIRECTORY,
        name,
        data: &[],
    };
    mutator.insert(parent, directory::index_key(directory, index), &entry.encode());
    mutator.insert(parent, directory::item_key(directory, name), &entry.encode());
    let root = mutator.find(parent, |key, _| key == InodeItem::key(directory));
    mutator.add_u64(root, 16, 2 * name.len() as u64);
    let reference = RootReference { directory, index, name }.encode();
    let keys = [RootReference::forward_key(parent, child), RootReference::backward_key(child, parent)];
    for (key, _) in keys.into_iter().zip(references).filter(|(_, is_added)| *is_added) {
        mutator.insert(RootId::ROOT_TREE, key, &reference);
    }
}

#[test]
fn subvolumes_in_a_circle_are_entered_at_one_place() {
    let sound = nested();
    let (top, outer, inner) = (RootId::FS_TREE, RootId(256), RootId(257));
    // The outer one lies in the inner one too; so does the top-level subvolume.
    for (child, references) in
        [(outer, [true, false]), (outer, [true, true]), (top, [true, false]), (top, [true, true])]
    {
        let mutator = Mutator::new(&sound);
        name_subvolume(&mutator, (inner, child), b"again", references);
        let scratch = Scratch::new("circle");
        let path = scratch.join("image");
        write_image(&mutator.device(), &path);
        let case = format!("{child}, {references:?}");
        let shown = bounded(&["tree", &target(&path, "/")]);
        assert_eq!(shown.code, 0, "{case}: {}", shown.err);
        assert_eq!(shown.text().matches("again").count(), 1, "{case}: {}", shown.text());
        let copy = scratch.join("copy");
        let copied = bounded(&["cp", "-r", &target(&path, "/"), text(&copy)]);
        assert_eq!(copied.code, 0, "{case}: {}", copied.err);
        let expected = ["outer", "outer/inner", "outer/inner/again", "outer/inner/file"];
        assert_eq!(below(&copy), expected.into_iter().map(str::to_owned).collect(), "{case}");
        let removed = bounded(&["rm", "-r", &target(&path, "/outer")]);
        assert!([0, 1, 3].contains(&removed.code), "{case}: {removed:?}");
        let left = bounded(&["tree", &target(&path, "/")]);
        assert_eq!(left.code, 0, "{case}: {}", left.err);
        assert!(!left.text().contains("file\n"), "{case}: {}", left.text());
    }
}

/// A subvolume in a subvolume with a file.
fn nested() -> MemoryDevice {
    image(|files| {
        files.create_subvolume("/outer").unwrap();
        files.create_subvolume("/outer/inner").unwrap();
        files.write("/outer/inner/file", b"file").unwrap();
    })
}

/// Takes away the references back of all subvolumes.
fn remove_references_back(mutator: &Mutator) {
    for found in mutator.all(RootId::ROOT_TREE, |key, _| key.item_type == ItemType::ROOT_BACKREF) {
        let again = mutator.find(RootId::ROOT_TREE, |key, _| key == found.key);
        mutator.remove(again);
    }
}

#[test]
fn a_subvolume_without_a_back_reference_takes_the_lowest_parent() {
    let mutator = Mutator::new(&nested());
    remove_references_back(&mutator);
    // By its number the inner one may lie in itself as well; the outer one comes first.
    name_subvolume(&mutator, (RootId(257), RootId(257)), b"again", [true, false]);
    let scratch = Scratch::new("no-reference-back");
    let path = scratch.join("image");
    write_image(&mutator.device(), &path);
    let expected: BTreeSet<String> =
        ["outer", "outer/inner", "outer/inner/again", "outer/inner/file"].map(str::to_owned).into();
    let copy = scratch.join("copy");
    let copied = bounded(&["cp", "-r", &target(&path, "/"), text(&copy)]);
    assert_eq!((copied.code, below(&copy)), (0, expected), "{}", copied.err);
    let out = scratch.join("out");
    std::fs::create_dir(&out).unwrap();
    let restored = bounded(&["--quiet", "restore", text(&path), text(&out)]);
    assert!(restored.err.contains("/outer/inner/again: a second name of a directory"), "{}", restored.err);
    assert_eq!(std::fs::read(out.join("outer/inner/file")).unwrap(), b"file");
    let listed = bounded(&["subvolume", "list", text(&path)]);
    assert_eq!(listed.code, 0, "{}", listed.err);
    assert!(listed.text().contains("path outer\n"), "{}", listed.text());
    assert!(listed.text().contains("path outer/inner\n"), "{}", listed.text());
}

#[test]
fn both_references_of_a_subvolume_go_with_its_name_or_none() {
    let mutator = Mutator::new(&nested());
    remove_references_back(&mutator);
    let scratch = Scratch::new("one-reference");
    let path = scratch.join("image");
    write_image(&mutator.device(), &path);
    let inner = target(&path, "/outer/inner");
    bounded(&["subvolume", "delete", &inner]).failed(1, &["no reference back", "run a check"]);
    let elsewhere = target(&path, "/elsewhere");
    bounded(&["mv", &inner, &elsewhere]).failed(1, &["no reference back"]);
    let kept = bounded(&["cat", &target(&path, "/outer/inner/file")]);
    assert_eq!((kept.code, kept.text().as_ref()), (0, "file"), "{}", kept.err);
}

#[test]
fn a_default_subvolume_that_is_not_there_is_named() {
    let sound = image(|files| {
        files.create_subvolume("/gone").unwrap();
        files.write("/file", b"file").unwrap();
    });
    let scratch = Scratch::new("no-default");
    let path = scratch.join("image");
    let mutator = Mutator::new(&sound);
    let name = directory::item_key(ObjectId::ROOT_TREE_DIRECTORY, b"default");
    let found = mutator.find(RootId::ROOT_TREE, |key, _| key == name);
    mutator.change_item(found, |data| data[..8].copy_from_slice(&300_u64.to_le_bytes()));
    write_image(&mutator.device(), &path);
    bounded(&["ls", &target(&path, "/")])
        .failed(1, &["default subvolume, 300, is not there", "-o subvolid=5"]);
    let listed = bounded(&["ls", "-o", "subvolid=5", &target(&path, "/")]);
    assert_eq!((listed.code, listed.text().as_ref()), (0, "file\ngone\n"), "{}", listed.err);
    bounded(&["subvolume", "set-default", "-o", "subvolid=5", "5", text(&path)]).done();
    bounded(&["ls", &target(&path, "/")]).done();
}

#[test]
fn subvolumes_in_a_circle_are_listed() {
    let mutator = Mutator::new(&nested());
    let place = |mutator: &Mutator| {
        mutator.all(RootId::ROOT_TREE, |key, _| {
            key == RootReference::forward_key(RootId::FS_TREE, RootId(256))
                || key == RootReference::backward_key(RootId(256), RootId::FS_TREE)
        })
    };
    while let Some(found) = place(&mutator).first() {
        mutator.remove(*found);
    }
    name_subvolume(&mutator, (RootId(257), RootId(256)), b"again", [true, true]);
    let scratch = Scratch::new("listed-circle");
    let path = scratch.join("image");
    write_image(&mutator.device(), &path);
    let listed = bounded(&["subvolume", "list", text(&path)]);
    assert_eq!(listed.code, 0, "{}", listed.err);
    for shown in ["path <UNREACHABLE>/again\n", "path <UNREACHABLE>/inner\n"] {
        assert!(listed.text().contains(shown), "{}", listed.text());
    }
}

#[test]
fn no_name_follows_the_last_index() {
    let sound = image(|files| {
        files.create_dir("/full").unwrap();
        files.write("/full/last", b"last").unwrap();
        files.write("/other", b"other").unwrap();
    });
    for index in [u64::MAX, u64::MAX - 1] {
        let mutator = Mutator::new(&sound);
        let found = entry(&mutator, "last");
        let child = inode(&mutator, "last");
        mutator.set_key(found, Key { offset: index, ..found.key });
        mutator.set_u64(mutator.find_of(child, ItemType::INODE_REF), 0, index);
        let device = mutator.device();
        let devices = vec![Arc::clone(&device) as Arc<dyn Device>];
        let filesystem = Filesystem::open_devices(devices, OpenOptions::default()).unwrap();
        let files = Files::new(filesystem, Caller::superuser());
        let made = [
            files.write("/full/new", b"new"),
            files.create_dir("/full/directory"),
            files.symlink("last", "/full/link"),
            files.hard_link("/other", "/full/again"),
            files.rename("/other", "/full/moved"),
            files.create_subvolume("/full/volume").map(drop),
            files.snapshot("/", "/full/shot", false).map(drop),
        ];
        for (number, made) in made.into_iter().enumerate() {
            assert_eq!(made.unwrap_err().errno(), Errno::OVERFLOW, "{index}, {number}");
        }
        files.close().unwrap();
        let again = Mutator::new(&device.snapshot());
        assert_eq!(entry(&again, "last").key.offset, index);
        let devices = vec![device as Arc<dyn Device>];
        let filesystem = Filesystem::open_devices(devices, OpenOptions::default()).unwrap();
        let files = Files::new(filesystem, Caller::superuser());
        assert_eq!(files.read("/full/last").unwrap(), b"last");
        assert_eq!(files.read("/other").unwrap(), b"other");
        let names: Vec<_> =
            files.read_dir("/full").unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["last"], "{index}");
        for name in ["new", "directory", "link", "again", "moved", "volume", "shot"] {
            assert!(!files.exists(format!("/full/{name}")).unwrap(), "{name}");
        }
        files.close().unwrap();
    }
}

#[test]
fn a_link_that_cant_be_read_hides_nothing_else() {
    let sound = image(|files| {
        files.create_dir("/directory").unwrap();
        files.write("/directory/a", b"a").unwrap();
        files.symlink("a", "/directory/link").unwrap();
        files.write("/directory/z", b"z").unwrap();
    });
    let mutator = Mutator::new(&sound);
    mutator.remove(mutator.find_of(inode(&mutator, "link"), ItemType::EXTENT_DATA));
    let scratch = Scratch::new("odd-link");
    let path = scratch.join("image");
    write_image(&mutator.device(), &path);
    for words in [&["ls"][..], &["ls", "-l"], &["tree"]] {
        let ended = bounded(&[words, &[&*target(&path, "/directory")]].concat());
        let ended = ended.failed(3, &["/directory/link: "]);
        let shown: Vec<String> = ended.text().split_whitespace().map(str::to_owned).collect();
        for name in ["a", "z"] {
            assert!(shown.iter().any(|word| word == name), "{words:?}: {}", ended.text());
        }
    }
}

/// Makes a file system of ext4 and mounts it; unmounts it when it goes.
struct Ext4(std::path::PathBuf);

impl Ext4 {
    fn new(scratch: &Scratch) -> Self {
        let (image, point) = (scratch.join("ext4.img"), scratch.join("ext4"));
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        std::fs::create_dir(&point).unwrap();
        common::tool("mkfs.ext4", ["-q", "-b", "4096", text(&image)]);
        common::tool("mount", ["-o", "loop", text(&image), text(&point)]);
        Self(point)
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        common::tool("umount", [&self.0]);
    }
}

#[test]
fn an_attribute_that_the_target_refuses_is_left_out_alone() {
    require!(Root, Tool("mkfs.ext4"));
    let sound = image(|files| {
        let (caller, mode) = (Caller::superuser(), AttributeMode::Create);
        for directory in 0..4 {
            files.create_dir(format!("/directory-{directory}")).unwrap();
            files.write(format!("/directory-{directory}/file"), b"content").unwrap();
        }
        let file = files.open_file("/directory-1/file").unwrap();
        let set = |name: &[u8], value: &[u8]| {
            files
                .filesystem()
                .attributes()
                .set_extended_attribute(&caller, file.inode(), name, value, mode)
                .unwrap();
        };
        set(b"user.a", b"before");
        set(b"user.large", &[7; 6_000]);
        set(b"user.z", b"behind");
    });
    let scratch = Scratch::new("odd-attribute");
    let path = scratch.join("image");
    write_image(&sound, &path);
    let target_place = Ext4::new(&scratch);
    let copy = target_place.0.join("copy");
    let ended = run(["cp", "-a", &target(&path, "/"), text(&copy)]);
    let ended = ended.failed(3, &["directory-1/file", "attribute user.large", "left out"]);
    assert!(!ended.err.contains("free some space"), "{}", ended.err);
    for directory in 0..4 {
        let file = copy.join(format!("directory-{directory}/file"));
        assert_eq!(std::fs::read(file).unwrap(), b"content", "{directory}");
    }
    let file = copy.join("directory-1/file");
    for (name, value) in [("user.a", b"before"), ("user.z", b"behind")] {
        let mut found = vec![0; 64];
        let length = rustix::fs::getxattr(&file, name, &mut found).unwrap();
        assert_eq!(found[..length], value[..], "{name}");
    }
    let mut found = vec![0; 64];
    assert_eq!(rustix::fs::getxattr(&file, "user.large", &mut found).unwrap_err(), Errno::NODATA);
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
    let shown = files.filesystem().attributes().of(inode.inode());
    assert_eq!((shown.mode.permissions(), shown.user, shown.group), (0o755, UserId(own), GroupId(own)));
}

/// As root of a user namespace, chown(2) says EINVAL of an id that the namespace maps to nothing.
#[test]
fn an_unmapped_owner_leaves_no_set_id_bits() {
    require!(Root, Tool("unshare"));
    let scratch = Scratch::new("unmapped-owner");
    let (source, path, copy) = (scratch.join("source"), scratch.join("image"), scratch.join("copy"));
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), "content").unwrap();
    std::os::unix::fs::chown(source.join("file"), Some(1000), Some(1000)).unwrap();
    std::fs::set_permissions(source.join("file"), PermissionsExt::from_mode(0o6755)).unwrap();
    run(["mkfs", "--rootdir", text(&source), text(&path)]).done();
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", common::vlinder().get_program().to_str().unwrap()]);
    common::end(command.args(["cp", "-a", &target(&path, "/file"), text(&copy)])).done();
    assert_eq!(std::fs::read(&copy).unwrap(), b"content");
    let status = std::fs::metadata(&copy).unwrap();
    assert_eq!((status.uid(), status.mode() & 0o7777), (0, 0o755));
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
