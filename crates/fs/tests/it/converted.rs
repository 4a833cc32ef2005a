//! File systems that btrfs-convert made of ext4 (field-cases A3).

use std::io::{Seek, SeekFrom, Write};
use std::process::Command;

use crate::support::{image, open};
use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_check::{Options, check};
use vlinder_codec::compress::{Compression, compress};
use vlinder_device::{Device, FileDevice, MemoryDevice};
use vlinder_format::file_extent::{CompressionId, FileExtent, FileExtentContent};
use vlinder_format::{Generation, ItemType, Logical, RootId};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions};
use vlinder_testkit::kernel::{KernelMount, btrfs_check};
use vlinder_testkit::mutator::Mutator;
use vlinder_testkit::{Scratch, require};

/// btrfs-convert 6.2 stores targets with a NUL behind them, which is no part of the link's size.
#[test]
fn links_of_a_converted_file_system_end_where_their_size_says() {
    require!(KernelBtrfs, Tool("mkfs.ext4"), Tool("btrfs-convert"), Tool("btrfs"));
    let scratch = Scratch::new("converted");
    let (image, tree) = (scratch.join("image"), scratch.join("tree"));
    std::fs::create_dir(&tree).unwrap();
    // ext4 stores the first in the inode, the second in a block.
    let targets = [("short", "f".to_owned()), ("long", "d/".repeat(100))];
    for (name, target) in &targets {
        std::os::unix::fs::symlink(target, tree.join(name)).unwrap();
    }
    std::fs::File::create(&image).unwrap().set_len(300 << 20).unwrap();
    for command in [
        Command::new("mkfs.ext4").args(["-q", "-b", "4096", "-d"]).arg(&tree).arg(&image),
        Command::new("btrfs-convert").arg(&image),
    ] {
        let done = command.output().unwrap();
        assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let mounted = KernelMount::new(&image, "ro").unwrap();
    for (name, target) in &targets {
        assert_eq!(std::fs::read_link(mounted.path().join(name)).unwrap().to_str(), Some(&**target));
    }
    mounted.unmount().unwrap();
    btrfs_check(&image).unwrap();
    let filesystem = Filesystem::open(&[&image], OpenOptions::parse("ro").unwrap()).unwrap();
    let files = Files::new(filesystem, Caller::superuser());
    for (name, target) in &targets {
        assert_eq!(files.read_link(format!("/{name}")).unwrap().to_str(), Some(&**target));
    }
    drop(files);
    let how = vlinder_device::OpenOptions { read_only: true, ..vlinder_device::OpenOptions::default() };
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(&image, &how).unwrap());
    let report = check(vec![device], &Options::default()).unwrap();
    let of_links = report.findings.iter().filter(|finding| finding.kind.id() == "link-size");
    assert_eq!(of_links.count(), 0, "{:?}", report.findings);
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// A target that is compressed, and one with a NUL inside, as Linux shows them.
#[test]
fn compressed_targets_are_read_and_a_nul_ends_one() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("odd-links");
    let (image, changed) = (scratch.join("image"), scratch.join("changed"));
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    let made = Command::new("mkfs.btrfs").args(["-q", "-m", "single"]).arg(&image).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let mounted = KernelMount::new(&image, "").unwrap();
    let long = "d/".repeat(100);
    std::os::unix::fs::symlink(&long, mounted.path().join("compressed")).unwrap();
    std::os::unix::fs::symlink("0123456789", mounted.path().join("ended")).unwrap();
    mounted.unmount().unwrap();
    let mutator = Mutator::new(&MemoryDevice::from_bytes(&std::fs::read(&image).unwrap()));
    let of_length = |length: usize| {
        mutator.find(RootId::FS_TREE, |key, data| {
            key.item_type == ItemType::EXTENT_DATA
                && FileExtent::decode(data).unwrap().ram_bytes == length as u64
        })
    };
    mutator.change_item(of_length(10), |data| *data.iter_mut().nth_back(4).unwrap() = 0);
    let item = of_length(long.len());
    let (key, leaf) = (item.key, mutator.block(item.leaf));
    let plain = FileExtent::decode(leaf.data(item.slot)).unwrap();
    let mut stored = Vec::new();
    assert!(compress(Compression::Zlib, 3, long.as_bytes(), 4096, long.len(), &mut stored).unwrap());
    let extent =
        FileExtent { compression: CompressionId::ZLIB, content: FileExtentContent::Inline(&stored), ..plain };
    mutator.remove(item);
    mutator.insert(RootId::FS_TREE, key, &extent.encode());
    let mut file = std::fs::File::create(&changed).unwrap();
    std::fs::copy(&image, &changed).unwrap();
    for (place, bytes) in mutator.device().written_chunks() {
        file.seek(SeekFrom::Start(place.0)).unwrap();
        file.write_all(&bytes).unwrap();
    }
    drop(file);
    let filesystem = Filesystem::open(&[&changed], OpenOptions::parse("ro").unwrap()).unwrap();
    let files = Files::new(filesystem, Caller::superuser());
    btrfs_check(&changed).unwrap();
    let mounted = KernelMount::new(&changed, "ro").unwrap();
    for (name, target) in [("compressed", &*long), ("ended", "01234")] {
        assert_eq!(std::fs::read_link(mounted.path().join(name)).unwrap().to_str(), Some(target), "Linux");
        assert_eq!(files.read_link(format!("/{name}")).unwrap().to_str(), Some(target));
    }
    mounted.unmount().unwrap();
}

/// Linux says so, too: `btrfs_get_extent` (fs/btrfs/inode.c) refuses extents on disk of what is no regular
/// file. Its mount is not asked: such a link is one that the checkers find fault with.
#[test]
fn a_link_whose_target_is_on_disk_needs_cleaning() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("link-on-disk");
    let image = image(&scratch, 256, &[]);
    let filesystem = open(&image);
    Files::new(filesystem.clone(), Caller::superuser()).symlink("target", "/link").unwrap();
    filesystem.close().unwrap();
    let bytes = std::fs::read(&image).unwrap();
    let address = Logical(1 << 24);
    let generation = Generation(1);
    for extent in [
        FileExtent::whole(address, 4096, generation),
        FileExtent::hole(4096, generation),
        FileExtent::preallocated(address, 4096, generation),
    ] {
        let mutator = Mutator::new(&MemoryDevice::from_bytes(&bytes));
        let item = mutator.find_type(RootId::FS_TREE, ItemType::EXTENT_DATA);
        mutator.remove(item);
        mutator.insert(RootId::FS_TREE, item.key, &extent.encode());
        let device: Arc<dyn Device> = mutator.device();
        let filesystem = Filesystem::open_devices(vec![device], OpenOptions::parse("ro").unwrap()).unwrap();
        let error = Files::new(filesystem, Caller::superuser()).read_link("/link").unwrap_err();
        assert_eq!(error.errno(), Errno::UCLEAN, "{extent:?}: {error}");
        assert!(error.to_string().contains("target of a symbolic link"), "{error}");
    }
}
