//! Images that an enemy could make: each a sound one with a change that aims at the time or the memory of
//! its reader, its checksums made right; or one with a [flood](FLOODS) of what is allowed.

mod floods;
pub mod lies;
mod rich;

use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::sync::Arc;
use vlinder_device::{Device, MemoryDevice};
use vlinder_format::block::HEADER_SIZE;
use vlinder_format::chunk::Chunk;
use vlinder_format::directory::DirectoryEntry;
use vlinder_format::{Block, Generation, ItemType, Key, Logical, ObjectId, RootId};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions};

use crate::mutator::{Found, Mutator};
use crate::subject::Recipe;

pub use floods::{FLOODED, FLOODS, Flood};
pub use rich::rich;

/// A way to change an image.
pub struct Case {
    /// What it is called.
    pub name: &'static str,
    /// What it does.
    pub make: fn(&Mutator),
}

const fn case(name: &'static str, make: fn(&Mutator)) -> Case {
    Case { name, make }
}

/// All of them.
pub const CASES: &[Case] = &[
    case("pointers of all nodes lead to the first child", share_children),
    case("a node leads to itself", |mutator| point_at(mutator, |node| node.logical())),
    case("a node leads to the root of its tree", |mutator| {
        let root = mutator.root(RootId::FS_TREE);
        point_at(mutator, |_| root);
    }),
    case("each block claims 2^32 - 1 items", |mutator| {
        each_block(mutator, |block| set_u32(block, 0x60, u32::MAX));
    }),
    case("each leaf claims 160 items more", |mutator| {
        each_block(mutator, |block| set_u32(block, 0x60, get_u32(block, 0x60).wrapping_add(160)));
    }),
    case("each inode has 2^62 bytes", |mutator| {
        each_item(mutator, ItemType::INODE_ITEM, |data| put(data, 16, 1 << 62))
    }),
    case("each inode has 2^64 - 1 bytes", |mutator| {
        each_item(mutator, ItemType::INODE_ITEM, |data| put(data, 16, u64::MAX))
    }),
    case("each inode takes 2^63 bytes", |mutator| {
        each_item(mutator, ItemType::INODE_ITEM, |data| put(data, 24, 1 << 63))
    }),
    case("each inode has 2^32 - 1 links", |mutator| {
        each_item(mutator, ItemType::INODE_ITEM, |data| data[40..44].fill(0xff));
    }),
    case("each second directory leads to where the first does", double_ways),
    case("directories contain the ones above them", |mutator| redirect(mutator, "a0", "a11")),
    case("a directory contains itself", |mutator| redirect(mutator, "a3", "a3")),
    case("the root directory lies in a directory below it", |mutator| {
        let item = entry(mutator, "a5");
        let root = Key::new(ObjectId(256), ItemType::INODE_ITEM, 0);
        mutator.change_item(item, |data| data[..Key::SIZE].copy_from_slice(&root.encode()));
    }),
    case("a subvolume contains the top level", |mutator| subvolume_location(mutator, 5)),
    case("a subvolume contains a tree that is none", |mutator| subvolume_location(mutator, 2)),
    case("root references go round", |mutator| {
        for item_type in [ItemType::ROOT_REF, ItemType::ROOT_BACKREF] {
            let item = mutator.find_type(RootId::ROOT_TREE, item_type);
            let data = mutator.block(item.leaf).data(item.slot).to_vec();
            let turned = Key::new(ObjectId(item.key.offset), item.key.item_type, item.key.objectid.0);
            mutator.insert(RootId::ROOT_TREE, turned, &data);
        }
    }),
    case("compressed extents hold 2^40 bytes each", |mutator| {
        each_item(mutator, ItemType::EXTENT_DATA, |data| {
            if data.len() == 53 {
                put(data, 8, 1 << 40);
                put(data, 45, 1 << 40);
            }
        });
    }),
    case("each extent item shows the last one's bytes", |mutator| {
        let mut last = Vec::new();
        each_item(mutator, ItemType::EXTENT_DATA, |data| {
            if data.len() == 53 && data[16] != 0 {
                if last.is_empty() {
                    last = data[..53].to_vec();
                }
                data.copy_from_slice(&last);
            }
        });
    }),
    case("extents are 2^60 bytes of holes", |mutator| {
        each_item(mutator, ItemType::EXTENT_DATA, |data| {
            if data.len() == 53 {
                put(data, 21, 0);
                put(data, 29, 0);
                put(data, 45, 1 << 60);
            }
        });
    }),
    case("an extent is referenced 2^63 times", |mutator| {
        each_item_of(mutator, RootId::EXTENT_TREE, ItemType::METADATA_ITEM, |data| put(data, 0, 1 << 63));
        each_item_of(mutator, RootId::EXTENT_TREE, ItemType::EXTENT_ITEM, |data| put(data, 0, 1 << 63));
    }),
    case("a block's parent is the block itself", |mutator| {
        let found = mutator.find(RootId::EXTENT_TREE, |key, data| {
            key.item_type == ItemType::METADATA_ITEM && data.len() == 33
        });
        let parent = found.key.objectid.0;
        mutator.change_item(found, |data| {
            // SHARED_BLOCK_REF instead of TREE_BLOCK_REF.
            data[24] = 182;
            put(data, 25, parent);
        });
    }),
    case("a chunk of 2^60 bytes", |mutator| chunk_length(mutator, 1 << 60)),
    case("a chunk of 2^47 bytes", |mutator| chunk_length(mutator, 1 << 47)),
    case("chunks overlap", |mutator| {
        let found = mutator.find(RootId::CHUNK_TREE, |key, data| {
            key.item_type == ItemType::CHUNK_ITEM
                && Chunk::decode(data).is_ok_and(|chunk| chunk.length > 8 << 20)
        });
        mutator.add_u64(found, 0, 64 << 20);
    }),
    case("a device of 2^60 bytes", |mutator| {
        mutator.device().resize(1 << 60);
        each_item_of(mutator, RootId::CHUNK_TREE, ItemType::DEVICE_ITEM, |data| put(data, 8, 1 << 60));
        mutator.change_superblock(|superblock| {
            superblock.total_bytes = 1 << 60;
            superblock.device_item.total_bytes = 1 << 60;
        });
    }),
    case("a device of 2^60 bytes with a chunk of 2^45", |mutator| {
        mutator.device().resize(1 << 60);
        each_item_of(mutator, RootId::CHUNK_TREE, ItemType::DEVICE_ITEM, |data| put(data, 8, 1 << 60));
        chunk_length(mutator, 1 << 45);
        mutator.change_superblock(|superblock| {
            superblock.total_bytes = 1 << 60;
            superblock.device_item.total_bytes = 1 << 60;
        });
    }),
    case("2^40 devices", |mutator| mutator.change_superblock(|superblock| superblock.device_count = 1 << 40)),
    case("the log tree is the root tree", |mutator| {
        mutator.change_superblock(|superblock| {
            superblock.log_root = superblock.root;
            superblock.log_root_level = superblock.root_level;
        });
    }),
    case("the log tree is a subvolume", |mutator| {
        let root = mutator.root(RootId::FS_TREE);
        let level = mutator.block(root).level();
        mutator.change_superblock(|superblock| {
            superblock.log_root = root;
            superblock.log_root_level = level;
        });
    }),
    case("free space is 2^60 bytes", |mutator| {
        each_item_of(mutator, RootId::FREE_SPACE_TREE, ItemType::FREE_SPACE_INFO, |data| {
            data[..4].fill(0xff)
        });
        each_item_of(mutator, RootId::BLOCK_GROUP_TREE, ItemType::BLOCK_GROUP_ITEM, |data| {
            put(data, 0, 1 << 60)
        });
    }),
    case("every root item has level 7", |mutator| {
        each_item_of(mutator, RootId::ROOT_TREE, ItemType::ROOT_ITEM, |data| data[238] = 7);
    }),
    case("every root item names the same block", |mutator| {
        let root = mutator.root(RootId::FS_TREE).0;
        each_item_of(mutator, RootId::ROOT_TREE, ItemType::ROOT_ITEM, |data| put(data, 176, root));
    }),
    case("each name is as long as can be", |mutator| {
        each_item(mutator, ItemType::DIR_INDEX, |data| data[27..29].fill(0xff));
    }),
    case("each attribute is as large as can be", |mutator| {
        each_item(mutator, ItemType::XATTR_ITEM, |data| data[25..27].fill(0xff));
    }),
];

