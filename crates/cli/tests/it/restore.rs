//! Files out of damaged images: what is not below the damage comes out byte for byte, the rest is named, and
//! nothing lands outside of the directory that was meant.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::common::{self, Ended, run, target};
use serde_json::Value;
use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceExt, MemoryDevice};
use vlinder_format::directory::DirectoryEntry;
use vlinder_format::{ItemType, Key, Logical, ObjectId, RootId};
use vlinder_fs::path::Files;
use vlinder_fs::{AttributeMode, Caller, Filesystem, OpenOptions, SetAttributes, UserId};
use vlinder_testkit::Scratch;
use vlinder_testkit::mutator::Mutator;
use vlinder_testkit::require;
use vlinder_testkit::subject::{Recipe, write_image};

/// Bytes that tell which file they are of.
fn content(number: usize) -> Vec<u8> {
    let length = [40, 5_000, 70_000][number % 3];
    (0..length).map(|position| ((position * 31 + number * 17) % 253) as u8 + 1).collect()
}

fn files_of(device: &Arc<MemoryDevice>) -> Files {
    let filesystem =
        Filesystem::open_devices(vec![Arc::clone(device) as Arc<dyn Device>], OpenOptions::default())
            .unwrap();
    Files::new(filesystem, Caller::superuser())
}

const DIRECTORIES: usize = 5;
const FILES: usize = 12;

fn path_of(number: usize) -> String {
    format!("/directory-{}/file-{number}", number / FILES)
}

/// A file system with trees of several leaves each.
fn sound() -> MemoryDevice {
    let recipe = Recipe { node_size: 4096, device_bytes: 128 << 20, ..Recipe::default() };
    let device = Arc::new(recipe.in_memory());
    let files = files_of(&device);
    for directory in 0..DIRECTORIES {
        files.create_dir_all(format!("/directory-{directory}")).unwrap();
        for number in 0..FILES {
            let number = directory * FILES + number;
            files.write(path_of(number), content(number)).unwrap();
        }
        files.sync().unwrap();
    }
    files.close().unwrap();
    device.snapshot()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What a directory of the image hides from others is not shown to them on the host, whatever the flags; a
/// directory that is there keeps its mode, unless metadata are asked for.
#[test]
fn a_private_directory_stays_private() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let device = Arc::new(Recipe { device_bytes: 128 << 20, ..Recipe::default() }.in_memory());
    let files = files_of(&device);
    for (name, mode) in [("/private", 0o700), ("/open", 0o755), ("/locked", 0o500)] {
        files.create_dir(name).unwrap();
        files.write(format!("{name}/file"), b"content").unwrap();
        files.set_permissions(format!("{name}/file"), 0o644).unwrap();
        files.set_permissions(name, mode).unwrap();
    }
    files.close().unwrap();
    let scratch = Scratch::in_memory("restore-private");
    let (image, out) = (scratch.join("image"), scratch.join("out"));
    write_image(&device, &image);
    std::fs::create_dir(&out).unwrap();
    std::fs::create_dir(out.join("open")).unwrap();
    std::fs::set_permissions(out.join("open"), std::fs::Permissions::from_mode(0o711)).unwrap();
    let modes = || {
        ["private", "open", "locked"].map(|name| std::fs::metadata(out.join(name)).unwrap().mode() & 0o7777)
    };
    run(["restore", text(&image), text(&out)]).done();
    assert_eq!(modes(), [0o700, 0o711, 0o700], "the owner can go on in a directory that was locked");
    assert_eq!(found(&out).len(), 3);
    run(["restore", "-m", "-o", text(&image), text(&out)]).done();
    assert_eq!(modes(), [0o700, 0o755, 0o500]);
}

/// Restores into a new directory.
fn restore(scratch: &Scratch, device: &MemoryDevice, flags: &[&str]) -> (Ended, PathBuf) {
    let (image, out) = (scratch.join("image"), scratch.join("out"));
    write_image(device, &image);
    let _ = std::fs::remove_dir_all(&out);
    std::fs::create_dir(&out).unwrap();
    let words = ["--json", "restore"].iter().chain(flags).copied().chain([text(&image), text(&out)]);
    (run(words), out)
}

/// Every regular file below a directory, by its path from there.
fn found(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let status = std::fs::symlink_metadata(&path).unwrap();
        if status.is_dir() {
            pending.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if status.is_file() {
            let name = format!("/{}", path.strip_prefix(root).unwrap().display());
            files.insert(name, std::fs::read(&path).unwrap());
        }
    }
    files
}

