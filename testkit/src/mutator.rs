//! Damage, made from the format's description: a sound image is parsed, one thing is changed, and checksums
//! are made right, so that only the change itself is wrong.

use std::collections::BTreeSet;

use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;
use vlinder_codec::checksum::{ChecksumKind, checksum};
use vlinder_device::{Device, DeviceExt, MemoryDevice};
use vlinder_format::block::{
    BLOCK_FLAG_WRITTEN, BlockIdentity, BlockRules, ChildPointer, HEADER_SIZE, ITEM_HEADER_SIZE,
};
use vlinder_format::chunk::{BlockGroupFlags, Chunk};
use vlinder_format::root_item::RootItem;
use vlinder_format::superblock::{Superblock, SuperblockMirror};
use vlinder_format::{Block, ItemType, Key, Level, Logical, ObjectId, RootId};
use vlinder_volume::profile::{plan_read, plan_write};
use vlinder_volume::{Access, SuperblockChoice, Volume};

/// An image that is being damaged. All calls panic where the image is not what they expect: it is a test's
/// own.
pub struct Mutator {
    device: Arc<MemoryDevice>,
    volume: Volume,
    /// The superblock, as it was when the image was opened.
    pub superblock: Superblock,
}

/// Where an item is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its leaf.
    pub leaf: Logical,
    /// Its slot there.
    pub slot: usize,
    /// Its key.
    pub key: Key,
}

impl Mutator {
    /// Damages a copy of this image.
    pub fn new(image: &MemoryDevice) -> Self {
        let device = Arc::new(image.snapshot());
        let opened =
            Volume::open(vec![Arc::clone(&device) as _], SuperblockChoice::Automatic, Access::ReadOnly)
                .unwrap();
        let mutator = Mutator { device, volume: opened.volume, superblock: opened.superblock };
        for leaf in mutator.leaves_below(mutator.superblock.chunk_root) {
            for slot in 0..leaf.len() {
                let key = leaf.key(slot);
                if key.item_type == ItemType::CHUNK_ITEM {
                    let chunk = Chunk::decode(leaf.data(slot)).unwrap();
                    mutator.volume.add_chunk(Logical(key.offset), chunk).unwrap();
                }
            }
        }
        mutator
    }

    /// The image as it is now.
    pub fn device(&self) -> Arc<MemoryDevice> {
        Arc::clone(&self.device)
    }

    /// How checksums are made.
    pub fn checksum_kind(&self) -> ChecksumKind {
        self.volume.geometry().checksum_kind
    }

    fn rules(&self) -> BlockRules {
        let geometry = self.volume.geometry();
        BlockRules { node_size: geometry.node_size, sector_size: geometry.sector_size }
    }

    /// A block, if it is sound.
    pub fn try_block(&self, logical: Logical) -> Option<Block> {
        Block::parse(self.bytes(logical).into_boxed_slice(), &self.rules()).ok()
    }

    /// A block, which must be sound.
    pub fn block(&self, logical: Logical) -> Block {
        Block::parse(self.bytes(logical).into_boxed_slice(), &self.rules()).unwrap()
    }

    /// The bytes of a block's first copy.
    fn bytes(&self, logical: Logical) -> Vec<u8> {
        let length = self.rules().node_size as usize;
        let chunk = self.volume.chunks().covering(logical, length as u64).unwrap();
        let part = plan_read(&chunk, logical, length as u64, 0).unwrap()[0];
        self.device.read_at(part.physical, length).unwrap()
    }

    fn leaves_below(&self, root: Logical) -> Vec<Block> {
        let block = self.block(root);
        if block.is_leaf() {
            return vec![block];
        }
        block.children().flat_map(|child| self.leaves_below(child.logical)).collect()
    }

    /// The root block of a tree.
    pub fn root(&self, tree: RootId) -> Logical {
        match tree {
            RootId::ROOT_TREE => self.superblock.root,
            RootId::CHUNK_TREE => self.superblock.chunk_root,
            _ => {
                let found = self.find(RootId::ROOT_TREE, |key, _| {
                    key.objectid == tree.object_id() && key.item_type == ItemType::ROOT_ITEM
                });
                RootItem::decode(self.block(found.leaf).data(found.slot)).unwrap().address
            }
        }
    }

