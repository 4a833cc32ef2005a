//! Linux deletes, and gives back what was told.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use vlinder_base::sync::Arc;
use vlinder_device::{Device, FileDevice};
use vlinder_format::{Logical, RootId};
use vlinder_fs::{Filesystem, OpenOptions, SubvolumeChoice};
use vlinder_snapshots::usage::{FreedExtent, UsageReader};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::subject::write_image;
use vlinder_testkit::workload::Choice;
use vlinder_testkit::{Scratch, require};

use super::support::{Named, blocks_of, deletion_set, extents, names, random_image, subvolumes};

fn open(image: &Path) -> Filesystem {
    let device = FileDevice::open(image, &vlinder_device::OpenOptions::reader()).unwrap();
    let device: Arc<dyn Device> = Arc::new(device);
    let options = OpenOptions {
        read_only: true,
        subvolume: SubvolumeChoice::Number(RootId::FS_TREE),
        ..OpenOptions::default()
    };
    Filesystem::open_devices(vec![device], options).unwrap()
}

fn path_of(filesystem: &Filesystem, named: &Named) -> PathBuf {
    let mut path = filesystem.names().path_of(named.directory).unwrap();
    path.push(b'/');
    path.extend_from_slice(&named.name);
    PathBuf::from(OsStr::from_bytes(path.strip_prefix(b"/").unwrap_or(&path)).to_owned())
}

/// Deletes paths below a mount as an administrator does, and waits for the space.
fn delete_in_kernel(mount: &Path, paths: &[PathBuf]) {
    for path in paths {
        let path = mount.join(path);
        // rm(1) deletes subvolumes, too, once they are empty; what it can't enter any more is gone.
        let ended = Command::new("rm").arg("-rf").arg(&path).output().unwrap();
        assert!(ended.status.success(), "{}: {ended:?}", path.display());
    }
    for words in [&["filesystem", "sync"][..], &["subvolume", "sync"]] {
        let ended = Command::new("btrfs").args(words).arg(mount).output().unwrap();
        assert!(ended.status.success(), "{words:?}: {ended:?}");
    }
}

/// Whole subvolumes go by btrfs subvolume delete, so that Linux drops their trees.
fn delete_subvolumes_in_kernel(mount: &Path, paths: &[PathBuf]) {
    let mut paths: Vec<&PathBuf> = paths.iter().collect();
    paths.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    for path in paths {
        let words = [OsStr::new("subvolume"), OsStr::new("delete"), OsStr::new("-c")];
        let path = mount.join(path);
        let ended = Command::new("btrfs").args(words).arg(&path).output().unwrap();
        assert!(ended.status.success(), "{}: {ended:?}", path.display());
    }
    delete_in_kernel(mount, &[]);
}

#[test]
fn linux_gives_back_what_was_told() {
    require!(Root, KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::in_memory("du-kernel-deletes");
    let (mut data_count, mut block_count) = (0, 0);
    for (seed, whole) in [(201, true), (202, false), (203, true), (204, false)] {
        let (device, _) = random_image(seed);
        let image = scratch.join("image");
        write_image(&device, &image);
        let choice = Choice::new(seed);
        let filesystem = open(&image);
        let all = names(&filesystem);
        let nested = |named: &Named| !filesystem.subvolumes().nested(named.inode.root).unwrap().is_empty();
        let wanted = |named: &&Named| {
            if whole { named.is_subvolume() && !nested(named) } else { !named.is_subvolume() }
        };
        let fit: Vec<Named> = all.iter().filter(wanted).cloned().collect();
        let mut chosen: Vec<Named> =
            (0..4).map(|_| fit[choice.below(fit.len() as u64) as usize].clone()).collect();
        chosen.sort();
        chosen.dedup();
        let paths: Vec<PathBuf> = chosen.iter().map(|named| path_of(&filesystem, named)).collect();
        let roots: BTreeSet<RootId> =
            chosen.iter().filter(|named| named.is_subvolume()).map(|named| named.inode.root).collect();
        let state = filesystem.lease().unwrap();
        let forest = state.forest();
        let mut told = BTreeSet::new();
        let set = deletion_set(forest, &chosen).unwrap();
        let freed = UsageReader::new(forest, &|_| ())
            .unwrap()
            .freed(set, &mut |extent: FreedExtent| {
                told.insert(extent);
            })
            .unwrap();
        let (before, _) = extents(forest);
        let going: BTreeSet<_> = roots.iter().flat_map(|root| blocks_of(forest, *root)).collect();
        let others = subvolumes(&filesystem).into_iter().filter(|root| !roots.contains(root));
        let staying: BTreeSet<_> = others.flat_map(|root| blocks_of(forest, root)).collect();
        drop(state);
        drop(filesystem);
        let mount = KernelMount::new(&image, "").unwrap();
        if whole {
            delete_subvolumes_in_kernel(mount.path(), &paths);
        } else {
            delete_in_kernel(mount.path(), &paths);
        }
        mount.unmount().unwrap();
        let filesystem = open(&image);
        let state = filesystem.lease().unwrap();
        let (data, blocks) = extents(state.forest());
        let told_data: BTreeSet<(Logical, u64)> = told
            .iter()
            .filter(|extent| extent.is_data)
            .map(|extent| (extent.start, extent.disk_bytes))
            .collect();
        let freed_data: BTreeSet<_> = before.difference(&data).copied().collect();
        assert_eq!(told_data, freed_data, "seed {seed}: {paths:?}");
        let told_blocks: BTreeSet<Logical> =
            told.iter().filter(|extent| !extent.is_data).map(|extent| extent.start).collect();
        let freed_blocks: BTreeSet<Logical> =
            going.difference(&blocks).filter(|block| !staying.contains(block)).map(|block| block.0).collect();
        assert_eq!(told_blocks, freed_blocks, "seed {seed}: {paths:?}");
        data_count += freed.data_bytes;
        block_count += freed.metadata_bytes;
    }
    assert!(data_count > 0 && block_count > 0);
}
