//! The items of every tree, and where its blocks lie.
//!
//! The extent tree has an item for each block of each tree, its own included, and root items say where roots
//! lie. So the forest is planted again and again, each time with the blocks that the items of the last time
//! needed, until nothing changes; that is after three rounds at most, because addresses change no item's
//! size.

use vlinder_format::block_group::BlockGroupItem;
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_format::device::{DeviceExtent, DeviceItem};
use vlinder_format::directory::{self, DirectoryEntry, DirectoryEntryType, DirectoryIndex};
use vlinder_format::extent::{ExtentFlags, ExtentItem, Reference, TreeBlockInfo};
use vlinder_format::free_space::{self, FreeSpaceInfo};
use vlinder_format::inode::{FileType, InodeFlags, InodeItem, Mode, Timestamp};
use vlinder_format::inode_ref::{self, InodeReference};
use vlinder_format::root_item::{RootItem, RootItemBase, RootItemExtension};
use vlinder_format::uuid_item::{self, UuidKind};
use vlinder_format::{Generation, Key, Logical, ObjectId, RootId, Uuid};
use vlinder_volume::MappedChunk;

use super::layout::{DEVICE, Layout};
use super::packing::{Items, PlannedBlock, pack};
use super::parameters::{FIRST_GENERATION, MkfsParameters};

/// One tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) root: RootId,
    pub(super) items: Items,
    /// Leaves first, the root last.
    pub(super) blocks: Vec<PlannedBlock>,
}

impl Tree {
    pub(super) fn root_block(&self) -> &PlannedBlock {
        self.blocks.last().expect("a tree has a root block")
    }
}

/// All trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Forest {
    pub(super) trees: Vec<Tree>,
}

impl Forest {
    pub(super) fn plant(parameters: &MkfsParameters, layout: &Layout) -> Self {
        let mut forest = Self::default();
        loop {
            let next = Planting { parameters, layout, last: &forest }.plant();
            if next == forest {
                return forest;
            }
            forest = next;
        }
    }

    pub(super) fn tree(&self, root: RootId) -> Option<&Tree> {
        self.trees.iter().find(|tree| tree.root == root)
    }

    /// Bytes of all blocks in a chunk.
    pub(super) fn used_in(&self, chunk: &MappedChunk, node_size: u32) -> u64 {
        let inside = self.blocks().filter(|(_, block)| chunk.contains(block.logical, 1)).count();
        u64::try_from(inside).unwrap_or(u64::MAX) * u64::from(node_size)
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = (RootId, &PlannedBlock)> {
        self.trees.iter().flat_map(|tree| tree.blocks.iter().map(|block| (tree.root, block)))
    }
}

/// One round.
struct Planting<'a> {
    parameters: &'a MkfsParameters,
    layout: &'a Layout,
    last: &'a Forest,
}