/// Every block of a tree, with the blocks above it.
fn blocks(
    mutator: &Mutator,
    root: Logical,
    above: &BTreeSet<Logical>,
    all: &mut BTreeMap<Logical, BTreeSet<Logical>>,
) {
    let block = mutator.block(root);
    let mut path = above.clone();
    path.insert(root);
    all.insert(root, path.clone());
    if !block.is_leaf() {
        block.children().for_each(|child| blocks(mutator, child.logical, &path, all));
    }
}

/// What a file needs of the subvolume's tree, from the format's description.
#[derive(Default)]
struct Needs {
    /// Blocks with its inode and its extents, and those above.
    content: BTreeSet<Logical>,
    /// Blocks with its name in its directory.
    name: BTreeSet<Logical>,
}

fn needs(mutator: &Mutator) -> (BTreeMap<String, Needs>, BTreeSet<Logical>) {
    let mut tree = BTreeMap::new();
    blocks(mutator, mutator.root(RootId::FS_TREE), &BTreeSet::new(), &mut tree);
    let mut of_inode: BTreeMap<ObjectId, BTreeSet<Logical>> = BTreeMap::new();
    let mut names: Vec<(String, ObjectId, Logical)> = Vec::new();
    for (logical, path) in &tree {
        let block = mutator.block(*logical);
        for slot in (0..block.len()).filter(|_| block.is_leaf()) {
            let key = block.key(slot);
            match key.item_type {
                ItemType::INODE_ITEM | ItemType::EXTENT_DATA | ItemType::INODE_REF => {
                    of_inode.entry(key.objectid).or_default().extend(path);
                }
                ItemType::DIR_INDEX => {
                    let entry = DirectoryEntry::decode(block.data(slot)).unwrap();
                    names.push((
                        String::from_utf8(entry.name.to_vec()).unwrap(),
                        entry.location.objectid,
                        *logical,
                    ));
                }
                _ => {}
            }
        }
    }
    let mut needs: BTreeMap<String, Needs> = BTreeMap::new();
    for number in 0..DIRECTORIES * FILES {
        let path = path_of(number);
        let need = needs.entry(path.clone()).or_default();
        for part in path.split('/').skip(1) {
            let (_, inode, leaf) = names.iter().find(|(name, ..)| name == part).unwrap();
            need.name.extend(&tree[leaf]);
            need.name.extend(&of_inode[inode]);
            if part.starts_with("file") {
                need.content.extend(&of_inode[inode]);
            }
        }
        // The root directory's own inode is on the way to each name.
        need.name.extend(&of_inode[&ObjectId(256)]);
    }
    (needs, tree.into_keys().collect())
}

/// Every tree of the image, with its blocks.
fn all_blocks(mutator: &Mutator) -> Vec<(RootId, Logical)> {
    let trees = [
        RootId::ROOT_TREE,
        RootId::CHUNK_TREE,
        RootId::EXTENT_TREE,
        RootId::DEVICE_TREE,
        RootId::CHECKSUM_TREE,
        RootId::UUID_TREE,
        RootId::FREE_SPACE_TREE,
        RootId::BLOCK_GROUP_TREE,
        RootId::DATA_RELOCATION_TREE,
        RootId::FS_TREE,
    ];
    let mut all = Vec::new();
    for tree in trees {
        let mut found = BTreeMap::new();
        blocks(mutator, mutator.root(tree), &BTreeSet::new(), &mut found);
        all.extend(found.into_keys().map(|logical| (tree, logical)));
    }
    all
}