    /// The items of a tree for which `is_it` holds.
    pub fn all(&self, tree: RootId, is_it: impl Fn(Key, &[u8]) -> bool) -> Vec<Found> {
        let mut found = Vec::new();
        for leaf in self.leaves_below(self.root(tree)) {
            let slots = (0..leaf.len()).filter(|slot| is_it(leaf.key(*slot), leaf.data(*slot)));
            found.extend(slots.map(|slot| Found { leaf: leaf.logical(), slot, key: leaf.key(slot) }));
        }
        found
    }

    /// The first item of a tree for which `is_it` holds.
    pub fn find(&self, tree: RootId, is_it: impl Fn(Key, &[u8]) -> bool) -> Found {
        let first = self.all(tree, is_it).into_iter().next();
        first.unwrap_or_else(|| panic!("tree {tree} has no such item"))
    }

    /// The first item of a type.
    pub fn find_type(&self, tree: RootId, item_type: ItemType) -> Found {
        self.find(tree, |key, _| key.item_type == item_type)
    }

    /// The item of an inode of the top-level subvolume, by type.
    pub fn find_of(&self, inode: ObjectId, item_type: ItemType) -> Found {
        self.find(RootId::FS_TREE, |key, _| key.objectid == inode && key.item_type == item_type)
    }

    /// Changes a block in every copy, and makes its checksum right.
    pub fn change_block(&self, logical: Logical, change: impl FnOnce(&mut Block)) {
        let mut block = self.block(logical);
        change(&mut block);
        let sum = checksum(self.volume.geometry().checksum_kind, block.checksummed_bytes());
        block.store_checksum(sum.as_field());
        self.write(logical, block.bytes());
    }

    /// As [`Mutator::change_block`], for changes that no sound block can hold.
    pub fn change_bytes(&self, logical: Logical, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.block(logical).bytes().to_vec();
        change(&mut bytes);
        let sum = checksum(self.volume.geometry().checksum_kind, &bytes[32..]);
        bytes[..32].copy_from_slice(sum.as_field());
        self.write(logical, &bytes);
    }

    fn write(&self, logical: Logical, bytes: &[u8]) {
        let chunk = self.volume.chunks().covering(logical, bytes.len() as u64).unwrap();
        for part in plan_write(&chunk, logical, bytes.len() as u64).unwrap().places() {
            self.device.write_at(part.physical, bytes.to_vec()).unwrap();
        }
    }

    /// Changes an item's data.
    pub fn change_item(&self, found: Found, change: impl FnOnce(&mut [u8])) {
        self.change_block(found.leaf, |block| change(block.items_mut().data(found.slot)));
    }

    /// Writes a number into an item's data.
    pub fn set_u64(&self, found: Found, offset: usize, value: u64) {
        self.change_item(found, |data| data[offset..offset + 8].copy_from_slice(&value.to_le_bytes()));
    }

    /// Adds to a number in an item's data.
    pub fn add_u64(&self, found: Found, offset: usize, by: u64) {
        self.change_item(found, |data| {
            let field: &mut [u8] = &mut data[offset..offset + 8];
            let value = u64::from_le_bytes(field.try_into().unwrap()).wrapping_add(by);
            field.copy_from_slice(&value.to_le_bytes());
        });
    }

    /// Adds to a number in an item's data.
    pub fn add_u32(&self, found: Found, offset: usize, by: u32) {
        self.change_item(found, |data| {
            let field: &mut [u8] = &mut data[offset..offset + 4];
            let value = u32::from_le_bytes(field.try_into().unwrap()).wrapping_add(by);
            field.copy_from_slice(&value.to_le_bytes());
        });
    }

    /// Takes an item away.
    pub fn remove(&self, found: Found) {
        self.change_block(found.leaf, |block| block.items_mut().remove(found.slot, 1));
    }

    /// Puts an item into the leaf where its key belongs; where that has no room, other items must go first.
    pub fn insert(&self, tree: RootId, key: Key, data: &[u8]) {
        let leaves = self.leaves_below(self.root(tree));
        let leaf = leaves.iter().rev().find(|leaf| leaf.first_key().is_some_and(|first| first <= key));
        let leaf = leaf.unwrap_or(&leaves[0]);
        let slot = leaf.search(&key).unwrap_err();
        self.change_block(leaf.logical(), |block| block.items_mut().insert(slot, &[(key, data)]));
    }

