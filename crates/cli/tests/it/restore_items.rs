//! Files out of an image in which one item of a tree block breaks a rule, while the block's checksum and
//! structure are right, as after a bit that flipped in memory: everything but what the item described comes
//! out, and the item is told.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::common::{Ended, run};
use serde_json::Value;
use vlinder_base::sync::Arc;
use vlinder_device::{Device, DeviceExt, MemoryDevice};
use vlinder_format::chunk::{BlockGroupFlags, Chunk};
use vlinder_format::directory::DirectoryEntry;
use vlinder_format::root_item::RootItem;
use vlinder_format::{Block, ItemType, Key, Logical, ObjectId, RootId};
use vlinder_fs::path::Files;
use vlinder_fs::{AttributeMode, Caller, Filesystem, OpenOptions};
use vlinder_testkit::Scratch;
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::subject::{Recipe, write_image};

/// Files by their paths from the root.
type Contents = BTreeMap<String, Vec<u8>>;

const DIRECTORIES: usize = 3;
const FILES: usize = 12;
/// A file of three runs with holes between, each of [`RUN`] bytes.
const SEVERAL: &str = "/several";
const RUNS: [usize; 3] = [0, 16384, 65536];
const RUN: usize = 8192;
const ATTRIBUTED: &str = "/attributed";
const INNER: &str = "/volume/inner";

/// Bytes that tell which file they are of, and where.
fn content(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|position| ((position * 31 + position / 251 + number * 17) % 253) as u8 + 1).collect()
}

fn several() -> Vec<u8> {
    let mut bytes = vec![0; RUNS[2] + RUN];
    RUNS.iter().for_each(|start| bytes[*start..start + RUN].copy_from_slice(&content(77 + start, RUN)));
    bytes
}

/// An image with trees of several leaves, and what is in it.
fn sound() -> (MemoryDevice, Contents) {
    let recipe = Recipe { node_size: 4096, device_bytes: 128 << 20, ..Recipe::default() };
    let device = Arc::new(recipe.in_memory());
    let options = OpenOptions::default();
    let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as Arc<dyn Device>], options).unwrap();
    let files = Files::new(filesystem, Caller::superuser());
    let mut contents = Contents::new();
    for number in 0..DIRECTORIES * FILES {
        let directory = format!("/directory-{}", number / FILES);
        files.create_dir_all(&directory).unwrap();
        contents
            .insert(format!("{directory}/file-{number}"), content(number, [40, 5_000, 70_000][number % 3]));
    }
    files.create_subvolume("/volume").unwrap();
    contents.insert(INNER.to_owned(), b"inner".to_vec());
    contents.insert(ATTRIBUTED.to_owned(), content(1, 9_000));
    contents.iter().for_each(|(path, bytes)| files.write(path, bytes).unwrap());
    let file = files.create(SEVERAL).unwrap();
    RUNS.iter().for_each(|start| file.write_at(&several()[*start..start + RUN], *start as u64).unwrap());
    drop(file);
    contents.insert(SEVERAL.to_owned(), several());
    let (filesystem, caller) = (files.filesystem(), Caller::superuser());
    let inode =
        filesystem.names().lookup(&caller, &filesystem.root().unwrap(), &ATTRIBUTED.as_bytes()[1..]).unwrap();
    filesystem
        .attributes()
        .set_extended_attribute(&caller, &inode, b"user.name", b"value", AttributeMode::Create)
        .unwrap();
    drop(inode);
    files.close().unwrap();
    (device.snapshot(), contents)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Restores into a new directory, and gives what is there then.
fn restore(scratch: &Scratch, device: &MemoryDevice, flags: &[&str]) -> (Ended, Contents) {
    let (image, out) = (scratch.join("image"), scratch.join("out"));
    write_image(device, &image);
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir(&out).unwrap();
    let words = ["--json", "restore"].iter().chain(flags).copied().chain([text(&image), text(&out)]);
    let ended = run(words);
    let mut files = Contents::new();
    let mut pending = vec![out.clone()];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let name = format!("/{}", path.strip_prefix(&out).unwrap().display());
            files.insert(name, std::fs::read(&path).unwrap());
        }
    }
    (ended, files)
}