#[test]
fn every_tree_block_is_destroyed_in_turn() {
    let image = sound();
    let pristine = Mutator::new(&image);
    let (needs, tree) = needs(&pristine);
    assert!(tree.len() > 8, "the subvolume has several leaves: {}", tree.len());
    let scratch = Scratch::in_memory("restore-blocks");
    let (mut whole, mut partly) = (0, 0);
    for (owner, logical) in all_blocks(&pristine) {
        let mutator = Mutator::new(&image);
        mutator.change_bytes(logical, |bytes| bytes.fill(0x5a));
        // With its checksum, too, nothing in it is right.
        let (ended, out) = restore(&scratch, &mutator.device(), &[]);
        let place = format!("tree {owner}, block {logical}: {}{}", ended.text(), ended.err);
        assert!([0, 1, 3].contains(&ended.code), "{place}");
        let report = ended.json();
        // Without a chunk tree nothing can be found: the verb fails as a whole, with the reason.
        let parts = report["lost"].as_array().cloned().unwrap_or_default();
        assert!(report["lost"].is_array() || report["error"]["message"].is_string(), "{place}");
        let lost: Vec<&str> = parts.iter().map(|part| part["path"].as_str().unwrap()).collect();
        let restored = found(&out);
        let contents: BTreeSet<&Vec<u8>> = restored.values().collect();
        for number in 0..DIRECTORIES * FILES {
            let (path, expected) = (path_of(number), content(number));
            // What stands under its own name is whole.
            if let Some(bytes) = restored.get(&path) {
                assert!(*bytes == expected, "{path}: {place}");
            }
            let need = &needs[&path];
            // One leaf, on which everything hangs.
            let is_root = matches!(owner, RootId::CHUNK_TREE | RootId::ROOT_TREE);
            if !need.name.contains(&logical) && !is_root {
                assert!(restored.contains_key(&path), "{path} is missing: {place}");
            } else if !need.content.contains(&logical) && !is_root {
                assert!(contents.contains(&expected), "{path} is missing under any name: {place}");
            } else if !contents.contains(&expected) {
                assert_ne!(ended.code, 0, "{place}");
                let is_named = |lost: &str| path.starts_with(lost) || is_root;
                assert!(
                    lost.iter().any(|lost| is_named(lost)) || ended.code == 1,
                    "{path} is not named: {place}"
                );
            }
        }
        let all = needs.keys().all(|path| restored.contains_key(path));
        if all { whole += 1 } else { partly += 1 }
    }
    assert!(whole >= 8 && partly >= 8, "{whole} whole, {partly} in part");
}

/// The first place of a sector of a file's content.
fn sector_of(device: &MemoryDevice, sector: &[u8]) -> Physical {
    let chunks = device.written_chunks();
    let found = chunks.iter().find_map(|(start, bytes)| {
        let position = bytes.chunks_exact(4096).position(|found| found == sector)?;
        Some(Physical(start.0 + position as u64 * 4096))
    });
    found.unwrap()
}

#[test]
fn a_partly_read_file_gets_another_name_and_tells_its_ranges() {
    let image = sound();
    let expected = content(2);
    image.write_at(sector_of(&image, &expected[8192..12288]), vec![0; 4096]).unwrap();
    let scratch = Scratch::in_memory("restore-part");
    let (ended, out) = restore(&scratch, &image, &[]);
    assert_eq!(ended.code, 3, "{}", ended.err);
    let report = ended.json();
    let lost = report["lost"].as_array().unwrap();
    assert_eq!(lost.len(), 1, "{report}");
    assert_eq!(lost[0]["path"], path_of(2).as_str());
    assert_eq!((&lost[0]["start_byte"], &lost[0]["end_byte"]), (&Value::from(8192), &Value::from(12288)));
    assert_eq!(report["partial_files"], 1);
    assert_eq!(report["files"], (DIRECTORIES * FILES - 1) as u64);
    let restored = found(&out);
    assert!(!restored.contains_key(&path_of(2)), "no half file under the whole one's name");
    let mut holed = expected;
    holed[8192..12288].fill(0);
    assert_eq!(restored[&format!("{}.partial", path_of(2))], holed);
    // By the user's word what is there is taken as it is.
    let (ended, out) = restore(&scratch, &image, &["--options", "rescue=ignoredatacsums"]);
    assert_eq!((ended.code, found(&out)[&path_of(2)].len()), (0, holed.len()), "{}", ended.err);
}

#[test]
fn superblock_copies_and_backup_roots_are_tried() {
    let image = sound();
    let scratch = Scratch::in_memory("restore-super");
    image.write_at(Physical(65536), vec![0; 4096]).unwrap();
    let (ended, out) = restore(&scratch, &image, &[]);
    assert_eq!((ended.code, found(&out).len()), (0, DIRECTORIES * FILES), "{}", ended.err);
    assert!(ended.err.contains("superblock"), "{}", ended.err);
    assert!(!restore(&scratch, &image, &["-u", "0"]).0.err.is_empty());
    assert_eq!(restore(&scratch, &image, &["-u", "0"]).0.code, 1);
    assert_eq!(restore(&scratch, &image, &["-u", "1"]).0.code, 0);
    // Now the root of the last commit.
    let image = sound();
    let mutator = Mutator::new(&image);
    mutator.change_bytes(mutator.superblock.root, |bytes| bytes.fill(0));
    let (ended, out) = restore(&scratch, &mutator.device(), &[]);
    let found = found(&out);
    assert!(found.len() >= FILES && ended.err.contains("shown is the state of commit"), "{}", ended.err);
    for number in (0..DIRECTORIES * FILES).filter(|number| found.contains_key(&path_of(*number))) {
        assert_eq!(found[&path_of(number)], content(number));
    }
    // And by its address.
    let backup =
        mutator.superblock.backup_roots.iter().max_by_key(|backup| backup.tree_root_generation).unwrap();
    let older = mutator
        .superblock
        .backup_roots
        .iter()
        .filter(|other| other.tree_root_generation < backup.tree_root_generation);
    let address = older.max_by_key(|backup| backup.tree_root_generation).unwrap().tree_root.0.to_string();
    let (ended, _) = restore(&scratch, &mutator.device(), &["-t", &address]);
    assert!([0, 3].contains(&ended.code), "{}", ended.err);
}

