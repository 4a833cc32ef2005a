//! Images with something odd in them, and verbs that have to end on them.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use vlinder_base::sync::Arc;
use vlinder_device::{Device, MemoryDevice};
use vlinder_format::{ItemType, ObjectId, RootId, directory};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions};
use vlinder_testkit::mutator::{Found, Mutator};
use vlinder_testkit::subject::Recipe;

use crate::common::{self, Ended};

/// The top-level subvolume.
pub const FS: RootId = RootId::FS_TREE;

/// An image in memory, filled through the library.
pub fn image(fill: impl FnOnce(&Files)) -> MemoryDevice {
    let recipe = Recipe { device_bytes: 128 << 20, ..Recipe::default() };
    let device = Arc::new(recipe.in_memory());
    let devices = vec![Arc::clone(&device) as Arc<dyn Device>];
    let filesystem = Filesystem::open_devices(devices, OpenOptions::default()).unwrap();
    let files = Files::new(filesystem, Caller::superuser());
    fill(&files);
    files.close().unwrap();
    device.snapshot()
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The inode of a name in the top-level subvolume.
pub fn inode(mutator: &Mutator, name: &str) -> ObjectId {
    let found = entry(mutator, name);
    let block = mutator.block(found.leaf);
    ObjectId(u64::from_le_bytes(block.data(found.slot)[..8].try_into().unwrap()))
}

/// The entry of a name in the index of its directory.
pub fn entry(mutator: &Mutator, name: &str) -> Found {
    mutator.find(FS, |key, data| key.item_type == ItemType::DIR_INDEX && &data[30..] == name.as_bytes())
}

/// Gives a name of the top-level subvolume, in all three places where it stands, another of the same length.
pub fn rename(mutator: &Mutator, name: &str, to: &[u8]) {
    let (child, index) = (inode(mutator, name), entry(mutator, name));
    let directory = index.key.objectid;
    let hash = directory::item_key(directory, name.as_bytes());
    let hashed = mutator.find(FS, |key, _| key == hash);
    for found in [hashed, index, mutator.find_of(child, ItemType::INODE_REF)] {
        mutator.change_item(found, |data| {
            let start = data.len() - to.len();
            data[start..].copy_from_slice(to);
        });
    }
    let data = mutator.block(hashed.leaf).data(hashed.slot).to_vec();
    mutator.remove(hashed);
    mutator.insert(FS, directory::item_key(directory, to), &data);
}

/// Every path below a directory of the host, from there.
pub fn below(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        for entry in std::fs::read_dir(&path).unwrap() {
            let entry = entry.unwrap();
            found.insert(entry.path().strip_prefix(root).unwrap().display().to_string());
            if entry.file_type().unwrap().is_dir() {
                pending.push(entry.path());
            }
        }
    }
    found
}

/// Runs a verb that has to end by itself, within a time and memory that are ample for these images.
pub fn bounded(words: &[&str]) -> Ended {
    let limits = ["-c", "ulimit -t 20; ulimit -v 4000000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_vlinder")];
    common::end(Command::new("sh").args(limits).args(words))
}