/// The item of a name in the index of its directory.
fn index(m: &Mutator, name: &str) -> Found {
    let is_named =
        |data: &[u8]| DirectoryEntry::decode(data).is_ok_and(|entry| entry.name == name.as_bytes());
    m.find(RootId::FS_TREE, |key, data| key.item_type == ItemType::DIR_INDEX && is_named(data))
}

/// The number of the inode that a name leads to.
fn number(m: &Mutator, name: &str) -> ObjectId {
    let item = index(m, name);
    DirectoryEntry::decode(m.block(item.leaf).data(item.slot)).unwrap().location.objectid
}

fn item_of(m: &Mutator, name: &str, item_type: ItemType) -> Found {
    m.find_of(number(m, name), item_type)
}

/// Changes the bytes of an item, whose block keeps a right checksum.
fn break_item(m: &Mutator, item: Found, change: impl FnOnce(&mut [u8])) -> Found {
    m.change_item(item, change);
    item
}

/// How the report names an item.
fn place(tree: RootId, item: Found) -> String {
    format!("tree {tree}, block {}, slot {}, key {}", item.leaf, item.slot, item.key)
}

/// A path, a reason, and the bytes of the file that are meant.
type Loss = (String, String, Option<(u64, u64)>);

fn losses(report: &Value) -> Vec<Loss> {
    let of = |part: &Value| {
        let text = |field: &str| part[field].as_str().unwrap().to_owned();
        let range = part["start_byte"].as_u64().zip(part["end_byte"].as_u64());
        (text("path"), text("reason"), range)
    };
    report["lost"].as_array().unwrap().iter().map(of).collect()
}

/// Breaks an item, and restores: it alone is told, once, with a path (and a range); the files are those that
/// are expected.
#[track_caller]
fn check(
    image: &MemoryDevice,
    break_it: impl FnOnce(&Mutator) -> Found,
    flags: &[&str],
    expected: &Contents,
    (path, range): (&str, Option<(u64, u64)>),
) {
    let mutator = Mutator::new(image);
    let item = break_it(&mutator);
    let scratch = Scratch::in_memory("restore-items");
    let (ended, files) = restore(&scratch, &mutator.device(), flags);
    let told = format!("{}{}", ended.text(), ended.err);
    assert_eq!(ended.code, 3, "{told}");
    let lost = losses(&ended.json());
    assert_eq!(lost.len(), 1, "{lost:#?}");
    let (found_path, reason, found_range) = &lost[0];
    assert!(reason.contains(&place(RootId::FS_TREE, item)), "{reason}");
    assert_eq!((found_path.as_str(), *found_range), (path, range), "{reason}");
    assert!(files == *expected, "{:?} instead of {:?}: {told}", files.keys(), expected.keys());
}

/// Of no generation that has been.
fn unborn(data: &mut [u8]) {
    data[5] = 1;
}

/// Of a type that there is not.
fn odd_entry(data: &mut [u8]) {
    data[29] = 99;
}