/// Gives every DIR_INDEX of a name another name of the same length.
fn rename_index(mutator: &Mutator, name: &[u8], to: &[u8]) {
    let item = mutator.find(RootId::FS_TREE, |key, data| {
        key.item_type == ItemType::DIR_INDEX && DirectoryEntry::decode(data).unwrap().name == name
    });
    mutator.change_item(item, |data| {
        let start = data.len() - name.len();
        data[start..].copy_from_slice(to);
    });
}

#[test]
fn no_name_leads_out_of_the_directory() {
    let device = Arc::new(Recipe { device_bytes: 128 << 20, ..Recipe::default() }.in_memory());
    let files = files_of(&device);
    for name in ["up", "abcd", "nul", "dir1", "sound", "linkd"] {
        files.create_dir_all(format!("/{name}")).unwrap();
        files.write(format!("/{name}/evil"), b"evil").unwrap();
    }
    let scratch = Scratch::in_memory("restore-names");
    let outside = scratch.join("outside");
    std::fs::create_dir(&outside).unwrap();
    files.symlink(&outside, "/lnk_d").unwrap();
    files.close().unwrap();
    for (name, hostile) in
        [("up", &b".."[..]), ("abcd", b"../x"), ("nul", b"n\0l"), ("dir1", b"/tmp"), ("linkd", b"lnk_d")]
    {
        let mutator = Mutator::new(&device.snapshot());
        rename_index(&mutator, name.as_bytes(), hostile);
        let image = mutator.device();
        let (ended, out) = restore(&scratch, &image, &["-S"]);
        assert!([0, 1, 3].contains(&ended.code), "{name}: {}", ended.err);
        if name != "linkd" {
            assert_ne!(ended.code, 0, "{name}: {}", ended.err);
        }
        let copy = scratch.join("copy");
        let _ = std::fs::remove_dir_all(&copy);
        let copied = run(["cp", "-a", &target(&scratch.join("image"), "/"), text(&copy)]);
        assert!([0, 1, 3].contains(&copied.code), "{name}: {}", copied.err);
        for place in [&out, &copy] {
            assert!(place.join("sound/evil").exists() || copied.code == 1, "{name}: {}", copied.err);
        }
        let mut beside: Vec<String> = std::fs::read_dir(scratch.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        beside.sort();
        beside.retain(|found| found != "copy");
        assert_eq!(beside, ["image", "out", "outside"], "{name}");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "{name}");
        assert!(!Path::new("/tmp/evil").exists());
    }
}