impl Planting<'_> {
    fn plant(&self) -> Forest {
        let features = &self.parameters.features;
        let mut trees = vec![
            (RootId::CHUNK_TREE, chunk_items(self.parameters, self.layout)),
            (RootId::ROOT_TREE, self.root_tree()),
            (RootId::EXTENT_TREE, self.extent_tree()),
            (RootId::DEVICE_TREE, device_extents(self.parameters, self.layout)),
            (RootId::FS_TREE, self.subvolume(self.parameters.time, u64::from(self.parameters.node_size))),
            (RootId::CHECKSUM_TREE, Items::new()),
            (RootId::UUID_TREE, self.uuid_tree()),
            (RootId::DATA_RELOCATION_TREE, self.subvolume(self.parameters.time, 0)),
        ];
        if features.free_space_tree {
            trees.push((RootId::FREE_SPACE_TREE, self.free_space_tree()));
        }
        if features.block_group_tree {
            trees.push((RootId::BLOCK_GROUP_TREE, self.block_groups().collect()));
        }
        let node_size = u64::from(self.parameters.node_size);
        let start = |tree| self.layout.chunk_for(tree).logical;
        let mut next_system = start(RootId::CHUNK_TREE);
        let mut next_metadata = start(RootId::ROOT_TREE);
        let planted = trees.into_iter().map(|(root, mut items)| {
            items.sort_by_key(|(key, _)| *key);
            let next = if root == RootId::CHUNK_TREE { &mut next_system } else { &mut next_metadata };
            let mut blocks = pack(&items, self.parameters.node_size);
            for block in &mut blocks {
                block.logical = *next;
                *next = Logical(next.0 + node_size);
            }
            Tree { root, items, blocks }
        });
        Forest { trees: planted.collect() }
    }

    fn root_tree(&self) -> Items {
        let listed = |root: &RootId| *root != RootId::ROOT_TREE && *root != RootId::CHUNK_TREE;
        let roots = self.last.trees.iter().filter(|tree| listed(&tree.root));
        let mut items: Items =
            roots.map(|tree| (RootItem::key(tree.root, 0), self.root_item(tree).encode())).collect();
        let directory = ObjectId::ROOT_TREE_DIRECTORY;
        items.extend(self.directory(directory, self.parameters.time, u64::from(self.parameters.node_size)));
        let location = Key { offset: u64::MAX, ..RootItem::key(RootId::FS_TREE, 0) };
        let entry = DirectoryEntry {
            location,
            transaction: Generation(0),
            entry_type: DirectoryEntryType::DIRECTORY,
            name: b"default",
            data: b"",
        };
        items.push((directory::item_key(directory, b"default"), entry.encode()));
        let reference = InodeReference { index: DirectoryIndex(0), name: b"default" };
        items.push((inode_ref::key(RootId::FS_TREE.object_id(), directory), reference.encode()));
        items
    }

    fn root_item(&self, tree: &Tree) -> RootItem {
        let is_top_level = tree.root == RootId::FS_TREE;
        let has_directory = is_top_level || tree.root == RootId::DATA_RELOCATION_TREE;
        let block = tree.root_block();
        let node_size = u64::from(self.parameters.node_size);
        let inode = InodeItem {
            generation: FIRST_GENERATION,
            size_bytes: 3,
            allocated_bytes: node_size,
            link_count: 1,
            mode: Mode::new(FileType::Directory, 0o755),
            // Without this flag Linux takes the flags of a subvolume for leftovers and clears them.
            flags: if has_directory { InodeFlags::ROOT_ITEM_INITIALIZED } else { InodeFlags::default() },
            ..InodeItem::default()
        };
        let blocks = u64::try_from(tree.blocks.len()).unwrap_or(u64::MAX);
        let base = RootItemBase {
            inode,
            generation: FIRST_GENERATION,
            root_directory: if has_directory { ObjectId::FIRST_FREE } else { ObjectId(0) },
            address: block.logical,
            bytes_used: blocks * node_size,
            reference_count: 1,
            level: block.level,
            ..RootItemBase::default()
        };
        let time = if is_top_level { self.parameters.time } else { Timestamp::default() };
        let extension = RootItemExtension {
            generation: FIRST_GENERATION,
            uuid: if is_top_level { self.parameters.uuids.top_level } else { Uuid::NIL },
            change_time: time,
            creation_time: time,
            ..RootItemExtension::default()
        };
        RootItem { base, extension: Some(extension) }
    }

    /// A subvolume with nothing but its directory.
    fn subvolume(&self, time: Timestamp, allocated_bytes: u64) -> Items {
        self.directory(ObjectId::FIRST_FREE, time, allocated_bytes).collect()
    }

    /// A directory that is its own parent.
    fn directory(
        &self,
        inode: ObjectId,
        time: Timestamp,
        allocated_bytes: u64,
    ) -> impl Iterator<Item = (Key, Vec<u8>)> + use<> {
        let item = InodeItem {
            generation: FIRST_GENERATION,
            transaction: FIRST_GENERATION,
            allocated_bytes,
            link_count: 1,
            mode: Mode::new(FileType::Directory, 0o755),
            access_time: time,
            change_time: time,
            modification_time: time,
            birth_time: time,
            ..InodeItem::default()
        };
        let reference = InodeReference { index: DirectoryIndex(0), name: b".." };
        [(InodeItem::key(inode), item.encode().to_vec()), (inode_ref::key(inode, inode), reference.encode())]
            .into_iter()
    }

    fn uuid_tree(&self) -> Items {
        let key = uuid_item::key(UuidKind::Own, self.parameters.uuids.top_level);
        vec![(key, uuid_item::encode([RootId::FS_TREE]))]
    }

    fn extent_tree(&self) -> Items {
        let blocks = self.last.blocks();
        let mut items: Items = blocks
            .map(|(root, block)| tree_block_item(self.parameters, root, block, FIRST_GENERATION))
            .collect();
        if !self.parameters.features.block_group_tree {
            items.extend(self.block_groups());
        }
        items
    }

    fn block_groups(&self) -> impl Iterator<Item = (Key, Vec<u8>)> + '_ {
        self.layout.chunks.iter().map(|chunk| {
            let used = self.last.used_in(chunk, self.parameters.node_size);
            let item = BlockGroupItem::new(used, chunk.chunk.flags);
            (BlockGroupItem::key(chunk.logical, chunk.chunk.length), item.encode().to_vec())
        })
    }

    /// Blocks lie at the start of their group, so each group has one free run.
    fn free_space_tree(&self) -> Items {
        let groups = self.layout.chunks.iter().flat_map(|chunk| {
            let length = chunk.chunk.length;
            let used = self.last.used_in(chunk, self.parameters.node_size);
            let info = FreeSpaceInfo { extent_count: 1, flags: 0 };
            let free = free_space::extent_key(Logical(chunk.logical.0 + used), length - used);
            [(FreeSpaceInfo::key(chunk.logical, length), info.encode().to_vec()), (free, Vec::new())]
        });
        groups.collect()
    }
}