#[test]
fn what_a_faulty_inode_item_does_not_describe_comes_out() {
    let (image, sound) = sound();
    let path = "/directory-1/file-13";
    let mut expected = sound.clone();
    expected.remove(path);
    let of_file = |m: &Mutator| break_item(m, item_of(m, "file-13", ItemType::INODE_ITEM), unborn);
    check(&image, of_file, &[], &expected, (path, None));

    // The files of a directory lie where they say themselves.
    let directory = number(&Mutator::new(&image), "directory-1");
    let moved = |from: &str, to: &str| -> Contents {
        let rename =
            |path: &String| path.strip_prefix(from).map_or(path.clone(), |rest| format!("{to}{rest}"));
        sound.iter().map(|(path, bytes)| (rename(path), bytes.clone())).collect()
    };
    let expected = moved("/directory-1/", &format!("/lost+found/{}-{directory}/", RootId::FS_TREE));
    let of_directory = |m: &Mutator| break_item(m, item_of(m, "directory-1", ItemType::INODE_ITEM), unborn);
    check(&image, of_directory, &[], &expected, ("/directory-1", None));

    let root = ObjectId::FIRST_FREE;
    let mut expected = moved("/", &format!("/lost+found/{}-{root}/", RootId::FS_TREE));
    let inner = expected.keys().find(|path| path.ends_with(INNER)).cloned().unwrap();
    let bytes = expected.remove(&inner).unwrap();
    // It is a tree of its own.
    expected.insert("/lost+found/subvolume-256/inner".to_owned(), bytes);
    let of_root = |m: &Mutator| break_item(m, m.find_of(root, ItemType::INODE_ITEM), unborn);
    check(&image, of_root, &[], &expected, ("/", None));
}

#[test]
fn a_faulty_name_or_reference_takes_no_file_with_it() {
    let (image, sound) = sound();
    let by_hash = |m: &Mutator| {
        let child = number(m, "file-14").0.to_le_bytes();
        m.find(RootId::FS_TREE, |key, data| key.item_type == ItemType::DIR_ITEM && data[..8] == child)
    };
    let reference =
        |m: &Mutator| break_item(m, item_of(m, "file-14", ItemType::INODE_REF), |data| data[8] = 99);
    check(&image, reference, &[], &sound, ("/", None));
    check(&image, |m| break_item(m, by_hash(m), odd_entry), &[], &sound, ("/", None));
    check(&image, |m| break_item(m, index(m, "file-14"), odd_entry), &[], &sound, ("/directory-1", None));
    // Attributes are missed only where they are asked for; that one is lost is told in any case.
    let attribute =
        |m: &Mutator| break_item(m, item_of(m, &ATTRIBUTED[1..], ItemType::XATTR_ITEM), odd_entry);
    check(&image, attribute, &[], &sound, ("/", None));
    check(&image, attribute, &["-x"], &sound, (ATTRIBUTED, None));
}

#[test]
fn the_range_of_a_faulty_run_is_told_and_never_read_as_zeros() {
    let (image, sound) = sound();
    let run = |m: &Mutator, name: &str, at: usize| {
        let key = Key::new(number(m, name), ItemType::EXTENT_DATA, RUNS[at] as u64);
        m.find(RootId::FS_TREE, |other, _| other == key)
    };
    let encrypted = |data: &mut [u8]| data[17] = 1;
    let partial = |path: &str, bytes: Vec<u8>| {
        let mut expected = sound.clone();
        expected.remove(path);
        expected.insert(format!("{path}.partial"), bytes);
        expected
    };
    // Up to where the next one begins, or the file ends.
    for (at, end) in [(0, RUNS[1]), (1, RUNS[2]), (2, RUNS[2] + RUN)] {
        let mut bytes = several();
        bytes[RUNS[at]..end].fill(0);
        let range = Some((RUNS[at] as u64, end as u64));
        let broken = |m: &Mutator| break_item(m, run(m, &SEVERAL[1..], at), encrypted);
        check(&image, broken, &[], &partial(SEVERAL, bytes.clone()), (SEVERAL, range));
        // It says that it reaches over all that follow.
        let endless = |m: &Mutator| break_item(m, run(m, &SEVERAL[1..], at), |data| data[49] = 1);
        check(&image, endless, &[], &partial(SEVERAL, bytes), (SEVERAL, range));
    }
    // A file in its item.
    let inline = "/directory-0/file-0";
    let broken = |m: &Mutator| break_item(m, run(m, "file-0", 0), |data| data[20] = 7);
    check(&image, broken, &[], &partial(inline, vec![0; 40]), (inline, Some((0, 40))));
}

