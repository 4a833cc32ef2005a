//! `rescue=`: what is read of file systems of which trees, checksums or superblock flags are damaged. What
//! each part means was looked up on Linux 6.18, which takes all of them with `ro`, and shows `rescue=all` as
//! the five parts but `usebackuproot`.

use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceExt, MemoryDevice};
use vlinder_format::{ItemType, Logical, RootId};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, FsError, OpenOptions};
use vlinder_testkit::mutator::Mutator;
use vlinder_testkit::subject::{MkfsFeatures, Recipe};

/// Larger than what is inline.
const CONTENT_BYTES: usize = 100_000;

fn content() -> Vec<u8> {
    (0..CONTENT_BYTES).map(|position| (position * 7 % 251) as u8).collect()
}

/// A file system with one file.
fn image() -> MemoryDevice {
    image_of(&Recipe::default())
}

fn image_of(recipe: &Recipe) -> MemoryDevice {
    let device = Arc::new(recipe.in_memory());
    let files = open(&device, "").unwrap();
    files.write("/content", content()).unwrap();
    files.close().unwrap();
    device.snapshot()
}

fn open(device: &Arc<MemoryDevice>, options: &str) -> Result<Files, FsError> {
    let devices = vec![Arc::clone(device) as Arc<dyn Device>];
    let filesystem = Filesystem::open_devices(devices, OpenOptions::parse(options).unwrap())?;
    Ok(Files::new(filesystem, Caller::superuser()))
}

fn read(device: &Arc<MemoryDevice>, options: &str) -> Result<Vec<u8>, FsError> {
    open(device, options)?.read("/content")
}

/// Makes every copy of a block unreadable.
fn destroy(mutator: &Mutator, logical: Logical) {
    mutator.change_bytes(logical, |bytes| bytes[32..].fill(0x5a));
}

#[test]
fn trees_that_reading_can_do_without_may_be_bad() {
    let image = image();
    let trees = [
        // Groups have their own tree.
        (RootId::EXTENT_TREE, false),
        (RootId::DEVICE_TREE, true),
        (RootId::CHECKSUM_TREE, true),
        (RootId::BLOCK_GROUP_TREE, true),
        (RootId::FREE_SPACE_TREE, false),
        // Its root is not even looked at by who reads.
        (RootId::UUID_TREE, false),
    ];
    for (tree, is_needed) in trees {
        let mutator = Mutator::new(&image);
        destroy(&mutator, mutator.root(tree));
        let device = mutator.device();
        assert_eq!(read(&device, "ro").is_err(), is_needed, "tree {tree}");
        assert_eq!(read(&device, "ro,rescue=ibadroots").unwrap(), content(), "tree {tree}");
        assert_eq!(read(&device, "ro,rescue=all").unwrap(), content(), "tree {tree}");
    }
    // Without their root items it is the same.
    for (tree, _) in trees {
        let mutator = Mutator::new(&image);
        let item = |key: vlinder_format::Key, _: &[u8]| {
            key.objectid == tree.object_id() && key.item_type == ItemType::ROOT_ITEM
        };
        mutator.remove(mutator.find(RootId::ROOT_TREE, item));
        assert_eq!(read(&mutator.device(), "ro,rescue=ignorebadroots").unwrap(), content(), "tree {tree}");
    }
    // Where groups are in the extent tree, it is looked at.
    let features = MkfsFeatures { block_group_tree: false, ..MkfsFeatures::default() };
    let mutator = Mutator::new(&image_of(&Recipe { features, ..Recipe::default() }));
    destroy(&mutator, mutator.root(RootId::EXTENT_TREE));
    assert!(read(&mutator.device(), "ro").is_err());
    assert_eq!(read(&mutator.device(), "ro,rescue=ibadroots").unwrap(), content());
    // Files are in a tree that nothing can do without.
    let mutator = Mutator::new(&image);
    destroy(&mutator, mutator.root(RootId::FS_TREE));
    assert!(read(&mutator.device(), "ro,rescue=all").is_err());
}

#[test]
fn without_a_checksum_tree_data_are_not_verified() {
    let image = image();
    let mutator = Mutator::new(&image);
    // One byte of the data.
    let device = mutator.device();
    let first = &content()[..4096];
    let chunks = device.written_chunks();
    let found = chunks.iter().find_map(|(start, bytes)| {
        let place = bytes.chunks_exact(4096).position(|sector| sector == first)?;
        Some(start.0 + place as u64 * 4096)
    });
    device.write_at(Physical(found.unwrap()), vec![0xee]).unwrap();
    assert!(read(&device, "ro").is_err());
    assert!(read(&device, "ro,rescue=ibadroots").is_err(), "the checksums can still be had");
    destroy(&mutator, mutator.root(RootId::CHECKSUM_TREE));
    let mut damaged = content();
    damaged[0] = 0xee;
    assert_eq!(read(&device, "ro,rescue=ibadroots").unwrap(), damaged);
    assert!(read(&device, "ro,rescue=idatacsums").is_ok_and(|found| found == damaged));
}

#[test]
fn block_checksums_may_be_wrong_and_nothing_else() {
    let image = image();
    let mutator = Mutator::new(&image);
    let root = mutator.root(RootId::FS_TREE);
    // The checksum field of both copies.
    mutator.flip_bit(root, 0, 3);
    let device = mutator.device();
    assert_eq!(read(&device, "ro").unwrap(), content(), "the other copy is sound");
    mutator.flip_bit(root, 1, 3);
    assert!(read(&device, "ro").is_err());
    assert!(read(&device, "ro,rescue=ibadroots:idatacsums:isuperflags").is_err());
    assert_eq!(read(&device, "ro,rescue=imetacsums").unwrap(), content());
    assert_eq!(read(&device, "ro,rescue=all").unwrap(), content());
    // The generation as well.
    for copy in [0, 1] {
        mutator.flip_bit(root, copy, 80);
    }
    assert!(read(&device, "ro,rescue=all").is_err());
}

#[test]
fn a_copy_with_its_checksum_comes_before_one_without() {
    let image = image();
    let mutator = Mutator::new(&image);
    let item = mutator.find_type(RootId::FS_TREE, ItemType::INODE_ITEM);
    let leaf = mutator.block(item.leaf);
    // The first copy has another size for the root directory, and no right checksum.
    let offset =
        leaf.bytes().windows(leaf.data(item.slot).len()).position(|data| data == leaf.data(item.slot));
    mutator.flip_bit(item.leaf, 0, offset.unwrap() as u64 + 16);
    let size = |options| open(&mutator.device(), options).unwrap().metadata("/").unwrap().len();
    assert_eq!(size("ro,rescue=imetacsums"), size("ro"));
}

#[test]
fn unknown_superblock_flags_may_be_ignored() {
    let image = image();
    let mutator = Mutator::new(&image);
    mutator.change_superblock(|superblock| superblock.flags |= 1 << 55);
    let device = mutator.device();
    assert!(read(&device, "ro").is_err());
    assert!(read(&device, "ro,rescue=imetacsums:ibadroots").is_err());
    assert_eq!(read(&device, "ro,rescue=isuperflags").unwrap(), content());
    assert_eq!(read(&device, "ro,rescue=all").unwrap(), content());
}