/// The items of the chunk tree.
pub(in super::super) fn chunk_items(parameters: &MkfsParameters, layout: &Layout) -> Items {
    let device = device_item(parameters, layout);
    let chunks = layout.chunks.iter().map(|chunk| {
        let key = Key::new(ObjectId::FIRST_CHUNK_TREE, vlinder_format::ItemType::CHUNK_ITEM, chunk.logical.0);
        (key, chunk.chunk.encode())
    });
    core::iter::once((DeviceItem::key(DEVICE), device.encode().to_vec())).chain(chunks).collect()
}

/// The items of the device tree, in no order.
pub(in super::super) fn device_extents(parameters: &MkfsParameters, layout: &Layout) -> Items {
    let extents = layout.chunks.iter().flat_map(|chunk| {
        chunk.chunk.stripes.iter().map(|stripe| {
            let extent = DeviceExtent {
                chunk_tree: RootId::CHUNK_TREE,
                chunk_object: ObjectId::FIRST_CHUNK_TREE,
                chunk_offset: chunk.logical,
                length: chunk.chunk.length,
                chunk_tree_uuid: parameters.uuids.chunk_tree,
            };
            (DeviceExtent::key(DEVICE, stripe.physical), extent.encode().to_vec())
        })
    });
    extents.collect()
}

/// The item that a tree block has in the extent tree.
pub(in super::super) fn tree_block_item(
    parameters: &MkfsParameters,
    root: RootId,
    block: &PlannedBlock,
    generation: Generation,
) -> (Key, Vec<u8>) {
    let skinny = parameters.features.skinny_metadata;
    let info = TreeBlockInfo { first_key: block.first_key, level: block.level };
    let info = (!skinny).then_some(info);
    let mut item = ExtentItem::new_tree_block(generation, ExtentFlags::TREE_BLOCK, info);
    item.add(Reference::TreeBlock { root }).expect("a new item counts nothing yet");
    (ExtentItem::tree_block_key(block.logical, block.level, parameters.node_size, skinny), item.encode())
}

/// The item of the one device.
pub(in super::super) fn device_item(parameters: &MkfsParameters, layout: &Layout) -> DeviceItem {
    DeviceItem {
        device: DEVICE,
        total_bytes: layout.total_bytes,
        bytes_used: layout.bytes_on_device(),
        io_align: parameters.sector_size,
        io_width: parameters.sector_size,
        sector_size: parameters.sector_size,
        uuid: parameters.uuids.device,
        fsid: parameters.uuids.fsid,
        ..DeviceItem::default()
    }
}

/// Chunks that the superblock lists.
pub(in super::super) fn system_chunks(layout: &Layout) -> impl Iterator<Item = &MappedChunk> {
    layout.chunks.iter().filter(|chunk| chunk.chunk.flags.has(BlockGroupFlags::SYSTEM))
}
