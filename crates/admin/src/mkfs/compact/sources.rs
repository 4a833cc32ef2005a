//! The trees of a finished image, and where the items of each come from.

use std::collections::BTreeMap;

use vlinder_base::sync::Arc;
use vlinder_format::block_group::BlockGroupItem;
use vlinder_format::free_space::{self, FreeSpaceInfo};
use vlinder_format::root_item::RootItem;
use vlinder_format::{Generation, ItemType, Key, Logical, RootId};
use vlinder_fs::{Filesystem, FsError};
use vlinder_tree::Root;
use vlinder_volume::MappedChunk;

use super::data_groups::{DataGroup, READAHEAD, visit_extent_items};
use super::least_layout::LeastLayout;
use crate::mkfs::raw::{
    Items, MkfsParameters, Packing, PlannedBlock, chunk_items, device_extents, tree_block_item,
};

/// Where the items of a tree come from.
#[derive(Clone)]
pub(super) enum ItemSource {
    /// They are those of the filled file system, unchanged.
    Filled(Arc<Root>),
    /// They are made.
    Made(Items),
    /// Of the extent tree: those of data are of the filled file system, these are made.
    Extents(Items),
}

impl ItemSource {
    /// Gives every item, by key.
    pub(super) fn visit(
        &self,
        filesystem: &Filesystem,
        mut take: impl FnMut(Key, &[u8]) -> Result<(), FsError>,
    ) -> Result<(), FsError> {
        match self {
            Self::Filled(root) => {
                let trees = filesystem.engine().forest().trees();
                let mut cursor = trees.cursor(root, &Key::MIN, READAHEAD)?;
                while let Some((key, data)) = cursor.item() {
                    take(key, data)?;
                    cursor.advance()?;
                }
                Ok(())
            }
            Self::Made(items) => items.iter().try_for_each(|(key, data)| take(*key, data)),
            Self::Extents(made) => {
                let mut made = made.iter().peekable();
                visit_extent_items(filesystem, |key, data| {
                    while let Some((before, item)) = made.next_if(|(other, _)| *other < key) {
                        take(*before, item)?;
                    }
                    take(key, data)
                })?;
                made.try_for_each(|(key, data)| take(*key, data))
            }
        }
    }

    /// The blocks that the tree takes, without their addresses.
    pub(super) fn pack(&self, filesystem: &Filesystem, node_size: u32) -> Result<Vec<PlannedBlock>, FsError> {
        let mut packing = Packing::new(node_size);
        self.visit(filesystem, |key, data| {
            packing.add(key, data.len());
            Ok(())
        })?;
        Ok(packing.finish())
    }
}

/// A tree with its blocks: leaves first, the root last.
#[derive(Clone)]
pub(super) struct PlannedTree {
    pub(super) source: ItemSource,
    pub(super) blocks: Vec<PlannedBlock>,
}

/// What is known of the filled file system, and does not change while the image is planned.
pub(super) struct Filled<'a> {
    pub(super) filesystem: &'a Filesystem,
    pub(super) parameters: &'a MkfsParameters,
    pub(super) generation: Generation,
    pub(super) data: Vec<DataGroup>,
    /// All items of the root tree.
    root_items: Items,
}

/// Trees that are made anew.
fn is_made(root: RootId) -> bool {
    let made = [
        RootId::ROOT_TREE,
        RootId::CHUNK_TREE,
        RootId::DEVICE_TREE,
        RootId::EXTENT_TREE,
        RootId::FREE_SPACE_TREE,
        RootId::BLOCK_GROUP_TREE,
    ];
    made.contains(&root)
}

impl<'a> Filled<'a> {
    pub(super) fn new(filesystem: &'a Filesystem, parameters: &'a MkfsParameters) -> Result<Self, FsError> {
        let data = super::data_groups::data_groups(filesystem)?;
        let root_tree = Arc::clone(filesystem.engine().forest().root_tree());
        let mut root_items = Items::new();
        ItemSource::Filled(root_tree).visit(filesystem, |key, data| {
            root_items.push((key, data.to_vec()));
            Ok(())
        })?;
        let generation = filesystem.engine().superblock().generation;
        Ok(Self { filesystem, parameters, generation, data, root_items })
    }

    /// The trees whose items stay, by number.
    pub(super) fn unchanged_trees(&self) -> Result<BTreeMap<RootId, PlannedTree>, FsError> {
        let roots = self.root_items.iter().filter(|(key, _)| key.item_type == ItemType::ROOT_ITEM);
        let ids = roots.map(|(key, _)| RootId(key.objectid.0)).filter(|id| !is_made(*id));
        ids.map(|id| {
            let source = ItemSource::Filled(Arc::clone(self.filesystem.engine().tree(id)?.root()));
            let blocks = source.pack(self.filesystem, self.parameters.node_size)?;
            Ok((id, PlannedTree { source, blocks }))
        })
        .collect()
    }