/// Names of the directories that lie in one another.
const DEPTH: usize = 28;

/// A sound image with something for each case: `files` files with attributes, extents of every kind,
/// directories in one another, subvolumes and a snapshot.
///
/// # Panics
/// If it can't be made: it is a test's own.
#[must_use]
pub fn sound(files: usize) -> MemoryDevice {
    let recipe = Recipe { node_size: 4096, device_bytes: 256 << 20, ..Recipe::default() };
    let device = Arc::new(recipe.in_memory());
    let options = OpenOptions::parse("compress=zstd").unwrap();
    let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as Arc<dyn Device>], options).unwrap();
    let all = Files::new(filesystem, Caller::superuser());
    let caller = Caller::superuser();
    all.create_dir_all("/many").unwrap();
    for number in 0..files {
        let path = format!("/many/file-{number}");
        let content = vec![number as u8; [100, 5000, 40_000][number % 3]];
        all.write(&path, content).unwrap();
        if number % 10 == 0 {
            let inode = all.open_file(&path).unwrap();
            let value = vec![7; 200];
            let mode = vlinder_fs::AttributeMode::Either;
            all.filesystem()
                .attributes()
                .set_extended_attribute(&caller, inode.inode(), b"user.flood", &value, mode)
                .unwrap();
        }
    }
    let mut above = String::new();
    for level in 0..DEPTH {
        all.create_dir_all(format!("{above}/b{level}")).unwrap();
        above.push_str(&format!("/a{level}"));
        all.create_dir_all(&above).unwrap();
    }
    // One long compressed file: many extents of one block each.
    all.write("/zeros", vec![0; 8 << 20]).unwrap();
    all.create_subvolume("/volume").unwrap();
    all.write("/volume/inner", vec![3; 20_000]).unwrap();
    all.snapshot("/volume", "/shot", true).unwrap();
    all.close().unwrap();
    device.snapshot()
}