    /// As [`Mutator::insert`], unless neither the leaf nor the next one has room; false then.
    pub fn insert_where_room(&self, tree: RootId, key: Key, data: &[u8]) -> bool {
        let has_room = self.make_room(tree, &key, ITEM_HEADER_SIZE + data.len());
        if has_room {
            self.insert(tree, key, data);
        }
        has_room
    }

    /// Writes a tree anew, with these items, ascending by key, to where no tree block lies, and makes its
    /// root item lead there. That space is still said to be free.
    pub fn plant(&self, tree: RootId, items: &[(Key, Vec<u8>)]) {
        self.plant_at(tree, self.free_places(), items);
    }

    /// As [`Mutator::plant`], at these addresses.
    pub fn plant_at(
        &self,
        tree: RootId,
        places: impl IntoIterator<Item = Logical>,
        items: &[(Key, Vec<u8>)],
    ) {
        let mut free = places.into_iter();
        let mut new_block = |level| {
            let logical = free.next().unwrap();
            let (fsid, generation) = (self.superblock.tree_block_uuid(), self.superblock.generation);
            let chunk_tree_uuid = self.block(self.superblock.root).header().chunk_tree_uuid();
            let identity = BlockIdentity {
                logical,
                generation,
                owner: tree,
                level: Level(level),
                fsid,
                chunk_tree_uuid,
            };
            let mut block = Block::new(self.rules().node_size, &identity);
            block.set_flag(BLOCK_FLAG_WRITTEN, true);
            block
        };
        let mut leaf = new_block(0);
        let mut row = Vec::new();
        for (key, data) in items {
            if leaf.free_bytes() < ITEM_HEADER_SIZE + data.len() {
                row.push(std::mem::replace(&mut leaf, new_block(0)));
            }
            let end = leaf.len();
            leaf.items_mut().insert(end, &[(*key, data)]);
        }
        row.push(leaf);
        for level in 1.. {
            row.iter_mut().for_each(|block| self.put(block));
            if row.len() == 1 {
                break;
            }
            let pointer = |block: &Block| ChildPointer {
                key: block.key(0),
                logical: block.logical(),
                generation: block.generation(),
            };
            let pointers: Vec<ChildPointer> = row.iter().map(pointer).collect();
            let nodes = pointers.chunks(row[0].pointer_capacity()).map(|pointers| {
                let mut node = new_block(level);
                node.children_mut().insert(0, pointers);
                node
            });
            row = nodes.collect();
        }
        self.set_root(tree, &row[0]);
    }

    fn set_root(&self, tree: RootId, block: &Block) {
        let set = |item: &mut RootItem| {
            (item.address, item.level) = (block.logical(), block.level());
            item.generation = block.generation();
        };
        let key = RootItem::key(tree, 0);
        let leaves = self.leaves_below(self.superblock.root);
        if let Some(leaf) = leaves.iter().find(|leaf| leaf.get(&key).is_some()) {
            let slot = leaf.search(&key).unwrap();
            return self.change_item(Found { leaf: leaf.logical(), slot, key }, |data| {
                let mut item = RootItem::decode(data).unwrap();
                set(&mut item);
                data.copy_from_slice(&item.encode());
            });
        }
        // As that of another tree without an inode.
        let like = self.find(RootId::ROOT_TREE, |key, _| key == RootItem::key(RootId::CHECKSUM_TREE, 0));
        let mut item = RootItem::decode(self.block(like.leaf).data(like.slot)).unwrap();
        set(&mut item);
        let data = item.encode();
        assert!(self.insert_where_room(RootId::ROOT_TREE, key, &data), "no room for the root of tree {tree}");
    }