    /// The items of the trees that are made anew, for a file system of these blocks.
    pub(super) fn made_trees(
        &self,
        trees: &BTreeMap<RootId, PlannedTree>,
        layout: &LeastLayout,
    ) -> Vec<(RootId, ItemSource)> {
        let features = &self.parameters.features;
        let groups = GroupUse::of(self, trees, layout);
        let block_groups = || groups.iter().map(|group| group.item());
        let mut made = vec![
            (RootId::CHUNK_TREE, chunk_items(self.parameters, &layout.layout)),
            (RootId::DEVICE_TREE, device_extents(self.parameters, &layout.layout)),
            (RootId::ROOT_TREE, self.root_tree(trees)),
        ];
        let mut extents: Items = trees
            .iter()
            .flat_map(|(root, tree)| tree.blocks.iter().map(move |block| (*root, block)))
            .map(|(root, block)| tree_block_item(self.parameters, root, block, self.generation))
            .collect();
        if features.free_space_tree {
            made.push((RootId::FREE_SPACE_TREE, groups.iter().flat_map(GroupUse::free_space).collect()));
        }
        if features.block_group_tree {
            made.push((RootId::BLOCK_GROUP_TREE, block_groups().collect()));
        } else {
            extents.extend(block_groups());
        }
        let sorted = |mut items: Items| {
            items.sort_unstable_by_key(|(key, _)| *key);
            items
        };
        let mut sources: Vec<(RootId, ItemSource)> =
            made.into_iter().map(|(root, items)| (root, ItemSource::Made(sorted(items)))).collect();
        sources.push((RootId::EXTENT_TREE, ItemSource::Extents(sorted(extents))));
        sources
    }

    /// The root tree, with the addresses that its trees have now. A tree that the filled file system did
    /// without has an item like that of the extent tree.
    fn root_tree(&self, trees: &BTreeMap<RootId, PlannedTree>) -> Items {
        let model = self.root_item(RootId::EXTENT_TREE).expect("every file system has an extent tree");
        let mut items: Items =
            self.root_items.iter().filter(|(key, _)| key.item_type != ItemType::ROOT_ITEM).cloned().collect();
        let listed = trees.iter().filter(|(id, _)| ![RootId::ROOT_TREE, RootId::CHUNK_TREE].contains(id));
        items.extend(listed.map(|(id, tree)| {
            let (key, mut item) = self.root_item(*id).unwrap_or_else(|| (RootItem::key(*id, 0), model.1));
            let root = tree.blocks.last().expect("a tree has a root block");
            item.set_generation(self.generation);
            item.address = root.logical;
            item.level = root.level;
            let blocks = u64::try_from(tree.blocks.len()).unwrap_or(u64::MAX);
            item.bytes_used = blocks * u64::from(self.parameters.node_size);
            (key, item.encode())
        }));
        items
    }

    fn root_item(&self, id: RootId) -> Option<(Key, RootItem)> {
        let sought = |key: &Key| key.item_type == ItemType::ROOT_ITEM && key.objectid.0 == id.0;
        let (key, data) = self.root_items.iter().find(|(key, _)| sought(key))?;
        Some((*key, RootItem::decode(data).expect("the leaf was judged when it was written")))
    }
}

/// A group of the finished image with what it holds.
struct GroupUse<'a> {
    chunk: &'a MappedChunk,
    used_bytes: u64,
    free: Vec<(Logical, u64)>,
}

impl<'a> GroupUse<'a> {
    /// All groups, by address.
    fn of(filled: &Filled<'_>, trees: &BTreeMap<RootId, PlannedTree>, layout: &'a LeastLayout) -> Vec<Self> {
        let node_bytes = u64::from(filled.parameters.node_size);
        let mut blocks: Vec<Logical> =
            trees.values().flat_map(|tree| tree.blocks.iter().map(|block| block.logical)).collect();
        blocks.sort_unstable();
        let chunks = layout.layout.chunks.iter();
        chunks
            .map(|chunk| {
                let group = filled.data.iter().find(|group| group.chunk.logical == chunk.logical);
                let (mut used_bytes, mut free, mut end) = match group {
                    Some(group) => (group.used_bytes, group.holes.clone(), group.end),
                    None => (0, Vec::new(), chunk.logical),
                };
                let first = blocks.partition_point(|block| *block < chunk.logical);
                let behind = blocks.partition_point(|block| *block < chunk.end());
                for block in &blocks[first..behind] {
                    if *block > end {
                        free.push((end, block.0 - end.0));
                    }
                    used_bytes += node_bytes;
                    end = Logical(block.0 + node_bytes);
                }
                if end < chunk.end() {
                    free.push((end, chunk.end().0 - end.0));
                }
                Self { chunk, used_bytes, free }
            })
            .collect()
    }

    fn item(&self) -> (Key, Vec<u8>) {
        let item = BlockGroupItem::new(self.used_bytes, self.chunk.chunk.flags);
        (BlockGroupItem::key(self.chunk.logical, self.chunk.chunk.length), item.encode().to_vec())
    }

    fn free_space(&self) -> Items {
        let extent_count = u32::try_from(self.free.len()).unwrap_or(u32::MAX);
        let info = FreeSpaceInfo { extent_count, flags: 0 };
        let key = FreeSpaceInfo::key(self.chunk.logical, self.chunk.chunk.length);
        let extents =
            self.free.iter().map(|(start, length)| (free_space::extent_key(*start, *length), Vec::new()));
        core::iter::once((key, info.encode().to_vec())).chain(extents).collect()
    }
}