/// A seeded change of one number somewhere in a tree block to one of the values that arithmetic fears.
pub fn random_change(mutator: &Mutator, seed: u64) {
    let random = SeededRandom::new(seed);
    let trees =
        [RootId::FS_TREE, RootId::ROOT_TREE, RootId::EXTENT_TREE, RootId::CHUNK_TREE, RootId::CHECKSUM_TREE];
    for _ in 0..1 + random.next_u64() % 3 {
        let tree = trees[(random.next_u64() % trees.len() as u64) as usize];
        let blocks = blocks(mutator, tree);
        let block = blocks[(random.next_u64() % blocks.len() as u64) as usize];
        let values = [0, 1, u64::MAX, u64::MAX - 4095, 1 << 63, 1 << 32, (1 << 32) - 1, random.next_u64()];
        let value = values[(random.next_u64() % values.len() as u64) as usize];
        mutator.change_bytes(block, |bytes| {
            let width = 1 << (random.next_u64() % 4);
            let start = 0x50 + (random.next_u64() % (bytes.len() as u64 - 0x58)) as usize;
            bytes[start..start + width].copy_from_slice(&value.to_le_bytes()[..width]);
        });
        // A block that can't be parsed any more can't be changed further, nor can what lies below it.
        if mutator.try_block(block).is_none() {
            return;
        }
    }
}

/// Every block of a tree, the root first.
fn blocks(mutator: &Mutator, tree: RootId) -> Vec<Logical> {
    blocks_below(mutator, mutator.root(tree))
}

/// A block and all below it.
fn blocks_below(mutator: &Mutator, root: Logical) -> Vec<Logical> {
    let mut all = vec![root];
    let mut next = 0;
    while let Some(logical) = all.get(next).copied() {
        next += 1;
        let block = mutator.block(logical);
        if !block.is_leaf() {
            all.extend(block.children().map(|child| child.logical));
        }
    }
    all
}

/// Changes the bytes of every block of the top-level subvolume, the deepest first.
fn each_block(mutator: &Mutator, change: impl Fn(&mut [u8])) {
    for logical in blocks(mutator, RootId::FS_TREE).into_iter().rev() {
        mutator.change_bytes(logical, &change);
    }
}

fn each_item(mutator: &Mutator, item_type: ItemType, change: impl FnMut(&mut [u8])) {
    each_item_of(mutator, RootId::FS_TREE, item_type, change);
}

