//! Small images whose items are found by the names of files.

use vlinder_base::sync::ProcessOnce;
use vlinder_check::Finding;
use vlinder_device::MemoryDevice;
use vlinder_format::root_item::RootItem;
use vlinder_format::{ItemType as Type, ObjectId, RootId};
use vlinder_testkit::hostile;
use vlinder_testkit::mutator::{Found, Mutator};

use super::{findings, image};

pub const FS: RootId = RootId::FS_TREE;

/// Files, and two subvolumes, 256 and 257, of which one is empty.
pub const FILL: &str = r"
    mkdir d; touch d/in; dd if=/dev/urandom of=d/file bs=4096 count=8 status=none; printf hello > small
    btrfs subvolume create s > /dev/null; dd if=/dev/urandom of=s/file bs=4096 count=4 status=none; touch s/other
    btrfs subvolume create empty > /dev/null; sync -f .
";

/// The image of it, made once.
pub fn small() -> Mutator {
    static IMAGE: ProcessOnce<MemoryDevice> = ProcessOnce::new();
    Mutator::new(IMAGE.get_or_init(|| image(&[], FILL)))
}

/// An image of this engine's own, whose trees have several levels.
pub fn own() -> Mutator {
    static IMAGE: ProcessOnce<MemoryDevice> = ProcessOnce::new();
    Mutator::new(IMAGE.get_or_init(|| hostile::sound(50)))
}

/// An item of the inode that a name leads to.
pub fn of(m: &Mutator, tree: RootId, name: &str, item_type: Type) -> Found {
    let entry = entry(m, tree, name);
    let block = m.block(entry.leaf);
    let inode = ObjectId(u64::from_le_bytes(block.data(entry.slot)[..8].try_into().unwrap()));
    m.find(tree, |key, _| key.objectid == inode && key.item_type == item_type)
}

pub fn entry(m: &Mutator, tree: RootId, name: &str) -> Found {
    m.find(tree, |key, data| key.item_type == Type::DIR_INDEX && &data[30..] == name.as_bytes())
}

pub fn data_of(m: &Mutator, found: Found) -> Vec<u8> {
    m.block(found.leaf).data(found.slot).to_vec()
}

pub fn root_item(m: &Mutator, root: RootId) -> Found {
    m.find(RootId::ROOT_TREE, |key, _| key.objectid == root.object_id() && key.item_type == Type::ROOT_ITEM)
}

pub fn change_root(m: &Mutator, root: RootId, change: impl FnOnce(&mut RootItem)) {
    m.change_item(root_item(m, root), |data| {
        let mut item = RootItem::decode(data).unwrap();
        change(&mut item);
        data.copy_from_slice(&item.encode());
    });
}

pub fn has(m: &Mutator, is_it: impl Fn(&Finding) -> bool) -> bool {
    findings(m).iter().any(is_it)
}

/// A subvolume of several leaves, with quotas.
pub const HALF: &str = r"
    btrfs subvolume create s > /dev/null; i=0; while [ $i -lt 200 ]; do echo $i > s/name-$i; i=$((i+1)); done
    btrfs quota enable .; btrfs quota rescan -w . > /dev/null; sync -f .
";

/// The image of it, made once.
pub fn half() -> Mutator {
    static IMAGE: ProcessOnce<MemoryDevice> = ProcessOnce::new();
    Mutator::new(IMAGE.get_or_init(|| image(&["-n", "4096"], HALF)))
}