#[test]
fn a_file_keeps_its_capabilities_beside_its_new_owner() {
    require!(Root);
    let device = Arc::new(Recipe { device_bytes: 128 << 20, ..Recipe::default() }.in_memory());
    let files = files_of(&device);
    files.write("/tool", b"content").unwrap();
    let owner = SetAttributes { user: Some(UserId(1000)), ..SetAttributes::default() };
    files.set_attributes("/tool", &owner).unwrap();
    // CAP_NET_RAW, effective (`struct vfs_cap_data`, revision 2).
    let capability = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let (filesystem, caller) = (files.filesystem(), Caller::superuser());
    let inode = filesystem.names().lookup(&caller, &filesystem.root().unwrap(), b"tool").unwrap();
    let mode = AttributeMode::Create;
    filesystem
        .attributes()
        .set_extended_attribute(&caller, &inode, b"security.capability", &capability, mode)
        .unwrap();
    drop(inode);
    files.close().unwrap();
    let scratch = Scratch::in_memory("restore-capabilities");
    let (ended, out) = restore(&scratch, &device, &["-m", "-x"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    use std::os::unix::fs::MetadataExt;
    assert_eq!(std::fs::metadata(out.join("tool")).unwrap().uid(), 1000);
    let mut restored = vec![0; 64];
    let length = rustix::fs::getxattr(out.join("tool"), "security.capability", &mut restored).unwrap();
    assert_eq!(restored[..length], capability);
}

#[test]
fn flags_say_what_is_restored() {
    let device = Arc::new(Recipe { device_bytes: 128 << 20, ..Recipe::default() }.in_memory());
    let files = files_of(&device);
    files.write("/file", b"content").unwrap();
    files.set_permissions("/file", 0o640).unwrap();
    files.symlink("file", "/link").unwrap();
    files.hard_link("/file", "/again").unwrap();
    files.create_subvolume("/volume").unwrap();
    files.write("/volume/inner", b"inner").unwrap();
    files.snapshot("/volume", "/shot", false).unwrap();
    files.close().unwrap();
    let scratch = Scratch::in_memory("restore-flags");
    let (ended, out) = restore(&scratch, &device, &[]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let names: Vec<String> = found(&out).into_keys().collect();
    assert_eq!(names, ["/again", "/file", "/volume/inner"]);
    assert!(!out.join("link").exists());
    use std::os::unix::fs::MetadataExt;
    assert_eq!(std::fs::metadata(out.join("file")).unwrap().nlink(), 2);
    let (ended, out) = restore(&scratch, &device, &["-s", "-S", "-m", "-v", "-i"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(std::fs::read(out.join("shot/inner")).unwrap(), b"inner");
    assert_eq!(std::fs::read_link(out.join("link")).unwrap(), Path::new("file"));
    assert_eq!(std::fs::metadata(out.join("file")).unwrap().mode() & 0o7777, 0o640);
    // What is there stays, unless it is to be replaced.
    std::fs::write(out.join("file"), b"mine").unwrap();
    let image = scratch.join("image");
    let again = run(["--json", "restore", text(&image), text(&out)]);
    // Both names of the file, the link, the snapshot, and what is in the subvolume.
    assert_eq!(again.json()["skipped"], 5, "{}", again.text());
    assert_eq!(std::fs::read(out.join("file")).unwrap(), b"mine");
    run(["restore", "-o", text(&image), text(&out)]).done();
    assert_eq!(std::fs::read(out.join("file")).unwrap(), b"content");
    // A part, a list, and nothing at all.
    let (ended, out) = restore(&scratch, &device, &["--path-regex", "^/(|VOLUME(|/.*))$", "-c"]);
    assert_eq!(
        (ended.code, found(&out).into_keys().collect::<Vec<_>>()),
        (0, vec!["/volume/inner".to_owned()])
    );
    let (ended, out) = restore(&scratch, &device, &["-D"]);
    assert_eq!((ended.json()["files"].clone(), found(&out).len()), (Value::from(3), 0));
    let volume = run(["--json", "restore", "-l", text(&image)]).done().json();
    let ids: Vec<u64> =
        volume["roots"].as_array().unwrap().iter().map(|root| root["id"].as_u64().unwrap()).collect();
    assert!(ids.contains(&5) && ids.contains(&256) && ids.contains(&257), "{ids:?}");
    let (_, out) = restore(&scratch, &device, &["-r", "256"]);
    assert_eq!(found(&out).into_keys().collect::<Vec<_>>(), ["/inner"]);
}

#[test]
fn a_symbolic_link_planted_in_the_target_is_not_followed() {
    let image = sound();
    let scratch = Scratch::in_memory("restore-planted");
    let (path, out, outside) = (scratch.join("image"), scratch.join("out"), scratch.join("outside"));
    write_image(&image, &path);
    std::fs::create_dir(&out).unwrap();
    std::fs::create_dir(&outside).unwrap();
    symlink(&outside, out.join("directory-0")).unwrap();
    symlink(outside.join("file"), out.join("lost+found")).unwrap();
    let ended = run(["restore", "-o", text(&path), text(&out)]);
    assert_eq!(ended.code, 3, "{}", ended.err);
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(found(&out).len(), (DIRECTORIES - 1) * FILES);
}

#[test]
fn device_nodes_need_leave() {
    require!(Root);
    let scratch = Scratch::new("restore-devices");
    let source = scratch.join("source");
    std::fs::create_dir(&source).unwrap();
    common::tool("mknod", [text(&source.join("null")), "c", "1", "3"]);
    common::tool("mkfifo", [text(&source.join("fifo"))]);
    let image = scratch.join("image");
    run(["mkfs", "-q", "-b", "128M", "--rootdir", text(&source), text(&image)]).done();
    let out = scratch.join("out");
    std::fs::create_dir(&out).unwrap();
    run(["restore", text(&image), text(&out)]).done();
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 0);
    run(["restore", "--devices", text(&image), text(&out)]).done();
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 2);
}

#[test]
fn a_directory_is_entered_once_however_many_names_lead_to_it() {
    let device = Arc::new(Recipe { device_bytes: 128 << 20, ..Recipe::default() }.in_memory());
    let files = files_of(&device);
    for level in 0..12 {
        let above: String = (0..level).map(|level| format!("/a{level}")).collect();
        files.create_dir_all(format!("{above}/a{level}")).unwrap();
        files.create_dir_all(format!("{above}/b{level}")).unwrap();
    }
    files.close().unwrap();
    let mutator = Mutator::new(&device.snapshot());
    // Each second name leads to where the first one does: 2^12 ways down.
    for level in 0..12 {
        let (first, second) = (format!("a{level}"), format!("b{level}"));
        let is_named = |key: Key, data: &[u8], name: &str| {
            key.item_type == ItemType::DIR_INDEX
                && DirectoryEntry::decode(data).unwrap().name == name.as_bytes()
        };
        let target = mutator.find(RootId::FS_TREE, |key, data| is_named(key, data, &first));
        let location = mutator.block(target.leaf).data(target.slot)[..Key::SIZE].to_vec();
        let item = mutator.find(RootId::FS_TREE, |key, data| is_named(key, data, &second));
        mutator.change_item(item, |data| data[..Key::SIZE].copy_from_slice(&location));
    }
    let scratch = Scratch::in_memory("restore-ways");
    let (ended, _) = restore(&scratch, &mutator.device(), &[]);
    assert_eq!(ended.code, 3, "{}", ended.err);
    assert!(ended.json()["directories"].as_u64().unwrap() <= 24, "{}", ended.text());
}

/// Each tree block is sound, and two directory entries are not what they should be.
#[test]
fn nameless_files_are_restored_though_nothing_is_damaged() {
    let device = Arc::new(Recipe { device_bytes: 128 << 20, ..Recipe::default() }.in_memory());
    let files = files_of(&device);
    let names = ["one", "two", "six"];
    for name in names {
        files.write(format!("/{name}"), name.as_bytes()).unwrap();
    }
    files.create_dir_all("/directory").unwrap();
    files.write("/directory/inside", b"inside").unwrap();
    files.close().unwrap();
    let mutator = Mutator::new(&device.snapshot());
    rename_index(&mutator, b"two", b"one");
    for name in [&b"six"[..], b"directory"] {
        mutator.remove(mutator.find(RootId::FS_TREE, |key, data| {
            key.item_type == ItemType::DIR_INDEX && DirectoryEntry::decode(data).unwrap().name == name
        }));
    }
    let scratch = Scratch::in_memory("restore-nameless");
    let (ended, out) = restore(&scratch, &mutator.device(), &[]);
    assert_eq!(ended.code, 3, "{}", ended.err);
    let restored: Vec<Vec<u8>> = found(&out).into_values().collect();
    for content in names.iter().chain(&["inside"]) {
        let count = restored.iter().filter(|restored| *restored == content.as_bytes()).count();
        assert_eq!(count, 1, "{content}: {}", ended.err);
    }
}

/// The host has a file where a directory is to come: names lead to what lies in the directory, so nothing of
/// it is nameless.
#[test]
fn what_the_host_does_not_take_is_not_nameless() {
    let device = Arc::new(Recipe { device_bytes: 128 << 20, ..Recipe::default() }.in_memory());
    let files = files_of(&device);
    files.create_dir_all("/directory").unwrap();
    files.write("/directory/inside", b"inside").unwrap();
    files.write("/outside", b"outside").unwrap();
    files.close().unwrap();
    let scratch = Scratch::in_memory("restore-in-the-way");
    let (image, out) = (scratch.join("image"), scratch.join("out"));
    write_image(&device.snapshot(), &image);
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("directory"), b"in the way").unwrap();
    let ended = run(["restore", text(&image), text(&out)]);
    assert_eq!(ended.code, 3, "{}", ended.err);
    let paths: Vec<String> = found(&out).into_keys().collect();
    assert_eq!(paths, ["/directory", "/outside"], "{}", ended.err);
}