#[test]
fn a_copy_in_which_nothing_is_wrong_is_taken() {
    let (image, sound) = sound();
    let scratch = Scratch::in_memory("restore-mirrors");
    for mirror in 0..2 {
        let mutator = Mutator::new(&image);
        let item = item_of(&mutator, "file-13", ItemType::INODE_ITEM);
        let good = mutator.block(item.leaf).bytes().to_vec();
        let copies = mutator.copies(item.leaf, good.len() as u64);
        assert_eq!(copies.len(), 2);
        break_item(&mutator, item, unborn);
        mutator.device().write_at(copies[mirror], good).unwrap();
        let (ended, files) = restore(&scratch, &mutator.device(), &[]);
        assert_eq!(ended.code, 0, "{mirror}: {}", ended.err);
        assert!(files == sound, "{mirror}: {:?}", files.keys());
    }
}

#[test]
fn others_refuse_the_leaf_whole() {
    let (image, _) = sound();
    let mutator = Mutator::new(&image);
    let item = break_item(&mutator, item_of(&mutator, "file-13", ItemType::INODE_ITEM), unborn);
    let beside = mutator.block(item.leaf).key(item.slot + 1);
    let scratch = Scratch::in_memory("restore-others");
    let path = scratch.join("image");
    write_image(&mutator.device(), &path);
    for options in ["ro", "ro,rescue=all"] {
        let ended = run(["cat", "-o", options, &format!("{}:/directory-1/file-13", path.display())]);
        ended.failed(1, &[&format!("block {}", item.leaf), &format!("key {}", item.key)]);
    }
    let report = run(["--json", "check", text(&path)]);
    assert_ne!(report.code, 0);
    assert!(report.text().contains(&item.key.to_string()), "{}", report.text());
    assert_eq!(beside.objectid, item.key.objectid);
}

/// The root item of a tree in a root tree, if that is one leaf and has it.
fn root_item(root_tree: &Block, tree: RootId) -> Option<Found> {
    let is_it = |slot: &usize| {
        let key = root_tree.key(*slot);
        key.objectid == tree.object_id() && key.item_type == ItemType::ROOT_ITEM
    };
    let slot = (0..root_tree.len()).find(is_it).filter(|_| root_tree.is_leaf())?;
    Some(Found { leaf: root_tree.logical(), slot, key: root_tree.key(slot) })
}

/// Sets a flag that there is not.
fn break_root_item(m: &Mutator, root_tree: Logical, tree: RootId) -> Option<Found> {
    let item = m.try_block(root_tree).and_then(|block| root_item(&block, tree))?;
    Some(break_item(m, item, |data| {
        let mut root = RootItem::decode(data).unwrap();
        root.flags.0 |= 1 << 24;
        data.copy_from_slice(&root.encode());
    }))
}