    /// Moves items from behind a key's place to the next leaf, if that is needed, until there is room for so
    /// many bytes. Gives whether there is.
    fn make_room(&self, tree: RootId, key: &Key, bytes: usize) -> bool {
        let mut path = vec![self.block(self.root(tree))];
        while !path[path.len() - 1].is_leaf() {
            let node = &path[path.len() - 1];
            path.push(self.block(node.child(node.child_slot(key)).logical));
        }
        let leaf = path.pop().unwrap();
        if leaf.free_bytes() >= bytes {
            return true;
        }
        let Some(parent) = path.pop() else { return false };
        let next = parent.child_slot(key) + 1;
        let fits = |first: &usize| {
            let moved: usize = (*first..leaf.len()).map(|slot| ITEM_HEADER_SIZE + leaf.data_len(slot)).sum();
            leaf.free_bytes() + moved >= bytes
        };
        let first = (leaf.search(key).unwrap_err()..leaf.len()).rev().find(fits);
        let Some(first) = first.filter(|_| next < parent.len()) else { return false };
        let moved: Vec<(Key, &[u8])> =
            (first..leaf.len()).map(|slot| (leaf.key(slot), leaf.data(slot))).collect();
        let taken: usize = moved.iter().map(|(_, data)| ITEM_HEADER_SIZE + data.len()).sum();
        let sibling = parent.child(next).logical;
        if self.block(sibling).free_bytes() < taken {
            return false;
        }
        self.change_block(sibling, |sibling| sibling.items_mut().insert(0, &moved));
        self.change_block(leaf.logical(), |leaf| leaf.items_mut().remove(first, moved.len()));
        self.change_block(parent.logical(), |parent| parent.set_key(next, &moved[0].0));
        true
    }

    /// Writes a block to every copy, with its checksum.
    fn put(&self, block: &mut Block) {
        let sum = checksum(self.volume.geometry().checksum_kind, block.checksummed_bytes());
        block.store_checksum(sum.as_field());
        self.write(block.logical(), block.bytes());
    }

    /// Where a tree block could lie and none does, from the end of the metadata.
    pub fn free_places(&self) -> Vec<Logical> {
        let node_size = u64::from(self.rules().node_size);
        let mut used = BTreeSet::new();
        for leaf in self.leaves_below(self.root(RootId::EXTENT_TREE)) {
            let keys = (0..leaf.len()).map(|slot| leaf.key(slot));
            let is_block =
                |key: &Key| [ItemType::METADATA_ITEM, ItemType::EXTENT_ITEM].contains(&key.item_type);
            used.extend(keys.filter(is_block).map(|key| key.objectid.0));
        }
        let mut free = Vec::new();
        for chunk in self.volume.chunks().snapshot() {
            if !chunk.chunk.flags.has(BlockGroupFlags::METADATA) {
                continue;
            }
            let reserved = chunk.superblock_ranges();
            for number in (0..chunk.chunk.length / node_size).rev() {
                let place = chunk.logical.0 + number * node_size;
                let lies_in = |range: &std::ops::Range<Logical>| {
                    place < range.end.0 && place + node_size > range.start.0
                };
                if !used.contains(&place) && !reserved.iter().any(lies_in) {
                    free.push(Logical(place));
                }
            }
        }
        free
    }

    /// Gives an item another key, in order or not.
    pub fn set_key(&self, found: Found, key: Key) {
        let start = HEADER_SIZE + found.slot * ITEM_HEADER_SIZE;
        self.change_bytes(found.leaf, |bytes| bytes[start..start + Key::SIZE].copy_from_slice(&key.encode()));
    }

    /// Changes every superblock copy, checksums and all.
    pub fn change_superblock(&self, change: impl Fn(&mut Superblock)) {
        for mirror in SuperblockMirror::ALL.into_iter().filter(|mirror| mirror.fits(self.device.length())) {
            let mut superblock = self.superblock.clone();
            change(&mut superblock);
            let kind = self.volume.geometry().checksum_kind;
            let bytes =
                superblock.encode_with_checksum(mirror, |covered| *checksum(kind, covered).as_field());
            self.device.write_at(mirror.offset(), bytes.to_vec()).unwrap();
        }
    }

    /// Where the copies of some bytes lie on the device, as long as they lie in one piece each.
    pub fn copies(&self, logical: Logical, length: u64) -> Vec<Physical> {
        let chunk = self.volume.chunks().covering(logical, length).unwrap();
        plan_write(&chunk, logical, length).unwrap().places().map(|part| part.physical).collect()
    }

    /// Flips a bit of one copy of a block; its checksum is not made right.
    pub fn flip_bit(&self, logical: Logical, mirror: usize, offset: u64) {
        let copy = self.copies(logical, u64::from(self.rules().node_size))[mirror];
        let place = Physical(copy.0 + offset);
        let mut byte = self.device.read_at(place, 1).unwrap();
        byte[0] ^= 1;
        self.device.write_at(place, byte).unwrap();
    }
}