/// Changes the data of every item of a type.
fn each_item_of(mutator: &Mutator, tree: RootId, item_type: ItemType, mut change: impl FnMut(&mut [u8])) {
    for logical in blocks(mutator, tree) {
        let block = mutator.block(logical);
        let slots = if block.is_leaf() { 0..block.len() } else { 0..0 };
        let slots: Vec<usize> = slots.filter(|slot| block.key(*slot).item_type == item_type).collect();
        if !slots.is_empty() {
            mutator.change_block(logical, |block| {
                slots.iter().for_each(|slot| change(block.items_mut().data(*slot)))
            });
        }
    }
}

fn put(data: &mut [u8], offset: usize, value: u64) {
    data[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}

fn get_u32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([bytes[offset], bytes[offset + 1], bytes[offset + 2], bytes[offset + 3]])
}

fn set_u32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

/// Where the address of the pointer at a slot of a node stands: behind its key.
fn pointer_place(slot: usize) -> usize {
    HEADER_SIZE + slot * 33 + Key::SIZE
}

fn share_children(mutator: &Mutator) {
    for logical in blocks(mutator, RootId::FS_TREE) {
        let node = mutator.block(logical);
        if node.is_leaf() {
            continue;
        }
        let (first, count) = (node.child(0), node.len());
        mutator.change_bytes(logical, |bytes| {
            for slot in 0..count {
                put(bytes, pointer_place(slot), first.logical.0);
                put(bytes, pointer_place(slot) + 8, first.generation.0);
            }
        });
        return;
    }
    panic!("the subvolume has one leaf only");
}

/// Makes all pointers but the first of the root node lead to another block, with its generation.
fn point_at(mutator: &Mutator, target: impl Fn(&Block) -> Logical) {
    let node = mutator.block(mutator.root(RootId::FS_TREE));
    assert!(!node.is_leaf(), "the subvolume has one leaf only");
    let target = target(&node);
    let Generation(generation) = mutator.block(target).generation();
    mutator.change_bytes(node.logical(), |bytes| {
        for slot in 1..node.len() {
            put(bytes, pointer_place(slot), target.0);
            put(bytes, pointer_place(slot) + 8, generation);
        }
    });
}

/// The index of a name in the top-level subvolume.
fn entry(mutator: &Mutator, name: &str) -> Found {
    mutator.find(RootId::FS_TREE, |key, data| is_entry(key, data, name))
}

fn is_entry(key: Key, data: &[u8], name: &str) -> bool {
    key.item_type == ItemType::DIR_INDEX
        && DirectoryEntry::decode(data).is_ok_and(|entry| entry.name == name.as_bytes())
}

/// Makes a name lead to where another one does: by its index and by its hash.
fn redirect(mutator: &Mutator, target: &str, name: &str) {
    let target = entry(mutator, target);
    let location = mutator.block(target.leaf).data(target.slot)[..Key::SIZE].to_vec();
    for item_type in [ItemType::DIR_INDEX, ItemType::DIR_ITEM] {
        let item = mutator.find(RootId::FS_TREE, |key, data| {
            key.item_type == item_type
                && DirectoryEntry::decode(data).is_ok_and(|entry| entry.name == name.as_bytes())
        });
        mutator.change_item(item, |data| data[..Key::SIZE].copy_from_slice(&location));
    }
}

/// 2^28 ways lead down.
fn double_ways(mutator: &Mutator) {
    for level in 0..DEPTH {
        redirect(mutator, &format!("a{level}"), &format!("b{level}"));
    }
}

/// Makes the name of a subvolume lead to another tree.
fn subvolume_location(mutator: &Mutator, tree: u64) {
    for item_type in [ItemType::DIR_INDEX, ItemType::DIR_ITEM] {
        let item = mutator.find(RootId::FS_TREE, |key, data| {
            key.item_type == item_type
                && DirectoryEntry::decode(data).is_ok_and(|entry| entry.name == b"volume")
        });
        mutator.change_item(item, |data| put(data, 0, tree));
    }
}

/// Makes the last chunk of data longer.
fn chunk_length(mutator: &Mutator, length: u64) {
    each_item_of(mutator, RootId::CHUNK_TREE, ItemType::CHUNK_ITEM, |data| {
        use vlinder_format::chunk::BlockGroupFlags;
        if Chunk::decode(data).is_ok_and(|chunk| chunk.flags.has(BlockGroupFlags::DATA)) {
            put(data, 0, length);
        }
    });
}