#[test]
fn a_faulty_root_item_costs_no_more_than_its_tree() {
    let recipe = Recipe { device_bytes: 128 << 20, ..Recipe::default() };
    let device = Arc::new(recipe.in_memory());
    let options = OpenOptions::default();
    let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as Arc<dyn Device>], options).unwrap();
    let files = Files::new(filesystem, Caller::superuser());
    files.create_subvolume("/volume").unwrap();
    files.write(INNER, b"inner").unwrap();
    files.write("/outer", b"outer").unwrap();
    files.sync().unwrap();
    files.write("/outer", b"newer").unwrap();
    files.close().unwrap();
    let image = device.snapshot();
    let of = |outer: &[u8]| {
        Contents::from([(INNER.to_owned(), b"inner".to_vec()), ("/outer".to_owned(), outer.to_vec())])
    };
    let scratch = Scratch::in_memory("restore-roots");
    let after = |m: &Mutator| {
        let (ended, files) = restore(&scratch, &m.device(), &[]);
        assert_eq!(ended.code, 3, "{}{}", ended.text(), ended.err);
        (losses(&ended.json()), ended.err, files)
    };

    // Nobody needs the UUID tree to find files: the last commit is shown.
    let mutator = Mutator::new(&image);
    let item = break_root_item(&mutator, mutator.superblock.root, RootId::UUID_TREE).unwrap();
    let (lost, err, found) = after(&mutator);
    assert!(!err.contains("shown is"), "{err}");
    assert!(lost.len() == 1 && lost[0].1.contains(&place(RootId::ROOT_TREE, item)), "{lost:?}");
    assert!(found == of(b"newer"), "{found:?}");

    for tree in [RootId(256), RootId::FS_TREE, RootId::CHECKSUM_TREE] {
        // The commit before has all trees.
        let mutator = Mutator::new(&image);
        let item = break_root_item(&mutator, mutator.superblock.root, tree).unwrap();
        let (_, err, found) = after(&mutator);
        assert!(err.contains(&place(RootId::ROOT_TREE, item)) && err.contains("shown is the state"), "{err}");
        assert!(found.contains_key(INNER) && found.contains_key("/outer"), "{tree}: {found:?} {err}");
    }
    // No commit that is left has the subvolume: what the last one has of others comes out.
    let mutator = Mutator::new(&image);
    let backups = mutator.superblock.backup_roots.iter().map(|backup| backup.tree_root);
    for root_tree in backups.filter(|root_tree| *root_tree != Logical(0)) {
        break_root_item(&mutator, root_tree, RootId(256));
    }
    let last = mutator.superblock.root;
    let item = root_item(&mutator.block(last), RootId(256)).unwrap();
    let (lost, err, found) = after(&mutator);
    assert!(err.contains("shown is the last commit"), "{err}");
    assert!(lost.iter().any(|(_, reason, _)| reason.contains(&place(RootId::ROOT_TREE, item))), "{lost:?}");
    assert!(found == Contents::from([("/outer".to_owned(), b"newer".to_vec())]), "{found:?}");
}

#[test]
fn a_faulty_item_of_the_chunk_tree_loses_no_other_chunk() {
    let (image, sound) = sound();
    let scratch = Scratch::in_memory("restore-chunk-items");
    // A device item: nothing lies by it.
    let mutator = Mutator::new(&image);
    let device = mutator.find_type(RootId::CHUNK_TREE, ItemType::DEVICE_ITEM);
    break_item(&mutator, device, |data| data[0] ^= 0xff);
    let (ended, files) = restore(&scratch, &mutator.device(), &[]);
    assert!(ended.err.contains(&place(RootId::CHUNK_TREE, device)), "{}", ended.err);
    assert!(files == sound, "{:?}: {}", files.keys(), ended.err);
    // Each chunk in turn. The system's own is in the superblock, too.
    let chunks = Mutator::new(&image).all(RootId::CHUNK_TREE, |key, _| key.item_type == ItemType::CHUNK_ITEM);
    let mut seen = BTreeSet::new();
    for chunk in chunks {
        let mutator = Mutator::new(&image);
        let data = mutator.block(chunk.leaf).data(chunk.slot).to_vec();
        let flags = Chunk::decode(&data).unwrap().flags;
        break_item(&mutator, chunk, |data| data[24..32].fill(0));
        let (ended, files) = restore(&scratch, &mutator.device(), &[]);
        let told = ended.err.contains(&place(RootId::CHUNK_TREE, chunk));
        if flags.has(BlockGroupFlags::METADATA) {
            // Nothing can be found.
            assert_eq!((ended.code, files.len()), (1, 0), "{}", ended.err);
            seen.insert("metadata");
        } else if flags.has(BlockGroupFlags::SYSTEM) {
            assert!(told && ended.code == 0 && files == sound, "{}{:?}", ended.err, files.keys());
            seen.insert("system");
        } else {
            // Files in their items come out, and of others their names.
            assert!(told && ended.code == 3, "{}", ended.err);
            for (path, bytes) in &sound {
                let found = files.get(path);
                let is_inline = bytes.len() < 100;
                assert!(if is_inline {
                    found == Some(bytes)
                } else {
                    found.is_none_or(|found| found == bytes)
                });
                let partial = files.contains_key(&format!("{path}.partial"));
                assert!(is_inline || found.is_some() || partial, "{path}: {}", ended.err);
            }
            seen.insert("data");
        }
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
}
